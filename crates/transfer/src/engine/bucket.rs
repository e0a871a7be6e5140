//! A limit of bandwidth: tokens that come at a rate and are taken by the byte. Pure.

/// The most time that may be counted at once, in ns; an hour fills every bucket.
const ELAPSED_MAX_NS: u64 = 3_600_000_000_000;

/// A bucket of bytes. What is larger than it goes when it is full, and leaves a debt. It should
/// hold several slices: what comes while a full one waits for a rail is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    bytes_per_s: u64,
    burst_bytes: u64,
    /// In units of 10⁻⁹ bytes, so that whole ns times bytes per second are exact.
    tokens: i128,
    last_ns: u64,
}

impl Bucket {
    /// A full bucket. Both figures are at least 1.
    #[must_use]
    pub fn new(bytes_per_s: u64, burst_bytes: u64, now_ns: u64) -> Self {
        let burst_bytes = burst_bytes.max(1);
        Self {
            bytes_per_s: bytes_per_s.max(1),
            burst_bytes,
            tokens: unit(burst_bytes),
            last_ns: now_ns,
        }
    }

    /// Takes `bytes`.
    ///
    /// # Errors
    /// When they may be taken, in ns, if not now.
    pub fn take(&mut self, bytes: u64, now_ns: u64) -> Result<(), u64> {
        // A clock that goes back gives nothing.
        let elapsed_ns = now_ns.saturating_sub(self.last_ns).min(ELAPSED_MAX_NS);
        self.last_ns = self.last_ns.max(now_ns);
        let come = i128::from(elapsed_ns) * i128::from(self.bytes_per_s);
        self.tokens = (self.tokens + come).min(unit(self.burst_bytes));
        let needed = unit(bytes.min(self.burst_bytes));
        if self.tokens >= needed {
            self.tokens -= unit(bytes);
            return Ok(());
        }
        let lacking = (needed - self.tokens).unsigned_abs();
        let wait_ns = lacking.div_ceil(u128::from(self.bytes_per_s));
        let wait_ns = u64::try_from(wait_ns).unwrap_or(u64::MAX);
        Err(self.last_ns.saturating_add(wait_ns))
    }
}

fn unit(bytes: u64) -> i128 {
    i128::from(bytes) * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_large_one_goes_when_it_is_full_and_the_next_waits() {
        let mut bucket = Bucket::new(1_000, 100, 0);
        assert_eq!(bucket.take(1_000, 0), Ok(()));
        // 900 bytes of debt and one byte.
        assert_eq!(bucket.take(1, 0), Err(901_000_000));
        assert_eq!(bucket.take(1, 900_999_999), Err(901_000_000));
        assert_eq!(bucket.take(1, 901_000_000), Ok(()));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let mut bucket = Bucket::new(1_000, 10, 5_000_000_000);
        assert_eq!(bucket.take(10, 5_000_000_000), Ok(()));
        assert!(bucket.take(1, 0).is_err());
        assert!(bucket.take(1, 5_000_000_000).is_err());
    }

    proptest! {
        /// Over any time no more goes than comes and the bucket holds, but for the last one; and
        /// who waits as long as it is told gets through.
        #[test]
        fn the_limit_holds_and_the_time_told_is_enough(
            rate in 1_u64..1 << 34,
            burst in 1_u64..1 << 24,
            takes in prop::collection::vec((1_u64..1 << 22, 0_u64..10_000_000), 1..100),
        ) {
            let mut bucket = Bucket::new(rate, burst, 0);
            let (mut now_ns, mut before, mut last) = (0_u64, 0_u128, 0_u128);
            for (bytes, pause_ns) in takes {
                now_ns += pause_ns;
                if let Err(at_ns) = bucket.take(bytes, now_ns) {
                    prop_assert!(at_ns > now_ns);
                    now_ns = at_ns;
                    prop_assert_eq!(bucket.take(bytes, now_ns), Ok(()));
                }
                before += last;
                last = u128::from(bytes);
                let may = u128::from(burst) + u128::from(rate) * u128::from(now_ns) / 1_000_000_000;
                prop_assert!(before <= may, "{} of {}", before, may);
            }
        }
    }
}
