//! The `store.*` names: the master's state machine in one process, without wire, log and agents.
//!
//! A process of its own fills a store and measures, so that its memory is that of the store alone.
//! There are no spinners: nothing sleeps here, and they would share the processor's core.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hashbrown::HashMap;
use larder_store::{Request, Settings};
use larder_types::Key;

use crate::bench::pair::{Cell, Measure, quartiles};
use crate::bench::report::{Line, Report};
use crate::bench::store_rig::{self, Rig};

/// Objects of the large store; the small one has a tenth.
pub const OBJECTS: u64 = 10_000_000;
/// Objects that each of the three removals of `store.pause_ms` takes.
pub const REMOVED: u64 = 1_000_000;
/// Keys of one call.
pub(super) const BATCH: usize = 1024;
/// Different batches of a cell, so that no cache of a processor holds what they read.
const BATCHES: usize = 200;
/// Pairs, or cells where there is no ceiling.
pub(super) const CELLS: usize = 11;
/// How long a cell of look-ups runs.
const CELL: Duration = Duration::from_millis(250);
/// Puts of a cell.
const PUTS: usize = 20_000;

const LOOKUP: &str = "store.lookup_batched";
const PUT: &str = "store.put_pair";
const BYTES: &str = "store.bytes_per_object";
const FLATNESS: &str = "store.flatness";
const PAUSE: &str = "store.pause_ms";
pub(super) const EVICT: &str = "store.evict_p999";

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

pub(super) fn fill(rig: &mut Rig, numbers: std::ops::Range<u64>) {
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
    let found = rig.exists_all(&keys)?;
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
    // A master decides no more of a call before others have their turn.
    let slice = Settings::default().slice_items;
    for first in (objects..2 * objects).step_by(slice) {
        let keys = (first..(first + slice as u64).min(2 * objects)).map(store_rig::key);
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

pub(super) fn tick(rig: &mut Rig) -> Duration {
    turn(|| {
        let ops = rig.tick();
        rig.commit(&ops);
    })
}

/// Processor time of this thread for one turn.
pub(super) fn turn(act: impl FnOnce()) -> Duration {
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

pub(super) fn plain(name: &str, value: f64, unit: &str, spread: [f64; 2]) -> Line {
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

pub(super) fn note(line: &mut Line, name: &str, value: impl ToString) {
    line.config.insert(name.to_owned(), value.to_string());
}
