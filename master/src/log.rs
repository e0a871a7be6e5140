//! The log of ops: what the leader proposes and hears back once it is committed.

use std::collections::VecDeque;
use std::task::{Context, Poll};

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
    fn poll_committed(&mut self, context: &mut Context<'_>) -> Poll<Entry>;
}

/// A log in memory that commits at once. What it holds is gone with the process: durability comes
/// with replicated masters; until then a restart empties the pool and raises its generation.
#[derive(Debug, Default)]
pub struct VolatileLog {
    last_index: u64,
    committed: VecDeque<Entry>,
}

impl Log for VolatileLog {
    fn next_index(&self) -> u64 {
        self.last_index + 1
    }

    fn append(&mut self, ops: Vec<Op>) -> Result<u64, LogError> {
        self.last_index += 1;
        // Bounded by the leader: it takes what is committed before it proposes again.
        self.committed.push_back(Entry {
            index: self.last_index,
            ops,
        });
        Ok(self.last_index)
    }

    fn poll_committed(&mut self, _: &mut Context<'_>) -> Poll<Entry> {
        // No waker is kept: only the leader that polls can append.
        self.committed
            .pop_front()
            .map_or(Poll::Pending, Poll::Ready)
    }
}
