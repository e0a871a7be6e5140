//! Whether a rail may be used: failures in a row take it out, a time-out lets one slice try again,
//! a success brings it back. Pure.
//!
//! Only failures in a row count. One error in a thousand never takes a rail out, and the success of
//! a slice that was sent before the rail broke does not hide that it broke for long.

/// So many failures in a row take a rail out.
const FAILURES_MAX: u32 = 3;
/// How long it is out the first time, in ms; each time in a row twice as long.
const OUT_MS: u64 = 200;
/// The longest it is out, in ms.
const OUT_MAX_MS: u64 = 30_000;

/// The health of a rail, or of a pair of them. Times are of one monotonic clock, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    failures: u32,
    /// How often in a row it was taken out.
    outs: u32,
    out: Option<Out>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Out {
    until_ms: u64,
    /// A slice is under way that says whether it works again.
    is_tried: bool,
}

/// What may be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Anything.
    Free,
    /// One slice, to see whether it works again.
    Trial,
    /// Nothing, until this time at least, in ms.
    Never {
        /// When to ask again.
        until_ms: u64,
    },
}

impl Health {
    /// What may be sent at `now_ms`.
    #[must_use]
    pub const fn leave(&self, now_ms: u64) -> Leave {
        match self.out {
            None => Leave::Free,
            Some(out) if now_ms >= out.until_ms && !out.is_tried => Leave::Trial,
            Some(out) => Leave::Never {
                until_ms: out.until_ms,
            },
        }
    }

    /// A slice is sent.
    pub const fn sent(&mut self, now_ms: u64) {
        if let Some(out) = &mut self.out
            && now_ms >= out.until_ms
        {
            out.is_tried = true;
        }
    }

    /// A slice is done. One that was sent before the rail was taken out counts too: it works.
    pub const fn succeeded(&mut self) {
        *self = Self {
            failures: 0,
            outs: 0,
            out: None,
        };
    }

    /// A slice failed by the fault of the rail. `seed` spreads the times at which many senders try
    /// again.
    pub fn failed(&mut self, now_ms: u64, seed: u64) {
        self.failures = self.failures.saturating_add(1);
        let is_trial = self.out.is_some_and(|out| out.is_tried);
        let is_first = self.out.is_none() && self.failures >= FAILURES_MAX;
        if is_trial || is_first {
            let doubled_ms = OUT_MS << self.outs.min(16);
            let most_ms = doubled_ms.min(OUT_MAX_MS);
            // Between half of it and all of it.
            let out_ms = most_ms / 2 + seed % (most_ms / 2 + 1);
            self.outs = self.outs.saturating_add(1);
            self.out = Some(Out {
                until_ms: now_ms.saturating_add(out_ms),
                is_tried: false,
            });
        }
    }

    /// A trial was given up before anybody knew what became of it: another one may be made.
    pub const fn abandoned(&mut self) {
        if let Some(out) = &mut self.out {
            out.is_tried = false;
        }
    }

    /// Whether it is taken out.
    #[must_use]
    pub const fn is_out(&self) -> bool {
        self.out.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn broken(now_ms: u64) -> Health {
        let mut health = Health::default();
        (0..FAILURES_MAX).for_each(|_| health.failed(now_ms, 0));
        health
    }

    #[test]
    fn single_errors_take_nothing_out() {
        let mut health = Health::default();
        for _ in 0..1_000 {
            health.failed(0, 1);
            assert_eq!(health.leave(0), Leave::Free);
            health.failed(0, 1);
            health.succeeded();
        }
        assert!(!health.is_out());
    }

    #[test]
    fn failures_in_a_row_take_it_out_and_one_slice_tries_again() {
        let mut health = broken(1_000);
        let Leave::Never { until_ms } = health.leave(1_000) else {
            panic!("{health:?}");
        };
        assert!((1_000 + OUT_MS / 2..=1_000 + OUT_MS).contains(&until_ms));
        assert_eq!(health.leave(until_ms), Leave::Trial);
        health.sent(until_ms);
        assert!(matches!(health.leave(until_ms), Leave::Never { .. }));
        health.succeeded();
        assert_eq!(health.leave(until_ms), Leave::Free);
        assert_eq!(health, Health::default());
    }

    #[test]
    fn it_is_out_longer_each_time_up_to_a_bound() {
        let mut health = broken(0);
        let (mut now_ms, mut last_ms) = (0, 0);
        for _ in 0..40 {
            let Leave::Never { until_ms } = health.leave(now_ms) else {
                panic!("{health:?}");
            };
            let out_ms = until_ms - now_ms;
            assert!(out_ms >= last_ms && out_ms <= OUT_MAX_MS, "{out_ms}");
            (now_ms, last_ms) = (until_ms, out_ms);
            health.sent(now_ms);
            health.failed(now_ms, 0);
        }
        assert_eq!(last_ms, OUT_MAX_MS / 2);
    }

    #[test]
    fn what_was_under_way_when_it_broke_does_not_keep_it_out_longer() {
        let mut health = broken(0);
        let before = health.leave(0);
        (0..50).for_each(|_| health.failed(0, 0));
        assert_eq!(health.leave(0), before);
    }

    #[test]
    fn an_abandoned_trial_is_made_again() {
        let mut health = broken(0);
        health.sent(OUT_MAX_MS);
        assert!(matches!(health.leave(OUT_MAX_MS), Leave::Never { .. }));
        health.abandoned();
        assert_eq!(health.leave(OUT_MAX_MS), Leave::Trial);
    }

    proptest! {
        /// Whatever happens, it can be tried again after the longest time, unless it is being
        /// tried.
        #[test]
        fn nothing_is_out_for_ever(
            events in prop::collection::vec((0_u8..4, 0_u64..5_000, any::<u64>()), 0..200),
        ) {
            let mut health = Health::default();
            let (mut now_ms, mut trials) = (0, 0);
            for (event, ms, seed) in events {
                now_ms += ms;
                match event {
                    0 => {
                        if health.leave(now_ms) == Leave::Trial {
                            trials += 1;
                        }
                        if !matches!(health.leave(now_ms), Leave::Never { .. }) {
                            health.sent(now_ms);
                        }
                    }
                    1 => {
                        health.failed(now_ms, seed);
                        trials = 0;
                    }
                    2 => {
                        health.succeeded();
                        trials = 0;
                    }
                    _ => {
                        health.abandoned();
                        trials = 0;
                    }
                }
                prop_assert!(trials <= 1, "one at a time");
                if trials == 0 {
                    let late = health.leave(now_ms + OUT_MAX_MS);
                    prop_assert!(!matches!(late, Leave::Never { .. }), "{health:?}");
                }
            }
        }
    }
}
