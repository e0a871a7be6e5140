//! Epoch and pool time: what masters said last, carried on with our own clock.

use std::collections::VecDeque;

use larder_types::{Epoch, PoolTime};

/// Milliseconds of this machine's monotonic clock that also counts suspended time. Passed in by
/// the shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalMs(pub u64);

/// A command of an epoch that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("epoch {said} is over, {highest} was seen; whoever said it commands no more")]
pub struct StaleEpoch {
    /// The epoch of the command.
    pub said: Epoch,
    /// The highest seen.
    pub highest: Epoch,
}

/// How far our idea of a leader's time may be ahead of what it says, in ms. What is further ahead
/// is no message that took long but a clock that is fast.
const AHEAD_MS_MAX: u64 = 500;
/// So many epochs' times are kept. What an older one gave has long expired.
const TIMES_MAX: usize = 8;

/// The highest epoch seen, and the pool's time. Each leader's time starts at 0, so a deadline is
/// judged by the time of the epoch that set it: by that of the leader before, nothing that a new
/// one allows would hold until it has led for as long.
#[derive(Debug)]
pub(super) struct EpochGate {
    highest: Epoch,
    /// What was heard last of each epoch, and when; the highest last.
    heard: VecDeque<(Epoch, PoolTime, LocalMs)>,
}

impl EpochGate {
    pub(super) const fn new(highest: Epoch) -> Self {
        Self {
            highest,
            heard: VecDeque::new(),
        }
    }

    pub(super) const fn highest(&self) -> Epoch {
        self.highest
    }

    /// `None` until a master was heard: until then nothing can be said about a deadline.
    pub(super) fn pool_time(&self, now: LocalMs) -> Option<PoolTime> {
        self.heard
            .back()
            .map(|(_, heard, at)| carry_on(*heard, *at, now))
    }

    /// The time of an epoch. One that was never heard of here, or is long over, is judged by the
    /// time that is known: writes of it are refused anyway, and what a read may reach its
    /// registration and version say, not its deadline. `None` until a master was heard.
    pub(super) fn time_in(&self, epoch: Epoch, now: LocalMs) -> Option<PoolTime> {
        if epoch > self.highest {
            return self.pool_time(now);
        }
        let mut heard = self.heard.iter().rev();
        let of_epoch = heard.find(|(of, _, _)| *of == epoch);
        let time = of_epoch.map(|(_, heard, at)| carry_on(*heard, *at, now));
        time.or_else(|| self.pool_time(now))
    }

    /// Takes an epoch and a time; whether the epoch rose.
    pub(super) fn see(
        &mut self,
        epoch: Epoch,
        pool_time: PoolTime,
        now: LocalMs,
    ) -> Result<bool, StaleEpoch> {
        if epoch < self.highest {
            return Err(StaleEpoch {
                said: epoch,
                highest: self.highest,
            });
        }
        let rose = epoch > self.highest;
        // Within an epoch time does not run backwards: what was said travelled for a while and is a
        // little old. But a clock of ours that is fast is put right, or in the end nothing that a
        // leader allows would hold here.
        let is_known = self.heard.back().is_some_and(|(of, _, _)| *of == epoch);
        let last = if is_known {
            self.heard.pop_back()
        } else {
            None
        };
        let carried_on = last.map(|(_, heard, at)| carry_on(heard, at, now));
        self.highest = epoch;
        let carried_on = carried_on.filter(|time| time.since_ms(pool_time) <= AHEAD_MS_MAX);
        let time = pool_time.max(carried_on.unwrap_or_default());
        self.heard.push_back((epoch, time, now));
        if self.heard.len() > TIMES_MAX {
            self.heard.pop_front();
        }
        Ok(rose)
    }
}

fn carry_on(heard: PoolTime, at: LocalMs, now: LocalMs) -> PoolTime {
    heard.plus_ms(now.0.saturating_sub(at.0))
}
