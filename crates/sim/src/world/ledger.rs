//! The smallest world: one server that keeps registers in a real log, and its clients.
//!
//! It checks what `larder_oplog` promises to a log that stands alone, under kills, losses of
//! power, full and slow disks, and a bad network. And it shows that the checks of this crate find
//! mistakes: each [`Mistake`] is one that servers were really made with.

mod client;
mod server;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use larder_oplog::BootId;

use super::coverage::Coverage;
use super::disk::MachineDisk;
use super::faults::{Class, Fault, FaultShape, draw_faults};
use super::network::{Cut, Network, Node, Weather};
use super::runs::Outcome as RunOutcome;
use super::stage::{Stage, StageError};
use super::trace::Trace;
use super::work::{Step, WorkShape, draw_work};
use crate::history::{Call, History, Kept, Limits, Losses, Outcome, Recorder, check};
use crate::seed::Seed;
use client::Record;
use server::Findings;

const MS: u64 = 1_000_000;
const SERVER: Node = Node(1);
const FIRST_CLIENT: u32 = 100;
/// Reads every key when all is over.
const AUDITOR: Node = Node(99);
/// How long a sync takes on a disk that is not slow, in ns.
const SYNC_NS: u64 = 8 * MS;
/// How long a server that ended by itself is away, in ns.
const RESTART_NS: u64 = 50 * MS;
/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_millis(250);
/// How long after the last fault all has to work again, in ns.
const HEALED_NS: u64 = 5_000 * MS;
/// How long all of it may take, in ns.
const RUN_NS: u64 = 120_000 * MS;
const TRACE_LINES: usize = 400;

/// What a ledger is run with.
#[derive(Clone, Debug, Default)]
pub struct LedgerOptions {
    /// What clients do.
    pub work: WorkShape,
    /// A mistake that the server is made with; only to prove that it is found.
    pub mistake: Option<Mistake>,
}

/// A mistake of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// It tells of a change before it is durable.
    ToldBeforeDurable,
    /// It reads what is not durable yet.
    ReadBeforeDurable,
    /// It does a request again that is asked again.
    ForgetsRequests,
    /// What comes back from the log is not what was done.
    ReplayDiffers,
    /// It says that a change is done that the full disk did not take.
    FullIsDone,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ToldBeforeDurable,
        Self::ReadBeforeDurable,
        Self::ForgetsRequests,
        Self::ReplayDiffers,
        Self::FullIsDone,
    ];
}

/// What is said between client and server.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Message {
    Ask {
        number: u64,
        key: String,
        call: Call,
    },
    Answer {
        number: u64,
        outcome: Outcome,
    },
}

/// Runs a ledger from a seed.
#[must_use]
pub fn run_ledger(seed: u64, options: &LedgerOptions) -> RunOutcome {
    let mut world = Ledger::new(Seed(seed), options);
    if let Err(error) = world.run() {
        world.find(error.to_string());
    }
    world.outcome(seed)
}

struct Ledger {
    stage: Stage<Message>,
    disk: MachineDisk,
    boot: u8,
    mistake: Option<Mistake>,
    findings: Findings,
    records: Vec<(Node, Record)>,
    work: Vec<Vec<Step>>,
    faults: Vec<Fault>,
    /// Cuts that are open, by the fault's place.
    cuts: Vec<(usize, Vec<Cut>)>,
    /// Faults that keep the server down.
    down: Vec<usize>,
    restart_ns: Option<u64>,
    coverage: Coverage,
    trace: Trace,
}

impl Ledger {
    fn new(seed: Seed, options: &LedgerOptions) -> Self {
        let weather = Weather::calm(MS, 3 * MS);
        let network = Network::new(weather, 16_384, seed.stream("network"));
        let work = draw_work(seed, &options.work);
        let clients = (FIRST_CLIENT..).take(work.len()).map(Node);
        let shape = FaultShape {
            classes: vec![
                Class::Loss,
                Class::Delay,
                Class::Repeat,
                Class::Reorder,
                Class::Partition,
                Class::OneWay,
                Class::Kill,
                Class::PowerOne,
                Class::DiskFull,
                Class::DiskSlow,
                Class::ClockLeap,
                Class::ClockDrift,
                Class::Pause,
            ],
            masters: vec![SERVER],
            agents: Vec::new(),
            clients: clients.clone().collect(),
            from_ns: 100 * MS,
            until_ns: 2_500 * MS,
            count_min: 3,
            count_max: 8,
            length_max_ns: 500 * MS,
            rejoin_ns: 10 * MS,
        };
        let record = |node: Node| {
            let operations_max = options.work.operations as usize + 64;
            (
                node,
                Rc::new(RefCell::new(Recorder::new(node.0, operations_max))),
            )
        };
        Self {
            stage: Stage::new(seed, MS, network),
            disk: MachineDisk::new(),
            boot: 1,
            mistake: options.mistake,
            findings: Findings::default(),
            records: clients.chain([AUDITOR]).map(record).collect(),
            work,
            faults: draw_faults(seed, &shape),
            cuts: Vec::new(),
            down: Vec::new(),
            restart_ns: None,
            coverage: Coverage::default(),
            trace: Trace::new(TRACE_LINES),
        }
    }

    fn find(&mut self, finding: String) {
        self.findings.borrow_mut().push(finding);
    }

    fn run(&mut self) -> Result<(), StageError> {
        self.disk.set_sync_ns(SYNC_NS);
        self.start_server()?;
        let clients: Vec<(Node, Record)> = self.records.clone();
        for ((node, record), steps) in clients.iter().zip(std::mem::take(&mut self.work)) {
            self.start_client(*node, steps, PATIENCE, record)?;
        }
        let until_ns = self.faults.iter().map(|fault| fault.until_ns).max();
        let until_ns = until_ns.unwrap_or(0);
        let works = |world: &Self| {
            clients
                .iter()
                .any(|(node, _)| world.stage.is_running(*node))
        };
        while self.stage.now_ns() < RUN_NS && (self.stage.now_ns() <= until_ns || works(self)) {
            self.step()?;
        }
        if works(self) {
            self.find("clients did not come to an end".to_owned());
        }
        self.audit()
    }

    /// After all is healed every key can be read; what is read is judged with the rest.
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
        let step = |key| Step {
            think_ns: 0,
            key,
            call: Call::Get,
            size_bytes: 0,
        };
        let steps = keys.into_iter().map(step).collect();
        let patience = Duration::from_nanos(HEALED_NS);
        self.start_client(node, steps, patience, &record)?;
        let until_ns = self.stage.now_ns() + 2 * HEALED_NS;
        while self.stage.is_running(node) && self.stage.now_ns() < until_ns {
            self.step()?;
        }
        let is_dead = record
            .borrow()
            .operations()
            .iter()
            .any(|one| one.outcome == Outcome::Unknown);
        if is_dead {
            self.find("a read after healing was not answered".to_owned());
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), StageError> {
        let (before_ns, now_ns) = (self.stage.now_ns(), self.stage.now_ns() + MS);
        let within = |at_ns: u64| before_ns < at_ns && at_ns <= now_ns;
        for place in 0..self.faults.len() {
            let fault = self.faults[place].clone();
            if within(fault.from_ns) {
                self.trace.note(before_ns, format_args!("begins: {fault}"));
                self.coverage.count(fault.class);
                self.begin(place, &fault);
            }
            if within(fault.until_ns) {
                self.trace.note(before_ns, format_args!("ends: {fault}"));
                self.end(place, &fault)?;
            }
        }
        self.stage.pass()?;
        if self.down.is_empty() && !self.stage.is_running(SERVER) {
            let now_ns = self.stage.now_ns();
            let restart_ns = *self.restart_ns.get_or_insert(now_ns + RESTART_NS);
            if restart_ns <= now_ns {
                self.start_server()?;
            }
        }
        Ok(())
    }

    fn begin(&mut self, place: usize, fault: &Fault) {
        let amount = u64::try_from(fault.amount).unwrap_or(0);
        let now_ns = self.stage.now_ns();
        if let Some(storm) = fault.storm() {
            self.stage.network.begin_storm(place as u64, storm);
        }
        let cut = |(from, to): (&[Node], &[Node])| self.stage.network.cut(from, to);
        let cuts: Vec<Cut> = fault.cuts().into_iter().map(cut).collect();
        self.cuts.push((place, cuts));
        match fault.class {
            Class::Kill => {
                self.stage.kill(SERVER);
                self.down.push(place);
            }
            Class::PowerOne => {
                self.stage.kill(SERVER);
                self.disk.lose_power(amount);
                self.boot = self.boot.wrapping_add(1);
                self.down.push(place);
            }
            Class::DiskFull => self.disk.limit_free(Some(amount)),
            Class::DiskSlow => self.disk.set_sync_ns(amount),
            Class::ClockLeap => self.stage.clock(SERVER).leap(amount),
            Class::ClockDrift => {
                let ppm = i32::try_from(fault.amount).unwrap_or(0);
                self.stage.clock(SERVER).drift(now_ns, ppm);
            }
            Class::Pause => self.stage.pause(SERVER, true),
            _ => {}
        }
    }

    fn end(&mut self, place: usize, fault: &Fault) -> Result<(), StageError> {
        let now_ns = self.stage.now_ns();
        self.stage.network.end_storm(place as u64);
        let mended = |(of, _): &mut (usize, Vec<Cut>)| *of == place;
        for (_, cuts) in self.cuts.extract_if(.., mended).collect::<Vec<_>>() {
            for cut in cuts {
                self.stage.network.mend(now_ns, cut);
            }
        }
        match fault.class {
            Class::Kill | Class::PowerOne => {
                self.down.retain(|down| *down != place);
                if self.down.is_empty() {
                    self.start_server()?;
                }
            }
            Class::DiskFull => self.disk.limit_free(None),
            Class::DiskSlow => self.disk.set_sync_ns(SYNC_NS),
            Class::ClockDrift => self.stage.clock(SERVER).drift(now_ns, 0),
            Class::Pause => self.stage.pause(SERVER, false),
            _ => {}
        }
        Ok(())
    }

    fn start_server(&mut self) -> Result<(), StageError> {
        self.restart_ns = None;
        let (disk, boot) = (self.disk.clone(), BootId([self.boot; 16]));
        let (mistake, findings) = (self.mistake, Rc::clone(&self.findings));
        self.stage.start(SERVER, move |context| {
            server::serve(context, disk, boot, mistake, findings)
        })
    }

    fn start_client(
        &mut self,
        node: Node,
        steps: Vec<Step>,
        patience: Duration,
        record: &Record,
    ) -> Result<(), StageError> {
        let record = Rc::clone(record);
        self.stage.start(node, move |context| {
            client::work(context, SERVER, steps, patience, record)
        })
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
        let counts = self.stage.network.counts();
        self.trace
            .note(self.stage.now_ns(), format_args!("network: {counts}"));
        let mut findings = self.findings.take();
        let history = History::new(operations).unwrap_or_else(|error| {
            findings.push(error.to_string());
            History::default()
        });
        let report = check(&history, &Losses::Never, Limits::default());
        if !report.is_ok() {
            findings.push(report.to_string());
        }
        RunOutcome {
            seed,
            trace: self.trace.hash(),
            operations: history.operations().len() as u64,
            rebuilds: 0,
            faults: self.coverage,
            findings,
            lines: self.trace.lines().map(ToOwned::to_owned).collect(),
            kept: Kept {
                note: format!("ledger, seed {seed}"),
                losses: Losses::Never,
                history,
            },
        }
    }
}
