//! A transfer that is awaited.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::state::Shared;
use crate::engine::Outcome;
use crate::engine::core::RequestKey;

/// Where somebody waits for what comes of a transfer.
#[derive(Default)]
pub(super) struct Seat {
    outcome: Cell<Option<Outcome>>,
    waker: Cell<Option<Waker>>,
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").finish_non_exhaustive()
    }
}

impl Seat {
    /// It has ended.
    pub(super) fn tell(&self, outcome: Outcome) {
        self.outcome.set(Some(outcome));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// A transfer under way. It goes on whether or not this is awaited; dropped before its end, it is
/// cancelled, and by the end of the drop nothing touches its buffers any more.
#[derive(Debug)]
#[must_use = "a transfer that is dropped is cancelled"]
pub struct Pending {
    shared: Rc<Shared>,
    request: RequestKey,
    seat: Rc<Seat>,
}

impl Pending {
    pub(super) const fn new(shared: Rc<Shared>, request: RequestKey, seat: Rc<Seat>) -> Self {
        Self {
            shared,
            request,
            seat,
        }
    }

    /// Ends it as soon as may be; its outcome says what was done by then.
    pub fn cancel(&self) {
        self.shared
            .with(|state, now_ns| state.core.cancel(self.request, now_ns));
    }
}

impl Future for Pending {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        if let Some(outcome) = self.seat.outcome.take() {
            return Poll::Ready(outcome);
        }
        self.seat.waker.set(Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.shared
            .with(|state, now_ns| state.abandon(self.request, now_ns));
    }
}
