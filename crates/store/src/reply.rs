//! Decisions: what the leader answers, what it waits for and why it refuses.

use larder_types::{
    AgentId, Attributes, Digest, Extent, Key, PoolTime, QuotaName, Reason, SegmentId, TaskId,
    TenantId, Version,
};

use crate::effects::Command;
use crate::explain::QuotaReport;
use crate::op::Op;
use crate::request::TenantPolicy;
use crate::tasks::TaskStatus;

/// The outcome of one call of [`crate::Leader::decide`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Propose `ops` and answer.
    Reply {
        /// To be proposed in this order, within one log entry.
        ops: Vec<Op>,
        /// May leave only once the index of `ops`, or `saw_index` if there are none, is committed.
        reply: Reply,
        /// The log index that the reply was judged by.
        saw_index: u64,
    },
    /// Propose `ops`, park the request, and decide it again when `on` is woken.
    Wait {
        /// To be proposed in this order, within one log entry.
        ops: Vec<Op>,
        /// What to wait for: something that certainly comes, or whose loss is woken too.
        on: WaitOn,
        /// Whether it waits for space that others still hold, which can last as long as a reader
        /// likes. The caller bounds that wait by [`crate::Settings::space_wait_ms`] and then
        /// answers with [`crate::Leader::space_refusal`].
        for_space: bool,
    },
    /// Nothing is proposed; answer the refusal at once.
    Refused(Refusal),
}

/// What a request waits for. Compared for equality with [`crate::Effects::wakes`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitOn {
    /// The op that is proposed for this key.
    Key(TenantId, Key),
    /// This slab becomes ready, free or lost.
    Slab(SegmentId, u16),
    /// Some space comes back or joins.
    Space,
    /// No agent holds a record of this version any more.
    Erased(Version),
    /// The ops that are proposed for this agent.
    Agent(AgentId),
    /// The op that is proposed for this tenant.
    Tenant(TenantId),
    /// The op that is proposed for this quota.
    Quota(QuotaName),
    /// Everything that is proposed while the pool is made again.
    Inventory,
}

/// A refused request: nothing was changed by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} ({detail})")]
pub struct Refusal {
    /// Why, for programs.
    pub reason: Reason,
    /// The figures and names behind it, for people.
    pub detail: String,
}

impl Refusal {
    /// A refusal for `reason` with `detail`.
    pub fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
        }
    }

    /// Whether the same request may be granted later without anybody changing anything.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        self.reason.is_retryable()
    }
}

/// What is known of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// The version that the key holds.
    pub version: Version,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The agent of each replica; the first one where it lies on several.
    pub agents: Vec<AgentId>,
    /// How many replicas were asked for.
    pub wanted: u8,
    /// What the put said of it, as it is now.
    pub attributes: Attributes,
    /// What is left of its soft pin, in milliseconds; 0 without one.
    pub pin_left_ms: u64,
    /// Whether a lease protects it, as far as this leader knows.
    pub leased: bool,
}

/// What a tenant holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Charged for complete objects, in bytes: aligned payload times replicas.
    pub used_bytes: u64,
    /// Charged of it for objects that are pinned hard, in bytes.
    pub pinned_bytes: u64,
    /// Complete objects.
    pub used_objects: u64,
    /// Charged for pending puts, in bytes.
    pub reserved_bytes: u64,
    /// Pending puts.
    pub reserved_objects: u64,
    /// All slabs that belong to it, in bytes.
    pub slab_bytes: u64,
    /// What it may do and hold.
    pub policy: TenantPolicy,
    /// What its quota comes to now.
    pub quota: QuotaReport,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A put may write.
    PutGranted {
        /// The version of the put.
        version: Version,
        /// One list of extents per replica; fewer than `wanted` if the put was not strict.
        replicas: Vec<Vec<Extent>>,
        /// When another client may take the key over.
        deadline: PoolTime,
        /// How many replicas were asked for.
        wanted: u8,
        /// Some of the agents that were preferred, and could have had a replica each, got none.
        preference_ignored: bool,
        /// What the put said, for the records.
        attributes: Attributes,
    },
    /// It is done.
    Done,
    /// Where a complete object lies.
    Located {
        /// The version that the key holds.
        version: Version,
        /// The size of the object, in bytes.
        size_bytes: u64,
        /// The digest of the object.
        digest: Digest,
        /// One list of extents per replica; those whose agent answers come first.
        replicas: Vec<Vec<Extent>>,
        /// How long the object is protected from eviction now, in milliseconds.
        lease_ms: u64,
    },
    /// Whether the key holds a complete object.
    Exists(bool),
    /// Keys in order.
    Listed {
        /// Each key and the size of its object, in bytes.
        entries: Vec<(Key, u64)>,
        /// Whether keys above the last one remain.
        more: bool,
    },
    /// What the tenant holds.
    Usage(Box<Usage>),
    /// The agent is mounted.
    Mounted {
        /// Its number.
        agent: AgentId,
        /// The numbers of its segments, in the order of the offers. A number that the agent did
        /// not have before means that nothing of that segment is known: it forgets every slab.
        segments: Vec<SegmentId>,
        /// What it has to do.
        outstanding: Vec<Command>,
        /// It is to keep what it holds and to say what that is.
        wants_inventory: bool,
    },
    /// The end of a put that was complete already.
    AlreadyComplete,
    /// What is known of an object.
    Stat(Box<ObjectStat>),
    /// Keys in order, with what is known of each object.
    ListedStats {
        /// Each key and its object.
        entries: Vec<(Key, ObjectStat)>,
        /// Whether keys above the last one remain.
        more: bool,
    },
    /// Some objects of a prefix are gone.
    RemovedSome {
        /// How many.
        removed: u64,
        /// How many were left because a lease protects them.
        skipped: u64,
        /// The last key that was looked at, if keys above it remain.
        last: Option<Key>,
    },
    /// The task is noted.
    TaskCreated(TaskId),
    /// How the task stands.
    Task(TaskStatus),
}
