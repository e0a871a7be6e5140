//! The rails that reach one peer, and which one a slice takes: the one on which it is expected to
//! be done first. Pure; told time and what became of slices.
//!
//! What is expected is learnt: the rate at which a rail carries bytes while it has some, and the
//! delay of a slice that is alone (`estimate.rs`). A slice that waits behind `q` bytes is done
//! after delay + (q + bytes) ÷ rate. Spraying by turns was rejected: the slowest rail then sets the
//! pace.

use super::estimate::{Delay, Rate, whole};
use super::health::{Health, Leave};

/// A lone slice below this says how long the way is; a larger one how wide, in bytes.
const SMALL_BYTES: u64 = 32 << 10;
/// A slice is to take about so long, in ns: long beside what a slice costs, short beside what is
/// lost when a rail breaks, or what a foreground slice waits for one that is under way.
const SLICE_NS: f64 = 1e6;
/// So much may be under way on a rail, as the time that it takes, in ns: enough to keep it busy
/// over a way there and back; more would wait there, where a foreground slice cannot pass it.
const WINDOW_NS: f64 = 4e6;
/// The smallest and largest slice, and what its size is a multiple of, in bytes.
const SLICE_MIN_BYTES: u64 = 64 << 10;
const SLICE_MAX_BYTES: u64 = 16 << 20;

/// One way to a peer: a transport, and which device or lane of it.
#[derive(Clone, Debug)]
pub struct Rail {
    rate: Rate,
    delay: Delay,
    health: Health,
    /// Slices under way and their bytes.
    slices: u32,
    bytes: u64,
    /// Since when what is done next counts as busy, in ns.
    busy_from_ns: u64,
}

/// A slice is under way on a rail; its end is told with it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a slice whose end is not told counts as under way for ever"]
pub struct Underway {
    rail: usize,
    bytes: u64,
    begun_ns: u64,
    was_alone: bool,
}

impl Underway {
    /// The rail, by its number.
    #[must_use]
    pub const fn rail(&self) -> usize {
        self.rail
    }

    /// The bytes of the slice.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All bytes are there.
    Done,
    /// By the fault of the rail: it broke, or nothing came.
    RailFailed,
    /// The peer refused it, or the caller gave up: that says nothing about the rail, but that it
    /// answers.
    Refused,
    /// It was taken back, and nothing is known.
    Abandoned,
}

/// Where a slice goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// On this rail.
    Rail(usize),
    /// On none before this time, in ns.
    At(u64),
    /// Those that reach it have enough to do: ask again when one of their slices has ended.
    Busy,
    /// No rail reaches it.
    Nowhere,
}

/// The rails to one peer. They are numbered in the order in which they were added, and keep their
/// numbers.
#[derive(Clone, Debug, Default)]
pub struct Rails {
    rails: Vec<Rail>,
    failures: u64,
}

impl Rails {
    /// Adds a rail with a first guess of what it does; its number.
    pub fn add(&mut self, bytes_per_s: f64, delay_ns: u64) -> usize {
        self.rails.push(Rail {
            rate: Rate::guess(bytes_per_s),
            delay: Delay::guess(delay_ns),
            health: Health::default(),
            slices: 0,
            bytes: 0,
            busy_from_ns: 0,
        });
        self.rails.len() - 1
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rails.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rails.is_empty()
    }

    /// Where a slice of `bytes` is done first. `penalty` says by how much longer a rail takes for
    /// the two places that it would connect, as a factor of at least 1; `None`: it does not reach
    /// them, or the slice failed on it already.
    #[must_use]
    pub fn choose(
        &self,
        bytes: u64,
        now_ns: u64,
        penalty: impl Fn(usize) -> Option<f64>,
    ) -> Choice {
        let mut best: Option<(f64, usize)> = None;
        let mut again_ns: Option<u64> = None;
        let mut is_busy = false;
        for (number, rail) in self.rails.iter().enumerate() {
            let Some(factor) = penalty(number) else {
                continue;
            };
            match rail.health.leave(ms(now_ns)) {
                Leave::Never { until_ms } => {
                    let at_ns = until_ms.saturating_mul(1_000_000).max(now_ns + 1);
                    again_ns = Some(again_ns.map_or(at_ns, |again| again.min(at_ns)));
                }
                // Whether it works again shows only if somebody tries, and it costs this slice one
                // more way if it does not.
                Leave::Trial => return Choice::Rail(number),
                Leave::Free if !rail.has_room() => is_busy = true,
                Leave::Free => {
                    let cost = rail.expected_ns(bytes) * factor.max(1.0);
                    if best.is_none_or(|(least, _)| cost < least) {
                        best = Some((cost, number));
                    }
                }
            }
        }
        match (best, again_ns) {
            (Some((_, number)), _) => Choice::Rail(number),
            (None, _) if is_busy => Choice::Busy,
            (None, Some(at_ns)) => Choice::At(at_ns),
            (None, None) => Choice::Nowhere,
        }
    }

    /// A slice is sent.
    pub fn begin(&mut self, rail: usize, bytes: u64, now_ns: u64) -> Underway {
        let mut was_alone = true;
        if let Some(rail) = self.rails.get_mut(rail) {
            was_alone = rail.slices == 0;
            if was_alone {
                rail.busy_from_ns = now_ns;
            }
            rail.slices = rail.slices.saturating_add(1);
            rail.bytes = rail.bytes.saturating_add(bytes);
            rail.health.sent(ms(now_ns));
        }
        Underway {
            rail,
            bytes,
            begun_ns: now_ns,
            was_alone,
        }
    }

    /// A slice has ended.
    pub fn end(&mut self, underway: Underway, end: End, now_ns: u64) {
        self.failures += u64::from(end == End::RailFailed);
        let seed = self.failures.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let Some(rail) = self.rails.get_mut(underway.rail) else {
            return;
        };
        rail.slices = rail.slices.saturating_sub(1);
        rail.bytes = rail.bytes.saturating_sub(underway.bytes);
        match end {
            End::Done => {
                rail.health.succeeded();
                rail.learn(&underway, now_ns);
            }
            End::Refused => rail.health.succeeded(),
            End::RailFailed => rail.health.failed(ms(now_ns), seed),
            End::Abandoned => rail.health.abandoned(),
        }
        rail.busy_from_ns = rail.busy_from_ns.max(now_ns);
    }

    /// The size of a slice for this peer, in bytes, with so many of its rails: about a millisecond
    /// of the fastest.
    #[must_use]
    pub fn slice_bytes(&self) -> u64 {
        let rates = self.rails.iter().filter(|rail| !rail.health.is_out());
        let rate = rates
            .map(|rail| rail.rate.bytes_per_s())
            .fold(0.0, f64::max);
        let wanted = whole(rate * SLICE_NS / 1e9);
        let bytes = wanted.clamp(SLICE_MIN_BYTES, SLICE_MAX_BYTES);
        bytes / SLICE_MIN_BYTES * SLICE_MIN_BYTES
    }

    /// What a rail is thought to do: bytes per second, delay in ns, whether it is out. `None`:
    /// there is no such rail.
    #[must_use]
    pub fn seen(&self, rail: usize) -> Option<(f64, f64, bool)> {
        let rail = self.rails.get(rail)?;
        let (rate, delay) = (rail.rate.bytes_per_s(), rail.delay.ns());
        Some((rate, delay, rail.health.is_out()))
    }

    /// Bytes under way on a rail.
    #[must_use]
    pub fn bytes(&self, rail: usize) -> u64 {
        self.rails.get(rail).map_or(0, |rail| rail.bytes)
    }
}

impl Rail {
    /// Whether another slice is to wait here rather than in the queue.
    fn has_room(&self) -> bool {
        let window_ns = WINDOW_NS.max(2.0 * self.delay.ns());
        self.slices < 2 || self.rate.time_ns(self.bytes) < window_ns
    }

    fn expected_ns(&self, bytes: u64) -> f64 {
        self.delay.ns() + self.rate.time_ns(self.bytes.saturating_add(bytes))
    }

    fn learn(&mut self, underway: &Underway, now_ns: u64) {
        let is_lone = underway.was_alone && self.slices == 0;
        if is_lone && underway.bytes < SMALL_BYTES {
            let took_ns = now_ns.saturating_sub(underway.begun_ns);
            self.delay
                .sample(took_ns, self.rate.time_ns(underway.bytes));
            return;
        }
        let mut busy_ns = now_ns.saturating_sub(self.busy_from_ns);
        if is_lone {
            // A part of it was the way; the delay may be guessed too high.
            let way_ns = whole(self.delay.ns()).min(busy_ns / 2);
            busy_ns -= way_ns;
        }
        self.rate.sample(underway.bytes, busy_ns);
    }
}

const fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

#[cfg(test)]
mod tests;
