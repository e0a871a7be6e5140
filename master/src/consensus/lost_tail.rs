//! That the end of the log may be lost, and that agents may know of it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Whether the log that this replica votes for may lack what was acknowledged, and since which
/// term. Only a leader of a later term can have asked the agents for it: what the log says of
/// former losses, which a replica applies again after a start, is no answer to this one.
#[derive(Debug, Default)]
pub(super) struct LostTail {
    /// One more than the term in which it was known; 0: nothing is lost.
    known: AtomicU64,
}

impl LostTail {
    /// Lost as of this term, or not.
    pub(super) const fn new(term: Option<u64>) -> Self {
        let known = match term {
            Some(term) => term.saturating_add(1),
            None => 0,
        };
        Self {
            known: AtomicU64::new(known),
        }
    }

    pub(super) fn note(&self, term: u64) {
        self.known
            .fetch_max(term.saturating_add(1), Ordering::Relaxed);
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed) > 0
    }

    /// A leader of this term asks the agents.
    pub(super) fn is_sought_in(&self, term: u64) {
        if term >= self.known.load(Ordering::Relaxed) {
            self.known.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_leader_can_have_asked_for_what_is_lost() {
        let lost = LostTail::default();
        assert!(!lost.is_known());
        lost.note(4);
        for former in [1, 4] {
            lost.is_sought_in(former);
            assert!(lost.is_known(), "term {former} knew nothing of it");
        }
        lost.is_sought_in(5);
        assert!(!lost.is_known());
        let lost = LostTail::new(Some(0));
        lost.note(2);
        lost.note(1);
        lost.is_sought_in(2);
        assert!(lost.is_known());
        lost.is_sought_in(3);
        assert!(!lost.is_known());
    }
}
