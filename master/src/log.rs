//! The log of ops: what the leader proposes and hears back once it is committed.

use std::task::{Context, Poll};

use larder_oplog::Position;
use larder_store::Op;

/// Ops that were proposed together and commit together, in order.
#[derive(Debug)]
pub struct Entry {
    /// Counts the entries that this leader proposed, from 1. Not the position in a replicated
    /// log, which also holds entries that are not ours.
    pub index: u64,
    /// The ops; never empty.
    pub ops: Vec<Op>,
}

/// Why an entry was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// This master leads no longer.
    #[error("the log takes no more entries from this master; another one leads")]
    NotLeader,
    /// Ops that do not encode.
    #[error("ops cannot be written to the log; this master stops leading")]
    Encode(#[source] larder_oplog::RecordError),
    /// More than fits.
    #[error("an entry of {size_bytes} bytes is longer than the {max_bytes} that fit")]
    TooLarge {
        /// What it has.
        size_bytes: usize,
        /// What fits.
        max_bytes: usize,
    },
}

/// Where a leader's ops go. One leader has one log; entries commit in the order of proposal.
pub trait Log {
    /// The index that the next entry gets.
    fn next_index(&self) -> u64;

    /// Proposes ops as one entry and returns its index, without waiting for anything.
    ///
    /// # Errors
    /// [`LogError`]: nothing was proposed and the leader has to step down, because its overlay
    /// already knows the ops.
    fn append(&mut self, ops: Vec<Op>) -> Result<u64, LogError>;

    /// The next committed entry.
    ///
    /// # Errors
    /// [`LogError::NotLeader`]: another master leads. What was proposed and did not come back may
    /// be committed or not. Not to be called again then.
    fn poll_committed(&mut self, context: &mut Context<'_>) -> Poll<Result<Entry, LogError>>;

    /// Whether more may be proposed. Without room nothing new is decided, so that callers wait
    /// where they stand and hear of an overload.
    fn has_room(&self) -> bool;

    /// Whether it is certain at this moment that nobody else leads. What was read is told only
    /// then.
    fn is_certain(&self) -> bool;

    /// This moment, for [`Self::is_certain_since`].
    fn mark(&self) -> u64;

    /// What all masters know to do, as far as they were asked; 0 before.
    fn release(&self) -> u32 {
        0
    }

    /// The last place in the replicated log that was handed out here, if it has places.
    fn applied(&self) -> Option<Position> {
        None
    }

    /// Whether nobody else led when `mark` was taken: a quorum has followed this leader since.
    fn is_certain_since(&self, mark: u64) -> bool;
}
