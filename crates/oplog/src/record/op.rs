//! Ops.

use larder_store::{MountedSegment, Op, QuotaPolicy, RemovalCause, TaskWish, TenantPolicy};
use larder_types::{
    Access, AgentId, AgentName, AgentUid, Attributes, Borrowing, Digest, Extent, Incarnation, Key,
    Labels, OnExceed, Pin, QuotaName, Reason, SegmentGeneration, SegmentId, SlabRef, TaskId,
    TenantId, Version,
};
use serde::{Deserialize, Serialize};

/// A segment as it was mounted.
#[derive(Serialize, Deserialize)]
#[serde(remote = "MountedSegment")]
pub(super) struct SegmentDef {
    id: SegmentId,
    ordinal: u16,
    generation: SegmentGeneration,
    slabs: u32,
    slab_bytes: u64,
    numa: u16,
}

/// What a tenant may do and hold.
#[derive(Serialize, Deserialize)]
#[serde(remote = "TenantPolicy")]
pub(super) struct PolicyDef {
    access: Access,
    guaranteed_bytes: u64,
    limit_bytes: Option<u64>,
    limit_objects: Option<u64>,
    view_bytes: Option<u64>,
    limit_pinned_bytes: Option<u64>,
    borrowing: Borrowing,
    on_exceed: OnExceed,
    cohort: Option<QuotaName>,
}

/// What tenants may hold together.
#[derive(Serialize, Deserialize)]
#[serde(remote = "QuotaPolicy")]
pub(super) struct QuotaDef {
    guaranteed_bytes: u64,
    limit_bytes: Option<u64>,
    limit_objects: Option<u64>,
    limit_pinned_bytes: Option<u64>,
    borrowing: Borrowing,
    on_exceed: OnExceed,
}

/// What a task is to do.
#[derive(Serialize, Deserialize)]
#[serde(remote = "TaskWish")]
pub(super) enum WishDef {
    Copy { targets: Vec<AgentId> },
    Move { source: AgentId, target: AgentId },
}

/// Why an object is taken away.
#[derive(Serialize, Deserialize)]
#[serde(remote = "RemovalCause")]
enum CauseDef {
    Removed,
    Evicted,
    Expired,
}

/// An op. The places in this list stand in the log: new ones go to its end.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Op")]
pub(super) enum OpDef {
    AgentMounted {
        agent: AgentId,
        name: AgentName,
        uid: AgentUid,
        incarnation: Incarnation,
        #[serde(with = "segments")]
        segments: Vec<MountedSegment>,
        labels: Labels,
    },
    AgentForgotten {
        agent: AgentId,
    },
    SegmentLost {
        segment: SegmentId,
        generation: SegmentGeneration,
    },
    SlabGive {
        slab: SlabRef,
        tenant: TenantId,
    },
    SlabReady {
        slab: SlabRef,
    },
    SlabTake {
        slab: SlabRef,
    },
    SlabReturned {
        slab: SlabRef,
    },
    TenantSet {
        tenant: TenantId,
        #[serde(with = "PolicyDef")]
        policy: TenantPolicy,
    },
    TenantDelete {
        tenant: TenantId,
    },
    TenantPurge {
        tenant: TenantId,
        objects_max: u32,
    },
    TenantForgotten {
        tenant: TenantId,
    },
    PutEnd {
        tenant: TenantId,
        key: Key,
        version: Version,
        size_bytes: u64,
        digest: Digest,
        replicas: Vec<Vec<Extent>>,
        wanted: u8,
        attributes: Attributes,
        replaces: Option<Version>,
    },
    Remove {
        tenant: TenantId,
        key: Key,
        version: Version,
        #[serde(with = "CauseDef")]
        cause: RemovalCause,
    },
    Released {
        extents: Vec<(Extent, Version)>,
    },
    SegmentSwept {
        segment: SegmentId,
        objects_max: u32,
    },
    ReplicaAdded {
        tenant: TenantId,
        key: Key,
        version: Version,
        extents: Vec<Extent>,
        instead_of: Option<AgentId>,
    },
    ReplicaDropped {
        tenant: TenantId,
        key: Key,
        version: Version,
        agent: AgentId,
    },
    PinSet {
        tenant: TenantId,
        key: Key,
        version: Version,
        pin: Pin,
    },
    AgentDrain {
        agent: AgentId,
        draining: bool,
    },
    AgentLabels {
        agent: AgentId,
        labels: Labels,
    },
    TaskCreated {
        task: TaskId,
        tenant: TenantId,
        key: Key,
        version: Version,
        #[serde(with = "WishDef")]
        wish: TaskWish,
    },
    TaskEnded {
        task: TaskId,
        #[serde(with = "outcome")]
        outcome: Result<(), Reason>,
    },
    QuotaSet {
        quota: QuotaName,
        #[serde(with = "QuotaDef")]
        policy: QuotaPolicy,
    },
    QuotaDelete {
        quota: QuotaName,
    },
    PoolBegun {
        generation: u64,
    },
    PoolRebuilding {
        generation: u64,
        knows_agents: bool,
    },
    AgentAdopted {
        agent: AgentId,
        name: AgentName,
        uid: AgentUid,
        incarnation: Incarnation,
        #[serde(with = "segments")]
        segments: Vec<MountedSegment>,
        labels: Labels,
    },
    SlabAdopted {
        slab: SlabRef,
        tenant: TenantId,
    },
    ExtentFound {
        extent: Extent,
        version: Version,
    },
    PoolRebuilt,
    PoolVersion {
        version: u32,
    },
}

/// A list of segments.
mod segments {
    use larder_store::MountedSegment;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::SegmentDef;

    #[derive(Serialize, Deserialize)]
    struct One(#[serde(with = "SegmentDef")] MountedSegment);

    pub(super) fn serialize<S: Serializer>(
        segments: &[MountedSegment],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(segments.iter().map(|segment| One(*segment)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<MountedSegment>, D::Error> {
        let segments = Vec::<One>::deserialize(deserializer)?;
        Ok(segments.into_iter().map(|one| one.0).collect())
    }
}

/// How a task ended, in words: the places of reasons in their list may change.
pub(super) mod outcome {
    use larder_types::Reason;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    type Record = Result<(), String>;

    pub(in super::super) fn record(outcome: Result<(), Reason>) -> Record {
        outcome.map_err(|reason| reason.label().to_owned())
    }

    pub(in super::super) fn of<E: serde::de::Error>(
        record: Record,
    ) -> Result<Result<(), Reason>, E> {
        let Err(word) = record else {
            return Ok(Ok(()));
        };
        let mut reasons = Reason::ALL.iter().copied();
        let reason = reasons.find(|reason| reason.label() == word);
        let unknown = || E::custom(format_args!("no reason is called `{word}`"));
        reason.map(Err).ok_or_else(unknown)
    }

    pub(super) fn serialize<S: Serializer>(
        outcome: &Result<(), Reason>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        record(*outcome).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Result<(), Reason>, D::Error> {
        of::<D::Error>(Record::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
