//! Parts of a state.

use larder_store::snapshot::Part;
use larder_store::{
    MountedSegment, Object, QuotaPolicy, Releasing, SlabPhase, Task, TaskWish, TenantPolicy,
};
use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, Digest, Extent, Incarnation, Key, Labels, QuotaName,
    Reason, SegmentId, SlabRef, TaskId, TenantId, Version,
};
use serde::{Deserialize, Serialize};

use super::op::{PolicyDef, QuotaDef, SegmentDef, WishDef};

/// A complete object.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Object")]
struct ObjectDef {
    version: Version,
    size_bytes: u64,
    digest: Digest,
    replicas: Vec<Vec<Extent>>,
    wanted: u8,
    attributes: Attributes,
}

/// Where a slab stands.
#[derive(Serialize, Deserialize)]
#[serde(remote = "SlabPhase")]
enum PhaseDef {
    Giving,
    Ready,
    Taking,
}

/// An extent that is to be erased.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Releasing")]
struct ReleasingDef {
    length_bytes: u64,
    version: Version,
}

/// A task.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Task")]
struct TaskDef {
    tenant: TenantId,
    key: Key,
    version: Version,
    #[serde(with = "WishDef")]
    wish: TaskWish,
    #[serde(with = "outcome")]
    outcome: Option<Result<(), Reason>>,
}

/// A part. The places in this list stand in snapshots: new ones go to its end.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Part")]
pub(super) enum PartDef {
    Head {
        generation: u64,
        next_registration: u64,
        next_agent: u32,
        next_segment: u32,
        next_task: u64,
    },
    Quota {
        quota: QuotaName,
        #[serde(with = "QuotaDef")]
        policy: QuotaPolicy,
    },
    Tenant {
        tenant: TenantId,
        #[serde(with = "PolicyDef")]
        policy: TenantPolicy,
        deleting: bool,
        lost: Vec<SegmentId>,
    },
    Agent {
        agent: AgentId,
        name: AgentName,
        uid: AgentUid,
        incarnation: Incarnation,
        segments: Vec<SegmentId>,
        draining: bool,
        said: Labels,
        set: Labels,
    },
    Segment {
        #[serde(with = "SegmentDef")]
        segment: MountedSegment,
        agent: AgentId,
        is_lost: bool,
    },
    Slab {
        slab: SlabRef,
        tenant: TenantId,
        #[serde(with = "PhaseDef")]
        phase: SlabPhase,
    },
    Releasing {
        slab: SlabRef,
        offset_bytes: u64,
        #[serde(with = "ReleasingDef")]
        releasing: Releasing,
    },
    Task {
        id: TaskId,
        #[serde(with = "TaskDef")]
        task: Task,
    },
    Object {
        tenant: TenantId,
        key: Key,
        #[serde(with = "ObjectDef")]
        object: Object,
    },
    End {
        digest: u64,
        objects: u64,
    },
    Life {
        rebuilding: bool,
        knows_agents: bool,
        version: u32,
    },
    Doomed {
        extent: Extent,
        version: Version,
    },
}

/// How a task ended, if it is over.
mod outcome {
    use larder_types::Reason;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::super::op::outcome::{of, record};

    pub(super) fn serialize<S: Serializer>(
        outcome: &Option<Result<(), Reason>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        outcome.map(record).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Result<(), Reason>>, D::Error> {
        let outcome = Option::<Result<(), String>>::deserialize(deserializer)?;
        outcome.map(of::<D::Error>).transpose()
    }
}
