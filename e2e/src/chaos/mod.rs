//! Faults on a pool of real processes while clients put and get at full rate, and the judgement
//! afterwards: which acknowledged puts are lost, which reads were wrong, what the fault cost.
//!
//! ```text
//! fault    what is done, by name
//! faults   disk, clock and power of each process
//! network  a namespace for each master, and cut links
//! scene    a pool with all of that
//! ledger   what one writer knows of its own keys, and what a read of them may return
//! record   all that clients saw, for the history checker of crates/sim
//! load     writers, and all clients of a round
//! reader   reads what writers hand it   probe   a client that puts one key after another
//! filler   keeps the pool at its high watermark
//! tally    what they did and found
//! masters  who leads, who follows; signals to their processes
//! round    one injection: load, fault, first put, healing
//! inject   what each fault does         cuts    those that cut masters off
//! judgement  what is left is read, removed and judged
//! report   the figures of all rounds as lines
//! peer     the stock peer under the same faults
//! ```

mod cuts;
pub mod fault;
pub mod faults;
pub mod filler;
mod inject;
mod judgement;
pub mod ledger;
pub mod load;
pub mod masters;
pub mod network;
pub mod peer;
mod pool_file;
mod probe;
mod reader;
pub mod record;
pub mod report;
pub mod round;
pub mod scene;
pub mod tally;

pub use fault::Fault;
pub use pool_file::pool_file;

use std::time::Duration;

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
    /// How long a fault lasts that ends by itself, unless it always lasts 30 s.
    pub length: Duration,
    /// Whether the pool is filled to its high watermark first and kept there.
    pub full: bool,
}

impl Plan {
    /// How long the fault lasts.
    #[must_use]
    pub const fn length(&self) -> Duration {
        match self.fault.is_long() {
            true => Duration::from_secs(30),
            false => self.length,
        }
    }
}

/// CLOCK_MONOTONIC in ns: the clock of all stamps here and in the processes' controls.
#[must_use]
pub fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or_default()
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

    /// A place in a list of this length, which is not 0.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
