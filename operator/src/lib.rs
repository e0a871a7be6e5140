//! The operator of Larder: turns CachePools, CacheTenants and CacheQuotas into what runs in the
//! cluster.
//!
//! Each kind is reconciled by five calls in a row: *observe* (the watches and the master),
//! *validate* and *build* (pure), *apply* (writes what differs, in a fixed order), *status* (one
//! patch, if it differs). It touches no payload and stands in no data path: a pool serves on
//! without it.
//!
//! | what | where |
//! |---|---|
//! | what exists in the cluster | `stores`, filled by one watch per kind (`feed`) |
//! | who writes | `election`, and `gate` in the client holds every write to it |
//! | what a master says | `master_api` |
//! | conditions, reasons, events | `reasons`, `conditions` |

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use kube::Client;
use kube::runtime::controller::{Config as ControllerConfig, Controller, Error};
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use larder_telemetry::Registry;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub mod child;
pub mod conditions;
pub mod config;
pub mod context;
pub mod election;
pub mod error;
pub mod feed;
pub mod gate;
pub mod master_api;
pub mod masters;
pub mod metrics;
pub mod names;
pub mod node;
pub mod pool;
pub mod probes;
pub mod quota;
pub mod reasons;
pub mod snapshot;
pub mod status_patch;
pub mod stores;
pub mod tenant;

use config::Config;
use context::Context;
use election::Leadership;
use error::{Failures, ReconcileError};
use feed::{TRIGGERS_MAX, Triggers};
use master_api::{MasterApi, MasterViews};
use metrics::OperatorMetrics;
use node::leave::Drains;
use node::topology::Topology;
use pool::apply::RootKeys;
use pool::signals::SignalTimes;
use stores::Stores;

/// Changes of one object within this time are one reconcile.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// What one operator is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// A client that is not gated.
    pub client: ClientHandle,
    /// How masters are asked.
    pub master_api: Arc<dyn MasterApi>,
    /// Whether it may write.
    pub leadership: Leadership,
    /// Where it counts.
    pub registry: Registry,
    /// The same, with the watchdog.
    pub metrics: Arc<OperatorMetrics>,
    /// What it was told.
    pub config: Config,
    /// Namespace of its own pod.
    pub namespace: String,
    /// Name of its own pod.
    pub identity: String,
    /// Wall time.
    pub now: fn() -> jiff::Timestamp,
}

/// A [`Client`], which does not say what it is.
#[derive(Clone)]
pub struct ClientHandle(pub Client);

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Leads whenever the Lease is held. Runs until it is dropped.
pub async fn run(parts: Parts) {
    loop {
        parts.leadership.held().await;
        tokio::select! {
            () = lead(&parts) => tracing::warn!("the watches ended; starting them anew"),
            () = parts.leadership.lost() => tracing::warn!("this operator no longer leads"),
        }
    }
}

/// Reconciles everything. All state is built anew: what an earlier leader knew is worth nothing.
async fn lead(parts: &Parts) {
    let client = gate::gated(
        parts.client.0.clone(),
        parts.leadership.clone(),
        parts.registry.clone(),
    );
    let (pools, pool_triggers) = mpsc::channel(TRIGGERS_MAX);
    let (tenants, tenant_triggers) = mpsc::channel(TRIGGERS_MAX);
    let (quotas, quota_triggers) = mpsc::channel(TRIGGERS_MAX);
    let (snapshots, snapshot_triggers) = mpsc::channel(TRIGGERS_MAX);
    let triggers = Triggers {
        pools,
        tenants,
        quotas,
        snapshots,
    };
    // Dropped at the end of this function, and all watches with it.
    let mut watches = JoinSet::new();
    let namespace = parts.config.watch_namespace.as_deref();
    let (pool_queue, tenant_queue) = (held(pool_triggers), held(tenant_triggers));
    let (quota_queue, snapshot_queue) = (held(quota_triggers), held(snapshot_triggers));
    let stores = Stores::start(&client, namespace, &parts.metrics, &triggers, &mut watches).await;
    let Ok(stores) = stores else { return };
    drop(triggers);
    let context = Arc::new(context(parts, client, stores.clone()));
    context.metrics.turned();
    let limits = ControllerConfig::default()
        .debounce(DEBOUNCE)
        .concurrency(parts.config.concurrency);
    let pools = Controller::for_stream(stream::pending(), stores.pools.clone())
        .with_config(limits.clone())
        .reconcile_on(pool_queue)
        .run(pool::reconcile, pool::on_error, context.clone())
        .for_each(ready);
    let tenants = Controller::for_stream(stream::pending(), stores.tenants.clone())
        .with_config(limits.clone())
        .reconcile_on(tenant_queue)
        .run(tenant::reconcile, tenant::on_error, context.clone())
        .for_each(ready);
    let quotas = Controller::for_stream(stream::pending(), stores.quotas.clone())
        .with_config(limits.clone())
        .reconcile_on(quota_queue)
        .run(quota::reconcile, quota::on_error, context.clone())
        .for_each(ready);
    let snapshots = Controller::for_stream(stream::pending(), stores.snapshots.clone())
        .with_config(limits)
        .reconcile_on(snapshot_queue)
        .run(snapshot::reconcile, snapshot::on_error, context.clone())
        .for_each(ready);
    tokio::select! {
        () = pools => {}
        () = tenants => {}
        () = quotas => {}
        () = snapshots => {}
        () = node::sweep::run(&context) => {}
        _ = watches.join_next() => {}
    }
}

/// What every reconcile of one leader is given.
fn context(parts: &Parts, client: kube::Client, stores: Stores) -> Context {
    let reporter = Reporter {
        controller: names::MANAGER.to_owned(),
        instance: Some(parts.identity.clone()),
    };
    Context {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        stores,
        master_api: parts.master_api.clone(),
        masters: MasterViews::default(),
        root_keys: RootKeys::default(),
        drains: Drains::default(),
        topology: Topology::default(),
        signal_times: SignalTimes::default(),
        metrics: parts.metrics.clone(),
        failures: Failures::default(),
        config: parts.config.clone(),
        namespace: parts.namespace.clone(),
        now: parts.now,
    }
}

fn held<T>(queue: mpsc::Receiver<T>) -> impl futures_util::Stream<Item = T> {
    stream::unfold(queue, |mut queue| async move {
        queue.recv().await.map(|one| (one, queue))
    })
}

/// Failures are told by `on_error`; what is left is a controller that looks for deleted objects.
async fn ready<K>(
    result: Result<
        (ObjectRef<K>, kube::runtime::controller::Action),
        Error<ReconcileError, kube::runtime::watcher::Error>,
    >,
) where
    K: kube::Resource,
    K::DynamicType: Clone,
{
    match result {
        Ok(_) | Err(Error::ReconcilerFailed(..)) => {}
        Err(Error::ObjectNotFound(object)) => {
            tracing::debug!(%object, "an object was gone before its turn");
        }
        Err(error) => tracing::warn!(%error, "a controller stumbled and goes on"),
    }
}
