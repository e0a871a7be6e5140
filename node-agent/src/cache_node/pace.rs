//! When the CacheNode is looked at next: pure, told time and events.
//!
//! Every look may end in a write, so the pauses here bound how often an agent can write: a pool
//! whose master restarts, or whose slabs change hands all day, must not keep the API server busy.

use rand::Rng;
use rand::rngs::SmallRng;

use super::status::{Moving, Readiness};

/// The pauses, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// Between two looks while nothing changes: finds what somebody changed by hand. One small
    /// read for each node; kubelets write more often than that.
    pub resync_ms: u64,
    /// How long a node has to be without a master before that is told; a master that restarts is
    /// back within this, and so is an agent that has just begun to look for one.
    pub lost_ms: u64,
    /// Least between two looks for the sake of the used bytes alone.
    pub used_ms: u64,
    /// Least between two looks for another reason.
    pub gap_ms: u64,
    /// First pause after a failure; it doubles.
    pub retry_ms: u64,
    /// The longest pause after failures.
    pub retry_max_ms: u64,
}

impl Default for Pauses {
    fn default() -> Self {
        Self {
            resync_ms: 60_000,
            lost_ms: 10_000,
            used_ms: 30_000,
            gap_ms: 1_000,
            retry_ms: 1_000,
            retry_max_ms: 60_000,
        }
    }
}

/// When to look next.
#[derive(Debug)]
pub(crate) struct Pace {
    pauses: Pauses,
    random: SmallRng,
    /// What stands in the object, as of the last look that succeeded.
    shown: Option<Moving>,
    looked: u64,
    resync: u64,
    /// Since when no master has the segments.
    lost: Option<u64>,
    failures: u32,
    retry: u64,
}

impl Pace {
    pub(crate) const fn new(pauses: Pauses, random: SmallRng) -> Self {
        Self {
            pauses,
            random,
            shown: None,
            looked: 0,
            resync: 0,
            lost: None,
            failures: 0,
            retry: 0,
        }
    }

    /// When the next look is due, as things are.
    pub(crate) fn due(&mut self, wanted: Moving, now: u64) -> u64 {
        self.lost = match wanted.readiness {
            Readiness::Serving => None,
            _ => Some(self.lost.unwrap_or(now)),
        };
        let settled = self.lost.map_or(0, |lost| lost + self.pauses.lost_ms);
        let due = match self.shown {
            None => settled,
            Some(shown) if shown.readiness != wanted.readiness => settled
                .max(self.looked + self.pauses.gap_ms)
                .min(self.resync),
            Some(shown) if shown != wanted => (self.looked + self.pauses.used_ms).min(self.resync),
            Some(_) => self.resync,
        };
        if self.failures > 0 {
            due.max(self.retry)
        } else {
            due
        }
    }

    /// The object shows this now.
    pub(crate) fn looked(&mut self, shown: Moving, now: u64) {
        self.shown = Some(shown);
        self.looked = now;
        self.failures = 0;
        self.resync = now + self.spread(self.pauses.resync_ms);
    }

    /// The look failed. What is shown is not known any more.
    pub(crate) fn failed(&mut self, now: u64) {
        self.shown = None;
        let doublings = self.failures.min(16);
        let pause_ms = (self.pauses.retry_ms << doublings).min(self.pauses.retry_max_ms);
        self.failures = self.failures.saturating_add(1);
        self.retry = now + self.spread(pause_ms);
    }

    /// Between three quarters and five quarters, so that nodes do not ask in step.
    fn spread(&mut self, pause_ms: u64) -> u64 {
        let quarter = pause_ms / 4;
        pause_ms - quarter + self.random.random_range(0..=2 * quarter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    const SERVING: Moving = Moving {
        readiness: Readiness::Serving,
        used_bytes: 0,
    };
    const LOST: Moving = Moving {
        readiness: Readiness::NotMounted,
        used_bytes: 0,
    };

    fn pace() -> Pace {
        Pace::new(Pauses::default(), SmallRng::seed_from_u64(1))
    }

    #[test]
    fn the_first_look_waits_for_a_master_but_not_for_ever() {
        assert!(pace().due(SERVING, 7) <= 7);
        let mut pace = pace();
        assert_eq!(pace.due(LOST, 5), 10_005);
        assert_eq!(pace.due(LOST, 9_000), 10_005);
        assert!(pace.due(SERVING, 9_001) <= 9_001);
    }

    #[test]
    fn a_master_that_is_soon_back_is_not_told() {
        let mut pace = pace();
        pace.looked(SERVING, 0);
        assert_eq!(pace.due(LOST, 2_000), 12_000);
        let resync = pace.due(SERVING, 5_000);
        assert!(resync >= 45_000, "{resync}");
        assert_eq!(pace.due(LOST, 6_000), 16_000, "counted anew");
    }

    #[test]
    fn changes_are_told_after_their_pauses() {
        let mut pace = pace();
        pace.looked(LOST, 100);
        assert_eq!(pace.due(SERVING, 200), 1_100);
        pace.looked(SERVING, 1_100);
        let used = Moving {
            used_bytes: 9,
            ..SERVING
        };
        assert_eq!(pace.due(used, 1_200), 31_100);
    }

    #[test]
    fn failures_are_tried_again_ever_later() {
        let mut pace = pace();
        let mut now = 0;
        for pause_ms in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000] {
            pace.failed(now);
            let due = pace.due(SERVING, now);
            let low = now + pause_ms * 3 / 4;
            assert!((low..=now + pause_ms * 5 / 4).contains(&due), "{due}");
            now = due;
        }
        pace.looked(SERVING, now);
        assert!(pace.due(SERVING, now) >= now + 45_000);
    }

    proptest! {
        /// Whatever happens, looks that succeed are `gap_ms` apart, and at rest a look comes
        /// within the longest pause.
        #[test]
        fn looks_are_bounded(
            steps in prop::collection::vec(
                (0_u64..40_000, any::<bool>(), 0_u64..3, any::<bool>()),
                1..200,
            )
        ) {
            let mut pace = pace();
            let (mut now, mut last): (u64, Option<u64>) = (0, None);
            for (pause, mounted, used_bytes, fails) in steps {
                now += pause;
                let readiness = if mounted { Readiness::Serving } else { Readiness::NotMounted };
                let wanted = Moving { readiness, used_bytes };
                let due = pace.due(wanted, now);
                prop_assert!(due <= now + 75_000, "{} at {}", due, now);
                if due > now {
                    continue;
                }
                if fails {
                    pace.failed(now);
                    last = None;
                } else {
                    prop_assert!(last.is_none_or(|last| now - last >= 1_000));
                    pace.looked(wanted, now);
                    last = Some(now);
                }
            }
        }
    }
}
