//! A client that puts one key after another, to see when a put works again.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use larder_client::{Client, ClientError, PutMode, Reason};
use larder_sim::history::{Call, Value};

use crate::chaos::ledger::{Ledger, Verdict, value};
use crate::chaos::load::{copied, key};
use crate::chaos::masters::PATIENCE;
use crate::chaos::record::{Record, got, written};
use crate::chaos::tally::Tally;
use crate::chaos::{Dice, now_ns};

/// A client that puts one key after another.
#[derive(Debug)]
pub(super) struct Probe {
    client: Client,
    replicas: u8,
    pub(super) ledger: Ledger,
    pub(super) tally: Tally,
    pub(super) record: Record,
    pub(super) injected: Instant,
}

/// A get that may wait long at one master.
pub(super) type Waiting = tokio::task::JoinHandle<Result<bytes::Bytes, ClientError>>;

impl Probe {
    pub(super) fn new(client: Client, number: u64, replicas: u8) -> Self {
        Self {
            client,
            replicas,
            ledger: Ledger::new(number),
            tally: Tally::default(),
            record: Record::new(2 * number),
            injected: Instant::now(),
        }
    }

    /// Puts fresh keys until one put succeeds; how long that took.
    pub(super) async fn first_put(&mut self, dice: &mut Dice) -> Result<Duration> {
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
        let text = self.ledger.key(at);
        let call = match mode {
            PutMode::Create => Call::Put(Value(seed)),
            PutMode::Upsert { .. } => Call::Upsert(Value(seed)),
        };
        let open = self.record.begin([(text.as_str(), call)].into_iter())?;
        let options = copied(mode, self.replicas);
        let done = self.client.put_with(key(&text)?, value(seed), &options);
        let done = done.await;
        self.record.end(open, [written(&done)].into_iter())?;
        match done {
            Ok(_) => {
                self.tally.puts += 1;
                self.ledger.acknowledged(at, Some(seed), now_ns());
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
    pub(super) async fn certain(&mut self, dice: &mut Dice) -> Result<usize> {
        self.first_put(dice).await?;
        Ok(self.ledger.len() - 1)
    }

    /// Replaces an object, until that is acknowledged.
    pub(super) async fn change(&mut self, at: usize, dice: &mut Dice) -> Result<()> {
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

    /// Judges gets of a key that were called after its last write, and whose answers came late.
    /// How many failed, which they may.
    pub(super) async fn judge_late(&mut self, at: usize, all: Vec<Waiting>) -> Result<u64> {
        let text = self.ledger.key(at);
        let mut failed = 0;
        for waiting in all {
            let open = self
                .record
                .begin([(text.as_str(), Call::Get)].into_iter())?;
            let read = waiting.await?;
            self.record.end(open, [got(&read)].into_iter())?;
            let verdict = match read {
                Ok(bytes) => self.ledger.judge(at, Some(&bytes)),
                Err(error) if error.reason() == Some(Reason::NotFound) => {
                    self.ledger.judge(at, None)
                }
                Err(_) => {
                    failed += 1;
                    continue;
                }
            };
            if verdict != Verdict::Right {
                let text = "through a leader that had been cut off or stopped:".to_owned();
                self.tally.finding(text);
            }
            self.tally.verdict(&text, &verdict);
        }
        Ok(failed)
    }
}
