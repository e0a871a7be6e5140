//! One injection after another: load, fault, first put, healing, judgement.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::chaos::filler::Filler;
use crate::chaos::judgement::Former;
use crate::chaos::load::{Load, TENANT, addrs, connect, replicas};
use crate::chaos::masters::{PATIENCE, lives, until_whole};
use crate::chaos::probe::Probe;
use crate::chaos::scene::Scene;
use crate::chaos::tally::Tally;
use crate::chaos::{Dice, Plan, now_ns};

/// Writers, with a reader each.
const WRITERS: u64 = 4;
/// A sync of a disk that is to lose its power takes so long at least.
const SYNC_MS: u64 = 50;
/// The same where each put waits for syncs.
const ALWAYS_SYNC_MS: u64 = 10;
/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Injections.
    pub rounds: u32,
    /// Everything the clients counted.
    pub tally: Tally,
    /// From each injection to the first put that was begun after it and succeeded.
    pub first_put: Vec<Duration>,
    /// From each injection until all masters were there again.
    pub whole: Vec<Duration>,
    /// Reads that waited at a leader which had been stopped or cut off, and what came of them.
    pub woken_reads: u64,
    /// Of these, how many failed; they may.
    pub woken_failed: u64,
    /// The longest batch of writes before each injection, in ms.
    pub calm_ms: Vec<f64>,
    /// The longest batch of writes in each piece of time that the fault names, in ms.
    pub windows: Vec<(&'static str, f64)>,
    /// Bytes that losses of power took.
    pub cut_bytes: u64,
    /// Syncs of all masters' disks.
    pub syncs: u64,
    /// Operations that the history checker judged.
    pub checked: u64,
    /// Keys without an explanation.
    pub violated: u64,
    /// Keys that were too much for the checker.
    pub undecided: u64,
    /// What was done when.
    pub timeline: Vec<Moment>,
}

/// A line of the timeline.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// Since the start of the run, in ms.
    pub at_ms: u64,
    /// The injection.
    pub round: u32,
    /// What was done, or seen.
    pub what: String,
}

impl Outcome {
    /// Whether nothing was found that the contract does not allow.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        let found = &self.tally;
        found.lost == 0
            && found.stranded == 0
            && found.wrong == 0
            && self.violated == 0
            && self.undecided == 0
    }
}

/// Runs the rounds of a plan on a pool. `said` hears a line after each.
///
/// # Errors
/// If the pool is not whole again after a fault, or a client breaks.
pub fn run(scene: &mut Scene, plan: &Plan, mut said: impl FnMut(&str)) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let filler = match plan.full {
        true => Some(runtime.block_on(Filler::start(&scene.pool))?),
        false => None,
    };
    let mut run = Run {
        scene,
        plan,
        runtime,
        dice: Dice::new(plan.seed),
        writer: 0,
        outcome: Outcome::default(),
        former: Former::default(),
        windows: Vec::new(),
        start: Instant::now(),
    };
    for round in 0..plan.rounds {
        run.round().with_context(|| {
            format!("round {round} of {plan:?}: {:?}", run.outcome.tally.errors)
        })?;
        said(&run.sentence(round));
    }
    let former = std::mem::take(&mut run.former);
    run.settle(former)?;
    if let Some(filler) = filler {
        run.runtime.block_on(filler.stop());
    }
    for master in &run.scene.masters {
        run.outcome.syncs += master.control.seen()?[0];
    }
    Ok(run.outcome)
}

pub(super) struct Run<'a> {
    pub(super) scene: &'a mut Scene,
    pub(super) plan: &'a Plan,
    pub(super) runtime: Runtime,
    pub(super) dice: Dice,
    /// The number of the next writer.
    pub(super) writer: u64,
    pub(super) outcome: Outcome,
    /// Of the round before.
    former: Former,
    /// Pieces of time of this round whose writes count, in ns.
    pub(super) windows: Vec<(&'static str, u64, u64)>,
    start: Instant,
}

impl Run<'_> {
    fn round(&mut self) -> Result<()> {
        until_whole(&self.scene.pool)?;
        if self.plan.fault.cuts_power() {
            // So that there is something that is not durable.
            let least_ms = match self.plan.fault.syncs_always() {
                true => ALWAYS_SYNC_MS,
                false => SYNC_MS,
            };
            let sync_ms = least_ms + self.dice.below(least_ms);
            for master in &self.scene.masters {
                master.control.slow_disk(sync_ms, 0)?;
            }
        }
        let pool = &self.scene.pool;
        let load = Load::start(pool, (self.writer, WRITERS), self.plan, &mut self.dice);
        let load = self.runtime.block_on(load)?;
        self.writer += WRITERS;
        let probe = connect(pool, TENANT, addrs(pool));
        let probe = self.runtime.block_on(probe)?;
        let mut probe = Probe::new(probe, self.writer, replicas(self.plan));
        self.writer += 1;
        // Its connections are open before the fault.
        self.runtime.block_on(probe.first_put(&mut self.dice))?;
        // The fault comes somewhere in the first half of the load.
        let early = self.plan.puts_per_round / 8;
        let range = (self.plan.puts_per_round / 2 - early).max(1);
        let moment = early + self.dice.below(range);
        self.until_puts(&load, moment)?;
        let lives = lives(&self.scene.pool)?;
        let injected_ns = now_ns();
        self.inject(&mut probe, &load)?;
        self.until_puts(&load, self.plan.puts_per_round)?;
        let injected = probe.injected;
        until_whole(&self.scene.pool)?;
        self.outcome.whole.push(injected.elapsed());
        self.note("all masters are there".to_owned());
        if self.windows.is_empty() {
            self.windows.push(("fault", injected_ns, now_ns()));
        }
        let mut ended = self.runtime.block_on(load.stop())?;
        for (name, from_ns, to_ns) in std::mem::take(&mut self.windows) {
            let longest = ended.tally.longest_write_in(from_ns, to_ns);
            self.outcome.windows.push((name, longest));
        }
        let calm = ended.tally.longest_write_before(injected_ns);
        self.outcome.calm_ms.push(calm);
        ended.tally.writes.clear();
        self.outcome.tally.add(&ended.tally);
        self.outcome.tally.add(&probe.tally);
        self.outcome.rounds += 1;
        let mut left = Former {
            ledgers: ended.ledgers,
            history: ended.history,
        };
        left.ledgers.push(probe.ledger);
        left.history.extend(probe.record.finish());
        self.judged(&mut left)?;
        if self.plan.fault.hits_agents() {
            // The masters count what an agent held until they miss it.
            self.until_alive(&lives)?;
            self.until_copied(&left.ledgers)?;
        }
        let former = std::mem::replace(&mut self.former, left);
        self.settle(former)
    }

    /// Adds a line to the timeline.
    pub(super) fn note(&mut self, what: String) {
        self.outcome.timeline.push(Moment {
            at_ms: u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
            round: self.outcome.rounds,
            what,
        });
    }

    fn until_puts(&self, load: &Load, puts: u64) -> Result<()> {
        let start = Instant::now();
        while load.puts() < puts {
            if start.elapsed() > PATIENCE {
                bail!("{} of {puts} puts after {PATIENCE:?}", load.puts());
            }
            // How fine the moment of the fault is; nothing waits for this.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn sentence(&self, round: u32) -> String {
        let found = &self.outcome;
        let last = |times: &[Duration]| times.last().map_or(0.0, Duration::as_secs_f64);
        let windows = found.windows.iter().rev().take(2).rev();
        let windows: Vec<String> = windows
            .map(|(name, ms)| format!("{name} {ms:.0}"))
            .collect();
        format!(
            "{} {}/{}: first put after {:.3} s, whole after {:.1} s, longest write {} ms (calm \
             {:.0}); so far {} puts, {} gets, {} gets failed, longest get {:.0} ms, undone {} \
             (stranded {}), lost {}, wrong {}, checked {}, violated {}, errors {:?}",
            self.plan.fault,
            round + 1,
            self.plan.rounds,
            last(&found.first_put),
            last(&found.whole),
            windows.join(", "),
            found.calm_ms.last().copied().unwrap_or_default(),
            found.tally.puts,
            found.tally.gets,
            found.tally.gets_failed,
            found.tally.longest_get_ms,
            found.tally.undone,
            found.tally.stranded,
            found.tally.lost,
            found.tally.wrong,
            found.checked,
            found.violated,
            found.tally.errors,
        )
    }
}
