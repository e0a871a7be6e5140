//! Agreement among the masters of a pool. The only place that names openraft.
//!
//! * `keeper` owns the log's files, on a thread of its own; `store` is what openraft sees of them.
//! * `machine` passes committed entries, in order, to the one owner of the state: [`Feed`].
//! * `network` asks other masters, `desk` answers them; `message` is what they say.
//! * `lease` judges whether this master is certainly still the leader; `election` stands for
//!   election after a quorum agreed that there is none; `formation` makes the first membership
//!   and lets in a master that starts with an empty disk; `membership` drops those that are
//!   named no longer.
//! * [`RaftLog`] is the log of a leader.
//!
//! openraft 0.9 lacks lease reads, a pre-vote and a way to resign. They are made here out of its
//! parts: its own elections are off, a vote of another master ends the lease before openraft
//! hears of it, and a master that has just started lets no election pass until every lease that
//! it may have promised is over.

mod assembly;
mod compaction;
mod convert;
mod desk;
mod doubt;
mod election;
mod error;
mod feed;
mod formation;
mod hand_over;
mod identity;
mod keeper;
mod lease;
mod link;
mod lost_tail;
mod machine;
mod membership;
mod message;
mod network;
mod raft_log;
mod recover;
mod release;
mod replica;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use desk::{PeerDesk, PeerSession};
pub use error::ConsensusError;
pub(crate) use feed::{Feed, Input, Standing};
#[cfg(feature = "sim")]
pub(crate) use keeper::SyncPause;
#[cfg(feature = "sim")]
pub(crate) use link::{Link, TransportError};
pub(crate) use link::{TcpTransport, Transport};
pub(crate) use message::{PeerAnswer, PeerCall};
pub(crate) use raft_log::RaftLog;
pub(crate) use release::RELEASE;
pub(crate) use replica::{Home, Replica, ReplicaSettings};
pub(crate) use snapshots::{AnyDisk, SnapshotsError, Volume};

/// A master as the others know it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Its name in the configuration; stays the same when its disk is replaced.
    pub name: String,
    /// `host:port` of its listener for clients, agents and masters.
    pub addr: String,
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.name, self.addr)
    }
}

/// What a leader proposes: ops in the bytes that go into the log.
#[derive(Clone)]
pub(crate) struct Proposal {
    /// The term in which they were decided. In an entry of another term nobody applies them: a
    /// leader that lost its office and got another meanwhile decided on what may not be true.
    term: u64,
    /// See [`larder_oplog::encode_ops`].
    ops: Arc<[u8]>,
}

impl fmt::Debug for Proposal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes decided in term {}", self.ops.len(), self.term)
    }
}

openraft::declare_raft_types!(
    /// What openraft works on.
    pub(crate) Types:
        D = Proposal,
        R = (),
        NodeId = u64,
        Node = Member,
        SnapshotData = snapshots::SnapshotFile,
);

type Raft = openraft::Raft<Types>;
type RaftEntry = openraft::Entry<Types>;
type LogId = openraft::LogId<u64>;
type RaftVote = openraft::Vote<u64>;
type StoredMembership = openraft::StoredMembership<u64, Member>;
type StorageError = openraft::StorageError<u64>;

/// A clock that never goes back, in ms, and that also counts while the machine sleeps.
pub(crate) type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;
