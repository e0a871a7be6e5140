//! Following a tenant's cache: a snapshot, then events, and a new snapshot where events are
//! missing.

pub(crate) mod follow;

use std::collections::VecDeque;
use std::time::Duration;

use larder_wire::events::{EventPage, Subscribe};
use larder_wire::limit::MAX_BATCH;
use larder_wire::master::{List, Listed};
use tokio::time::Instant;

use self::follow::{Ask, Follow, Told, Update};
use crate::Client;
use crate::connection::Request;
use crate::error::ClientError;

/// How long the master may hold an answer back while nothing happens.
const WAIT: Duration = Duration::from_secs(20);

/// The updates of one tenant's cache, in order. Holds at most one page of 1,024 of them.
#[derive(Debug)]
pub struct EventStream {
    client: Client,
    follow: Follow,
    ready: VecDeque<Update>,
}

impl EventStream {
    pub(crate) const fn new(client: Client) -> Self {
        Self {
            client,
            follow: Follow::new(),
            ready: VecDeque::new(),
        }
    }

    /// The next update; waits until there is one. Whoever does not ask for long enough that the
    /// master no longer keeps what comes next gets an [`Update::Reset`] and a new snapshot.
    /// Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ClientError`]; `Unsupported` if the pool has no cache events. After one that
    /// [`ClientError::is_retryable`] names the stream goes on where it was.
    pub async fn next(&mut self) -> Result<Update, ClientError> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Ok(update);
            }
            let told = match self.follow.ask() {
                Ask::Events { from, wait } => {
                    let wait = if wait { WAIT } else { Duration::ZERO };
                    let call = Subscribe {
                        from,
                        wait_ms: u32::try_from(wait.as_millis()).unwrap_or(0),
                    };
                    let deadline = Instant::now() + wait + self.client.limit;
                    let call = Request::Subscribe(call);
                    let page = self.client.inner.master.call::<EventPage>(call, deadline);
                    Told::Events(page.await?.answer)
                }
                Ask::Page { after } => {
                    let call = Request::List(List {
                        prefix: Vec::new(),
                        after,
                        limit: u32::try_from(MAX_BATCH).unwrap_or(u32::MAX),
                    });
                    let deadline = Instant::now() + self.client.limit;
                    let page = self.client.inner.master.call::<Listed>(call, deadline);
                    Told::Page(page.await?.answer)
                }
            };
            self.follow.told(told, &mut self.ready);
        }
    }
}
