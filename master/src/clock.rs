//! Pool time: milliseconds since this master began to lead, on a clock that counts suspend too.

use larder_types::PoolTime;
use rustix::time::{ClockId, Timespec, clock_gettime};

use crate::consensus::Clock;

/// Tells pool time. Starts at 0; never goes back; no wall clock has a say.
///
/// `std::time::Instant` was not taken: on Linux it stands still while the machine sleeps, and a
/// leader that slept must not believe that its agents were just heard.
#[derive(Clone)]
pub(crate) struct PoolClock {
    clock: Clock,
    start_ms: u64,
}

impl PoolClock {
    /// Starts now on the clock of this master.
    pub(crate) fn start(clock: Clock) -> Self {
        let start_ms = clock();
        Self { clock, start_ms }
    }

    pub(crate) fn now(&self) -> PoolTime {
        PoolTime((self.clock)().saturating_sub(self.start_ms))
    }
}

/// Milliseconds since the machine started, on a clock that counts suspend too.
pub(crate) fn boot_ms() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(tv_sec).unwrap_or(0);
    let nanos = u64::try_from(tv_nsec).unwrap_or(0);
    seconds
        .saturating_mul(1_000)
        .saturating_add(nanos / 1_000_000)
}
