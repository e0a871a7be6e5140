//! A transfer that is awaited.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::state::Shared;
use crate::engine::Outcome;
use crate::engine::core::RequestKey;

/// A transfer under way. It goes on whether or not this is awaited; dropped before its end, it is
/// cancelled, and by the end of the drop nothing touches its buffers any more.
#[derive(Debug)]
#[must_use = "a transfer that is dropped is cancelled"]
pub struct Pending {
    shared: Rc<Shared>,
    request: RequestKey,
}

impl Pending {
    pub(super) const fn new(shared: Rc<Shared>, request: RequestKey) -> Self {
        Self { shared, request }
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
        let outcome = self
            .shared
            .with(|state, _| state.outcome(self.request, context.waker()));
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.shared
            .with(|state, now_ns| state.abandon(self.request, now_ns));
    }
}
