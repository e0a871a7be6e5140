//! `store.evict_p999`: look-ups while eviction runs; and what each policy of eviction hits.

use std::time::Duration;

use anyhow::{Result, ensure};
use larder_store::evict::{Signals, trace};
use larder_types::Key;

use crate::bench::pair::quartiles;
use crate::bench::report::Line;
use crate::bench::store::{BATCH, CELLS, EVICT, fill, note, plain, tick, turn};
use crate::bench::store_rig::{self, Rig};

/// Hit ratios of each policy on one trace, by size of the cache: a table in Markdown.
#[must_use]
pub fn hits() -> String {
    let found = trace::hit_ratios(7, 30_000, &[5, 10, 20, 50, 100, 250]);
    let mut table = "| cache, of all blocks | policy | hits | ghost hits of misses |\n".to_owned();
    table += "|---|---|---|---|\n";
    for row in found {
        let size = row.size_per_mille as f64 / 10.0;
        let (hits, ghosts) = (row.hit_ratio * 100.0, row.ghost_ratio * 100.0);
        table += &format!(
            "| {size:.1} % | {} | {hits:.1} % | {ghosts:.1} % |\n",
            row.policy
        );
    }
    table
}

/// Slabs of each agent, and their size in bytes: room for 2 million objects of 4 KiB in all.
const SLABS: u32 = 16;
const SLAB_BYTES: u64 = 64 << 20;
/// So much of a pool is filled, per mille: up to its high watermark, and well below it.
const FULL: u64 = 890;
const ROOMY: u64 = 700;
/// Look-ups of a cell, each of a call's worth of keys.
const LOOKUPS: usize = 10_000;
/// Puts that come in between two of them.
const PUTS: u64 = 16;

/// A pool, the number of the next object that is put, and how many are kept by removing the oldest.
struct Pool {
    rig: Rig,
    next: u64,
    keeps: Option<u64>,
}

impl Pool {
    /// One that is filled so far, per mille, and has nothing left to do.
    fn new(filled: u64) -> Self {
        let mut rig = Rig::with_slabs(SLABS, SLAB_BYTES);
        rig.releases = true;
        let slabs = u64::from(SLABS) * u64::from(store_rig::AGENTS);
        let room = slabs * SLAB_BYTES / store_rig::OBJECT_BYTES;
        let objects = room * filled / 1_000;
        fill(&mut rig, 0..objects);
        // The new leader of an empty state has nothing to learn; what is over its mark goes now.
        for _ in 0..1_000 {
            tick(&mut rig);
            rig.release();
        }
        Self {
            rig,
            next: objects,
            keeps: (filled < FULL).then_some(objects),
        }
    }

    /// How long each look-up took, puts and a turn of eviction before it included: they are what
    /// it waits for.
    fn lookups(&mut self) -> Vec<Duration> {
        let one = |_| {
            let Self { rig, next, keeps } = self;
            // As many objects stay as in a pool that evicts: a table that grows has pauses of its
            // own.
            let oldest = keeps.map_or(0..0, |keeps| *next - keeps..*next - keeps + PUTS);
            oldest.for_each(|number| drop(rig.ask(&rig.removal_of(store_rig::key(number)))));
            let keys: Vec<Key> = (*next..*next + PUTS).map(store_rig::key).collect();
            let puts = turn(|| keys.into_iter().for_each(|key| rig.put(key)));
            *next += PUTS;
            rig.release();
            puts + evict(rig) + look_up_latest(rig, *next)
        };
        (0..LOOKUPS).map(one).collect()
    }

    fn evicted(&self) -> u64 {
        let signals: Signals = self.rig.leader.signals(&self.rig.state).all;
        signals.evicted.iter().map(|one| one.objects).sum()
    }
}

/// The part that measures look-ups of a pool at its high watermark, in which puts make it evict
/// all the time, against the same puts and look-ups in a pool that has room for them.
///
/// # Errors
/// If the clock of this thread cannot be read, nothing is evicted, or the roomy pool evicts.
pub fn evictions() -> Result<Vec<Line>> {
    let (mut full, mut roomy) = (Pool::new(FULL), Pool::new(ROOMY));
    let before = full.evicted();
    let pairs: Vec<(f64, f64)> = (0..CELLS)
        .map(|_| (p999_us(roomy.lookups()), p999_us(full.lookups())))
        .collect();
    let evicted = full.evicted() - before;
    ensure!(evicted > 0, "nothing was evicted");
    ensure!(roomy.evicted() == 0, "the roomy pool evicts");
    let [low, ratio, high] = quartiles(pairs.iter().map(|(calm, busy)| busy / calm).collect());
    let mut line = plain(EVICT, ratio, "x", [low, high]);
    line.samples = pairs.len();
    let medians = |of: fn(&(f64, f64)) -> f64| quartiles(pairs.iter().map(of).collect())[1];
    note(
        &mut line,
        "calm_p999_us",
        format!("{:.1}", medians(|pair| pair.0)),
    );
    note(
        &mut line,
        "evicting_p999_us",
        format!("{:.1}", medians(|pair| pair.1)),
    );
    note(&mut line, "keys_per_call", BATCH);
    note(&mut line, "puts_between", PUTS);
    note(&mut line, "evicted", evicted);
    Ok(vec![line])
}

/// A call that asks for keys of the latest million, of which most are there.
fn look_up_latest(rig: &mut Rig, next: u64) -> Duration {
    let mut seed = next ^ rig.state.digest();
    let first = next.saturating_sub(1_000_000);
    let keys: Vec<Key> = (0..BATCH)
        .map(|_| store_rig::key(first + store_rig::mix(&mut seed) % (next - first).max(1)))
        .collect();
    let keys: Vec<&Key> = keys.iter().collect();
    turn(|| drop(rig.exists_all(&keys)))
}

/// The 99.9th percentile, in us.
fn p999_us(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    let rank = times.len() * 999 / 1000;
    times.get(rank).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

/// A turn that only evicts.
fn evict(rig: &mut Rig) -> Duration {
    turn(|| {
        let ops = rig.evict();
        rig.commit(&ops);
    })
}
