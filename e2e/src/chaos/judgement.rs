//! What is left after a round is read, removed and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use larder_client::Reason;
use larder_sim::history::{Call, History, Limits, Losses, Operation, check};
use tokio::sync::watch;

use crate::chaos::Fault;
use crate::chaos::ledger::{Ledger, Span};
use crate::chaos::load::{TENANT, addrs, connect, key, replicas};
use crate::chaos::masters::{PATIENCE, lives};
use crate::chaos::now_ns;
use crate::chaos::reader::Seen;
use crate::chaos::record::{Record, removed};
use crate::chaos::round::Run;
use crate::chaos::tally::Tally;

/// Keys of a call of the judgement.
const JUDGED: usize = 256;
/// How often a key is read again that could not be read, before that is a finding.
const READS: usize = 5;

/// What the clients of a round left.
#[derive(Default)]
pub(super) struct Former {
    pub(super) ledgers: Vec<Ledger>,
    pub(super) history: Vec<Operation>,
}

impl Run<'_> {
    /// A client that takes its time.
    fn patient(&self) -> Result<larder_client::Client> {
        let pool = &self.scene.pool;
        let client = self.runtime.block_on(connect(pool, TENANT, addrs(pool)))?;
        Ok(client.with_deadline(Duration::from_secs(20)))
    }

    /// The record of the next client.
    fn record(&mut self) -> Record {
        let record = Record::new(2 * self.writer);
        self.writer += 1;
        record
    }

    /// Reads every key of all writers.
    pub(super) fn judged(&mut self, left: &mut Former) -> Result<()> {
        let client = self.patient()?;
        let mut record = self.record();
        // What may go back the ledgers know by now.
        let spans = watch::Sender::new(Span::default()).subscribe();
        for ledger in &mut left.ledgers {
            let is_open = |at: &usize| !ledger.is_given_up(*at);
            let mut keys: Vec<usize> = (0..ledger.len()).filter(is_open).collect();
            for _ in 0..READS {
                let mut failed = Vec::new();
                for some in keys.chunks(JUDGED) {
                    let mut tally = Tally::default();
                    let seen = Seen {
                        ledger,
                        tally: &mut tally,
                        record: &mut record,
                    };
                    let read = seen.judge(&client, some, &spans);
                    failed.extend(self.runtime.block_on(read)?);
                    // These gets have another deadline and tell nothing about those of the load.
                    tally.gets = 0;
                    tally.gets_failed = 0;
                    tally.longest_get_ms = 0.0;
                    self.outcome.tally.add(&tally);
                }
                keys = failed;
                if keys.is_empty() {
                    break;
                }
            }
            // Nobody can read it: for its owner it is lost.
            for at in keys {
                let verdict = ledger.give_up(at);
                self.outcome.tally.verdict(&ledger.key(at), &verdict);
            }
        }
        left.history.extend(record.finish());
        Ok(())
    }

    /// Waits until the masters hear all agents, and one of them in another life if it was killed.
    pub(super) fn until_alive(&mut self, former: &BTreeMap<String, String>) -> Result<()> {
        let killed = usize::from(self.plan.fault == Fault::AgentKill9);
        let start = Instant::now();
        loop {
            let now = lives(&self.scene.pool)?;
            let is_new = |(name, life): &(&String, &String)| former.get(*name) != Some(life);
            if now.len() == self.scene.agents.len() && now.iter().filter(is_new).count() == killed {
                self.note("all agents are heard".to_owned());
                return Ok(());
            }
            if start.elapsed() > PATIENCE {
                bail!("agents after {PATIENCE:?}: {now:?}, before the fault: {former:?}");
            }
        }
    }

    /// Waits until everything has as many replicas as it was put with.
    pub(super) fn until_copied(&mut self, ledgers: &[Ledger]) -> Result<()> {
        let client = self.patient()?;
        let wanted = usize::from(replicas(self.plan));
        let start = Instant::now();
        let held = |ledger: &Ledger| -> Vec<String> {
            let held = (0..ledger.len()).filter(|at| ledger.is_held(*at));
            held.map(|at| ledger.key(at)).collect()
        };
        for text in ledgers.iter().flat_map(held) {
            loop {
                let stat = self.runtime.block_on(client.stat(key(&text)?));
                if stat.is_ok_and(|stat| stat.agents.len() >= wanted) {
                    break;
                }
                if start.elapsed() > PATIENCE {
                    bail!("{text} has too few replicas after {PATIENCE:?}");
                }
            }
        }
        self.note("everything has its replicas".to_owned());
        Ok(())
    }

    /// Reads what a former round left once more, removes it, looks that it is gone, and judges all
    /// that was seen of it.
    pub(super) fn settle(&mut self, mut former: Former) -> Result<()> {
        self.judged(&mut former)?;
        let client = self.patient()?;
        let mut record = self.record();
        for ledger in &mut former.ledgers {
            let all: Vec<usize> = (0..ledger.len()).collect();
            for some in all.chunks(JUDGED) {
                let names: Vec<String> = some.iter().map(|at| ledger.key(*at)).collect();
                let keys: Result<Vec<_>> = names.iter().map(|name| key(name)).collect();
                let open = record.begin(names.iter().map(|name| (name.as_str(), Call::Remove)))?;
                let done = self.runtime.block_on(client.remove_batch(keys?));
                record.end(open, done.iter().map(removed))?;
                for (at, result) in some.iter().zip(done) {
                    match result {
                        Ok(()) => ledger.acknowledged(*at, None, now_ns()),
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
        }
        former.history.extend(record.finish());
        self.judged(&mut former)?;
        self.check(former.history)
    }

    /// Judges whether one register per key could have told all that.
    fn check(&mut self, operations: Vec<Operation>) -> Result<()> {
        let fault = self.plan.fault;
        if fault.may_undo() {
            return Ok(());
        }
        let report = check(
            &History::new(operations)?,
            &Losses::Never,
            Limits::default(),
        );
        self.outcome.checked += report.operations as u64;
        self.outcome.violated += report.violated as u64;
        self.outcome.undecided += report.undecided as u64;
        if !report.is_ok() {
            self.outcome.tally.finding(report.to_string());
        }
        Ok(())
    }
}
