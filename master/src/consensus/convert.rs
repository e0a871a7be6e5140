//! Between openraft's shapes, the wire's and the log's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use larder_oplog::{Entry, Payload, Position, RecordError};
use openraft::{CommittedLeaderId, EntryPayload, LeaderId, Membership};

use super::message::{At, Ballot, Members, SentEntry, SentMembers};
use super::{LogId, Proposal, RaftEntry, RaftVote, StoredMembership};

pub(super) fn log_id(at: At) -> LogId {
    LogId::new(CommittedLeaderId::new(at.term, 0), at.index)
}

pub(super) fn log_id_of(at: Position) -> LogId {
    LogId::new(CommittedLeaderId::new(at.term, 0), at.index)
}

pub(super) fn at(id: &LogId) -> At {
    At {
        term: id.leader_id.term,
        index: id.index,
    }
}

pub(super) fn position(id: &LogId) -> Position {
    Position {
        term: id.leader_id.term,
        index: id.index,
    }
}

pub(super) fn at_of(position: Position) -> At {
    At {
        term: position.term,
        index: position.index,
    }
}

pub(super) fn ballot(vote: &RaftVote) -> Ballot {
    Ballot {
        term: vote.leader_id.term,
        candidate: vote.leader_id.voted_for,
        committed: vote.committed,
    }
}

pub(super) fn vote(ballot: &Ballot) -> RaftVote {
    RaftVote {
        leader_id: LeaderId {
            term: ballot.term,
            voted_for: ballot.candidate,
        },
        committed: ballot.committed,
    }
}

pub(super) fn members(membership: &Membership<u64, super::Member>) -> Members {
    let configs = membership.get_joint_config().iter();
    Members {
        configs: configs.map(|set| set.iter().copied().collect()).collect(),
        nodes: membership
            .nodes()
            .map(|(id, member)| (*id, member.clone()))
            .collect(),
    }
}

pub(super) fn membership(members: &Members) -> Membership<u64, super::Member> {
    let configs: Vec<BTreeSet<u64>> = members
        .configs
        .iter()
        .map(|set| set.iter().copied().collect())
        .collect();
    let nodes: BTreeMap<u64, super::Member> = members.nodes.iter().cloned().collect();
    Membership::new(configs, nodes)
}

pub(super) fn sent_members(stored: &StoredMembership) -> SentMembers {
    SentMembers {
        at: stored.log_id().as_ref().map(at),
        members: members(stored.membership()),
    }
}

pub(super) fn stored_membership(sent: &SentMembers) -> StoredMembership {
    StoredMembership::new(sent.at.map(log_id), membership(&sent.members))
}

/// The bytes of a membership, as they stand in the log and in snapshots.
pub(super) fn encode_members(members: &Members) -> Vec<u8> {
    // Numbers and names always encode; an empty membership would be refused when it is read.
    postcard::to_stdvec(members).unwrap_or_default()
}

pub(super) fn decode_members(bytes: &[u8]) -> Option<Members> {
    postcard::from_bytes(bytes).ok()
}

/// An entry as it stands in the log.
pub(super) fn stored(entry: &RaftEntry) -> Entry {
    let payload = match &entry.payload {
        EntryPayload::Blank => Payload::Blank,
        EntryPayload::Normal(proposal) => Payload::Ops {
            term: proposal.term,
            ops: proposal.ops.to_vec(),
        },
        EntryPayload::Membership(membership) => {
            Payload::Members(encode_members(&members(membership)))
        }
    };
    Entry {
        at: position(&entry.log_id),
        payload: payload.encode(),
    }
}

/// An entry that was read from the log, or that came from another master.
pub(super) fn loaded(at: Position, payload: &[u8]) -> Result<RaftEntry, RecordError> {
    let payload = match Payload::decode(payload)? {
        Payload::Blank => EntryPayload::Blank,
        Payload::Ops { term, ops } => EntryPayload::Normal(Proposal {
            term,
            ops: Arc::from(ops),
        }),
        Payload::Members(bytes) => {
            let members = decode_members(&bytes).ok_or(RecordError::Damaged(None))?;
            EntryPayload::Membership(membership(&members))
        }
    };
    Ok(RaftEntry {
        log_id: log_id_of(at),
        payload,
    })
}

pub(super) fn sent(entry: &RaftEntry) -> SentEntry {
    SentEntry {
        at: at(&entry.log_id),
        payload: stored(entry).payload,
    }
}

pub(super) fn received(entry: &SentEntry) -> Result<RaftEntry, RecordError> {
    let at = Position {
        term: entry.at.term,
        index: entry.at.index,
    };
    loaded(at, &entry.payload)
}
