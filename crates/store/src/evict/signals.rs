//! What is counted for autoscaling: hits and misses, misses that a larger pool would have hit,
//! how old what is evicted was, and what was refused for want of space.

use larder_types::TenantId;

/// Why something was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvictionCause {
    /// A segment held more than its high watermark.
    Watermark,
    /// A tenant held more than the high watermark of its limit, or a put of it would have.
    Quota,
    /// A put found no room.
    NoRoom,
}

impl EvictionCause {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Watermark, Self::Quota, Self::NoRoom];

    /// The name, as it stands in metric labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Watermark => "watermark",
            Self::Quota => "quota",
            Self::NoRoom => "no_room",
        }
    }
}

/// What went for one cause since this leader began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    /// Objects.
    pub objects: u64,
    /// Replicas of objects that kept another one.
    pub replicas: u64,
    /// Aligned bytes of both.
    pub bytes: u64,
}

/// The spans over which ratios are taken, in minutes.
pub const WINDOWS_MINUTES: [u64; 3] = [1, 5, 60];

/// The signals of a tenant, or of all of them. Sums count from the beginning of this leader on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signals {
    /// Gets that found an object. (A probe that finds one is followed by the get that counts.)
    pub hits: u64,
    /// Gets and probes that found none.
    pub misses: u64,
    /// Misses of keys that were evicted not long ago: up to as many keys as there are objects.
    pub ghost_hits: u64,
    /// Hits of all, over each of [`WINDOWS_MINUTES`], the past decaying; `None` without any.
    pub hit_ratios: [Option<f64>; 3],
    /// Ghost hits of all misses, likewise.
    pub ghost_ratios: [Option<f64>; 3],
    /// For how long half of what was evicted in about the last hour was not used at most, in
    /// milliseconds, to a quarter; `None` if nothing was.
    pub eviction_age_p50_ms: Option<u64>,
    /// The same for 99 of 100.
    pub eviction_age_p99_ms: Option<u64>,
    /// By [`EvictionCause::ALL`].
    pub evicted: [Evicted; 3],
    /// Puts that were refused for want of space or quota.
    pub refused_puts: u64,
}

/// The signals of the pool beside the sums of its tenants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolSignals {
    /// Of all tenants.
    pub all: Signals,
    /// What the fullest segment holds and has reserved, of its capacity, per mille.
    pub pressure_per_mille: u64,
    /// Tenants whose series are to be shown with these.
    pub tenants: Vec<(TenantId, Signals)>,
}

/// Hits, misses and ghost hits.
type Lookups = [u64; 3];

/// What is counted of one tenant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) lookups: Lookups,
    /// The sums at the last roll.
    rolled: Lookups,
    rolled_ms: u64,
    windows: [[f64; 3]; 3],
    pub(crate) evicted: [Evicted; 3],
    pub(crate) refused_puts: u64,
    ages: Ages,
}

pub(crate) const HIT: usize = 0;
pub(crate) const MISS: usize = 1;
pub(crate) const GHOST: usize = 2;

/// Windows and ages decay this often.
pub(crate) const ROLL_MS: u64 = 5_000;

impl Counts {
    /// Lets the past decay.
    pub(crate) fn roll(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.rolled_ms);
        for (window, minutes) in self.windows.iter_mut().zip(WINDOWS_MINUTES) {
            let keep = (-(passed_ms as f64) / (minutes * 60_000) as f64).exp();
            for (at, kept) in window.iter_mut().enumerate() {
                let new = self.lookups[at].saturating_sub(self.rolled[at]);
                *kept = *kept * keep + new as f64;
            }
        }
        self.rolled = self.lookups;
        self.rolled_ms = now_ms;
        self.ages.roll(now_ms);
    }

    pub(crate) fn evict(&mut self, cause: EvictionCause, bytes: u64, is_object: bool, age_ms: u64) {
        let evicted = &mut self.evicted[cause as usize];
        evicted.objects += u64::from(is_object);
        evicted.replicas += u64::from(!is_object);
        evicted.bytes = evicted.bytes.saturating_add(bytes);
        if is_object {
            self.ages.add(age_ms);
        }
    }

    /// Adds another tenant's.
    pub(crate) fn add(&mut self, other: &Self) {
        for at in 0..3 {
            self.lookups[at] += other.lookups[at];
            self.rolled[at] += other.rolled[at];
            for (sum, one) in self.windows[at].iter_mut().zip(other.windows[at]) {
                *sum += one;
            }
            let (sum, one) = (&mut self.evicted[at], other.evicted[at]);
            sum.objects += one.objects;
            sum.replicas += one.replicas;
            sum.bytes = sum.bytes.saturating_add(one.bytes);
        }
        self.refused_puts += other.refused_puts;
        self.ages.join(&other.ages);
    }

    pub(crate) fn signals(&self) -> Signals {
        let recent = |window: usize, at: usize| {
            let new = self.lookups[at].saturating_sub(self.rolled[at]);
            self.windows[window][at] + new as f64
        };
        // Below a lookup's worth there is nothing to take a share of.
        let share = |part: f64, all: f64| (all >= 0.5).then(|| (part / all).clamp(0.0, 1.0));
        let hits = |w| share(recent(w, HIT), recent(w, HIT) + recent(w, MISS));
        let ghosts = |w| share(recent(w, GHOST), recent(w, MISS));
        Signals {
            hits: self.lookups[HIT],
            misses: self.lookups[MISS],
            ghost_hits: self.lookups[GHOST],
            hit_ratios: [0, 1, 2].map(hits),
            ghost_ratios: [0, 1, 2].map(ghosts),
            eviction_age_p50_ms: self.ages.quantile(50),
            eviction_age_p99_ms: self.ages.quantile(99),
            evicted: self.evicted,
            refused_puts: self.refused_puts,
        }
    }
}

/// Buckets of ages: four for each power of two above four seconds, up to six days.
const BUCKETS: usize = 72;
const FIRST_MS: u64 = 4_000;
/// Half of what was seen is forgotten this often.
const HALF_LIFE_MS: u64 = 30 * 60_000;

/// How old evicted objects were. 296 bytes, whatever comes.
#[derive(Clone, Debug)]
struct Ages {
    counts: [u32; BUCKETS],
    halved_ms: u64,
}

impl Default for Ages {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS],
            halved_ms: 0,
        }
    }
}

/// The bucket of an age: of a number 1xyz... in binary the length and the bits x and y.
fn bucket_of(age_ms: u64) -> usize {
    let units = age_ms / FIRST_MS + 1;
    let length = u64::from(units.ilog2());
    let quarter = ((units << 2) >> length) & 3;
    usize::try_from(length * 4 + quarter).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

/// The end of a bucket.
const fn end_of(bucket: usize) -> u64 {
    let (length, quarter) = (bucket as u64 / 4, bucket as u64 % 4);
    // Units from 4 + quarter to 5 + quarter, in quarters of the power of two.
    ((5 + quarter) << length).div_ceil(4).saturating_sub(1) * FIRST_MS
}

impl Ages {
    fn add(&mut self, age_ms: u64) {
        let count = &mut self.counts[bucket_of(age_ms)];
        *count = count.saturating_add(1);
    }

    fn join(&mut self, other: &Self) {
        for (sum, one) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(one);
        }
    }

    fn roll(&mut self, now_ms: u64) {
        let halves = now_ms.saturating_sub(self.halved_ms) / HALF_LIFE_MS;
        if halves > 0 {
            self.halved_ms += halves * HALF_LIFE_MS;
            let by = u32::try_from(halves).unwrap_or(u32::MAX);
            for count in &mut self.counts {
                *count = count.checked_shr(by).unwrap_or(0);
            }
        }
    }

    fn quantile(&self, percent: u64) -> Option<u64> {
        let all: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let rank = (all * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= rank {
                return Some(end_of(bucket));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_known_to_a_quarter() {
        let mut ages = Ages::default();
        assert_eq!(ages.quantile(50), None);
        for seconds in 1..=1000 {
            ages.add(seconds * 1000);
        }
        let close = |percent, ms: u64| {
            let found = ages.quantile(percent).expect("some");
            assert!(
                found >= ms - 4_000 && found <= ms * 5 / 4 + 4_000,
                "{found} for {ms}"
            );
        };
        close(50, 500_000);
        close(99, 990_000);
        ages.roll(HALF_LIFE_MS);
        assert!(ages.quantile(50).is_some());
        ages.roll(40 * HALF_LIFE_MS);
        assert_eq!(ages.quantile(50), None, "all is forgotten");
    }

    #[test]
    fn every_age_lies_in_its_bucket() {
        let mut last = 0;
        for age_s in (0..3_000_000u64).step_by(997) {
            let bucket = bucket_of(age_s * 1000);
            assert!(bucket >= last && bucket < BUCKETS);
            last = bucket;
        }
        assert!(end_of(bucket_of(0)) < FIRST_MS * 2);
    }

    #[test]
    fn ratios_follow_the_present() {
        let mut counts = Counts::default();
        assert_eq!(counts.signals().hit_ratios, [None; 3]);
        counts.lookups = [90, 10, 5];
        counts.roll(10_000);
        let signals = counts.signals();
        assert_eq!(signals.hit_ratios, [Some(0.9); 3]);
        assert_eq!(signals.ghost_ratios, [Some(0.5); 3]);
        counts.lookups = [90, 110, 5];
        counts.roll(10 * 60_000);
        let [minute, _, hour] = counts
            .signals()
            .hit_ratios
            .map(|ratio| ratio.expect("some"));
        assert!(minute < 0.01 && hour > 0.4, "{minute} {hour}");
    }
}
