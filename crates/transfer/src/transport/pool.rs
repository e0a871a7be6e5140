//! A bounded set of lanes to one agent: taken for one call, put back if it ended well.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

/// What a pool holds.
pub(crate) trait Pooled: Send + 'static {
    /// Whether it is open and silent: nothing of a former call is on it, and the peer lives.
    fn is_fresh(&self) -> bool;
}

/// Lanes to one agent: at most `lanes_max` together, in use or idle. A new one is made only
/// when none is idle, so a burst of calls does not leave sockets behind.
#[derive(Debug)]
pub(crate) struct Pool<L> {
    shared: Arc<Shared<L>>,
}

#[derive(Debug)]
struct Shared<L> {
    permits: Arc<Semaphore>,
    idle_close: Duration,
    /// Held for a push or a pop only, never over an await: several threads of a client share a
    /// transport, and a task that owned the list would cost each call two hops.
    idle: Mutex<Idle<L>>,
}

#[derive(Debug)]
struct Idle<L> {
    /// Longest idle first. At most `lanes_max`, because each came from a permit.
    lanes: VecDeque<(L, Instant)>,
    /// Whether a task waits to close the longest idle one.
    watched: bool,
}

/// The right to use one lane.
#[derive(Debug)]
pub(crate) struct Turn<L> {
    shared: Arc<Shared<L>>,
    _permit: OwnedSemaphorePermit,
}

impl<L: Pooled> Pool<L> {
    pub(crate) fn new(lanes_max: usize, idle_close: Duration) -> Self {
        let permits = Arc::new(Semaphore::new(lanes_max.clamp(1, Semaphore::MAX_PERMITS)));
        let idle = Mutex::new(Idle {
            lanes: VecDeque::new(),
            watched: false,
        });
        Self {
            shared: Arc::new(Shared {
                permits,
                idle_close,
                idle,
            }),
        }
    }

    /// Waits for a turn, and takes the lane that was used last if one is idle.
    ///
    /// Dead ones are closed on the way: whether a peer went away shows before anything of the
    /// call is sent, so going on with another lane repeats nothing.
    pub(crate) async fn turn(&self) -> (Turn<L>, Option<L>) {
        let permit = Arc::clone(&self.shared.permits).acquire_owned().await;
        let Ok(permit) = permit else {
            // The semaphore is never closed.
            return std::future::pending().await;
        };
        let turn = Turn {
            shared: Arc::clone(&self.shared),
            _permit: permit,
        };
        loop {
            let Some(lane) = turn.shared.lock().lanes.pop_back() else {
                return (turn, None);
            };
            if lane.0.is_fresh() {
                return (turn, Some(lane.0));
            }
        }
    }

    /// How many lanes are idle.
    pub(crate) fn idle(&self) -> usize {
        self.shared.lock().lanes.len()
    }
}

impl<L: Pooled> Turn<L> {
    /// Gives back a lane whose call is finished. Without this it is closed by being dropped.
    pub(crate) fn put_back(self, lane: L) {
        let mut idle = self.shared.lock();
        idle.lanes.push_back((lane, Instant::now()));
        if idle.watched {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            idle.watched = true;
            runtime.spawn(close_idle(Arc::downgrade(&self.shared)));
        }
    }
}

impl<L> Shared<L> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Idle<L>> {
        // Nothing in the critical sections can leave the list half changed.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes what was idle for long enough; when to look again, if anything is left.
    fn close_expired(&self) -> Option<Instant> {
        let mut idle = self.lock();
        let now = Instant::now();
        while let Some((_, since)) = idle.lanes.front() {
            let closes_at = *since + self.idle_close;
            if closes_at > now {
                return Some(closes_at);
            }
            idle.lanes.pop_front();
        }
        idle.watched = false;
        None
    }
}

/// Lives only while lanes are idle, so that a pool at rest wakes nobody.
async fn close_idle<L: Pooled>(shared: Weak<Shared<L>>) {
    loop {
        let next = shared.upgrade().and_then(|shared| shared.close_expired());
        match next {
            Some(at) => sleep_until(at).await,
            None => return,
        }
    }
}
