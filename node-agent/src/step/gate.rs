//! The epoch gate: what a leader says is done only if no higher epoch was seen, and only when its
//! own epoch is on the disk.

use std::collections::VecDeque;

use larder_transfer::LocalMs;
use larder_types::{Epoch, PoolTime};
use larder_wire::agent::{Command, Mounted};

/// The most messages that wait for the disk; each is one frame of at most 1 MiB. A master that
/// sends more before its first epoch is saved is cut off and told again after the next mount.
const WAITING_MAX: usize = 64;

/// Something that a leader said and that must pass the gate.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) epoch: Epoch,
    pub(super) pool_time: PoolTime,
    pub(super) heard: LocalMs,
    pub(super) content: Content,
}

/// What it said.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Mounted(Mounted),
    /// Whether the master knows this agent.
    Beat(bool),
    /// A page of the inventory is in the log.
    Taken,
    Commands(Vec<Command>),
}

/// What came of putting something to the gate.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Do it now.
    Pass(Said),
    /// It waits; this epoch is to be saved first, unless that is under way.
    Wait { save: Option<Epoch> },
    /// It came from the past: refused.
    Lower,
    /// Too much waits.
    Full,
}

/// What the gate lets through when an epoch is on the disk.
#[derive(Debug)]
pub(super) struct Opened {
    /// What may be done now, in order.
    pub(super) pass: VecDeque<Said>,
    /// The epoch of something that was overtaken by a higher one while it waited.
    pub(super) overtaken: Option<Epoch>,
    /// What is to be saved next.
    pub(super) save: Option<Epoch>,
}

#[derive(Debug)]
pub(super) struct Gate {
    /// The highest epoch heard of.
    seen: Epoch,
    /// The highest epoch on the disk.
    saved: Epoch,
    /// What is being written.
    saving: Option<Epoch>,
    waiting: VecDeque<Said>,
}

impl Gate {
    pub(super) fn new(saved: Epoch) -> Self {
        Self {
            seen: saved,
            saved,
            saving: None,
            waiting: VecDeque::new(),
        }
    }

    pub(super) const fn seen(&self) -> Epoch {
        self.seen
    }

    pub(super) const fn saved(&self) -> Epoch {
        self.saved
    }

    pub(super) fn put(&mut self, said: Said) -> Verdict {
        if said.epoch < self.seen {
            return Verdict::Lower;
        }
        self.seen = said.epoch;
        if said.epoch == self.saved && self.waiting.is_empty() {
            return Verdict::Pass(said);
        }
        if self.waiting.len() >= WAITING_MAX {
            return Verdict::Full;
        }
        self.waiting.push_back(said);
        Verdict::Wait {
            save: self.next_save(),
        }
    }

    /// The epoch is on the disk.
    pub(super) fn saved_now(&mut self, epoch: Epoch) -> Opened {
        self.saving = None;
        self.saved = self.saved.max(epoch);
        let seen = self.seen;
        let overtaken = self
            .waiting
            .iter()
            .map(|said| said.epoch)
            .find(|epoch| *epoch < seen);
        self.waiting.retain(|said| said.epoch == seen);
        let pass = if self.saved == seen {
            std::mem::take(&mut self.waiting)
        } else {
            VecDeque::new()
        };
        Opened {
            pass,
            overtaken,
            save: self.next_save(),
        }
    }

    /// Writing failed: nothing of what waits may be done. The epoch stays seen.
    pub(super) fn not_saved(&mut self) {
        self.saving = None;
        self.waiting.clear();
    }

    /// The link ended: what waits will be said again.
    pub(super) fn forget_waiting(&mut self) {
        self.waiting.clear();
    }

    fn next_save(&mut self) -> Option<Epoch> {
        if self.saving.is_some() || self.seen == self.saved {
            return None;
        }
        self.saving = Some(self.seen);
        self.saving
    }
}
