//! How long requests took: counts by classes of times, so that any number of them takes no more
//! memory. A class is 1/32 wide, and so exact is what is told.

use std::time::Duration;

/// Bits of a time that tell its class, beside its highest bit.
const BITS: u32 = 5;
const CLASSES: usize = 64 << BITS;

/// Counts of times.
#[derive(Debug)]
pub(super) struct Latencies {
    counts: Vec<u64>,
    count: u64,
    longest_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: vec![0; CLASSES],
            count: 0,
            longest_ns: 0,
        }
    }
}

impl Latencies {
    /// Counts a time.
    pub(super) fn add(&mut self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(class_of(ns)) {
            *count += 1;
        }
        self.count += 1;
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Takes in what another thread counted.
    pub(super) fn take_in(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.count += other.count;
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// How many there are.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The longest, in us.
    pub(super) fn longest_us(&self) -> f64 {
        us(self.longest_ns)
    }

    /// The time below which so many of a thousand are, in us; 0 of none.
    pub(super) fn per_mille_us(&self, per_mille: u64) -> f64 {
        let mut left = (self.count * per_mille).div_ceil(1_000);
        for (class, count) in self.counts.iter().enumerate() {
            if *count >= left && left > 0 {
                return us(upper_ns(class).min(self.longest_ns));
            }
            left = left.saturating_sub(*count);
        }
        us(self.longest_ns)
    }
}

fn class_of(ns: u64) -> usize {
    let high = ns.checked_ilog2().unwrap_or(0);
    if high <= BITS {
        return usize::try_from(ns).unwrap_or(0);
    }
    let fine = (ns >> (high - BITS)) & ((1 << BITS) - 1);
    let class = (u64::from(high - BITS) << BITS) + (1 << BITS) + fine;
    usize::try_from(class).unwrap_or(CLASSES - 1)
}

/// The longest time of a class, in ns.
fn upper_ns(class: usize) -> u64 {
    let class = class as u64;
    if class < 2 << BITS {
        return class;
    }
    let shift = (class >> BITS) - 1;
    let fine = (1 << BITS) + (class & ((1 << BITS) - 1)) + 1;
    u64::try_from((u128::from(fine) << shift) - 1).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "a time to be shown")]
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_class_holds_its_times_and_is_narrow(ns in any::<u64>()) {
            let class = class_of(ns);
            prop_assert!(class < CLASSES);
            let upper = upper_ns(class);
            prop_assert!(ns <= upper, "{ns} above {upper}");
            prop_assert!(upper - ns <= ns / 32, "{ns} far below {upper}");
            prop_assert!(class == 0 || upper_ns(class - 1) < ns);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_times(
            mut times in prop::collection::vec(0_u64..1 << 40, 1..300),
            per_mille in 1_u64..=1_000,
        ) {
            let mut all = Latencies::default();
            let mut half = Latencies::default();
            for (at, ns) in times.iter().enumerate() {
                let into = if at % 2 == 0 { &mut all } else { &mut half };
                into.add(Duration::from_nanos(*ns));
            }
            all.take_in(&half);
            times.sort_unstable();
            let rank = (times.len() as u64 * per_mille).div_ceil(1_000);
            let exact = us(times[usize::try_from(rank).expect("small") - 1]);
            let told = all.per_mille_us(per_mille);
            prop_assert!(told >= exact && told <= exact * 1.04 + 0.001, "{told} for {exact}");
            prop_assert_eq!(all.count(), times.len() as u64);
        }
    }
}
