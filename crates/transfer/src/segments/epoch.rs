//! Epoch and pool time: what masters said last, carried on with our own clock.

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

/// The highest epoch seen, and the pool's time.
#[derive(Debug)]
pub(super) struct EpochGate {
    highest: Epoch,
    heard: Option<(PoolTime, LocalMs)>,
}

impl EpochGate {
    pub(super) const fn new(highest: Epoch) -> Self {
        Self {
            highest,
            heard: None,
        }
    }

    pub(super) const fn highest(&self) -> Epoch {
        self.highest
    }

    /// `None` until a master was heard: until then nothing can be said about a deadline.
    pub(super) fn pool_time(&self, now: LocalMs) -> Option<PoolTime> {
        let (heard, at) = self.heard?;
        Some(heard.plus_ms(now.0.saturating_sub(at.0)))
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
        // Within a generation time never runs backwards: what was said travelled for a while and
        // is a little old. A new generation starts its own time.
        let carried_on = match self.pool_time(now) {
            Some(time) if epoch.generation == self.highest.generation => time,
            _ => PoolTime::default(),
        };
        self.highest = epoch;
        self.heard = Some((pool_time.max(carried_on), now));
        Ok(rose)
    }
}
