//! A log for tests: it delays commits, acknowledges out of order, and loses its leader.

use std::collections::VecDeque;

use larder_store::{Op, Reply};

/// An entry that is proposed and not yet committed.
pub(crate) struct Entry {
    pub(crate) index: u64,
    pub(crate) ops: Vec<Op>,
}

/// An answer that waits for its index.
struct Held {
    ticket: u64,
    index: u64,
    reply: Reply,
}

/// Entries in order, committed when the test says so.
#[derive(Default)]
pub(crate) struct TestLog {
    last_index: u64,
    committed_index: u64,
    proposed: VecDeque<Entry>,
    held: Vec<Held>,
}

impl TestLog {
    /// Proposes the ops of one decision; their index.
    pub(crate) fn propose(&mut self, ops: Vec<Op>) -> u64 {
        self.last_index += 1;
        self.proposed.push_back(Entry {
            index: self.last_index,
            ops,
        });
        self.last_index
    }

    /// Commits the oldest entry, if there is one.
    pub(crate) fn commit(&mut self) -> Option<Entry> {
        let entry = self.proposed.pop_front()?;
        self.committed_index = entry.index;
        Some(entry)
    }

    /// Holds an answer back until its index is committed.
    pub(crate) fn hold(&mut self, ticket: u64, index: u64, reply: Reply) {
        self.held.push(Held {
            ticket,
            index,
            reply,
        });
    }

    /// Lets one of the answers go whose index is committed, not the oldest: the `lot`-th.
    pub(crate) fn acknowledge(&mut self, lot: u64) -> Option<(u64, Reply)> {
        let may: Vec<usize> = (0..self.held.len())
            .filter(|i| self.held[*i].index <= self.committed_index)
            .collect();
        let count = u64::try_from(may.len()).expect("fits");
        let chosen = lot.checked_rem(count)?;
        let held = self
            .held
            .swap_remove(may[usize::try_from(chosen).expect("fits")]);
        Some((held.ticket, held.reply))
    }

    /// The leader is gone: of what is not committed the first `keep` entries reached the next
    /// leader and are returned to be committed, the others never happened. The tickets whose
    /// answers can never leave are returned too; those of kept entries as well, as the next leader
    /// knows nobody who waits.
    pub(crate) fn lose_leader(&mut self, keep: usize) -> (Vec<Entry>, Vec<u64>) {
        let rest = self.proposed.split_off(keep.min(self.proposed.len()));
        let kept: Vec<Entry> = std::mem::take(&mut self.proposed).into();
        if let Some(first_lost) = rest.front() {
            self.last_index = first_lost.index - 1;
        }
        if let Some(last) = kept.last() {
            self.committed_index = last.index;
        }
        (kept, self.held.drain(..).map(|held| held.ticket).collect())
    }

    /// Ops that are not committed.
    pub(crate) fn proposed(&self) -> impl Iterator<Item = &Op> {
        self.proposed.iter().flat_map(|entry| &entry.ops)
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.proposed.is_empty() && self.held.is_empty()
    }
}
