//! The `ha.*` names: what a fail-over costs, and what the replicas of the master cost each put.
//!
//! No spinners: several masters, agents and clients keep the processors awake, and the spinners
//! would take part in each election.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use larder_client::{Client, PutMode};
use tokio::runtime::Runtime;

use crate::bench::pair::quartiles;
use crate::bench::report::{Line, Report};
use crate::chaos::ledger::value;
use crate::chaos::load::{BATCH, TENANT, addrs, connect, key, pinned};
use crate::chaos::masters::{leader, log_syncs, until_whole};
use crate::chaos::{Fault, report};
use crate::pool::{Pool, larder};
use crate::proc;

/// The faults of `make bench`; `chaos` knows more.
const FAULTS: [Fault; 9] = [
    Fault::Kill9,
    Fault::Pause,
    Fault::Partition,
    Fault::DiskFull,
    Fault::PowerOne,
    Fault::PowerAll,
    Fault::Clock,
    Fault::Switchover,
    Fault::FollowerCut,
];
/// Injections and acknowledged puts of each, as the bars have it.
const ROUNDS: &str = "20";
const PUTS: &str = "110000";
const REPLICAS: &str = "ha.put.3_replicas";
const SYNCS: &str = "ha.log_syncs_per_1000_puts";

/// Pairs of a cell with one master and one with three.
const PAIRS: u32 = 11;
/// Batches of a cell, of so many clients at once.
const BATCHES: u32 = 16;
const CLIENTS: usize = 4;

/// Every name of this module.
#[must_use]
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = FAULTS.into_iter().flat_map(report::names).collect();
    names.extend([REPLICAS, SYNCS].map(str::to_owned));
    names
}

/// Measures every `ha.*` name that starts with `only`.
///
/// # Errors
/// If a pool does not start, or is not whole again after a fault.
pub fn measure(only: &str, report: &mut Report) -> Result<()> {
    for fault in FAULTS {
        if report::names(fault)
            .iter()
            .any(|name| name.starts_with(only))
        {
            faults(fault, only, report)?;
        }
    }
    if REPLICAS.starts_with(only) || SYNCS.starts_with(only) {
        for line in replicas()? {
            report.add(line)?;
        }
    }
    Ok(())
}

/// Runs the program `chaos`, which makes namespaces of its own.
fn faults(fault: Fault, only: &str, out: &mut Report) -> Result<()> {
    let chaos = larder()?.with_file_name("chaos");
    let output = Command::new(&chaos)
        .args(["--fault", fault.name(), "--rounds", ROUNDS, "--puts", PUTS])
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("{} is not built", chaos.display()))?;
    for text in String::from_utf8_lossy(&output.stdout).lines() {
        let line: Line = serde_json::from_str(text)?;
        if line.name.starts_with(only) {
            out.add(line)?;
        }
    }
    ensure!(
        output.status.success(),
        "chaos --fault {fault}: {}",
        output.status
    );
    Ok(())
}

/// A pool and the clients that put to it.
struct Side {
    pool: Pool,
    clients: Vec<Client>,
    cells: u32,
}

impl Side {
    fn start(masters: usize, runtime: &Runtime) -> Result<Self> {
        let label = format!("bench-{masters}");
        let pool = Pool::start(&label, &crate::chaos::pool_file(&label, masters, 2, 256))?;
        let mut clients = Vec::with_capacity(CLIENTS);
        for _ in 0..CLIENTS {
            clients.push(runtime.block_on(connect(&pool, TENANT, addrs(&pool)))?);
        }
        Ok(Self {
            pool,
            clients,
            cells: 0,
        })
    }

    /// Processor time of the leader for a put, in us, and syncs of all logs for 1,000 puts.
    fn cell(&mut self, runtime: &Runtime) -> Result<[f64; 2]> {
        let pid = leader(&until_whole(&self.pool)?)?.pid;
        let syncs = log_syncs(&self.pool)?;
        let cell = self.cells;
        self.cells += 1;
        let before = proc::cpu_exact(pid)?;
        let mut running = tokio::task::JoinSet::new();
        for (number, client) in self.clients.iter().enumerate() {
            let prefix = format!("cell/{cell}/{number}");
            running.spawn_on(put_all(client.clone(), prefix), runtime.handle());
        }
        let mut puts = 0;
        while let Some(done) = runtime.block_on(running.join_next()) {
            puts += done??;
        }
        let used = proc::cpu_exact(pid)?.saturating_sub(before);
        let syncs = log_syncs(&self.pool)? - syncs;
        for client in &self.clients {
            let client = client.with_deadline(Duration::from_secs(20));
            runtime.block_on(client.remove_prefix(format!("cell/{cell}/").as_bytes(), false))?;
        }
        let puts = f64::from(puts);
        Ok([used.as_secs_f64() * 1e6 / puts, syncs * 1e3 / puts])
    }
}

async fn put_all(client: Client, prefix: String) -> Result<u32> {
    let options = pinned(PutMode::Create);
    let mut puts = 0;
    for batch in 0..BATCHES {
        let items: Result<Vec<_>> = (0..BATCH)
            .map(|at| Ok((key(&format!("{prefix}/{batch}/{at}"))?, value(at as u64))))
            .collect();
        for result in client.put_batch_with(items?, &options).await {
            result?;
            puts += 1;
        }
    }
    Ok(puts)
}

fn replicas() -> Result<Vec<Line>> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut one = Side::start(1, &runtime)?;
    let mut three = Side::start(3, &runtime)?;
    // Slabs are given and connections opened outside the clock.
    one.cell(&runtime)?;
    three.cell(&runtime)?;
    let (mut ratios, mut alone, mut replicated) = (Vec::new(), Vec::new(), Vec::new());
    let mut all_syncs = Vec::new();
    for _ in 0..PAIRS {
        let ([a, _], [b, syncs]) = (one.cell(&runtime)?, three.cell(&runtime)?);
        ensure!(a > 0.0, "the kernel counts no processor time");
        ratios.push(b / a);
        alone.push(a);
        replicated.push(b);
        all_syncs.push(syncs);
    }
    let [low, median, high] = quartiles(ratios);
    let [_, alone, _] = quartiles(alone);
    let [_, replicated, _] = quartiles(replicated);
    let [few, syncs, many] = quartiles(all_syncs);
    let config = [
        ("batch", BATCH.to_string()),
        ("clients", CLIENTS.to_string()),
        ("object", "4k".to_owned()),
        ("sync", "Interval".to_owned()),
        ("leader_us_per_put.1", format!("{alone:.2}")),
        ("leader_us_per_put.3", format!("{replicated:.2}")),
        ("log_syncs_per_1000_puts", format!("{syncs:.2}")),
    ];
    let line = |name: &str, value: f64, unit: &str, spread: [f64; 2]| -> Result<Line> {
        Ok(Line {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
            ratios: BTreeMap::new(),
            ratios_cpu: BTreeMap::new(),
            samples: usize::try_from(PAIRS)?,
            spread,
            cpu_us_per_op: replicated,
            config: config
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.clone()))
                .collect(),
        })
    };
    Ok(vec![
        line(REPLICAS, median, "x", [low, high])?,
        line(SYNCS, syncs, "syncs", [few, many])?,
    ])
}
