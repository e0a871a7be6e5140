//! How a pool's cache does, in figures so round that its status seldom changes for them. Pure
//! but for the memory of when they changed last.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_crds::Signals;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::master_api::SignalsDocument;

/// Least time between two changes of a status, but for jumps.
const PAUSE: Duration = Duration::from_secs(60);
/// Percentages are multiples of it, and change when they are off by more.
const STEP_PERCENT: u32 = 5;
/// A change of as much is told at once.
const JUMP_PERCENT: u32 = 20;

/// When the signals of each pool, by uid, were last written. Lost with the operator: then they may
/// change once more than they should.
#[derive(Debug)]
pub struct SignalTimes(watch::Sender<BTreeMap<String, Instant>>);

impl Default for SignalTimes {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl SignalTimes {
    /// How long ago they were written; `None` if never.
    #[must_use]
    pub fn since(&self, pool_uid: &str) -> Option<Duration> {
        self.0.borrow().get(pool_uid).map(Instant::elapsed)
    }

    /// They are written now.
    pub fn wrote(&self, pool_uid: &str) {
        self.0.send_modify(|times| {
            times.insert(pool_uid.to_owned(), Instant::now());
        });
    }

    /// The pool is gone.
    pub fn forget(&self, pool_uid: &str) {
        self.0
            .send_if_modified(|times| times.remove(pool_uid).is_some());
    }
}

/// What shall stand in a status, where `shown` does and has for `since`. `None` where nothing is
/// known.
#[must_use]
pub fn coarse(
    shown: Option<&Signals>,
    now: &SignalsDocument,
    since: Option<Duration>,
) -> Option<Signals> {
    let nothing = Signals::default();
    let old = shown.unwrap_or(&nothing);
    let next = Signals {
        hit_ratio_percent: percent(old.hit_ratio_percent, now.hit_ratio_per_mille),
        ghost_hit_percent: percent(old.ghost_hit_percent, now.ghost_ratio_per_mille),
        eviction_age_seconds: age(old.eviction_age_seconds, now.eviction_age_ms),
        pressure_percent: percent(old.pressure_percent, now.pressure_per_mille),
    };
    let may_change = since.is_none_or(|since| since >= PAUSE) || is_jump(old, &next);
    let next = if may_change { next } else { old.clone() };
    (next != nothing).then_some(next)
}

fn percent(shown: Option<u32>, per_mille: Option<u64>) -> Option<u32> {
    let per_mille = u32::try_from(per_mille?).unwrap_or(u32::MAX).min(1000);
    let is_near = |shown: &u32| {
        // Beyond 100 percent nobody of ours has written.
        shown.saturating_mul(10).abs_diff(per_mille) <= STEP_PERCENT * 10
    };
    let rounded = (per_mille + STEP_PERCENT * 5) / (STEP_PERCENT * 10) * STEP_PERCENT;
    shown.filter(is_near).or(Some(rounded))
}

/// Two digits at most. The master knows ages to a quarter, so less than a third is no change.
fn age(shown: Option<u64>, age_ms: Option<u64>) -> Option<u64> {
    let age_s = age_ms? / 1000;
    let is_near = |shown: &u64| shown.abs_diff(age_s) <= age_s.max(*shown) / 3;
    let mut unit = 1;
    while age_s / unit >= 100 {
        unit *= 10;
    }
    shown.filter(is_near).or(Some(age_s / unit * unit))
}

fn is_jump(old: &Signals, next: &Signals) -> bool {
    let percents = [
        (old.hit_ratio_percent, next.hit_ratio_percent),
        (old.ghost_hit_percent, next.ghost_hit_percent),
        (old.pressure_percent, next.pressure_percent),
    ];
    let far = |(old, next): (Option<u32>, Option<u32>)| match old.zip(next) {
        Some((old, next)) => old.abs_diff(next) >= JUMP_PERCENT,
        None => old != next,
    };
    percents.into_iter().any(far)
        || old.eviction_age_seconds.is_some() != next.eviction_age_seconds.is_some()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(hits: Option<u64>) -> SignalsDocument {
        SignalsDocument {
            hit_ratio_per_mille: hits,
            ..SignalsDocument::default()
        }
    }

    fn hits(signals: Option<&Signals>) -> Option<u32> {
        signals.and_then(|signals| signals.hit_ratio_percent)
    }

    #[test]
    fn what_is_not_known_is_absent() {
        assert_eq!(coarse(None, &document(None), None), None);
        let zero = coarse(None, &document(Some(0)), None);
        assert_eq!(hits(zero.as_ref()), Some(0), "zero is known");
        let gone = coarse(zero.as_ref(), &document(None), Some(Duration::ZERO));
        assert_eq!(gone, None, "what is no longer known goes at once");
    }

    #[test]
    fn small_steps_wait_and_jumps_do_not() {
        let shown = coarse(None, &document(Some(500)), None);
        let after = |per_mille, seconds| {
            let since = Some(Duration::from_secs(seconds));
            hits(coarse(shown.as_ref(), &document(Some(per_mille)), since).as_ref())
        };
        assert_eq!(after(549, 3600), Some(50), "within a step");
        assert_eq!(after(560, 59), Some(50), "too early");
        assert_eq!(after(560, 60), Some(55));
        assert_eq!(after(700, 0), Some(70), "a jump");
        assert_eq!(after(1000, 0), Some(100));
        assert_eq!(after(9999, 0), Some(100));
    }

    #[test]
    fn ages_have_two_digits() {
        let of = |shown, ms| age(shown, Some(ms));
        assert_eq!(of(None, 7_999), Some(7));
        assert_eq!(of(None, 123_456), Some(120));
        assert_eq!(of(Some(120), 150_000), Some(120));
        assert_eq!(of(Some(120), 200_000), Some(200));
        assert_eq!(of(Some(120), 0), Some(0));
    }

    proptest! {
        #[test]
        fn a_status_is_near_and_calm(
            ratios in prop::collection::vec(0_u64..=1000, 1..200),
            apart_s in 0_u64..90,
        ) {
            let mut shown: Option<Signals> = None;
            let (mut now_s, mut wrote_s, mut calm) = (0, None::<u64>, 0);
            for ratio in ratios {
                let since = wrote_s.map(|at: u64| Duration::from_secs(now_s - at));
                let next = coarse(shown.as_ref(), &document(Some(ratio)), since);
                let (old, new) = (hits(shown.as_ref()), hits(next.as_ref()).unwrap());
                prop_assert_eq!(new % STEP_PERCENT, 0);
                let off = u64::from(new * 10).abs_diff(ratio);
                let waits = since.is_some_and(|since| since < PAUSE);
                prop_assert!(off <= 50 || waits && off < 250, "{} for {}", new, ratio);
                if let Some(old) = old.filter(|old| *old != new) {
                    calm += u32::from(waits && old.abs_diff(new) < JUMP_PERCENT);
                }
                if next != shown {
                    wrote_s = Some(now_s);
                }
                shown = next;
                now_s += apart_s;
            }
            prop_assert_eq!(calm, 0, "a small step was written too early");
        }
    }
}
