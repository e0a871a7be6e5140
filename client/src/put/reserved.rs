//! Puts that were started: ended, or given up whatever happens.

use std::collections::BTreeSet;
use std::time::Duration;

use larder_types::{Key, Version};
use larder_wire::CallResult;
use larder_wire::master::PutRevoke;
use tokio::time::Instant;

use crate::connection::{Master, Request};

/// How long the last word to the master about a dropped put may take.
const FORGET: Duration = Duration::from_secs(2);

/// Puts that were started and not ended. What is left of it when it is dropped, because the
/// caller's future was, is given up without waiting.
pub(super) struct Reserved<'a> {
    master: &'a Master,
    puts: Vec<(Key, Version)>,
}

impl<'a> Reserved<'a> {
    /// Takes what a start granted.
    pub(super) fn new(master: &'a Master, puts: Vec<(Key, Version)>) -> Self {
        Self { master, puts }
    }

    /// Gives up all but what was done, and waits for the answer: then the keys are free and no
    /// byte of the puts can appear any more.
    pub(super) async fn settle(mut self, done: &BTreeSet<Version>, deadline: Instant) {
        self.puts.retain(|put| !done.contains(&put.1));
        if self.puts.is_empty() || Instant::now() >= deadline {
            return;
        }
        let request = Request::PutRevoke(PutRevoke {
            items: self.puts.clone(),
        });
        match self
            .master
            .call::<Vec<CallResult<()>>>(request, deadline)
            .await
        {
            // An item may be refused because its end was done after all, or it was discarded.
            Ok(_) => self.puts.clear(),
            Err(error) => tracing::debug!(%error, "puts are left for the master to discard"),
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if !self.puts.is_empty() {
            let request = Request::PutRevoke(PutRevoke {
                items: std::mem::take(&mut self.puts),
            });
            self.master
                .send_and_forget(request, Instant::now() + FORGET);
        }
    }
}
