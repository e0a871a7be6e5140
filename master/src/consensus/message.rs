//! What masters say to each other. Own shapes, not openraft's, so that its next release does not
//! change the wire.

use serde::{Deserialize, Serialize};

use super::Member;
use super::snapshots::Piece;

/// The most bytes of entries in one [`PeerRequest::Append`], unless a single one is larger. A
/// frame has 1 MiB; keys, numbers and the rest of the body take less than the difference.
pub(super) const APPEND_BYTES_MAX: usize = 768 * 1024;
/// The most bytes of an entry: what always fits into a frame.
pub(super) const ENTRY_BYTES_MAX: usize = 960 * 1024;

/// A place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct At {
    pub(crate) term: u64,
    pub(crate) index: u64,
}

/// A vote: who was promised what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ballot {
    pub(crate) term: u64,
    pub(crate) candidate: Option<u64>,
    pub(crate) committed: bool,
}

/// An entry on its way to another master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentEntry {
    pub(crate) at: At,
    /// See [`larder_oplog::Payload`].
    pub(crate) payload: Vec<u8>,
}

/// The voters of a pool, and where its masters are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Members {
    /// One set of voters; two while they change.
    pub(crate) configs: Vec<Vec<u64>>,
    pub(crate) nodes: Vec<(u64, Member)>,
}

/// The membership of a snapshot, and the entry that it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentMembers {
    pub(crate) at: Option<At>,
    pub(crate) members: Members,
}

/// A call of a master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerCall {
    /// The number of the replica that is meant; one that came in its place refuses. `None`:
    /// whoever answers there.
    pub(crate) to: Option<u64>,
    pub(crate) request: PeerRequest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PeerRequest {
    /// Who are you and whom do you follow?
    Who,
    /// Would you vote for this candidate in a term above yours? Promises nothing.
    PreVote { last: Option<At> },
    /// Vote for me.
    Vote { ballot: Ballot, last: Option<At> },
    /// Entries of the leader, or none to say that it is there.
    Append {
        ballot: Ballot,
        prev: Option<At>,
        entries: Vec<SentEntry>,
        commit: Option<At>,
    },
    /// A piece of a snapshot, in order from the first. The answer to the last one comes when it
    /// is installed.
    Snapshot {
        ballot: Ballot,
        at: At,
        members: SentMembers,
        piece: Piece,
    },
    /// Let me in: I start with an empty disk, or anew.
    Join { id: u64, member: Member },
    /// Stand for election at once: the leader with this vote resigns in your favour.
    Elect { ballot: Ballot },
}

/// What a master says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WhoIs {
    pub(crate) id: u64,
    pub(crate) name: String,
    /// It has a membership: it was part of a pool before or is now.
    pub(crate) is_formed: bool,
    /// It may miss what it acknowledged, and does not vote.
    pub(crate) is_doubtful: bool,
    pub(crate) leader: Option<(u64, Member)>,
    pub(crate) term: u64,
    pub(crate) last: Option<At>,
    /// See [`super::release`].
    pub(crate) release: u32,
}

/// The answer to a [`PeerCall`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PeerAnswer {
    Who(WhoIs),
    PreVote {
        is_granted: bool,
        /// It lost its power together with so many others that nobody is known to have all that
        /// was acknowledged; see [`super::doubt`].
        lost_tail: bool,
    },
    Vote {
        ballot: Ballot,
        is_granted: bool,
        last: Option<At>,
    },
    Append(Appended),
    /// The vote of the receiver; all but the last piece are answered at once.
    Snapshot {
        ballot: Ballot,
    },
    Joined,
    Elects,
    /// The call cannot be answered now; one sentence for people.
    Failed(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Appended {
    Success,
    /// Up to here only.
    Partial(Option<At>),
    /// The entry before does not match.
    Conflict,
    /// Somebody with a higher vote was seen.
    Higher(Ballot),
}
