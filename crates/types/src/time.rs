//! Pool time: the leader's elapsed milliseconds, the only clock that the pool shares.

use std::fmt;

/// Milliseconds of the pool's life as the leader counts them. Members learn it from every reply
/// and carry it on with their own monotonic clock. No wall clock decides anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PoolTime(pub u64);

impl PoolTime {
    /// This time and `ms` milliseconds; stays at the end of time.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this; 0 if `earlier` is later.
    #[must_use]
    pub const fn since_ms(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for PoolTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}
