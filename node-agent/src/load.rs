//! How busy the data thread is: what the master is told with each heartbeat, so that it places
//! new objects elsewhere while this agent has more to do than it can.
//!
//! All connections of clients are served by one thread, so the part of the time in which that
//! thread was not parked is what the agent is used of what it can do. Bytes per second would say
//! less: what an agent can carry differs from machine to machine.

use std::time::{Duration, Instant};

use tokio::runtime::RuntimeMetrics;

/// The least time between two looks. Over a shorter one a single large write would count as
/// overload; a heartbeat leaves once a second.
const LOOK: Duration = Duration::from_millis(500);

/// Reads the load of one runtime that has one thread.
#[derive(Debug)]
pub(crate) struct LoadMeter {
    metrics: RuntimeMetrics,
    at: Instant,
    busy: Duration,
}

impl LoadMeter {
    pub(crate) fn new(metrics: RuntimeMetrics) -> Self {
        Self {
            busy: metrics.worker_total_busy_duration(0),
            at: Instant::now(),
            metrics,
        }
    }

    /// The part of the time since the last look in which the thread was busy, per mille; `None` if
    /// that look is not long ago.
    pub(crate) fn look(&mut self) -> Option<u16> {
        let passed = self.at.elapsed();
        if passed < LOOK {
            return None;
        }
        let busy = self.metrics.worker_total_busy_duration(0);
        let load = permille(busy.saturating_sub(self.busy), passed);
        (self.at, self.busy) = (self.at + passed, busy);
        Some(load)
    }
}

/// A part of a time, at most 1,000: the two clocks are not read at the same moment.
fn permille(part: Duration, whole: Duration) -> u16 {
    let parts = part.as_micros().saturating_mul(1_000) / whole.as_micros().max(1);
    u16::try_from(parts.min(1_000)).unwrap_or(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_never_more_than_the_whole() {
        let ms = Duration::from_millis;
        for (part, whole, expected) in [
            (0, 500, 0),
            (125, 500, 250),
            (700, 500, 1_000),
            (1, 0, 1_000),
        ] {
            assert_eq!(permille(ms(part), ms(whole)), expected, "{part} of {whole}");
        }
    }
}
