//! Clients at full rate: writers with batches of 64 keys, and a reader for each.
//!
//! Writers judge what they read of their own keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use larder_client::{Attributes, Client, ClientOptions, Credential, Key, Pin, PutMode, PutOptions};
use larder_sim::history::{Call, Operation, Value};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::chaos::ledger::{Ledger, Span, value};
use crate::chaos::reader::{Known, Reader, Seen};
use crate::chaos::record::{Record, written};
use crate::chaos::tally::Tally;
use crate::chaos::{Dice, Plan, now_ns};
use crate::pool::Pool;

/// Keys of a batch of puts.
pub const BATCH: usize = 64;
/// The deadline of every call of the load.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// Keys of a batch of gets or upserts.
pub(super) const SMALL_BATCH: usize = 16;
/// Every key of this many may be upserted; the others stay as they are.
const CHANGING: usize = 4;
/// Batches on their way to a reader. It falls behind and misses some; it need not see all.
const HANDED: usize = 64;
/// The tenant of the load; what it puts is pinned, so that no eviction looks like a loss.
pub const TENANT: &str = "load";
/// The tenant whose objects fill the pool and are evicted.
pub const FILLER: &str = "filler";

/// Connects a client to masters of a pool.
///
/// # Errors
/// If nobody answers within 20 s.
pub async fn connect(pool: &Pool, tenant: &str, masters: Vec<String>) -> Result<Client> {
    let mut options = ClientOptions::new(masters, Credential::new(&pool.token(tenant)?)?);
    options.default_deadline = Duration::from_secs(20);
    tenant.clone_into(&mut options.name);
    Ok(Client::connect(options).await?.with_deadline(DEADLINE))
}

/// The addresses of all masters.
#[must_use]
pub fn addrs(pool: &Pool) -> Vec<String> {
    let masters = pool.document.masters.iter();
    masters.map(|master| master.client_addr.clone()).collect()
}

/// A key from its text.
///
/// # Errors
/// If it is too long.
pub fn key(text: &str) -> Result<Key> {
    Key::try_from(text).with_context(|| format!("key {text}"))
}

/// Options of the load's puts.
#[must_use]
pub fn pinned(mode: PutMode) -> PutOptions {
    copied(mode, 1)
}

/// The same with so many replicas.
#[must_use]
pub fn copied(mode: PutMode, replicas: u8) -> PutOptions {
    PutOptions {
        mode,
        replicas: Some(replicas),
        strict: true,
        attributes: Attributes {
            pin: Pin::Hard,
            ..Attributes::default()
        },
        ..PutOptions::default()
    }
}

/// Clients that run until they are told to stop.
#[derive(Debug)]
pub struct Load {
    stop: watch::Sender<bool>,
    spans: watch::Sender<Span>,
    puts: Arc<AtomicU64>,
    writers: JoinSet<Result<(Ledger, Tally, Record)>>,
    readers: JoinSet<Result<(Tally, Record)>>,
}

/// What came of a load.
#[derive(Debug)]
pub struct Ended {
    /// What the writers know of their keys.
    pub ledgers: Vec<Ledger>,
    /// What all counted.
    pub tally: Tally,
    /// What all saw.
    pub history: Vec<Operation>,
}

impl Load {
    /// Starts writers, with numbers from `first` on, and a reader for each. The clients are
    /// connected before it returns. After twice the plan's puts the writers only read, so that
    /// healing may take long without filling the pool; if it is about what writes cost, they then
    /// write the same keys again and again.
    ///
    /// # Errors
    /// If a client cannot connect.
    pub async fn start(
        pool: &Pool,
        (first, writers): (u64, u64),
        plan: &Plan,
        dice: &mut Dice,
    ) -> Result<Self> {
        let mut load = Self {
            stop: watch::Sender::new(false),
            spans: watch::Sender::default(),
            puts: Arc::default(),
            writers: JoinSet::new(),
            readers: JoinSet::new(),
        };
        for number in first..first + writers {
            let (hand, handed) = mpsc::channel(HANDED);
            let writer = Writer {
                client: connect(pool, TENANT, addrs(pool)).await?,
                ledger: Ledger::new(number),
                dice: Dice::new(dice.roll()),
                tally: Tally::default(),
                record: Record::new(2 * number),
                spans: load.spans.subscribe(),
                replicas: replicas(plan),
                puts: Arc::clone(&load.puts),
                puts_max: 2 * plan.puts_per_round,
                never_rests: plan.fault.times_writes(),
                hand,
            };
            load.writers.spawn(writer.run(load.stop.subscribe()));
            let reader = Reader {
                client: connect(pool, TENANT, addrs(pool)).await?,
                dice: Dice::new(dice.roll()),
                tally: Tally::default(),
                record: Record::new(2 * number + 1),
                spans: load.spans.subscribe(),
                handed,
                known: Vec::new(),
            };
            load.readers.spawn(reader.run(load.stop.subscribe()));
        }
        Ok(load)
    }

    /// What was acknowledged in this span may go back. Told before anybody can see it.
    pub fn forgive(&self, span: Span) {
        self.spans.send_replace(span);
    }

    /// Acknowledged puts so far.
    #[must_use]
    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::Relaxed)
    }

    /// Stops all clients after what they do now.
    ///
    /// # Errors
    /// If one of them broke.
    pub async fn stop(mut self) -> Result<Ended> {
        self.stop.send_replace(true);
        let mut all = Ended {
            ledgers: Vec::new(),
            tally: Tally::default(),
            history: Vec::new(),
        };
        while let Some(ended) = self.writers.join_next().await {
            let (ledger, tally, record) = ended??;
            all.ledgers.push(ledger);
            all.tally.add(&tally);
            all.history.extend(record.finish());
        }
        while let Some(ended) = self.readers.join_next().await {
            let (tally, record) = ended??;
            all.tally.add(&tally);
            all.history.extend(record.finish());
        }
        // Somebody reads all that was written afterwards.
        let span = *self.spans.borrow();
        all.ledgers.iter_mut().for_each(|one| one.forgive(span));
        Ok(all)
    }
}

/// Replicas of the load's objects.
#[must_use]
pub const fn replicas(plan: &Plan) -> u8 {
    if plan.fault.hits_agents() { 2 } else { 1 }
}

struct Writer {
    client: Client,
    ledger: Ledger,
    dice: Dice,
    tally: Tally,
    record: Record,
    spans: watch::Receiver<Span>,
    replicas: u8,
    puts: Arc<AtomicU64>,
    puts_max: u64,
    never_rests: bool,
    hand: mpsc::Sender<Vec<Known>>,
}

impl Writer {
    async fn run(mut self, stop: watch::Receiver<bool>) -> Result<(Ledger, Tally, Record)> {
        for turn in 0_u64.. {
            if *stop.borrow() {
                break;
            }
            if self.puts.load(Ordering::Relaxed) >= self.puts_max {
                if self.never_rests {
                    self.write_again(BATCH).await?;
                } else {
                    self.read_back().await?;
                }
                continue;
            }
            let fresh = (0..BATCH).map(|_| self.ledger.fresh()).collect();
            self.write(fresh, PutMode::Create).await?;
            if turn % 4 == 0 {
                self.write_again(SMALL_BATCH).await?;
            }
            if turn % 2 == 0 {
                self.read_back().await?;
            }
        }
        Ok((self.ledger, self.tally, self.record))
    }

    async fn write_again(&mut self, keys: usize) -> Result<()> {
        let some = self.some(keys, |ledger, at| at % CHANGING == 0 && ledger.is_held(at));
        let upsert = PutMode::Upsert { if_unleased: false };
        self.write(some, upsert).await
    }

    /// Some keys of a kind, each once.
    fn some(&mut self, keys: usize, is_wanted: impl Fn(&Ledger, usize) -> bool) -> Vec<usize> {
        let limit = self.ledger.len() as u64;
        let mut some: Vec<usize> = (0..keys)
            .filter_map(|_| usize::try_from(self.dice.below(limit)).ok())
            .filter(|at| is_wanted(&self.ledger, *at))
            .collect();
        some.sort_unstable();
        some.dedup();
        some
    }

    async fn write(&mut self, keys: Vec<usize>, mode: PutMode) -> Result<()> {
        let names: Vec<String> = keys.iter().map(|at| self.ledger.key(*at)).collect();
        let seeds: Vec<u64> = keys.iter().map(|_| self.dice.roll()).collect();
        let mut items = Vec::with_capacity(keys.len());
        for (name, seed) in names.iter().zip(&seeds) {
            items.push((key(name)?, value(*seed)));
        }
        let (operation, call) = match mode {
            PutMode::Create => ("put", Call::Put as fn(Value) -> Call),
            PutMode::Upsert { .. } => ("upsert", Call::Upsert as fn(Value) -> Call),
        };
        let calls = names.iter().zip(&seeds);
        let calls = calls.map(|(name, seed)| (name.as_str(), call(Value(*seed))));
        let open = self.record.begin(calls)?;
        let began = now_ns();
        let options = copied(mode, self.replicas);
        let done = self.client.put_batch_with(items, &options).await;
        let ended = now_ns();
        self.record.end(open, done.iter().map(written))?;
        let mut steady = Vec::new();
        let mut puts = 0;
        for (((at, key), seed), result) in keys.into_iter().zip(names).zip(seeds).zip(done) {
            match result {
                Ok(_) => {
                    puts += 1;
                    self.ledger.acknowledged(at, Some(seed), ended);
                    if at % CHANGING != 0 {
                        steady.push(Known {
                            key,
                            seed,
                            acknowledged_ns: ended,
                        });
                    }
                }
                Err(error) => {
                    self.tally.error(operation, &error);
                    self.ledger.unknown(at, Some(seed));
                }
            }
        }
        self.tally.puts += puts;
        self.tally.writes.push((began, ended));
        if puts > 0 {
            let took_ms = Duration::from_nanos(ended - began).as_secs_f64() * 1e3;
            self.tally.longest_write_ms = self.tally.longest_write_ms.max(took_ms);
        }
        self.puts.fetch_add(puts, Ordering::Relaxed);
        // A reader that is behind misses these.
        let _ = self.hand.try_send(steady);
        Ok(())
    }

    async fn read_back(&mut self) -> Result<()> {
        let some = self.some(SMALL_BATCH, |_, _| true);
        let seen = Seen {
            ledger: &mut self.ledger,
            tally: &mut self.tally,
            record: &mut self.record,
        };
        seen.judge(&self.client, &some, &self.spans).await?;
        Ok(())
    }
}
