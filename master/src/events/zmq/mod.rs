//! Cache events on ZMQ in vLLM's KV-event schema, for routers that know it.
//!
//! ```text
//! hash      pure: which block a key is about
//! schema    pure: a batch as msgpack
//! zmtp      pure: the protocol of PUB and ROUTER sockets
//! peer      one connection
//! endpoint  one tenant's sockets: one task
//! ```

mod endpoint;
mod hash;
mod peer;
mod schema;
mod zmtp;

use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use larder_telemetry::{Metric, Registry};
use larder_types::TenantId;
use larder_wire::events::CacheChange;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::config::ZmqConfig;
use super::log::EventLog;
use crate::config::ConfigError;
use endpoint::{Batch, Endpoint, Rules};
use hash::block_hash;
use schema::{BlockChange, Shape};

/// The most events in one batch: a message of about 12 KiB, so that [`ZmqConfig::high_water`]
/// messages of a subscriber that does not read are 12 MiB by default.
const BATCH_EVENTS: usize = 256;
/// Batches on their way to one endpoint: 16 bytes for each event, 4 MiB.
const QUEUE_BATCHES: usize = 1_024;

/// Where the sockets of one tenant are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ZmqAddrs {
    pub(crate) tenant: TenantId,
    pub(crate) addr: SocketAddr,
    pub(crate) replay_addr: Option<SocketAddr>,
}

/// Why a socket cannot be bound: its key, its address and the reason.
pub(crate) type BindError = (&'static str, String, io::Error);

/// An endpoint that is bound and does not serve yet.
#[derive(Debug)]
struct Bound {
    config: ZmqConfig,
    listener: TcpListener,
    replay: Option<TcpListener>,
    addrs: ZmqAddrs,
}

/// All endpoints of a configuration, bound.
#[derive(Debug, Default)]
pub(crate) struct Sockets(Vec<Bound>);

/// Whether this build can publish.
///
/// # Errors
/// Never: this one can.
pub(crate) const fn check_build(_: &[ZmqConfig]) -> Result<(), ConfigError> {
    Ok(())
}

impl Sockets {
    /// Binds the sockets.
    pub(crate) async fn bind(configs: &[ZmqConfig]) -> Result<Self, BindError> {
        let mut bound = Vec::new();
        for config in configs {
            let (listener, addr) = listen("events.zmq.addr", &config.addr).await?;
            let (replay, replay_addr) = match &config.replay_addr {
                Some(addr) => {
                    let (replay, addr) = listen("events.zmq.replay_addr", addr).await?;
                    (Some(replay), Some(addr))
                }
                None => (None, None),
            };
            let addrs = ZmqAddrs {
                tenant: config.tenant.clone(),
                addr,
                replay_addr,
            };
            bound.push(Bound {
                config: config.clone(),
                listener,
                replay,
                addrs,
            });
        }
        Ok(Self(bound))
    }

    /// Where they are.
    pub(crate) fn addrs(&self) -> Vec<ZmqAddrs> {
        self.0.iter().map(|bound| bound.addrs.clone()).collect()
    }

    /// Starts a task for each, which ends when the last [`Feeds`] is dropped.
    pub(crate) fn start(self, registry: &Registry) -> Feeds {
        let feeds = self.0.into_iter().map(|bound| {
            let Bound {
                config,
                listener,
                replay,
                ..
            } = bound;
            let (batches, queue) = mpsc::channel(QUEUE_BATCHES);
            let (count, subscribers) = watch::channel(0);
            let topic = config.topic.as_deref().unwrap_or(config.tenant.as_str());
            let rules = Rules {
                tenant: config.tenant.clone(),
                topic: Bytes::copy_from_slice(topic.as_bytes()),
                shape: Shape {
                    schema: config.schema,
                    medium: config.medium,
                },
                high_water: config.high_water,
                replay_batches: config.replay_batches,
            };
            let endpoint = Endpoint::new(rules, registry.clone(), count);
            tokio::spawn(endpoint.run(listener, replay, queue));
            Feed {
                tenant: config.tenant,
                batches,
                subscribers,
                next: None,
                missed: 0,
                clears: false,
            }
        });
        Feeds(feeds.collect())
    }
}

async fn listen(key: &'static str, addr: &str) -> Result<(TcpListener, SocketAddr), BindError> {
    let failed = |error| (key, addr.to_owned(), error);
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

/// The way to one endpoint.
#[derive(Clone, Debug)]
struct Feed {
    tenant: TenantId,
    batches: mpsc::Sender<Batch>,
    subscribers: watch::Receiver<usize>,
    /// The number of the first event that was not handed over; `None` = whatever is first.
    next: Option<u64>,
    /// Batches that did not get through since the last that did.
    missed: u64,
    /// The next batch begins with the word that all is gone.
    clears: bool,
}

/// The ways to all endpoints.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feeds(Vec<Feed>);

impl Feeds {
    /// A leader begins with an empty pool: nothing of what was told before is there.
    pub(crate) fn begin(&mut self) {
        for feed in &mut self.0 {
            feed.next = None;
            feed.clears = true;
            feed.send(Vec::new());
        }
    }

    /// Hands over what happened to a tenant since the last time.
    pub(crate) fn publish(&mut self, tenant: &TenantId, log: &EventLog, registry: &Registry) {
        for feed in self.0.iter_mut().filter(|feed| feed.tenant == *tenant) {
            let published = feed.publish(log);
            let dropped = |reason, count| {
                if count > 0 {
                    let labels = [tenant.as_str(), reason];
                    registry.inc(Metric::MasterZmqDroppedTotal, &labels, count);
                }
            };
            dropped("no_hash", published.without_hash);
            dropped("queue", published.dropped);
            if published.taken > 0 {
                let labels = [tenant.as_str()];
                registry.inc(Metric::MasterZmqBatchesTotal, &labels, published.taken);
            }
        }
    }

    /// A tenant is gone: one of its name has other numbers.
    pub(crate) fn restart(&mut self, tenant: &TenantId) {
        for feed in self.0.iter_mut().filter(|feed| feed.tenant == *tenant) {
            feed.next = None;
        }
    }

    /// How many subscribe to a tenant; `None` if it is not published.
    pub(crate) fn subscribers(&self, tenant: &TenantId) -> Option<usize> {
        let mut of_tenant = self.0.iter().filter(|feed| feed.tenant == *tenant);
        let first = *of_tenant.next()?.subscribers.borrow();
        Some(of_tenant.fold(first, |sum, feed| sum + *feed.subscribers.borrow()))
    }
}

/// What came of handing events over.
#[derive(Debug, Default)]
struct Published {
    without_hash: u64,
    /// Batches that were handed over.
    taken: u64,
    /// Batches that were not.
    dropped: u64,
}

impl Feed {
    fn publish(&mut self, log: &EventLog) -> Published {
        let mut published = Published::default();
        let end = log.next(&self.tenant).counter;
        let from = self.next.unwrap_or(0);
        let kept = log.since(&self.tenant, from).count() as u64;
        // What the log dropped before it came here is at least one batch that is missing.
        if self.next.is_some_and(|next| next + kept < end) {
            self.missed += 1;
            published.dropped += 1;
        }
        let mut changes = Vec::new();
        for event in log.since(&self.tenant, from) {
            match block_hash(event.key.as_bytes()) {
                Some(hash) if matches!(event.change, CacheChange::Stored { .. }) => {
                    changes.push(BlockChange::Stored(hash));
                }
                Some(hash) => changes.push(BlockChange::Removed(hash)),
                None => published.without_hash += 1,
            }
            if changes.len() == BATCH_EVENTS {
                self.send_counted(std::mem::take(&mut changes), &mut published);
            }
        }
        if !changes.is_empty() {
            self.send_counted(changes, &mut published);
        }
        self.next = Some(end);
        published
    }

    fn send_counted(&mut self, changes: Vec<BlockChange>, published: &mut Published) {
        if self.send(changes) {
            published.taken += 1;
        } else {
            published.dropped += 1;
        }
    }

    /// Hands a batch over, if there is room; subscribers see the hole in the numbers if not.
    fn send(&mut self, mut changes: Vec<BlockChange>) -> bool {
        if self.clears {
            changes.insert(0, BlockChange::Cleared);
        }
        let batch = Batch {
            missed: self.missed,
            changes,
        };
        let is_taken = self.batches.try_send(batch).is_ok();
        self.missed = if is_taken { 0 } else { self.missed + 1 };
        self.clears &= !is_taken;
        is_taken
    }
}
