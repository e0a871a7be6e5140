//! Clients at full rate: writers with batches of 64 keys, and readers.
//!
//! Writers judge what they read of their own keys. Readers are handed keys that stay as they are
//! and read them all the time, whatever the writers wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use larder_client::{
    Attributes, Client, ClientOptions, Credential, Key, Pin, PutMode, PutOptions, Reason,
};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::chaos::Dice;
use crate::chaos::ledger::{Ledger, Verdict, value};
use crate::chaos::tally::Tally;
use crate::pool::Pool;

/// Keys of a batch of puts.
pub const BATCH: usize = 64;
/// The deadline of every call of the load.
pub const DEADLINE: Duration = Duration::from_secs(2);
/// Keys of a batch of gets or upserts.
const SMALL_BATCH: usize = 16;
/// Every key of this many may be upserted; the others stay as they are.
const CHANGING: usize = 4;
/// Batches on their way to a reader. It falls behind and misses some; it need not see all.
const HANDED: usize = 64;
/// Keys that a reader knows, at most.
const KNOWN: usize = 4_096;
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
    PutOptions {
        mode,
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
    puts: Arc<AtomicU64>,
    writers: JoinSet<Result<(Ledger, Tally)>>,
    readers: JoinSet<Result<Tally>>,
}

impl Load {
    /// Starts writers, with numbers from `first` on, and a reader for each. The clients are
    /// connected before it returns. After `puts_max` acknowledged puts the writers only read, so
    /// that healing may take long without filling the pool.
    ///
    /// # Errors
    /// If a client cannot connect.
    pub async fn start(
        pool: &Pool,
        (first, writers): (u64, u64),
        puts_max: u64,
        dice: &mut Dice,
    ) -> Result<Self> {
        let mut load = Self {
            stop: watch::Sender::new(false),
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
                puts: Arc::clone(&load.puts),
                puts_max,
                hand,
            };
            load.writers.spawn(writer.run(load.stop.subscribe()));
            let reader = Reader {
                client: connect(pool, TENANT, addrs(pool)).await?,
                dice: Dice::new(dice.roll()),
                tally: Tally::default(),
                handed,
                known: Vec::new(),
            };
            load.readers.spawn(reader.run(load.stop.subscribe()));
        }
        Ok(load)
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
    pub async fn stop(mut self) -> Result<(Vec<Ledger>, Tally)> {
        self.stop.send_replace(true);
        let (mut ledgers, mut all) = (Vec::new(), Tally::default());
        while let Some(ended) = self.writers.join_next().await {
            let (ledger, tally) = ended??;
            ledgers.push(ledger);
            all.add(&tally);
        }
        while let Some(ended) = self.readers.join_next().await {
            all.add(&ended??);
        }
        Ok((ledgers, all))
    }
}

struct Writer {
    client: Client,
    ledger: Ledger,
    dice: Dice,
    tally: Tally,
    puts: Arc<AtomicU64>,
    puts_max: u64,
    hand: mpsc::Sender<Vec<(String, u64)>>,
}

impl Writer {
    async fn run(mut self, stop: watch::Receiver<bool>) -> Result<(Ledger, Tally)> {
        for turn in 0_u64.. {
            if *stop.borrow() {
                break;
            }
            if self.puts.load(Ordering::Relaxed) >= self.puts_max {
                self.read_back().await?;
                continue;
            }
            let fresh = (0..BATCH).map(|_| self.ledger.fresh()).collect();
            self.write(fresh, PutMode::Create).await?;
            if turn % 4 == 0 {
                let some = self.some(|ledger, at| at % CHANGING == 0 && ledger.is_held(at));
                let upsert = PutMode::Upsert { if_unleased: false };
                self.write(some, upsert).await?;
            }
            if turn % 2 == 0 {
                self.read_back().await?;
            }
        }
        Ok((self.ledger, self.tally))
    }

    /// Some keys of a kind, each once.
    fn some(&mut self, is_wanted: impl Fn(&Ledger, usize) -> bool) -> Vec<usize> {
        let limit = self.ledger.len() as u64;
        let mut some: Vec<usize> = (0..SMALL_BATCH)
            .filter_map(|_| usize::try_from(self.dice.below(limit)).ok())
            .filter(|at| is_wanted(&self.ledger, *at))
            .collect();
        some.sort_unstable();
        some.dedup();
        some
    }

    async fn write(&mut self, keys: Vec<usize>, mode: PutMode) -> Result<()> {
        let mut items = Vec::with_capacity(keys.len());
        let mut seeds = Vec::with_capacity(keys.len());
        for at in &keys {
            let seed = self.dice.roll();
            seeds.push(seed);
            items.push((key(&self.ledger.key(*at))?, value(seed)));
        }
        let done = self.client.put_batch_with(items, &pinned(mode)).await;
        let mut steady = Vec::new();
        let operation = if mode == PutMode::Create {
            "put"
        } else {
            "upsert"
        };
        let mut puts = 0;
        for ((at, seed), result) in keys.into_iter().zip(seeds).zip(done) {
            match result {
                Ok(_) => {
                    puts += 1;
                    self.ledger.acknowledged(at, Some(seed));
                    if at % CHANGING != 0 {
                        steady.push((self.ledger.key(at), seed));
                    }
                }
                Err(error) => {
                    self.tally.error(operation, &error);
                    self.ledger.unknown(at, Some(seed));
                }
            }
        }
        self.tally.puts += puts;
        self.puts.fetch_add(puts, Ordering::Relaxed);
        // A reader that is behind misses these.
        let _ = self.hand.try_send(steady);
        Ok(())
    }

    async fn read_back(&mut self) -> Result<()> {
        let some = self.some(|_, _| true);
        judge(&self.client, &mut self.ledger, &some, &mut self.tally).await?;
        Ok(())
    }
}

/// Reads keys and judges them; those that could not be read come back.
///
/// # Errors
/// If a key is too long.
pub async fn judge(
    client: &Client,
    ledger: &mut Ledger,
    some: &[usize],
    tally: &mut Tally,
) -> Result<Vec<usize>> {
    let keys: Result<Vec<Key>> = some.iter().map(|at| key(&ledger.key(*at))).collect();
    let start = Instant::now();
    let read = client.get_batch(keys?).await;
    let took_ms = start.elapsed().as_secs_f64() * 1e3;
    let mut failed = Vec::new();
    for (at, result) in some.iter().zip(read) {
        tally.gets += 1;
        let verdict = match &result {
            Ok(bytes) => ledger.judge(*at, Some(bytes)),
            Err(error) if error.reason() == Some(Reason::NotFound) => ledger.judge(*at, None),
            Err(error) => {
                tally.gets_failed += 1;
                tally.error("get", error);
                failed.push(*at);
                continue;
            }
        };
        tally.longest_get_ms = tally.longest_get_ms.max(took_ms);
        tally.verdict(&ledger.key(*at), &verdict);
    }
    Ok(failed)
}

struct Reader {
    client: Client,
    dice: Dice,
    tally: Tally,
    handed: mpsc::Receiver<Vec<(String, u64)>>,
    known: Vec<(String, u64)>,
}

impl Reader {
    async fn run(mut self, mut stop: watch::Receiver<bool>) -> Result<Tally> {
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
        Ok(self.tally)
    }

    fn learn(&mut self, some: Vec<(String, u64)>) {
        for one in some {
            if self.known.len() < KNOWN {
                self.known.push(one);
            } else {
                let at = usize::try_from(self.dice.below(KNOWN as u64)).unwrap_or_default();
                self.known[at] = one;
            }
        }
    }

    async fn read(&mut self) -> Result<()> {
        let limit = self.known.len() as u64;
        let picked: Vec<(String, u64)> = (0..SMALL_BATCH)
            .map(|_| usize::try_from(self.dice.below(limit)).unwrap_or_default())
            .map(|at| self.known[at].clone())
            .collect();
        let keys: Result<Vec<Key>> = picked.iter().map(|(text, _)| key(text)).collect();
        let start = Instant::now();
        let read = self.client.get_batch(keys?).await;
        let took_ms = start.elapsed().as_secs_f64() * 1e3;
        for ((text, seed), result) in picked.into_iter().zip(read) {
            self.tally.gets += 1;
            let verdict = match result {
                Ok(bytes) if bytes == value(seed) => Verdict::Right,
                Ok(_) => Verdict::Wrong,
                Err(error) if error.reason() == Some(Reason::NotFound) => Verdict::Lost,
                Err(error) => {
                    self.tally.gets_failed += 1;
                    self.tally.error("get", &error);
                    let after = start.elapsed();
                    self.tally
                        .finding(format!("get of {text} failed after {after:?}: {error}"));
                    continue;
                }
            };
            self.tally.longest_get_ms = self.tally.longest_get_ms.max(took_ms);
            self.tally.verdict(&text, &verdict);
        }
        Ok(())
    }
}
