//! The `ha.*` names: what a fail-over costs, and what the replicas of the master cost each put.
//!
//! No spinners: several masters, agents and clients keep the processors awake, and the spinners
//! would take part in each election.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use larder_client::{Client, PutMode};
use tokio::runtime::Runtime;

use crate::bench::pair::quartiles;
use crate::bench::report::{Line, Report};
use crate::chaos::ledger::value;
use crate::chaos::load::{BATCH, TENANT, addrs, connect, key, pinned};
use crate::chaos::masters::{leader, until_whole};
use crate::chaos::{Fault, Plan, report, round};
use crate::pool::Pool;
use crate::proc;

/// The faults of `make bench`; `chaos` knows more.
const FAULTS: [Fault; 2] = [Fault::Kill9, Fault::Pause];
const REPLICAS: &str = "ha.put.3_replicas";

/// Pairs of a cell with one master and one with three.
const PAIRS: u32 = 11;
/// Batches of a cell, of so many clients at once.
const BATCHES: u32 = 16;
const CLIENTS: usize = 4;

/// Every name of this module.
#[must_use]
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = FAULTS.into_iter().flat_map(report::names).collect();
    names.push(REPLICAS.to_owned());
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
    if REPLICAS.starts_with(only) {
        report.add(replicas()?)?;
    }
    Ok(())
}

/// The plan of a fault as the bars have it: 20 injections, 10^5 puts, a pool that evicts.
#[must_use]
pub const fn plan(fault: Fault) -> Plan {
    Plan {
        fault,
        seed: 1,
        rounds: 20,
        puts_per_round: 5_500,
        pause: Duration::from_secs(3),
        full: true,
    }
}

fn faults(fault: Fault, only: &str, out: &mut Report) -> Result<()> {
    let plan = plan(fault);
    let pool = Pool::start("bench-ha", &crate::chaos::pool_file("bench", 3, 512))?;
    let outcome = round::run(&pool, &plan, |text| eprintln!("{text}"))?;
    for finding in &outcome.tally.findings {
        eprintln!("{finding}");
    }
    for line in report::lines(&plan, &outcome) {
        if line.name.starts_with(only) {
            out.add(line)?;
        }
    }
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
        let pool = Pool::start(&label, &crate::chaos::pool_file(&label, masters, 256))?;
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

    /// Processor time of the leader for a put, in us.
    fn cell(&mut self, runtime: &Runtime) -> Result<f64> {
        let pid = leader(&until_whole(&self.pool)?)?.pid;
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
        for client in &self.clients {
            let client = client.with_deadline(Duration::from_secs(20));
            runtime.block_on(client.remove_prefix(format!("cell/{cell}/").as_bytes(), false))?;
        }
        Ok(used.as_secs_f64() * 1e6 / f64::from(puts))
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

fn replicas() -> Result<Line> {
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
    for _ in 0..PAIRS {
        let (a, b) = (one.cell(&runtime)?, three.cell(&runtime)?);
        ensure!(a > 0.0, "the kernel counts no processor time");
        ratios.push(b / a);
        alone.push(a);
        replicated.push(b);
    }
    let [low, median, high] = quartiles(ratios);
    let [_, alone, _] = quartiles(alone);
    let [_, replicated, _] = quartiles(replicated);
    let config = [
        ("batch", BATCH.to_string()),
        ("clients", CLIENTS.to_string()),
        ("object", "4k".to_owned()),
        ("sync", "Interval".to_owned()),
        ("leader_us_per_put.1", format!("{alone:.2}")),
        ("leader_us_per_put.3", format!("{replicated:.2}")),
    ];
    Ok(Line {
        name: REPLICAS.to_owned(),
        value: median,
        unit: "x".to_owned(),
        ratios: BTreeMap::new(),
        ratios_cpu: BTreeMap::new(),
        samples: usize::try_from(PAIRS)?,
        spread: [low, high],
        cpu_us_per_op: replicated,
        config: config
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    })
}
