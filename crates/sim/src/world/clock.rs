//! What one process takes for the time.

/// Parts in a million.
const MILLION: u64 = 1_000_000;

/// The clocks of one machine.
///
/// The *local* clock never goes back, counts while the machine sleeps and may be a little fast or
/// slow (CLOCK_BOOTTIME). The *steady* one stands still in sleep, and timers go by it
/// (CLOCK_MONOTONIC). The *wall* clock may be set by anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    /// True time and the steady clock's at the last change, in ns.
    true_ns: u64,
    steady_ns: u64,
    /// What the local clock is ahead of the steady one.
    slept_ns: u64,
    /// How many local nanoseconds pass in a million true ones.
    rate: u64,
    /// What the wall clock is ahead of the other.
    wall_ahead_ns: i128,
}

impl Clock {
    /// A clock that shows `local_ns` when it is truly `true_ns`.
    #[must_use]
    pub const fn new(true_ns: u64, local_ns: u64) -> Self {
        Self {
            true_ns,
            steady_ns: local_ns,
            slept_ns: 0,
            rate: MILLION,
            wall_ahead_ns: 0,
        }
    }

    /// What the local clock shows, in ns. True time does not go back.
    #[must_use]
    pub fn local_ns(&self, true_ns: u64) -> u64 {
        self.steady_ns(true_ns).saturating_add(self.slept_ns)
    }

    /// What the steady clock shows, in ns.
    #[must_use]
    pub fn steady_ns(&self, true_ns: u64) -> u64 {
        let passed = u128::from(true_ns.saturating_sub(self.true_ns));
        let steady = passed * u128::from(self.rate) / u128::from(MILLION);
        let steady = u64::try_from(steady).unwrap_or(u64::MAX);
        self.steady_ns.saturating_add(steady)
    }

    /// What the wall clock shows, in ns; may be before the epoch.
    #[must_use]
    pub fn wall_ns(&self, true_ns: u64) -> i128 {
        i128::from(self.local_ns(true_ns)) + self.wall_ahead_ns
    }

    /// From now on it is so many parts in a million fast, or slow below 0.
    pub fn drift(&mut self, true_ns: u64, fast_ppm: i32) {
        self.rebase(true_ns);
        self.rate = MILLION.saturating_add_signed(i64::from(fast_ppm)).max(1);
    }

    /// It is later than it seemed, as after a sleep of the machine.
    pub fn leap(&mut self, by_ns: u64) {
        self.slept_ns = self.slept_ns.saturating_add(by_ns);
    }

    /// Somebody sets the wall clock so much forward, or back below 0.
    pub fn set_wall(&mut self, by_ns: i64) {
        self.wall_ahead_ns += i128::from(by_ns);
    }

    fn rebase(&mut self, true_ns: u64) {
        self.steady_ns = self.steady_ns(true_ns);
        self.true_ns = self.true_ns.max(true_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_drift_and_leap_and_never_go_back() {
        let mut clock = Clock::new(1_000, 50);
        assert_eq!((clock.local_ns(0), clock.local_ns(1_500)), (50, 550));
        clock.drift(2_000, -500_000);
        assert_eq!(
            (clock.local_ns(2_000), clock.local_ns(2_100)),
            (1_050, 1_100)
        );
        clock.leap(7);
        clock.drift(2_100, 1_000_000);
        assert_eq!(
            (clock.local_ns(2_100), clock.local_ns(2_103)),
            (1_107, 1_113)
        );
        assert_eq!(clock.steady_ns(2_100), 1_100, "timers do not count sleep");
        clock.set_wall(-2_000);
        assert_eq!((clock.wall_ns(2_100), clock.local_ns(2_100)), (-893, 1_107));
        clock.drift(2_200, i32::MIN);
        assert!(clock.local_ns(u64::MAX) >= clock.local_ns(2_200));
    }
}
