//! Calls of clients to a master. Each is a batch; results stand in the order of the items.

use larder_types::{
    AgentId, AgentName, Attributes, Digest, Epoch, ErrorCode, Extent, Incarnation, Key, PoolTime,
    Reason, TenantId, Version,
};
use serde::{Deserialize, Serialize};

use crate::capability::SignedCapability;
pub use crate::events::Subscribe;
use crate::quota::TenantQuota;
use crate::receipt::Receipt;
pub use crate::tasks::{TaskCreate, TaskItem, TaskQuery, TaskStatus, TaskWish};

/// Why a call, or one item of it, failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{reason}{}{detail}", if .detail.is_empty() { "" } else { ": " })]
pub struct CallError {
    /// Why.
    pub reason: Reason,
    /// Numbers and names of the case; may be empty.
    pub detail: String,
}

impl CallError {
    /// An error without detail.
    #[must_use]
    pub const fn new(reason: Reason) -> Self {
        Self {
            reason,
            detail: String::new(),
        }
    }

    /// The code with the number that scripts know.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.reason.code()
    }
}

/// The outcome of one item.
pub type CallResult<T> = Result<T, CallError>;

/// The body of every successful reply of a master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply<T> {
    /// The epoch in which it was answered.
    pub epoch: Epoch,
    /// Pool time when it was answered.
    pub pool_time: PoolTime,
    /// The answer.
    pub answer: T,
}

/// How to reach an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentAddress {
    /// Its number, as extents name it.
    pub agent: AgentId,
    /// Its name.
    pub name: AgentName,
    /// Its process.
    pub incarnation: Incarnation,
    /// `host:port` of its data listener.
    pub data_addr: String,
}

/// One replica that may be read or written: its extents in order of the object's bytes, each
/// with the capability that reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaGrant {
    /// The extents and their capabilities; never empty.
    pub extents: Vec<(Extent, SignedCapability)>,
}

/// Starts puts. Answer: `Reply<PutStarted>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutStart {
    /// What to put; at most [`crate::limit::MAX_BATCH`].
    pub items: Vec<PutStartItem>,
}

/// One put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutStartItem {
    /// The key.
    pub key: Key,
    /// Size of the object, in bytes.
    pub size_bytes: u64,
    /// How many replicas; 0 = as the pool says.
    pub replicas: u8,
    /// Agents that should hold replicas, best first, usually the caller's own; at most
    /// [`crate::limit::MAX_PREFERRED`].
    pub preferred: Vec<AgentName>,
    /// What to do with a key that holds an object.
    pub mode: PutMode,
    /// Refuse if there cannot be that many replicas, instead of making fewer.
    pub strict: bool,
    /// What the object is, besides its bytes. A soft pin of 0 ms lasts as long as the pool says.
    pub attributes: Attributes,
}

/// What a put does with a key that holds an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutMode {
    /// It is refused.
    #[default]
    Create,
    /// It replaces the object when it ends; a put that fails leaves it. What the attributes do
    /// not say stays as it was.
    Upsert {
        /// Refuse while a reader's lease protects the object.
        if_unleased: bool,
    },
}

/// Answer to [`PutStart`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutStarted {
    /// Agents named in the grants.
    pub agents: Vec<AgentAddress>,
    /// One result for each item.
    pub grants: Vec<CallResult<PutGrant>>,
}

/// Leave to write one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutGrant {
    /// The version that these bytes will be.
    pub version: Version,
    /// How long until the put may be discarded, in ms.
    pub discard_ms: u64,
    /// Where to write; each replica on another agent.
    pub replicas: Vec<ReplicaGrant>,
    /// How many replicas were asked for; there may be fewer if the put was not strict.
    pub wanted: u8,
    /// Some of the agents that were preferred, and could have had a replica each, got none.
    pub preference_ignored: bool,
}

/// Completes puts. Answer: `Reply<Vec<CallResult<()>>>`. May be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutEnd {
    /// What to complete.
    pub items: Vec<PutEndItem>,
}

/// The end of one put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutEndItem {
    /// The key.
    pub key: Key,
    /// The version from [`PutGrant`].
    pub version: Version,
    /// One receipt for each extent of each replica.
    pub receipts: Vec<Receipt>,
}

/// Gives puts up. Answer: `Reply<Vec<CallResult<()>>>`, after the agents have erased what was
/// written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutRevoke {
    /// What to give up.
    pub items: Vec<(Key, Version)>,
}

/// Finds objects for reading. Answer: `Reply<Located>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Get {
    /// The keys; at most [`crate::limit::MAX_BATCH`].
    pub keys: Vec<Key>,
}

/// Answer to [`Get`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    /// Agents named in the grants.
    pub agents: Vec<AgentAddress>,
    /// One result for each key.
    pub objects: Vec<CallResult<ObjectGrant>>,
}

/// Leave to read one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectGrant {
    /// The version of the bytes.
    pub version: Version,
    /// Size of the object, in bytes.
    pub size_bytes: u64,
    /// Digest of the object.
    pub digest: Digest,
    /// Where to read.
    pub replicas: Vec<ReplicaGrant>,
    /// How long the object is protected from eviction now, in ms.
    pub lease_ms: u64,
}

/// Asks which keys hold objects. Answer: `Reply<Vec<CallResult<bool>>>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exists {
    /// The keys; at most [`crate::limit::MAX_BATCH`].
    pub keys: Vec<Key>,
    /// Protect the objects as a get would, each once until its next get or put. Without it
    /// nothing is granted.
    pub lease: bool,
}

/// Removes objects. Answer: `Reply<Vec<CallResult<()>>>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remove {
    /// The keys; at most [`crate::limit::MAX_BATCH`].
    pub keys: Vec<Key>,
    /// Leave an object that a reader's lease protects.
    pub if_unleased: bool,
}

/// Removes the next objects of a prefix. Answer: `Reply<RemovedSome>`. To go on, the caller asks
/// again behind the last key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovePrefix {
    /// What the keys start with; empty = all of the caller's.
    pub prefix: Vec<u8>,
    /// Only keys after this one.
    pub after: Option<Key>,
    /// How many keys to look at; at most [`crate::limit::MAX_BATCH`].
    pub limit: u32,
    /// Leave objects that a reader's lease protects.
    pub if_unleased: bool,
}

/// Answer to [`RemovePrefix`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedSome {
    /// Objects that are gone.
    pub removed: u64,
    /// Objects that were left because a lease protects them.
    pub skipped: u64,
    /// The last key that was looked at, if there may be more after it.
    pub last: Option<Key>,
}

/// Changes what protects objects from eviction. Answer: `Reply<Vec<CallResult<()>>>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The keys, each with the pin that it gets; at most [`crate::limit::MAX_BATCH`]. A soft pin
    /// of 0 ms lasts as long as the pool says.
    pub items: Vec<(Key, larder_types::Pin)>,
}

/// Asks what is known of objects. Answer: `Reply<Stats>`. Grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The keys; at most [`crate::limit::MAX_BATCH`].
    pub keys: Vec<Key>,
}

/// Answer to [`Stat`]. Of 1,024 objects with three replicas each, and every agent another one
/// with the longest name, it stays below [`crate::limit::MAX_BODY_BYTES`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Names of the agents that the objects name.
    pub agents: Vec<(AgentId, AgentName)>,
    /// One result for each key.
    pub objects: Vec<CallResult<ObjectStat>>,
}

/// What is known of one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStat {
    /// The version that the key holds.
    pub version: Version,
    /// Size of the object, in bytes.
    pub size_bytes: u64,
    /// Digest of the object.
    pub digest: Digest,
    /// The agent of each replica.
    pub agents: Vec<AgentId>,
    /// How many replicas were asked for.
    pub wanted: u8,
    /// What its put, or a pin since, said of it.
    pub attributes: Attributes,
    /// What is left of its soft pin, in ms; 0 without one.
    pub pin_left_ms: u64,
    /// Whether a lease protects it now.
    pub leased: bool,
}

/// Lists the caller's objects in order of their keys. Answer: `Reply<ListedStats>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListStats {
    /// Only keys that start so; empty = all.
    pub prefix: Vec<u8>,
    /// Only keys after this one.
    pub after: Option<Key>,
    /// The most objects to return; at most [`crate::limit::MAX_BATCH`].
    pub limit: u32,
}

/// Answer to [`ListStats`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedStats {
    /// Names of the agents that the objects name.
    pub agents: Vec<(AgentId, AgentName)>,
    /// Keys and objects, ordered by key.
    pub entries: Vec<(Key, ObjectStat)>,
    /// Whether there may be more after the last.
    pub more: bool,
}

/// Lists the caller's keys in order. Answer: `Reply<Listed>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct List {
    /// Only keys that start so; empty = all.
    pub prefix: Vec<u8>,
    /// Only keys after this one.
    pub after: Option<Key>,
    /// The most keys to return; at most [`crate::limit::MAX_BATCH`].
    pub limit: u32,
}

/// Answer to [`List`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Keys and sizes in bytes, ordered by key.
    pub entries: Vec<(Key, u64)>,
    /// Whether there may be more after the last.
    pub more: bool,
}

/// Asks for the caller's own use and limits. Answer: `Reply<TenantUsage>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {}

/// Answer to [`Usage`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantUsage {
    /// The tenant that the credential proved.
    pub tenant: TenantId,
    /// Bytes charged: aligned payload of all replicas, and at least 16 KiB an extent.
    pub used_bytes: u64,
    /// Bytes charged of it for objects that are pinned hard.
    pub pinned_bytes: u64,
    /// Bytes reserved by puts that are under way.
    pub reserved_bytes: u64,
    /// The limit in bytes, if there is one.
    pub limit_bytes: Option<u64>,
    /// Objects.
    pub objects: u64,
    /// The limit in objects, if there is one.
    pub limit_objects: Option<u64>,
    /// What all live agents offer, in bytes.
    pub pool_capacity_bytes: u64,
    /// Live agents.
    pub agents: u32,
    /// Replicas of an object unless a put says otherwise.
    pub replica_factor: u8,
    /// What its quota comes to.
    pub quota: TenantQuota,
}
