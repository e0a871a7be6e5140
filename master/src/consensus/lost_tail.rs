//! That the end of the log may be lost, and that agents may know of it.

use tokio::sync::watch;

/// Whether the log that this replica votes for may lack what was acknowledged, and since which
/// term. Only a leader of a later term can have asked the agents for it: what the log says of
/// former losses, which a replica applies again after a start, is no answer to this one.
///
/// It goes with the process; whose own log lost its end has it on the disk too, until it has been
/// asked for.
#[derive(Debug, Default)]
pub(super) struct LostTail {
    /// One more than the term in which it was known; 0: nothing is lost.
    known: watch::Sender<u64>,
}

impl LostTail {
    /// Lost as of this term, or not.
    pub(super) fn new(term: Option<u64>) -> Self {
        let lost = Self::default();
        if let Some(term) = term {
            lost.note(term);
        }
        lost
    }

    pub(super) fn note(&self, term: u64) {
        self.known
            .send_modify(|known| *known = (*known).max(term.saturating_add(1)));
    }

    pub(super) fn is_known(&self) -> bool {
        *self.known.borrow() > 0
    }

    /// Waits until nothing is lost that agents have not been asked for.
    pub(super) async fn until_sought(&self) {
        // The sender is here.
        drop(self.known.subscribe().wait_for(|known| *known == 0).await);
    }

    /// A leader of this term asks the agents.
    pub(super) fn is_sought_in(&self, term: u64) {
        self.known.send_if_modified(|known| {
            let is_sought = *known > 0 && term >= *known;
            if is_sought {
                *known = 0;
            }
            is_sought
        });
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
