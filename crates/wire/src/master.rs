//! Calls of clients to a master. Each is a batch; results stand in the order of the items.

use larder_types::{
    AgentId, AgentName, Digest, Epoch, ErrorCode, Extent, Incarnation, Key, PoolTime, Reason,
    TenantId, Version,
};
use serde::{Deserialize, Serialize};

use crate::capability::SignedCapability;
use crate::receipt::Receipt;

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
    /// An agent that should hold the first replica, usually the caller's own.
    pub preferred: Option<AgentName>,
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
}

/// Asks which keys hold objects. Answer: `Reply<Vec<CallResult<bool>>>`. Grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exists {
    /// The keys; at most [`crate::limit::MAX_BATCH`].
    pub keys: Vec<Key>,
}

/// Removes objects. Answer: `Reply<Vec<CallResult<()>>>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remove {
    /// The keys; at most [`crate::limit::MAX_BATCH`].
    pub keys: Vec<Key>,
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
    /// Bytes charged: aligned payload of all replicas.
    pub used_bytes: u64,
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
}
