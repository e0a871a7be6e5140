//! One injection after another: load, fault, first put, healing, judgement.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use larder_client::{Client, ClientError, PutMode, Reason};
use rustix::process::Signal;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::chaos::filler::Filler;
use crate::chaos::ledger::{Ledger, Verdict, value};
use crate::chaos::load::{DEADLINE, Load, TENANT, addrs, connect, judge, key, pinned};
use crate::chaos::masters::{PATIENCE, kill, leader, signal, standby, status, until_whole};
use crate::chaos::tally::Tally;
use crate::chaos::{Dice, Fault, Plan};
use crate::pool::{Document, Pool};

/// Writers, with a reader each.
const WRITERS: u64 = 4;
/// Keys of a call of the judgement.
const JUDGED: usize = 256;
/// How often a key is read again that could not be read, before that is a finding.
const READS: usize = 5;
/// Gets that wait at a stopped leader when it wakes.
const WAITING: usize = 8;

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
    /// Reads that waited at a leader which had been stopped, and what came of them.
    pub woken_reads: u64,
    /// Of these, how many failed; they may.
    pub woken_failed: u64,
}

/// Runs the rounds of a plan on a pool. `said` hears a line after each.
///
/// # Errors
/// If the pool is not whole again after a fault, or a client breaks.
pub fn run(pool: &Pool, plan: &Plan, mut said: impl FnMut(&str)) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let filler = match plan.full {
        true => Some(runtime.block_on(Filler::start(pool))?),
        false => None,
    };
    let mut run = Run {
        pool,
        plan,
        runtime,
        dice: Dice::new(plan.seed),
        writer: 0,
        outcome: Outcome::default(),
        former: Vec::new(),
    };
    for round in 0..plan.rounds {
        run.round()
            .with_context(|| format!("round {round} of {plan:?}"))?;
        said(&run.sentence(round));
    }
    let former = std::mem::take(&mut run.former);
    run.settle(former)?;
    if let Some(filler) = filler {
        run.runtime.block_on(filler.stop());
    }
    Ok(run.outcome)
}

struct Run<'a> {
    pool: &'a Pool,
    plan: &'a Plan,
    runtime: Runtime,
    dice: Dice,
    /// The number of the next writer.
    writer: u64,
    outcome: Outcome,
    /// What the writers of the round before left.
    former: Vec<Ledger>,
}

impl Run<'_> {
    fn round(&mut self) -> Result<()> {
        until_whole(self.pool)?;
        // What two rounds leave must fit the pool beside what fills it.
        let puts_max = 2 * self.plan.puts_per_round;
        let load = Load::start(self.pool, (self.writer, WRITERS), puts_max, &mut self.dice);
        let load = self.runtime.block_on(load)?;
        self.writer += WRITERS;
        let probe = connect(self.pool, TENANT, addrs(self.pool));
        let mut probe = Probe::new(self.runtime.block_on(probe)?, self.writer);
        self.writer += 1;
        // Its connections are open before the fault.
        self.runtime.block_on(probe.first_put(&mut self.dice))?;
        // The fault comes somewhere in the first half of the load.
        let early = self.plan.puts_per_round / 8;
        let moment = early
            + self
                .dice
                .below((self.plan.puts_per_round / 2 - early).max(1));
        self.until_puts(&load, moment)?;
        self.inject(&mut probe)?;
        self.until_puts(&load, self.plan.puts_per_round)?;
        let injected = probe.injected;
        until_whole(self.pool)?;
        self.outcome.whole.push(injected.elapsed());
        let (mut ledgers, tally) = self.runtime.block_on(load.stop())?;
        ledgers.push(probe.ledger);
        self.outcome.tally.add(&tally);
        self.outcome.tally.add(&probe.tally);
        self.outcome.rounds += 1;
        for ledger in &mut ledgers {
            self.judged(ledger)?;
        }
        let former = std::mem::replace(&mut self.former, ledgers);
        self.settle(former)
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

    fn inject(&mut self, probe: &mut Probe) -> Result<()> {
        let document = status(self.pool)?;
        match self.plan.fault {
            Fault::Kill9 => self.kill(&[leader(&document)?.pid], probe)?,
            Fault::Standby => {
                let at = usize::try_from(self.dice.below(2))?;
                self.kill(&[standby(&document, at)?.pid], probe)?;
            }
            Fault::Down => {
                let pids: Vec<u32> = document.masters.iter().map(|one| one.pid).collect();
                self.kill(&pids, probe)?;
            }
            Fault::Pause => self.pause(&document, probe)?,
        }
        Ok(())
    }

    fn kill(&mut self, pids: &[u32], probe: &mut Probe) -> Result<()> {
        kill(pids)?;
        self.first_put(probe)
    }

    /// The time until a put works again, from now on.
    fn first_put(&mut self, probe: &mut Probe) -> Result<()> {
        probe.injected = Instant::now();
        let first = self.runtime.block_on(probe.first_put(&mut self.dice))?;
        self.outcome.first_put.push(first);
        Ok(())
    }

    /// Stops the leader, lets another one take over and change an object, and wakes it while
    /// gets of that object wait in its socket.
    fn pause(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let paused = leader(document)?;
        let stays = connect(self.pool, TENANT, vec![paused.client_addr.clone()]);
        let stays = self.runtime.block_on(stays)?;
        let at = self.runtime.block_on(probe.certain(&mut self.dice))?;
        let text = probe.ledger.key(at);
        let read = self.runtime.block_on(stays.get(key(&text)?));
        let verdict = probe.ledger.judge(at, read.ok().as_deref());
        self.outcome.tally.verdict(&text, &verdict);
        signal(paused.pid, Signal::STOP)?;
        let stopped = Instant::now();
        let woken = self.while_paused(&stays, at, probe, stopped);
        // Whatever came of it, it must not stay stopped.
        signal(paused.pid, Signal::CONT)?;
        for waiting in woken? {
            self.outcome.woken_reads += 1;
            let verdict = match self.runtime.block_on(waiting)? {
                Ok(bytes) => probe.ledger.judge(at, Some(&bytes)),
                Err(error) if error.reason() == Some(Reason::NotFound) => {
                    probe.ledger.judge(at, None)
                }
                Err(_) => {
                    self.outcome.woken_failed += 1;
                    continue;
                }
            };
            let found = &mut self.outcome.tally;
            if verdict != Verdict::Right {
                found.finding("through a leader that had been stopped:".to_owned());
            }
            found.verdict(&text, &verdict);
        }
        Ok(())
    }

    fn while_paused(
        &mut self,
        stays: &Client,
        at: usize,
        probe: &mut Probe,
        stopped: Instant,
    ) -> Result<Vec<JoinHandle<Result<bytes::Bytes, ClientError>>>> {
        self.first_put(probe)?;
        self.runtime.block_on(probe.change(at, &mut self.dice))?;
        // It knows no other master: the woken one refuses it, and that it may.
        let left = self.plan.pause.saturating_sub(stopped.elapsed());
        let stays = stays.with_deadline(left + DEADLINE);
        let name = key(&probe.ledger.key(at))?;
        let mut waiting = Vec::with_capacity(WAITING);
        for _ in 0..WAITING {
            let (stays, name) = (stays.clone(), name.clone());
            waiting.push(self.runtime.spawn(async move { stays.get(name).await }));
        }
        // The length of the fault.
        std::thread::sleep(self.plan.pause.saturating_sub(stopped.elapsed()));
        Ok(waiting)
    }

    /// Reads every key of a writer.
    fn judged(&mut self, ledger: &mut Ledger) -> Result<()> {
        let client = connect(self.pool, TENANT, addrs(self.pool));
        let client = self.runtime.block_on(client)?;
        let client = client.with_deadline(Duration::from_secs(20));
        let mut left: Vec<usize> = (0..ledger.len()).collect();
        for _ in 0..READS {
            let mut failed = Vec::new();
            for some in left.chunks(JUDGED) {
                let mut tally = Tally::default();
                let read = judge(&client, ledger, some, &mut tally);
                failed.extend(self.runtime.block_on(read)?);
                // These gets have another deadline and tell nothing about those of the load.
                tally.gets = 0;
                tally.gets_failed = 0;
                tally.longest_get_ms = 0.0;
                self.outcome.tally.add(&tally);
            }
            left = failed;
            if left.is_empty() {
                return Ok(());
            }
        }
        // Nobody can read it: for its owner it is lost.
        for at in left {
            self.outcome.tally.verdict(&ledger.key(at), &Verdict::Lost);
        }
        Ok(())
    }

    /// Reads what a former round left once more, removes it, and looks that it is gone.
    fn settle(&mut self, former: Vec<Ledger>) -> Result<()> {
        for mut ledger in former {
            self.judged(&mut ledger)?;
            let client = self
                .runtime
                .block_on(connect(self.pool, TENANT, addrs(self.pool)))?;
            let client = client.with_deadline(Duration::from_secs(20));
            let all: Vec<usize> = (0..ledger.len()).collect();
            for some in all.chunks(JUDGED) {
                let keys: Result<Vec<_>> = some.iter().map(|at| key(&ledger.key(*at))).collect();
                let removed = self.runtime.block_on(client.remove_batch(keys?));
                for (at, result) in some.iter().zip(removed) {
                    match result {
                        Ok(()) => ledger.acknowledged(*at, None),
                        Err(error) if error.reason() == Some(Reason::NotFound) => {
                            let verdict = ledger.judge(*at, None);
                            self.outcome.tally.verdict(&ledger.key(*at), &verdict);
                        }
                        Err(error) => {
                            self.outcome.tally.error("remove", &error);
                            ledger.unknown(*at, None);
                        }
                    }
                }
            }
            self.judged(&mut ledger)?;
        }
        Ok(())
    }

    fn sentence(&self, round: u32) -> String {
        let found = &self.outcome;
        let last = |times: &[Duration]| times.last().map_or(0.0, Duration::as_secs_f64);
        format!(
            "{} {}/{}: first put after {:.3} s, whole after {:.1} s; so far {} puts, {} gets, {} \
             gets failed, longest get {:.0} ms, lost {}, wrong {}, errors {:?}",
            self.plan.fault,
            round + 1,
            self.plan.rounds,
            last(&found.first_put),
            last(&found.whole),
            found.tally.puts,
            found.tally.gets,
            found.tally.gets_failed,
            found.tally.longest_get_ms,
            found.tally.lost,
            found.tally.wrong,
            found.tally.errors,
        )
    }
}

/// A client that puts one key after another.
struct Probe {
    client: Client,
    ledger: Ledger,
    tally: Tally,
    injected: Instant,
}

impl Probe {
    fn new(client: Client, number: u64) -> Self {
        Self {
            client,
            ledger: Ledger::new(number),
            tally: Tally::default(),
            injected: Instant::now(),
        }
    }

    /// Puts fresh keys until one put succeeds; how long that took.
    async fn first_put(&mut self, dice: &mut Dice) -> Result<Duration> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let at = self.ledger.fresh();
            if self.put(at, PutMode::Create, dice.roll()).await? {
                return Ok(start.elapsed());
            }
        }
        bail!(
            "no put succeeded within {PATIENCE:?}: {:?}",
            self.tally.errors
        )
    }

    async fn put(&mut self, at: usize, mode: PutMode, seed: u64) -> Result<bool> {
        let name = key(&self.ledger.key(at))?;
        match self.client.put_with(name, value(seed), &pinned(mode)).await {
            Ok(_) => {
                self.tally.puts += 1;
                self.ledger.acknowledged(at, Some(seed));
                Ok(true)
            }
            Err(error) => {
                self.tally.error("probe", &error);
                self.ledger.unknown(at, Some(seed));
                Ok(false)
            }
        }
    }

    /// A key that certainly holds an object.
    async fn certain(&mut self, dice: &mut Dice) -> Result<usize> {
        self.first_put(dice).await?;
        Ok(self.ledger.len() - 1)
    }

    /// Replaces an object, until that is acknowledged.
    async fn change(&mut self, at: usize, dice: &mut Dice) -> Result<()> {
        let start = Instant::now();
        // The same bytes each time: without an answer it is known all the same what it holds.
        let seed = dice.roll();
        while start.elapsed() < PATIENCE {
            let upsert = PutMode::Upsert { if_unleased: false };
            if self.put(at, upsert, seed).await? {
                return Ok(());
            }
        }
        bail!(
            "no upsert succeeded within {PATIENCE:?}: {:?}",
            self.tally.errors
        )
    }
}
