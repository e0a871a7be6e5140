//! The world of a pool: real masters over the real log, the agents' control side and segments, and
//! clients by the protocol.
//!
//! Judged is what the product promises: the history of the clients (invariants 1 and 2), that no
//! two masters are certain to lead at one moment and no agent's epoch goes back (4), that masters
//! that applied the same are the same and their full check finds nothing, and that after healing
//! everything a put and a read of every key work.
//!
//! A loss is allowed from the first death of an agent on, whose bytes die with it. With the policy
//! `Interval` one master loses power or all do, once in a run; with `Always` any number may, any
//! number of times. All masters may lose their disks. When the end of the log is lost, or all of
//! it, the pool is made again from what its agents hold: what was put stays, and what may come
//! back is said by `undone`.

mod breakage;
mod judge;
mod master;
mod setup;
mod undone;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use larder_master::sim::Mistake;

use self::judge::Judge;
use self::undone::{LogLoss, may_return};
use super::agent::AgentFolder;
use super::coverage::Coverage;
use super::disk::MachineDisk;
use super::faults::Fault;
use super::network::{Cut, Network, Node, Weather};
use super::packet::Packet;
use super::pool_client::run_client;
use super::runs::Outcome as RunOutcome;
use super::stage::{Stage, StageError};
use super::trace::Trace;
use super::work::{Step, WorkShape, draw_work};
use crate::history::{
    Call, History, Interval, Kept, Limits, Losses, Operation, Outcome, Recorder, Value, check,
};
use crate::seed::Seed;

const MS: u64 = 1_000_000;
const FIRST_MASTER: u32 = 1;
const FIRST_AGENT: u32 = 50;
/// Reads every key when all is over.
const AUDITOR: Node = Node(99);
const FIRST_CLIENT: u32 = 100;
/// How long a process that ended by itself is away, in ns.
const RESTART_NS: u64 = 50 * MS;
/// How long a client tries an operation.
const PATIENCE: Duration = Duration::from_millis(600);
/// How long a pool may take to begin, in ns.
const BEGIN_NS: u64 = 20_000 * MS;
/// How long after all is healed everything has to work again, in ns.
const HEALED_NS: u64 = 20_000 * MS;
/// How long all of it may take, in ns.
const RUN_NS: u64 = 120_000 * MS;
const TRACE_LINES: usize = 400;
/// What the auditor writes; of no other client.
const PROBE: Value = Value(u64::MAX);

type Record = Rc<RefCell<Recorder>>;

/// What a pool is run with.
#[derive(Clone, Debug, Default)]
pub struct PoolOptions {
    /// What clients do.
    pub work: WorkShape,
    /// A mistake that is planted; only to prove that it is found.
    pub mistake: Option<PoolMistake>,
}

/// A mistake of somebody in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMistake {
    /// Of the masters.
    Master(Mistake),
    /// Masters go by the wall clock, which anybody may set.
    WallClock,
    /// A client removes again when it does not know whether it did.
    RemovesAgain,
    /// An agent that starts again has forgotten the highest epoch that it saw.
    EpochForgotten,
}

/// Runs a pool from a seed.
#[must_use]
pub fn run_pool(seed: u64, options: &PoolOptions) -> RunOutcome {
    let mut world = Pool::new(Seed(seed), options);
    if let Err(error) = world.run() {
        world.judge.borrow_mut().find(error.to_string());
    }
    world.outcome(seed)
}

/// A machine of a master, which outlives its processes.
#[derive(Debug, Default)]
struct Machine {
    disk: MachineDisk,
    boot: u8,
    /// Its program is of the next release.
    is_upgraded: bool,
    ahead_ms: Arc<AtomicI64>,
}

struct Pool {
    seed: Seed,
    stage: Stage<Packet>,
    mistake: Option<PoolMistake>,
    is_always: bool,
    replicas: u8,
    machines: BTreeMap<Node, Machine>,
    agents: BTreeMap<Node, AgentFolder>,
    judge: Rc<RefCell<Judge>>,
    records: Vec<(Node, Record)>,
    work: Vec<Vec<Step>>,
    faults: Vec<Fault>,
    /// Cuts that are open, by the fault's place.
    cuts: Vec<(usize, Vec<Cut>)>,
    /// Faults that keep a process down.
    down: BTreeMap<Node, Vec<usize>>,
    /// When a process that ended by itself starts again.
    restarts: BTreeMap<Node, u64>,
    lives: u64,
    /// When an agent died for the first time.
    lost_ns: Option<u64>,
    /// When all masters lost the end of their log, or all of it, and how long before that a
    /// removal may have been that is undone, in ns.
    dark: Vec<(u64, u64)>,
    coverage: Coverage,
    trace: Trace,
}

impl Pool {
    fn new(seed: Seed, options: &PoolOptions) -> Self {
        let mut chance = seed.stream("pool");
        let masters = chance.pick(&[1, 3, 3, 3, 3, 3, 3, 5]).copied().unwrap_or(3);
        let agents = chance.between(2, 3);
        // Alone, a master keeps after a loss of power what was durable.
        let is_always = masters == 1 || chance.happens(500);
        let weather = Weather::calm(MS, 3 * MS);
        let network = Network::new(weather, 16_384, seed.stream("network"));
        let work = draw_work(seed, &options.work);
        let clients = (FIRST_CLIENT..).take(work.len()).map(Node);
        let record = |node: Node| {
            let operations_max = options.work.operations as usize + 64;
            let recorder = Recorder::new(node.0, operations_max);
            (node, Rc::new(RefCell::new(recorder)))
        };
        Self {
            stage: Stage::new(seed, MS, network),
            mistake: options.mistake,
            is_always,
            replicas: chance.pick(&[1, 2]).copied().unwrap_or(1),
            machines: (FIRST_MASTER..)
                .take(masters)
                .map(|number| (Node(number), Machine::default()))
                .collect(),
            agents: (u64::from(FIRST_AGENT)..u64::from(FIRST_AGENT) + agents)
                .filter_map(|number| u32::try_from(number).ok())
                .map(|number| (Node(number), AgentFolder::default()))
                .collect(),
            judge: Rc::default(),
            records: clients.chain([AUDITOR]).map(record).collect(),
            work,
            faults: Vec::new(),
            cuts: Vec::new(),
            down: BTreeMap::new(),
            restarts: BTreeMap::new(),
            lives: 0,
            lost_ns: None,
            dark: Vec::new(),
            coverage: Coverage::default(),
            trace: Trace::new(TRACE_LINES),
            seed,
        }
    }

    fn find(&self, finding: &str) {
        self.judge.borrow_mut().find(finding.to_owned());
    }

    fn masters(&self) -> Vec<Node> {
        self.machines.keys().copied().collect()
    }

    fn run(&mut self) -> Result<(), StageError> {
        for node in self.masters() {
            self.start_master(node)?;
        }
        for node in self.agents.keys().copied().collect::<Vec<_>>() {
            self.start_agent(node)?;
        }
        if !self.pass_until(BEGIN_NS, |world| world.judge.borrow().is_led())? {
            self.find("the pool did not begin");
            return Ok(());
        }
        // Agents mount meanwhile.
        self.pass(300)?;
        self.faults = self.draw_faults();
        let clients: Vec<(Node, Record)> = self.records.clone();
        for ((node, record), steps) in clients.iter().zip(std::mem::take(&mut self.work)) {
            self.start_client(*node, steps, PATIENCE, record)?;
        }
        let until_ns = self.faults.iter().map(|fault| fault.until_ns).max();
        let until_ns = until_ns.unwrap_or(0);
        let works = |world: &Self| {
            let mut nodes = clients.iter().map(|(node, _)| *node);
            nodes.any(|node| node != AUDITOR && world.stage.is_running(node))
        };
        while self.stage.now_ns() < RUN_NS && (self.stage.now_ns() <= until_ns || works(self)) {
            self.step()?;
        }
        if works(self) {
            self.find("clients did not come to an end");
        }
        self.audit()?;
        let masters = self.masters();
        let are_equal = |world: &Self| world.judge.borrow().are_equal(&masters);
        if !self.pass_until(HEALED_NS, are_equal)? {
            let judge = self.judge.borrow();
            let (ending, last) = (&judge.last_ending, &judge.last);
            let finding = format!("masters do not come to the same state: {ending:?} {last:?}");
            drop(judge);
            self.find(&finding);
        }
        Ok(())
    }

    /// After all is healed a put works and every key can be read; what is read is judged with the
    /// rest.
    fn audit(&mut self) -> Result<(), StageError> {
        let Some((node, record)) = self.records.last().cloned() else {
            return Ok(());
        };
        let mut keys: Vec<String> = Vec::new();
        for (_, record) in &self.records {
            let recorder = record.borrow();
            keys.extend(recorder.operations().iter().map(|one| one.key.clone()));
        }
        keys.sort_unstable();
        keys.dedup();
        let step = |key: &str, call| Step {
            think_ns: 0,
            key: key.to_owned(),
            call,
            size_bytes: 64,
        };
        let mut steps = vec![step("probe", Call::Put(PROBE)), step("probe", Call::Get)];
        steps.extend(keys.iter().map(|key| step(key, Call::Get)));
        self.start_client(node, steps, Duration::from_nanos(HEALED_NS), &record)?;
        self.pass_until(2 * HEALED_NS, |world| !world.stage.is_running(node))?;
        let recorder = record.borrow();
        let is_answered = |outcome: &Outcome| {
            matches!(outcome, Outcome::Done | Outcome::Got(_) | Outcome::Missing)
        };
        let mut operations = recorder.operations().iter();
        if let Some(dead) = operations.find(|one| !is_answered(&one.outcome)) {
            self.find(&format!("after healing something does not work: {dead}"));
        }
        Ok(())
    }

    /// Passes until something is so, at most so long; whether it was.
    fn pass_until(
        &mut self,
        most_ns: u64,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<bool, StageError> {
        let until_ns = self.stage.now_ns() + most_ns;
        while self.stage.now_ns() < until_ns {
            if is_so(self) {
                return Ok(true);
            }
            self.step()?;
        }
        Ok(is_so(self))
    }

    fn pass(&mut self, ms: u64) -> Result<(), StageError> {
        (0..ms).try_for_each(|_| self.step())
    }

    fn start_client(
        &mut self,
        node: Node,
        steps: Vec<Step>,
        patience: Duration,
        record: &Record,
    ) -> Result<(), StageError> {
        let Some(settings) = self.client_settings(patience) else {
            self.find("the name of the tenant is none");
            return Ok(());
        };
        let record = Rc::clone(record);
        self.stage.start(node, move |context| {
            run_client(context, settings, steps, record)
        })
    }

    fn losses(&self) -> Losses {
        match self.lost_ns {
            None => Losses::Never,
            Some(from_ns) => Losses::During(vec![Interval {
                from_ns,
                to_ns: u64::MAX,
            }]),
        }
    }

    /// What may have come back when the pool was made again.
    fn returning(&self, operations: &[Operation]) -> Vec<Operation> {
        let judge = self.judge.borrow();
        let loss = |(at_ns, undone_ns): &(u64, u64)| LogLoss {
            at_ns: *at_ns,
            until_ns: judge.rebuilt_after_ns(*at_ns),
            undone_ns: *undone_ns,
        };
        let losses = self.dark.iter().map(loss);
        losses
            .flat_map(|loss| may_return(operations, loss))
            .collect()
    }

    fn outcome(mut self, seed: u64) -> RunOutcome {
        let mut operations = Vec::new();
        for (_, record) in &self.records {
            operations.extend(record.borrow().operations().iter().cloned());
        }
        operations.sort_by_key(|one| (one.ended_ns, one.invoked_ns, one.client));
        for one in &operations {
            self.trace
                .note(one.ended_ns.unwrap_or(u64::MAX), format_args!("{one}"));
        }
        let asked = operations.len() as u64;
        operations.extend(self.returning(&operations));
        let now_ns = self.stage.now_ns();
        let counts = self.stage.network.counts();
        self.trace.note(now_ns, format_args!("network: {counts}"));
        let counts = self.judge.borrow().counts();
        self.trace.note(now_ns, format_args!("masters: {counts}"));
        let mut findings = std::mem::take(&mut self.judge.borrow_mut().findings);
        let history = History::new(operations).unwrap_or_else(|error| {
            findings.push(error.to_string());
            History::default()
        });
        let losses = self.losses();
        let report = check(&history, &losses, Limits::default());
        if !report.is_ok() {
            findings.push(report.to_string());
        }
        RunOutcome {
            seed,
            trace: self.trace.hash(),
            operations: asked,
            rebuilds: self.judge.borrow().rebuilds(),
            faults: self.coverage,
            findings,
            lines: self.trace.lines().map(ToOwned::to_owned).collect(),
            kept: Kept {
                note: format!("pool, seed {seed}"),
                losses,
                history,
            },
        }
    }
}
