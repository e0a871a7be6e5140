//! How fast a rail is: a rate and a delay, learnt from what it carried. Pure.
//!
//! The rate is an exponentially weighted mean that forgets by busy time: a sample counts for as
//! long as it took, and what was seen a half-life of busy time ago counts half. A mean that forgets
//! by samples would let many small transfers drown a large one; one that forgets by time alone
//! would know nothing after an idle minute.

/// After so much busy time a sample counts half, in ns.
const HALF_LIFE_NS: f64 = 50e6;
/// For how much busy time the first guess counts, in ns.
const PRIOR_NS: f64 = 1e6;
/// Weight of a new delay: about ten of them make up nine tenths.
const DELAY_WEIGHT: f64 = 0.2;

/// The rate of a rail, in bytes per second of time in which it had something to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    bytes: f64,
    busy_ns: f64,
}

impl Rate {
    /// A first guess; it is forgotten within some ms of work. Anything below 1 counts as 1.
    #[must_use]
    pub fn guess(bytes_per_s: f64) -> Self {
        Self {
            bytes: at_least_one(bytes_per_s) * PRIOR_NS / 1e9,
            busy_ns: PRIOR_NS,
        }
    }

    /// Takes in that `bytes` went through while the rail was busy for `busy_ns`.
    pub fn sample(&mut self, bytes: u64, busy_ns: u64) {
        let busy_ns = busy_ns as f64;
        let keep = (-busy_ns / HALF_LIFE_NS).exp2();
        self.bytes = self.bytes.mul_add(keep, bytes as f64);
        self.busy_ns = self.busy_ns.mul_add(keep, busy_ns);
    }

    /// The estimate: between the lowest and the highest rate of all samples and the first guess.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        at_least_one(self.bytes * 1e9 / self.busy_ns)
    }

    /// How long `bytes` take at this rate, in ns.
    #[must_use]
    pub fn time_ns(&self, bytes: u64) -> f64 {
        bytes as f64 * 1e9 / self.bytes_per_s()
    }
}

/// NaN too: a rate of which nothing is known must still divide.
const fn at_least_one(rate: f64) -> f64 {
    rate.max(1.0)
}

/// The whole part; nothing below 0, and no more than fits.
#[expect(clippy::cast_sign_loss, reason = "what is below 0 becomes 0")]
pub(super) const fn whole(value: f64) -> u64 {
    value as u64
}

/// How long a slice takes beyond its bytes, in ns: the way there and back, and the peer's work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Delay(f64);

impl Delay {
    /// A first guess.
    #[must_use]
    pub const fn guess(ns: u64) -> Self {
        Self(ns as f64)
    }

    /// Takes in a slice that took `ns` on a rail that had nothing else to do, of which its bytes
    /// explain `bytes_ns`.
    pub fn sample(&mut self, ns: u64, bytes_ns: f64) {
        let beyond = (ns as f64 - bytes_ns).max(0.0);
        self.0 += DELAY_WEIGHT * (beyond - self.0);
    }

    /// The estimate, in ns.
    #[must_use]
    pub const fn ns(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn busy_ns(bytes: u64, bytes_per_s: f64) -> u64 {
        whole(bytes as f64 * 1e9 / bytes_per_s)
    }

    #[test]
    fn the_first_guess_is_forgotten() {
        for (guess, truth) in [(1e12, 1e8), (1e6, 1e10), (0.0, 2e9), (f64::NAN, 2e9)] {
            let mut rate = Rate::guess(guess);
            for _ in 0..2_000 {
                rate.sample(1 << 20, busy_ns(1 << 20, truth));
            }
            let off = (rate.bytes_per_s() / truth - 1.0).abs();
            assert!(off < 0.01, "{guess} {truth}: {}", rate.bytes_per_s());
        }
    }

    #[test]
    fn a_change_shows_after_a_few_half_lives() {
        let mut rate = Rate::guess(1e9);
        let run = |rate: &mut Rate, truth: f64, ns: f64| {
            let mut spent = 0.0;
            while spent < ns {
                rate.sample(1 << 20, busy_ns(1 << 20, truth));
                spent += (1 << 20) as f64 * 1e9 / truth;
            }
        };
        run(&mut rate, 2e9, 20.0 * HALF_LIFE_NS);
        run(&mut rate, 2e8, HALF_LIFE_NS);
        // Half of the busy time that counts was at each of the two rates.
        let half = rate.bytes_per_s();
        assert!((1.0e9..1.2e9).contains(&half), "{half}");
        run(&mut rate, 2e8, 9.0 * HALF_LIFE_NS);
        let late = rate.bytes_per_s();
        assert!((1.9e8..2.1e8).contains(&late), "{late}");
    }

    #[test]
    fn many_small_ones_do_not_drown_a_large_one() {
        // Each small one takes 20 us for its 4 KiB; the large one shows what the rail can do.
        let mut rate = Rate::guess(1e9);
        for _ in 0..50 {
            rate.sample(4_096, 20_000);
        }
        rate.sample(64 << 20, busy_ns(64 << 20, 2e9));
        assert!(rate.bytes_per_s() > 1.8e9, "{}", rate.bytes_per_s());
    }

    #[test]
    fn a_delay_is_what_the_bytes_do_not_explain() {
        let mut delay = Delay::guess(1_000_000);
        for _ in 0..60 {
            delay.sample(52_000, 2_000.0);
        }
        assert!((delay.ns() - 50_000.0).abs() < 500.0, "{}", delay.ns());
        delay.sample(10, 1e9);
        assert!(delay.ns() >= 0.0);
    }

    proptest! {
        #[test]
        fn it_lies_between_the_samples_and_converges(
            guess in 1e3_f64..1e12,
            truth in 1e6_f64..1e11,
            sizes in prop::collection::vec(1_u64..1 << 26, 1..200),
        ) {
            let mut rate = Rate::guess(guess);
            let mut before = (rate.bytes_per_s() - truth).abs();
            for bytes in sizes {
                // In whole ns a small sample is not of quite that rate.
                let ns = busy_ns(bytes, truth).max(1_000);
                let bytes = whole(ns as f64 * truth / 1e9);
                prop_assume!(bytes > 1_000);
                rate.sample(bytes, ns);
                let off = (rate.bytes_per_s() - truth).abs();
                prop_assert!(off <= before + truth / 500.0, "{off} after {before}");
                before = off;
            }
        }
    }
}
