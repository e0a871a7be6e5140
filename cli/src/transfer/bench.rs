//! `larder transfer bench`: threads with workers, and what is told of them.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larder_transfer::OwnMemory;
use larder_transfer::endpoint::Endpoint;
use larder_wire::engine::{BufferAccess, Described};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::Instant;

use super::worker::{Beat, Done, Worker};
use super::{options, program, runtime};
use crate::args::{Global, Operation, TransferBench};
use crate::bytes_text::show_bytes;
use crate::error::{CliError, EXIT_FAILED};
use crate::output::Output;

/// The most threads, and requests in flight of each.
const MANY: u32 = 1_024;

/// What is told of a run: one JSON line.
#[derive(Debug, Serialize)]
struct Told {
    operation: String,
    class: String,
    size_bytes: u64,
    batch: u64,
    depth: u32,
    threads: u32,
    lanes: usize,
    rate_per_s: Option<u32>,
    requests: u64,
    failed: u64,
    retries: u64,
    /// Absent if nothing was compared.
    wrong_ranges: Option<u64>,
    wall_s: f64,
    gb_per_s: f64,
    requests_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    longest_us: f64,
    /// Processor time of this side's threads.
    cpu_us_per_request: f64,
    cpu_s_per_gb: f64,
}

/// Measures what the arguments say.
pub(super) fn bench(
    global: &Global,
    asked: &TransferBench,
    output: &mut Output,
) -> Result<u8, CliError> {
    check(asked)?;
    let limit = global.deadline;
    let threads: Vec<_> = (0..asked.threads)
        .map(|number| {
            let asked = asked.clone();
            std::thread::spawn(move || thread(number, &asked, limit))
        })
        .collect();
    let mut all = Done::default();
    for thread in threads {
        let ended = thread.join();
        let done = ended.map_err(|_| CliError::Program("a thread ended by itself".into()))?;
        all.take_in(done?);
    }
    let told = tell(asked, &all);
    output.result(&told, &human(asked, &told, all.first_failure.as_deref()))?;
    let is_well = all.failed == 0 && all.wrong_ranges == 0;
    Ok(if is_well { 0 } else { EXIT_FAILED })
}

fn check(asked: &TransferBench) -> Result<(), CliError> {
    let counts = [
        ("--threads", u64::from(asked.threads), u64::from(MANY)),
        ("--depth", u64::from(asked.depth), u64::from(MANY)),
        ("--batch", asked.batch, 4_096),
        ("--lanes", asked.lanes as u64, 64),
        ("--size", asked.size, 1 << 40),
        ("--rate", asked.rate.map_or(1, u64::from), 10_000_000),
    ];
    let wrong = counts
        .into_iter()
        .find(|(_, count, most)| !(1..=*most).contains(count));
    match wrong {
        Some((name, _, most)) => Err(CliError::Usage(format!("{name} must be 1 to {most}"))),
        None => Ok(()),
    }
}

/// One thread: its own endpoint, and its share of the peer's memory.
fn thread(number: u32, asked: &TransferBench, limit: Duration) -> Result<Done, CliError> {
    let mut options = options(&asked.secret_file)?;
    options.lanes = asked.lanes;
    let local = LocalSet::new();
    local.block_on(&runtime()?, async {
        let endpoint = Endpoint::new(options);
        let peer = endpoint.open(&asked.peer).await.map_err(program)?;
        let remote = endpoint.described(peer);
        let remote = remote.into_iter().max_by_key(|buffer| buffer.bytes);
        let remote =
            remote.ok_or_else(|| CliError::Usage(format!("{} offers no memory", asked.peer)))?;
        let share = Share::of(asked, &remote)?;
        let worker_bytes = share.places * Worker::step_bytes(asked);
        let bytes = 2 * worker_bytes * u64::from(asked.depth);
        let memory = Arc::new(OwnMemory::create(bytes).map_err(program)?);
        let registered =
            endpoint.register(Arc::clone(&memory), BufferAccess::default(), Vec::new());
        registered.map_err(program)?;
        let asked = Rc::new(asked.clone());
        let mut all = Vec::new();
        for at in 0..u64::from(asked.depth) {
            let in_all = u64::from(number) * u64::from(asked.depth) + at;
            let mut worker = Worker {
                endpoint: endpoint.clone(),
                peer,
                asked: Rc::clone(&asked),
                limit,
                memory: Arc::clone(&memory),
                local_offset: at * 2 * worker_bytes,
                remote_address: remote.start + in_all * worker_bytes,
                seeds: vec![0; usize::try_from(share.places).map_err(program)?],
                last_seed: in_all << 40,
            };
            worker.prepare().await?;
            all.push(worker);
        }
        let (start, cpu) = (Instant::now(), cpu_time());
        let beat = Rc::new(Beat {
            every: asked
                .rate
                .map(|rate| Duration::from_secs(1) * asked.threads / rate),
            next: Cell::new(start),
            end: start + asked.time,
        });
        let mut workers = JoinSet::new();
        for worker in all {
            workers.spawn_local(worker.run(Rc::clone(&beat)));
        }
        let mut all = Done::default();
        while let Some(ended) = workers.join_next().await {
            all.take_in(ended.map_err(program)??);
        }
        (all.wall, all.cpu) = (start.elapsed(), cpu_time().saturating_sub(cpu));
        Ok(all)
    })
}

/// The part of the peer's memory that each worker has.
struct Share {
    /// Places for one range each.
    places: u64,
}

impl Share {
    /// As many places as fit, up to what makes no cache hold all of them.
    fn of(asked: &TransferBench, remote: &Described) -> Result<Self, CliError> {
        const ENOUGH_BYTES: u64 = 256 << 20;
        let workers = u64::from(asked.threads) * u64::from(asked.depth);
        let step = Worker::step_bytes(asked);
        let most = remote.bytes / workers / step;
        let places = most.min((ENOUGH_BYTES / workers / step).max(asked.batch));
        if places < asked.batch {
            let needed = asked.batch * step * workers;
            return Err(CliError::Usage(format!(
                "the peer offers {}, and {} are needed; give smaller --size, --batch, --depth or \
                 --threads, or serve more --memory",
                show_bytes(remote.bytes),
                show_bytes(needed)
            )));
        }
        Ok(Self { places })
    }
}

fn tell(asked: &TransferBench, all: &Done) -> Told {
    let requests = all.latencies.count();
    #[expect(clippy::cast_precision_loss, reason = "figures to be shown")]
    let (count, bytes) = (
        requests as f64,
        (requests * asked.batch * asked.size) as f64,
    );
    let (seconds, cpu_s) = (all.wall.as_secs_f64(), all.cpu.as_secs_f64());
    Told {
        operation: format!("{:?}", asked.operation).to_lowercase(),
        class: asked.class.class().name().to_owned(),
        size_bytes: asked.size,
        batch: asked.batch,
        depth: asked.depth,
        threads: asked.threads,
        lanes: asked.lanes,
        rate_per_s: asked.rate,
        requests,
        failed: all.failed,
        retries: all.retries,
        wrong_ranges: (asked.check && asked.operation != Operation::Write)
            .then_some(all.wrong_ranges),
        wall_s: seconds,
        gb_per_s: bytes / seconds / 1e9,
        requests_per_s: count / seconds,
        p50_us: all.latencies.per_mille_us(500),
        p99_us: all.latencies.per_mille_us(990),
        p999_us: all.latencies.per_mille_us(999),
        longest_us: all.latencies.longest_us(),
        cpu_us_per_request: cpu_s * 1e6 / count.max(1.0),
        cpu_s_per_gb: cpu_s * 1e9 / bytes.max(1.0),
    }
}

fn human(asked: &TransferBench, told: &Told, failure: Option<&str>) -> String {
    let mut text = format!(
        "{} {} x {}: {} requests in {:.1} s, {:.2} GB/s; p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} \
         us, longest {:.1} us; {:.1} us of processor a request, {:.3} s a GB",
        told.operation,
        asked.batch,
        show_bytes(asked.size),
        told.requests,
        told.wall_s,
        told.gb_per_s,
        told.p50_us,
        told.p99_us,
        told.p999_us,
        told.longest_us,
        told.cpu_us_per_request,
        told.cpu_s_per_gb,
    );
    if let Some(wrong) = told.wrong_ranges {
        text.push_str(&format!(
            "; {wrong} ranges were read otherwise than written"
        ));
    }
    if told.failed > 0 {
        let why = failure.unwrap_or_default();
        text.push_str(&format!(
            "; {} requests failed, the first: {why}",
            told.failed
        ));
    }
    text
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    let ns = u32::try_from(now.tv_nsec).unwrap_or_default();
    Duration::new(seconds, ns)
}
