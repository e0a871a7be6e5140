//! Ops: every durable change of the state.

use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, Digest, Extent, Incarnation, Key, Labels, Pin,
    QuotaName, Reason, SegmentGeneration, SegmentId, SlabRef, TaskId, TenantId, Version,
};

use crate::request::{QuotaPolicy, TenantPolicy};
use crate::tasks::TaskWish;

/// A segment with the number that the leader gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountedSegment {
    /// Its number.
    pub id: SegmentId,
    /// Which segment of the agent it is.
    pub ordinal: u16,
    /// The life of its bytes.
    pub generation: SegmentGeneration,
    /// How many slabs it has.
    pub slabs: u32,
    /// The size of each slab, in bytes.
    pub slab_bytes: u64,
    /// The NUMA node that it lies on.
    pub numa: u16,
}

/// Why an object is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RemovalCause {
    /// Somebody asked.
    Removed,
    /// Its space was needed.
    Evicted,
    /// Its time was over.
    Expired,
}

/// A durable change. Everything that is not determined by the state stands inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// An agent with none of its former segments left offers new ones.
    AgentMounted {
        /// The number that its name has or gets.
        agent: AgentId,
        /// Its name.
        name: AgentName,
        /// What tells two agents of one name apart.
        uid: AgentUid,
        /// The life of its process.
        incarnation: Incarnation,
        /// What it offers.
        segments: Vec<MountedSegment>,
        /// Where it says that it is.
        labels: Labels,
    },
    /// The number of an agent without segments is given up.
    AgentForgotten {
        /// Which agent.
        agent: AgentId,
    },
    /// The bytes of a segment are gone: no replica with an extent on it is read from now on.
    SegmentLost {
        /// Which segment.
        segment: SegmentId,
        /// Which life of it.
        generation: SegmentGeneration,
    },
    /// A free slab goes to a tenant; its agent is told to make it.
    SlabGive {
        /// The slab with its new registration.
        slab: SlabRef,
        /// Whose it is.
        tenant: TenantId,
    },
    /// The agent has made the slab.
    SlabReady {
        /// Which slab.
        slab: SlabRef,
    },
    /// An empty slab leaves its tenant; its agent is told to take it back.
    SlabTake {
        /// Which slab.
        slab: SlabRef,
    },
    /// The slab is free: taken back, or never made.
    SlabReturned {
        /// Which slab.
        slab: SlabRef,
    },
    /// A tenant is made or gets another policy.
    TenantSet {
        /// The tenant.
        tenant: TenantId,
        /// What it may do from now on.
        policy: TenantPolicy,
    },
    /// A tenant is to go: nobody reaches its objects any more.
    TenantDelete {
        /// The tenant.
        tenant: TenantId,
    },
    /// The first objects of a tenant that is to go are removed.
    TenantPurge {
        /// The tenant.
        tenant: TenantId,
        /// How many at most.
        objects_max: u32,
    },
    /// A tenant that is to go has nothing left.
    TenantForgotten {
        /// The tenant.
        tenant: TenantId,
    },
    /// A put is complete: the object becomes visible.
    PutEnd {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The version of the put.
        version: Version,
        /// The size of the object, in bytes.
        size_bytes: u64,
        /// The digest of the object.
        digest: Digest,
        /// One list of extents per replica.
        replicas: Vec<Vec<Extent>>,
        /// How many replicas were asked for.
        wanted: u8,
        /// What the object is, besides its bytes.
        attributes: Attributes,
        /// The version that the key holds and that goes with this op; `None` if it holds none.
        replaces: Option<Version>,
    },
    /// An object is taken away; its agents are told to erase it.
    Remove {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The version that the key holds.
        version: Version,
        /// Why.
        cause: RemovalCause,
    },
    /// Erased extents go back to the allocator.
    Released {
        /// Which extents of which versions.
        extents: Vec<(Extent, Version)>,
    },
    /// Some of what is still noted on a lost segment is dropped: replicas, extents that were being
    /// released, slabs, and at last the segment.
    SegmentSwept {
        /// Which segment.
        segment: SegmentId,
        /// How many things at most.
        objects_max: u32,
    },
    /// A copy of an object is whole: it is one of its replicas from now on.
    ReplicaAdded {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The version that the key holds.
        version: Version,
        /// Where the new replica lies.
        extents: Vec<Extent>,
        /// The agent whose replica goes with this op, for a move; it is told to erase it.
        instead_of: Option<AgentId>,
    },
    /// A replica that is one too many goes; its agent is told to erase it.
    ReplicaDropped {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The version that the key holds.
        version: Version,
        /// Whose replica.
        agent: AgentId,
    },
    /// An object gets another pin.
    PinSet {
        /// The tenant.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The version that the key holds.
        version: Version,
        /// The pin that it has from now on.
        pin: Pin,
    },
    /// An agent is to be emptied, or is not any more.
    AgentDrain {
        /// Which agent.
        agent: AgentId,
        /// Whether it is to be emptied.
        draining: bool,
    },
    /// An administrator says where an agent is, whatever it says itself.
    AgentLabels {
        /// Which agent.
        agent: AgentId,
        /// All that was set before is gone.
        labels: Labels,
    },
    /// Somebody asked for a copy or a move.
    TaskCreated {
        /// Its number.
        task: TaskId,
        /// Whose object.
        tenant: TenantId,
        /// The key.
        key: Key,
        /// The version that the key holds.
        version: Version,
        /// What was asked for.
        wish: TaskWish,
    },
    /// A task is over.
    TaskEnded {
        /// Which task.
        task: TaskId,
        /// How it went.
        outcome: Result<(), Reason>,
    },
    /// A quota is made or gets another policy.
    QuotaSet {
        /// The quota.
        quota: QuotaName,
        /// What its tenants may hold from now on.
        policy: QuotaPolicy,
    },
    /// A quota bounds nothing any more.
    QuotaDelete {
        /// The quota.
        quota: QuotaName,
    },
    /// The pool begins anew, with nothing in it. The first op of every log is one, and nothing is
    /// decided before it; a later one is the start over of a pool whose log is not trusted any
    /// more. Its generation is above that of the state before.
    ///
    /// Nobody is told what is gone: who began it serves nobody meanwhile, agents drop what they
    /// have when they hear the higher epoch, and a follower of cache events reads them from the
    /// start. It takes as long as the former state takes to drop.
    PoolBegun {
        /// The generation of the log from here on, at least 1.
        generation: u64,
    },
    /// As [`Op::PoolBegun`], for a pool whose log is lost while its agents live: tenants, quotas
    /// and the names of agents stay, everything else is found again from the records of agents,
    /// until [`Op::PoolRebuilt`]. Nobody else is served meanwhile.
    PoolRebuilding {
        /// The generation of the log from here on, above all that any agent knows.
        generation: u64,
        /// Whether the state names all agents that there were. Those of a log that began anew are
        /// dropped: it cannot know who is still to come. If it does, what is being released stays
        /// known, so that it is not found again.
        knows_agents: bool,
    },
    /// An agent that outlived the log comes with the numbers that it had.
    AgentAdopted {
        /// Its number.
        agent: AgentId,
        /// Its name.
        name: AgentName,
        /// What tells two agents of one name apart.
        uid: AgentUid,
        /// The life of its process.
        incarnation: Incarnation,
        /// What it offers, with the numbers that its segments had.
        segments: Vec<MountedSegment>,
        /// Where it says that it is.
        labels: Labels,
    },
    /// A slab that an adopted agent holds for a tenant, ready as it is.
    SlabAdopted {
        /// The slab with the registration that it has.
        slab: SlabRef,
        /// Whose it is.
        tenant: TenantId,
    },
    /// Bytes that an adopted agent holds and that belong to no object: it is told to erase them.
    ExtentFound {
        /// Where.
        extent: Extent,
        /// Which version.
        version: Version,
    },
    /// Everything is found that will be: the pool is served again.
    PoolRebuilt,
    /// From here on all replicas of the log know what the release of this version does.
    PoolVersion {
        /// Above the one before.
        version: u32,
    },
}

impl Op {
    /// The name, as it stands in messages and metric labels.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::AgentMounted { .. } => "AgentMounted",
            Self::AgentForgotten { .. } => "AgentForgotten",
            Self::SegmentLost { .. } => "SegmentLost",
            Self::SlabGive { .. } => "SlabGive",
            Self::SlabReady { .. } => "SlabReady",
            Self::SlabTake { .. } => "SlabTake",
            Self::SlabReturned { .. } => "SlabReturned",
            Self::TenantSet { .. } => "TenantSet",
            Self::TenantDelete { .. } => "TenantDelete",
            Self::TenantPurge { .. } => "TenantPurge",
            Self::TenantForgotten { .. } => "TenantForgotten",
            Self::PutEnd { .. } => "PutEnd",
            Self::Remove { .. } => "Remove",
            Self::Released { .. } => "Released",
            Self::SegmentSwept { .. } => "SegmentSwept",
            Self::ReplicaAdded { .. } => "ReplicaAdded",
            Self::ReplicaDropped { .. } => "ReplicaDropped",
            Self::PinSet { .. } => "PinSet",
            Self::AgentDrain { .. } => "AgentDrain",
            Self::AgentLabels { .. } => "AgentLabels",
            Self::TaskCreated { .. } => "TaskCreated",
            Self::TaskEnded { .. } => "TaskEnded",
            Self::QuotaSet { .. } => "QuotaSet",
            Self::QuotaDelete { .. } => "QuotaDelete",
            Self::PoolBegun { .. } => "PoolBegun",
            Self::PoolRebuilding { .. } => "PoolRebuilding",
            Self::AgentAdopted { .. } => "AgentAdopted",
            Self::SlabAdopted { .. } => "SlabAdopted",
            Self::ExtentFound { .. } => "ExtentFound",
            Self::PoolRebuilt => "PoolRebuilt",
            Self::PoolVersion { .. } => "PoolVersion",
        }
    }
}
