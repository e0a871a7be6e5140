//! How many extents may be described: records take memory beside the slabs, and an agent that runs
//! into its limit of memory loses everything that it holds.

/// Records that may be added. What falls away is counted only when nothing is
/// left: most writes cost one subtraction, and a full agent counts once after each change.
#[derive(Debug)]
pub(super) struct RecordBudget {
    most: u64,
    left: u64,
    /// Something fell away since the last count.
    is_stale: bool,
}

impl Default for RecordBudget {
    fn default() -> Self {
        Self::new(u64::MAX, 0)
    }
}

impl RecordBudget {
    pub(super) const fn new(most: u64, held: u64) -> Self {
        Self {
            most,
            left: most.saturating_sub(held),
            is_stale: true,
        }
    }

    /// Something may have fallen away.
    pub(super) const fn note_less(&mut self) {
        self.is_stale = true;
    }

    /// Takes one; `held` counts what is there. False: there is none to take.
    pub(super) fn take(&mut self, held: impl FnOnce() -> u64) -> bool {
        if self.left == 0 && self.is_stale {
            self.left = self.most.saturating_sub(held());
            self.is_stale = false;
        }
        let taken = self.left > 0;
        self.left = self.left.saturating_sub(1);
        taken
    }

    pub(super) const fn most(&self) -> u64 {
        self.most
    }
}
