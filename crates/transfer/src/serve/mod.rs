//! An agent's data listeners: the tcp port and the Unix socket.
//!
//! Runs as local tasks of the one thread that owns the agent's [`Segments`](crate::Segments).
//! A connection says hello with a session token, then sends one frame after the other; the
//! payload of a write goes from the socket straight into the slab, that of a read straight from
//! it. Whatever a connection holds is given back when its task ends, for whatever reason.

mod bytes;
mod connection;
mod connections;
mod metrics;
mod session;
mod shared;
mod tcp;
mod unix;

use std::rc::Rc;

use larder_types::Incarnation;
use tokio::sync::Notify;

use crate::LocalMs;

pub use connections::Connections;
pub(crate) use connections::Place;
pub use metrics::ServeMetrics;
pub use tcp::serve_tcp;
pub use unix::serve_unix;

/// How long connections may finish their frame after a shutdown, in ms.
const GRACE_MS: u64 = 2_000;

/// What both listeners of an agent share. A clone shares its parts.
#[derive(Clone)]
pub struct ServeOptions {
    /// This process; clients compare it with what the master told them.
    pub incarnation: Incarnation,
    /// The agent's name, by which clients on its node recognise it; empty = it has none.
    pub name: Rc<str>,
    /// Milliseconds on the clock that [`crate::Segments`] is told.
    pub clock: Rc<dyn Fn() -> LocalMs>,
    /// The connections that stand, and how many may.
    pub connections: Connections,
    /// Is told whenever [`crate::Segments::take_events`] may have something.
    pub events: Rc<Notify>,
    /// Counts what happens.
    pub metrics: Rc<dyn ServeMetrics>,
}

impl ServeOptions {
    /// Options without metrics and name, on the machine's clock since boot, which counts
    /// suspended time.
    #[must_use]
    pub fn new(incarnation: Incarnation, connections_max: usize) -> Self {
        Self {
            incarnation,
            name: "".into(),
            clock: Rc::new(boot_clock),
            connections: Connections::new(connections_max),
            events: Rc::new(Notify::new()),
            metrics: Rc::new(()),
        }
    }
}

impl std::fmt::Debug for ServeOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServeOptions")
            .field("incarnation", &self.incarnation)
            .field("name", &self.name)
            .field("connections", &self.connections)
            .finish_non_exhaustive()
    }
}

/// Milliseconds since this machine started, suspended time included. What an agent tells
/// [`crate::Segments`] as `now`.
#[must_use]
pub fn boot_clock() -> LocalMs {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ms = now
        .tv_sec
        .saturating_mul(1_000)
        .saturating_add(now.tv_nsec / 1_000_000);
    // Never negative: it starts at 0.
    LocalMs(u64::try_from(ms).unwrap_or(0))
}
