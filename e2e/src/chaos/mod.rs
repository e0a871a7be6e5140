//! Faults on a pool of real processes while clients put and get at full rate, and the judgement
//! afterwards: which acknowledged puts are lost, which reads were wrong, what the fault cost.
//!
//! ```text
//! ledger   what one writer knows of its own keys, and what a read of them may return
//! load     writers and readers
//! filler   keeps the pool at its high watermark
//! tally    what they did and found
//! masters  who leads, who follows; signals to their processes
//! round    one injection: load, fault, first put, healing, judgement
//! report   the figures of all rounds as lines
//! ```

pub mod filler;
pub mod ledger;
pub mod load;
pub mod masters;
mod pool_file;
pub mod report;
pub mod round;
pub mod tally;

pub use pool_file::pool_file;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What is done to the masters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The leader is killed.
    Kill9,
    /// The leader is stopped for a while and wakes again.
    Pause,
    /// A standby is killed.
    Standby,
    /// All masters are killed at once.
    Down,
}

impl Fault {
    /// Every fault, in the order in which `all` injects them.
    pub const ALL: [Self; 4] = [Self::Kill9, Self::Pause, Self::Standby, Self::Down];

    /// Its name in the names of results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kill9 => "kill9",
            Self::Pause => "pause",
            Self::Standby => "standby_kill9",
            Self::Down => "all_kill9",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("there is no fault '{text}'; choose one of {names} or all")
        })
    }
}

/// What a run of one fault does.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The fault.
    pub fault: Fault,
    /// Moments, victims and keys follow from it.
    pub seed: u64,
    /// Injections.
    pub rounds: u32,
    /// Acknowledged puts of each round, at least.
    pub puts_per_round: u64,
    /// How long a stopped leader sleeps.
    pub pause: Duration,
    /// Whether the pool is filled to its high watermark first and kept there.
    pub full: bool,
}

/// A small generator of our own, so that a seed means the same in every release: splitmix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Starts at a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_found_by_its_name() {
        for fault in Fault::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        assert!("flood".parse::<Fault>().is_err());
    }

    #[test]
    fn a_seed_gives_the_same_dice_again() {
        let rolls = |seed| {
            let mut dice = Dice::new(seed);
            [dice.roll(), dice.roll(), dice.below(10)]
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
    }
}
