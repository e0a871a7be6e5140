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

/// Slabs of 1 GiB per agent in the pool that evicts: 2 million objects of 4 KiB in all.
const SLABS: u32 = 1;
/// Look-ups of a cell, each of a call's worth of keys.
const LOOKUPS: usize = 10_000;
/// Puts that come in between two of them.
const PUTS: u64 = 16;

/// The part that measures look-ups of a pool at its high watermark, with puts that make it evict
/// all the time, against the same look-ups with nothing in between. What a look-up waits for is
/// counted with it: the turn of eviction that stands before it.
///
/// # Errors
/// If the clock of this thread cannot be read, or nothing is evicted.
pub fn evictions() -> Result<Vec<Line>> {
    let mut rig = Rig::with_slabs(SLABS);
    rig.releases = true;
    let mut next = 0;
    while rig.leader.signals(&rig.state).pressure_per_mille < 890 {
        fill(&mut rig, next..next + 10_000);
        next += 10_000;
    }
    // The new leader of an empty state has nothing to learn; what is over its mark goes now.
    for _ in 0..1_000 {
        tick(&mut rig);
        rig.release();
    }
    let mut pairs = Vec::new();
    let before = rig.leader.signals(&rig.state).all;
    for _ in 0..CELLS {
        let calm = p999_us((0..LOOKUPS).map(|_| (Duration::ZERO, look_up_latest(&mut rig, next))));
        let mut busy = Vec::with_capacity(LOOKUPS);
        for _ in 0..LOOKUPS {
            for _ in 0..PUTS {
                rig.put(store_rig::key(next));
                next += 1;
            }
            rig.release();
            let waited = evict(&mut rig);
            busy.push((waited, look_up_latest(&mut rig, next)));
        }
        pairs.push((calm, p999_us(busy.into_iter())));
    }
    let after = rig.leader.signals(&rig.state).all;
    let count = |signals: &Signals| -> u64 { signals.evicted.iter().map(|one| one.objects).sum() };
    let evicted = count(&after) - count(&before);
    ensure!(evicted > 0, "nothing was evicted");
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
    turn(|| drop(rig.leader.exists_all(&rig.state, &rig.tenant, &keys)))
}

/// The 99.9th percentile of the sums, in us.
fn p999_us(times: impl Iterator<Item = (Duration, Duration)>) -> f64 {
    let mut times: Vec<Duration> = times.map(|(waited, took)| waited + took).collect();
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
