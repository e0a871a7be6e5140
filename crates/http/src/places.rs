//! Which connections wait for a request of their peer, and which of them for the longest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Stands for no turn: a request is being answered.
const ANSWERING: u64 = u64::MAX;

/// Hands out places and counts turns, so that no clock is needed to say who waits longest.
#[derive(Debug, Default)]
pub(crate) struct Places {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    turn: AtomicU64,
    /// Somebody has answered and waits again.
    left: Notify,
}

/// One connection's place.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    shared: Arc<Shared>,
    waits_since: Arc<AtomicU64>,
}

/// A request is being answered until this is dropped.
#[derive(Debug)]
pub(crate) struct Answering(Place);

impl Places {
    pub(crate) fn enter(&self) -> Place {
        let shared = Arc::clone(&self.shared);
        let waits_since = Arc::new(AtomicU64::new(shared.next_turn()));
        Place {
            shared,
            waits_since,
        }
    }

    /// Ends when a connection has answered a request, at once if one has since the last call.
    pub(crate) async fn left(&self) {
        self.shared.left.notified().await;
    }
}

impl Shared {
    fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

impl Place {
    /// The turn since which no whole request came; `None` while one is being answered.
    pub(crate) fn waits_since(&self) -> Option<u64> {
        let turn = self.waits_since.load(Ordering::Relaxed);
        (turn != ANSWERING).then_some(turn)
    }

    pub(crate) fn answers(&self) -> Answering {
        self.waits_since.store(ANSWERING, Ordering::Relaxed);
        Answering(self.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let Place {
            shared,
            waits_since,
        } = &self.0;
        waits_since.store(shared.next_turn(), Ordering::Relaxed);
        shared.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_was_answered_waits_from_then_on() {
        let places = Places::default();
        let (first, second) = (places.enter(), places.enter());
        assert!(first.waits_since() < second.waits_since());
        let answering = first.answers();
        assert_eq!(first.waits_since(), None);
        drop(answering);
        assert!(first.waits_since() > second.waits_since());
    }
}
