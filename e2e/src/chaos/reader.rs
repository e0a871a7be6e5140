//! Readers: they are handed keys that stay as they are and read them all the time, whatever the
//! writers wait for.

use std::time::Instant;

use anyhow::Result;
use larder_client::{Client, Key, Reason};
use larder_sim::history::Call;
use tokio::sync::{mpsc, watch};

use crate::chaos::Dice;
use crate::chaos::ledger::{Ledger, Span, Verdict, value};
use crate::chaos::load::{SMALL_BATCH, key};
use crate::chaos::record::{Record, got};
use crate::chaos::tally::Tally;

/// Keys that a reader knows, at most.
const KNOWN: usize = 4_096;

/// A key that stays as it is.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) key: String,
    pub(super) seed: u64,
    pub(super) acknowledged_ns: u64,
}

pub(super) struct Reader {
    pub(super) client: Client,
    pub(super) dice: Dice,
    pub(super) tally: Tally,
    pub(super) record: Record,
    pub(super) spans: watch::Receiver<Span>,
    pub(super) handed: mpsc::Receiver<Vec<Known>>,
    pub(super) known: Vec<Known>,
}

impl Reader {
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<(Tally, Record)> {
        while !*stop.borrow() {
            if self.known.is_empty() {
                tokio::select! {
                    handed = self.handed.recv() => match handed {
                        Some(some) => self.learn(some),
                        None => break,
                    },
                    _ = stop.changed() => break,
                }
                continue;
            }
            while let Ok(some) = self.handed.try_recv() {
                self.learn(some);
            }
            self.read().await?;
        }
        Ok((self.tally, self.record))
    }

    fn learn(&mut self, some: Vec<Known>) {
        for one in some {
            if self.known.len() < KNOWN {
                self.known.push(one);
            } else {
                let at = self.dice.place(KNOWN);
                self.known[at] = one;
            }
        }
    }

    async fn read(&mut self) -> Result<()> {
        let length = self.known.len();
        let picked: Vec<Known> = (0..SMALL_BATCH)
            .map(|_| self.known[self.dice.place(length)].clone())
            .collect();
        let keys: Result<Vec<Key>> = picked.iter().map(|one| key(&one.key)).collect();
        let calls = picked.iter().map(|one| (one.key.as_str(), Call::Get));
        let open = self.record.begin(calls)?;
        let start = Instant::now();
        let read = self.client.get_batch(keys?).await;
        let took_ms = start.elapsed().as_secs_f64() * 1e3;
        self.record.end(open, read.iter().map(got))?;
        let span = *self.spans.borrow();
        for (one, result) in picked.into_iter().zip(read) {
            self.tally.gets += 1;
            let verdict = match result {
                Ok(bytes) if bytes == value(one.seed) => Verdict::Right,
                Ok(_) => Verdict::Wrong,
                Err(error) if error.reason() == Some(Reason::NotFound) => {
                    let before = self.known.len();
                    self.known.retain(|known| known.key != one.key);
                    match span.holds(one.acknowledged_ns) {
                        // It is told once.
                        _ if self.known.len() == before => Verdict::Right,
                        true => Verdict::Undone,
                        false => Verdict::Lost,
                    }
                }
                Err(error) => {
                    self.tally.gets_failed += 1;
                    self.tally.error("get", &error);
                    let (key, after) = (&one.key, start.elapsed());
                    self.tally
                        .finding(format!("get of {key} failed after {after:?}: {error}"));
                    continue;
                }
            };
            self.tally.longest_get_ms = self.tally.longest_get_ms.max(took_ms);
            self.tally.verdict(&one.key, &verdict);
        }
        Ok(())
    }
}

/// Where what a reader sees is taken down.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    /// What it may be.
    pub(super) ledger: &'a mut Ledger,
    /// What it was.
    pub(super) tally: &'a mut Tally,
    /// All of it.
    pub(super) record: &'a mut Record,
}

impl Seen<'_> {
    /// Reads keys and judges them; those that could not be read come back.
    ///
    /// # Errors
    /// If a key is too long.
    pub(super) async fn judge(
        self,
        client: &Client,
        some: &[usize],
        spans: &watch::Receiver<Span>,
    ) -> Result<Vec<usize>> {
        let names: Vec<String> = some.iter().map(|at| self.ledger.key(*at)).collect();
        let keys: Result<Vec<Key>> = names.iter().map(|name| key(name)).collect();
        let calls = names.iter().map(|name| (name.as_str(), Call::Get));
        let open = self.record.begin(calls)?;
        let start = Instant::now();
        let read = client.get_batch(keys?).await;
        let took_ms = start.elapsed().as_secs_f64() * 1e3;
        self.record.end(open, read.iter().map(got))?;
        self.ledger.forgive(*spans.borrow());
        let mut failed = Vec::new();
        for (at, result) in some.iter().zip(read) {
            self.tally.gets += 1;
            let verdict = match &result {
                Ok(bytes) => self.ledger.judge(*at, Some(bytes)),
                Err(error) if error.reason() == Some(Reason::NotFound) => {
                    self.ledger.judge(*at, None)
                }
                Err(error) => {
                    self.tally.gets_failed += 1;
                    self.tally.error("get", error);
                    failed.push(*at);
                    continue;
                }
            };
            self.tally.longest_get_ms = self.tally.longest_get_ms.max(took_ms);
            self.tally.verdict(&self.ledger.key(*at), &verdict);
        }
        Ok(failed)
    }
}
