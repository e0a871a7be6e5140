//! One endpoint: numbers the batches of its tenant, keeps the last ones and hands each to every
//! subscriber that has room.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use larder_telemetry::{Metric, Registry};
use larder_types::TenantId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::peer::{Kept, PeerEnd, ReplayAsk, serve_replay, serve_subscriber};
use super::schema::{BlockChange, Shape};
use super::zmtp::push_message;

/// The most subscribers of one endpoint; a pool has a few routers.
const SUBSCRIBERS_MAX: usize = 64;
/// The most connections that repeat batches.
const REPLAYS_MAX: usize = 16;
/// The most payload that is kept to be repeated, in bytes.
const KEPT_MAX_BYTES: usize = 64 << 20;
/// How long nobody is accepted after accepting failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Changes that are published together.
#[derive(Debug)]
pub(super) struct Batch {
    /// Batches before this one that were not handed over: their numbers are left out.
    pub(super) missed: u64,
    pub(super) changes: Vec<BlockChange>,
}

/// What an endpoint is.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) tenant: TenantId,
    pub(super) topic: Bytes,
    pub(super) shape: Shape,
    pub(super) high_water: usize,
    pub(super) replay_batches: usize,
}

/// An endpoint at work.
pub(super) struct Endpoint {
    rules: Rules,
    registry: Registry,
    /// The number of the next batch.
    next: u64,
    kept: VecDeque<(u64, Bytes)>,
    kept_bytes: usize,
    /// At most [`SUBSCRIBERS_MAX`] queues of [`Rules::high_water`] messages, which they share.
    subscribers: Vec<mpsc::Sender<Bytes>>,
    /// How many there are, for the page of metrics.
    count: watch::Sender<usize>,
    asks: mpsc::Sender<ReplayAsk>,
    asked: mpsc::Receiver<ReplayAsk>,
    /// The tasks of all connections: they end with the endpoint.
    published: JoinSet<Result<(), PeerEnd>>,
    replays: JoinSet<Result<(), PeerEnd>>,
}

impl Endpoint {
    pub(super) fn new(rules: Rules, registry: Registry, count: watch::Sender<usize>) -> Self {
        let (asks, asked) = mpsc::channel(REPLAYS_MAX);
        Self {
            rules,
            registry,
            next: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            subscribers: Vec::new(),
            count,
            asks,
            asked,
            published: JoinSet::new(),
            replays: JoinSet::new(),
        }
    }

    /// Serves until nobody feeds it any more.
    pub(super) async fn run(
        mut self,
        listener: TcpListener,
        replay: Option<TcpListener>,
        mut batches: mpsc::Receiver<Batch>,
    ) {
        loop {
            tokio::select! {
                batch = batches.recv() => match batch {
                    Some(batch) => self.publish(&batch),
                    None => return,
                },
                stream = accept(Some(&listener)) => self.subscriber(stream),
                stream = accept(replay.as_ref()) => self.replay(stream),
                Some(ask) = self.asked.recv() => {
                    // Whoever asked may have gone.
                    drop(ask.reply.send(self.kept_from(ask.from)));
                }
                Some(ended) = self.published.join_next() => {
                    said(ended);
                    self.subscribers.retain(|queue| !queue.is_closed());
                    self.count.send_replace(self.subscribers.len());
                }
                Some(ended) = self.replays.join_next() => said(ended),
            }
        }
    }

    fn publish(&mut self, batch: &Batch) {
        self.next += batch.missed;
        let seq = self.next;
        self.next += 1;
        let payload = match self.rules.shape.encode(now_seconds(), &batch.changes) {
            Ok(payload) => Bytes::from(payload),
            Err(error) => {
                tracing::error!(%error, "a batch of events does not encode");
                return;
            }
        };
        let mut message = Vec::with_capacity(payload.len() + self.rules.topic.len() + 32);
        let parts = [&*self.rules.topic, &seq.to_be_bytes(), &payload];
        push_message(&mut message, &parts);
        let message = Bytes::from(message);
        let labels = [self.rules.tenant.as_str(), "peer"];
        for queue in &self.subscribers {
            if let Err(mpsc::error::TrySendError::Full(_)) = queue.try_send(message.clone()) {
                self.registry.inc(Metric::MasterZmqDroppedTotal, &labels, 1);
            }
        }
        self.keep(seq, payload);
    }

    fn keep(&mut self, seq: u64, payload: Bytes) {
        self.kept_bytes += payload.len();
        self.kept.push_back((seq, payload));
        while self.kept.len() > self.rules.replay_batches || self.kept_bytes > KEPT_MAX_BYTES {
            let Some((_, gone)) = self.kept.pop_front() else {
                return;
            };
            self.kept_bytes = self.kept_bytes.saturating_sub(gone.len());
        }
    }

    /// The payloads are shared, not copied.
    fn kept_from(&self, from: u64) -> Kept {
        let first = self.kept.partition_point(|(seq, _)| *seq < from);
        self.kept.range(first..).cloned().collect()
    }

    fn subscriber(&mut self, stream: TcpStream) {
        if self.published.len() >= SUBSCRIBERS_MAX {
            let tenant = &self.rules.tenant;
            tracing::warn!(%tenant, "a subscriber of ZMQ events is one too many");
            return;
        }
        let (queue, messages) = mpsc::channel(self.rules.high_water);
        self.subscribers.push(queue);
        let topic = self.rules.topic.clone();
        self.published
            .spawn(serve_subscriber(stream, topic, messages));
        self.count.send_replace(self.subscribers.len());
    }

    fn replay(&mut self, stream: TcpStream) {
        if self.replays.len() < REPLAYS_MAX {
            self.replays.spawn(serve_replay(stream, self.asks.clone()));
        }
    }
}

/// The next connection; never one without a listener.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else {
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "accept failed; check the limit of open files");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn said(ended: Result<Result<(), PeerEnd>, tokio::task::JoinError>) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let error = larder_telemetry::error_chain(&error);
            tracing::debug!(%error, "a ZMQ connection ended");
        }
        Err(error) => tracing::error!(%error, "a ZMQ connection's task fell"),
    }
}

/// Seconds since 1970: told to subscribers and used for nothing else.
fn now_seconds() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

#[cfg(test)]
mod tests;
