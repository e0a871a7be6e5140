//! The `store.*` names: the master's state machine in one process, without wire, log and agents.
//!
//! A process of its own fills a store and measures, so that its memory is that of the store alone.
//! There are no spinners: nothing sleeps here, and they would share the processor's core.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hashbrown::HashMap;
use larder_store::Request;
use larder_store::evict::trace;
use larder_types::Key;

use crate::bench::pair::{Cell, Measure, quartiles};
use crate::bench::report::{Line, Report};
use crate::bench::store_rig::{self, Rig};

/// Objects of the large store; the small one has a tenth.
pub const OBJECTS: u64 = 10_000_000;
/// Objects that each of the three removals of `store.pause_ms` takes.
pub const REMOVED: u64 = 1_000_000;
/// Keys of one call.
const BATCH: usize = 1024;
/// Different batches of a cell, so that no cache of a processor holds what they read.
const BATCHES: usize = 200;
/// Pairs, or cells where there is no ceiling.
const CELLS: usize = 11;
/// How long a cell of look-ups runs.
const CELL: Duration = Duration::from_millis(250);
/// Puts of a cell.
const PUTS: usize = 20_000;

const LOOKUP: &str = "store.lookup_batched";
const PUT: &str = "store.put_pair";
const BYTES: &str = "store.bytes_per_object";
const FLATNESS: &str = "store.flatness";
const PAUSE: &str = "store.pause_ms";
const EVICT: &str = "store.evict_p999";

/// Every name of this module.
#[must_use]
pub fn names() -> Vec<String> {
    [LOOKUP, PUT, BYTES, FLATNESS, PAUSE, EVICT]
        .map(str::to_owned)
        .into()
}

/// Measures every `store.*` name that starts with `only`.
///
/// # Errors
/// If a process of its own cannot be started or fails.
pub fn measure(only: &str, report: &mut Report) -> Result<()> {
    let wanted = |name: &&str| name.starts_with(only);
    if [LOOKUP, PUT, BYTES, FLATNESS].iter().any(wanted) {
        lines_of("store-sizes", only, report)?;
    }
    if wanted(&PAUSE) {
        lines_of("store-pauses", only, report)?;
    }
    if wanted(&EVICT) {
        lines_of("store-evictions", only, report)?;
    }
    Ok(())
}

/// Runs a part as a process of its own and takes over the lines that it prints.
fn lines_of(part: &str, only: &str, report: &mut Report) -> Result<()> {
    let own = std::env::current_exe()?;
    let output = Command::new(own)
        .arg(part)
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(
        output.status.success(),
        "{part} ended with {}",
        output.status
    );
    for text in String::from_utf8(output.stdout)?.lines() {
        let line: Line = serde_json::from_str(text)?;
        if line.name.starts_with(only) {
            report.add(line)?;
        }
    }
    Ok(())
}

/// Cost of one look-up and of one put, in us of processor time.
struct Costs {
    lookup_us: f64,
    put_us: f64,
    puts: Vec<Cell>,
}

/// The part that measures stores of `objects` and a tenth of that; prints its lines.
///
/// # Errors
/// If the memory of this process cannot be read.
pub fn sizes(objects: u64) -> Result<Vec<Line>> {
    let before = memory_bytes()?;
    let mut rig = Rig::new();
    let small_objects = objects / 10;
    fill(&mut rig, 0..small_objects);
    let small = costs(&mut rig, small_objects)?;
    let next = rig.state.objects();
    fill(&mut rig, next..objects);
    let held_bytes = memory_bytes()?.saturating_sub(before) as f64 / rig.state.objects() as f64;
    let large = costs(&mut rig, objects)?;
    let lookups = lookups(&mut rig, objects)?;

    // By processor time: others who share the machine make a single thread's wall time long.
    let rates = small.puts.iter().map(|cell| 1e6 / cell.cpu_us_per_op());
    let [low, put, high] = quartiles(rates.collect());
    let mut put = plain(PUT, put, "pairs/s", [low, high]);
    put.cpu_us_per_op = small.put_us;
    put.samples = small.puts.len();
    note(&mut put, "objects", small_objects);

    let mut bytes = plain(BYTES, held_bytes, "B", [held_bytes; 2]);
    note(&mut bytes, "objects", objects);

    let (lookup, put_ratio) = (
        large.lookup_us / small.lookup_us,
        large.put_us / small.put_us,
    );
    let worst = lookup.max(put_ratio);
    let mut flatness = plain(FLATNESS, worst, "x", [lookup, put_ratio]);
    note(
        &mut flatness,
        "objects",
        format!("{small_objects} {objects}"),
    );
    note(&mut flatness, "lookup", format!("{lookup:.3}"));
    note(&mut flatness, "put", format!("{put_ratio:.3}"));
    Ok(vec![lookups, put, bytes, flatness])
}

fn fill(rig: &mut Rig, numbers: std::ops::Range<u64>) {
    for number in numbers {
        rig.put(store_rig::key(number));
    }
}

/// Costs of a store that holds keys 0 to `objects`; it holds a few more afterwards.
fn costs(rig: &mut Rig, objects: u64) -> Result<Costs> {
    let batches = batches(objects);
    let own = [std::process::id()];
    let mut turn = 0;
    let mut lookups = Vec::new();
    let mut puts = Vec::new();
    for _ in 0..CELLS {
        lookups.push(Cell::measure(CELL, &own, || {
            turn += 1;
            look_up(rig, &batches[turn % BATCHES])
        })?);
        let first = rig.state.objects();
        let mut keys: Vec<Key> = (first..first + PUTS as u64).map(store_rig::key).collect();
        puts.push(Cell::count(PUTS, &own, || {
            rig.put(keys.pop().context("the keys ran out")?);
            Ok(())
        })?);
    }
    let median = |cells: &[Cell]| quartiles(cells.iter().map(Cell::cpu_us_per_op).collect())[1];
    Ok(Costs {
        lookup_us: median(&lookups) / BATCH as f64,
        put_us: median(&puts),
        puts,
    })
}

/// Batches of keys of stored objects, drawn at random.
fn batches(objects: u64) -> Vec<Vec<Key>> {
    let mut seed = objects;
    let mut batch = || {
        let keys = (0..BATCH).map(|_| store_rig::key(store_rig::mix(&mut seed) % objects));
        keys.collect()
    };
    (0..BATCHES).map(|_| batch()).collect()
}

fn look_up(rig: &mut Rig, keys: &[Key]) -> Result<()> {
    let keys: Vec<&Key> = keys.iter().collect();
    let (found, _) = rig.leader.exists_all(&rig.state, &rig.tenant, &keys)?;
    ensure!(
        found.iter().all(|found| *found),
        "a stored key is not found"
    );
    Ok(())
}

/// Batches of our look-ups against those of a bare hash map of the same keys.
fn lookups(rig: &mut Rig, objects: u64) -> Result<Line> {
    let map: HashMap<Box<[u8]>, u64> = (0..objects)
        .map(|number| (store_rig::key(number).as_bytes().into(), number))
        .collect();
    let batches = batches(objects);
    let own = [std::process::id()];
    let (mut turn, mut pairs) = (0, Vec::new());
    for _ in 0..CELLS {
        let ours = Cell::measure(CELL, &own, || {
            turn += 1;
            look_up(rig, &batches[turn % BATCHES])
        })?;
        let theirs = Cell::measure(CELL, &own, || {
            turn += 1;
            let keys = batches[turn % BATCHES].iter();
            let found = keys.filter(|key| map.contains_key(key.as_bytes()));
            ensure!(found.count() == BATCH, "a stored key is not found");
            Ok(())
        })?;
        pairs.push((ours, theirs));
    }
    let measure = Measure::Rate {
        items: BATCH as u64,
    };
    let values = pairs.iter().map(|(ours, _)| measure.of(ours)).collect();
    let speeds = pairs
        .iter()
        .map(|(ours, theirs)| measure.speed(ours, theirs));
    let [low, speed, high] = quartiles(speeds.collect());
    let cpu = |(ours, theirs): &(Cell, Cell)| theirs.cpu_us_per_op() / ours.cpu_us_per_op();
    let [_, cpu, _] = quartiles(pairs.iter().map(cpu).collect());
    let costs = pairs.iter().map(|(ours, _)| ours.cpu_us_per_op());
    let mut line = plain(LOOKUP, quartiles(values)[1], "keys/s", [low, high]);
    line.ratios.insert("ceiling".to_owned(), speed);
    line.ratios_cpu.insert("ceiling".to_owned(), cpu);
    line.cpu_us_per_op = quartiles(costs.collect())[1];
    line.samples = pairs.len();
    note(&mut line, "objects", objects);
    Ok(line)
}

/// The part that measures the longest turns while `objects` leave in each of three ways.
///
/// # Errors
/// If the clock of this thread cannot be read.
pub fn pauses(objects: u64) -> Result<Vec<Line>> {
    let mut rig = Rig::new();
    for (part, number) in (1..=3).enumerate() {
        rig.preferred = rig.agent(number);
        fill(&mut rig, part as u64 * objects..(part as u64 + 1) * objects);
    }
    let lost = rig.segment_objects(1);
    ensure!(lost >= objects, "{lost} objects lie on the segment to lose");
    let mut turns = vec![turn(|| rig.mount(1))];
    while rig.state.lost_segments().next().is_some() {
        turns.push(tick(&mut rig));
    }
    let lost_ms = longest(&turns);

    let mut turns = Vec::new();
    for first in (objects..2 * objects).step_by(BATCH) {
        let keys = (first..(first + BATCH as u64).min(2 * objects)).map(store_rig::key);
        let requests: Vec<Request> = keys.map(|key| rig.removal_of(key)).collect();
        turns.push(turn(|| {
            for request in &requests {
                rig.ask(request);
            }
        }));
    }
    let removed_ms = longest(&turns);

    let tenant = rig.tenant.clone();
    let mut turns = vec![turn(|| drop(rig.ask(&Request::TenantDelete { tenant })))];
    while rig.state.objects() > 0 {
        turns.push(tick(&mut rig));
    }
    // Then memory is given back.
    turns.extend((0..1000).map(|_| tick(&mut rig)));
    let purged_ms = longest(&turns);

    let worst = lost_ms.max(removed_ms).max(purged_ms);
    let mut line = plain(PAUSE, worst, "ms", [worst; 2]);
    for (kind, ms) in [
        ("lost", lost_ms),
        ("removed", removed_ms),
        ("purged", purged_ms),
    ] {
        note(&mut line, kind, format!("{ms:.2}"));
    }
    note(&mut line, "objects", objects);
    Ok(vec![line])
}

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
const EVICT_SLABS: u32 = 1;
/// Look-ups of a cell, each of a call's worth of keys.
const EVICT_LOOKUPS: usize = 20_000;
/// Puts that come in between two of them.
const EVICT_PUTS: u64 = 16;

/// The part that measures look-ups of a pool at its high watermark, with puts that make it evict
/// all the time, against the same look-ups with nothing in between. What a look-up waits for is
/// counted with it: the turn of eviction that stands before it.
///
/// # Errors
/// If the clock of this thread cannot be read, or nothing is evicted.
pub fn evictions() -> Result<Vec<Line>> {
    let mut rig = Rig::with_slabs(EVICT_SLABS);
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
        let calm =
            p999_us((0..EVICT_LOOKUPS).map(|_| (Duration::ZERO, look_up_latest(&mut rig, next))));
        let mut busy = Vec::with_capacity(EVICT_LOOKUPS);
        for _ in 0..EVICT_LOOKUPS {
            for _ in 0..EVICT_PUTS {
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
    let count = |signals: &larder_store::evict::Signals| -> u64 {
        signals.evicted.iter().map(|one| one.objects).sum()
    };
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

fn tick(rig: &mut Rig) -> Duration {
    turn(|| {
        let ops = rig.tick();
        rig.commit(&ops);
    })
}

/// A turn that only evicts.
fn evict(rig: &mut Rig) -> Duration {
    turn(|| {
        let ops = rig.evict();
        rig.commit(&ops);
    })
}

/// Processor time of this thread for one turn.
fn turn(act: impl FnOnce()) -> Duration {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(
            time.tv_sec.unsigned_abs(),
            time.tv_nsec.unsigned_abs() as u32,
        )
    };
    let before = now();
    act();
    now().saturating_sub(before)
}

fn longest(turns: &[Duration]) -> f64 {
    turns
        .iter()
        .max()
        .map_or(0.0, |turn| turn.as_secs_f64() * 1e3)
}

/// Resident memory of this process, in bytes.
fn memory_bytes() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).context("statm has two fields")?;
    Ok(pages.parse::<u64>()? * rustix::param::page_size() as u64)
}

fn plain(name: &str, value: f64, unit: &str, spread: [f64; 2]) -> Line {
    Line {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        ratios: BTreeMap::new(),
        ratios_cpu: BTreeMap::new(),
        samples: 1,
        spread,
        cpu_us_per_op: 0.0,
        config: BTreeMap::from([("key_bytes".to_owned(), "35".to_owned())]),
    }
}

fn note(line: &mut Line, name: &str, value: impl ToString) {
    line.config.insert(name.to_owned(), value.to_string());
}
