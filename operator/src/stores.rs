//! What the operator knows of the cluster: one watch per kind, shared by all reconciles.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject};
use kube::runtime::reflector::{self, ObjectRef, Store, store::Writer};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use larder_crds::{CachePool, CacheQuota, CacheSnapshot, CacheTenant};
use tokio::task::JoinSet;

use crate::child::{ChildKey, ChildKind, Standing, value_of};
use crate::feed::Triggers;
use crate::masters::{self, PodFacts};
use crate::metrics::OperatorMetrics;
use crate::names::{LABEL_COMPONENT, LABEL_POOL_UID, MANAGED_BY, MANAGER, PoolId};

mod feeds;
mod snapshots;

pub(crate) use feeds::without_managed_fields;

/// The stores that watches fill. A clone reads the same.
#[derive(Clone, Debug)]
pub struct Stores {
    /// Every pool.
    pub pools: Store<CachePool>,
    /// Every tenant.
    pub tenants: Store<CacheTenant>,
    /// Every quota.
    pub quotas: Store<CacheQuota>,
    /// Every snapshot.
    pub snapshots: Store<CacheSnapshot>,
    /// Every node.
    pub nodes: Store<Node>,
    /// The pods of masters.
    pub pods: Store<Pod>,
    children: BTreeMap<ChildKind, Store<DynamicObject>>,
}

/// The writing ends of [`Stores`].
struct Writers {
    pools: Writer<CachePool>,
    tenants: Writer<CacheTenant>,
    quotas: Writer<CacheQuota>,
    snapshots: Writer<CacheSnapshot>,
    nodes: Writer<Node>,
    pods: Writer<Pod>,
    children: Vec<(ChildKind, Writer<DynamicObject>)>,
}

impl Stores {
    fn new() -> (Self, Writers) {
        let (pools, pools_writer) = reflector::store();
        let (tenants, tenants_writer) = reflector::store();
        let (quotas, quotas_writer) = reflector::store();
        let (snapshots, snapshots_writer) = reflector::store();
        let (nodes, nodes_writer) = reflector::store();
        let (pods, pods_writer) = reflector::store();
        let writers: Vec<_> = ChildKind::ALL
            .iter()
            .map(|kind| (*kind, Writer::new(kind.resource())))
            .collect();
        let children = writers
            .iter()
            .map(|(kind, writer)| (*kind, writer.as_reader()))
            .collect();
        let writers = Writers {
            pools: pools_writer,
            tenants: tenants_writer,
            quotas: quotas_writer,
            snapshots: snapshots_writer,
            nodes: nodes_writer,
            pods: pods_writer,
            children: writers,
        };
        (
            Self {
                pools,
                tenants,
                quotas,
                snapshots,
                nodes,
                pods,
                children,
            },
            writers,
        )
    }

    /// Starts all watches in `tasks` and returns once each has seen everything there is.
    ///
    /// # Errors
    /// A watch ended before that.
    pub async fn start(
        client: &Client,
        namespace: Option<&str>,
        metrics: &Arc<OperatorMetrics>,
        triggers: &Triggers,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, reflector::store::WriterDropped> {
        let (stores, writers) = Self::new();
        let all = watcher::Config::default;
        let run = || (metrics.clone(), triggers.clone());
        let (m, t) = run();
        let pools = api(client, namespace);
        tasks.spawn(feeds::of_pools(&stores).run(pools, all(), writers.pools, m, t));
        let (m, t) = run();
        let tenants = api(client, namespace);
        tasks.spawn(feeds::of_tenants(&stores).run(tenants, all(), writers.tenants, m, t));
        let (m, t) = run();
        let quotas = api(client, namespace);
        tasks.spawn(feeds::of_quotas(&stores).run(quotas, all(), writers.quotas, m, t));
        let (m, t) = run();
        let snapshots = api(client, namespace);
        tasks.spawn(snapshots::feed().run(snapshots, all(), writers.snapshots, m, t));
        let (m, t) = run();
        let nodes = Api::all(client.clone());
        tasks.spawn(feeds::of_nodes(stores.pools.clone()).run(nodes, all(), writers.nodes, m, t));
        let (m, t) = run();
        let masters = format!("{MANAGED_BY}={MANAGER},{LABEL_COMPONENT}=master");
        let masters = all().labels(&masters);
        let pods = api(client, namespace);
        tasks.spawn(masters::facts::feed().run(pods, masters, writers.pods, m, t));
        for (kind, writer) in writers.children {
            let (m, t) = run();
            let namespace = namespace.filter(|_| kind != ChildKind::ClusterRoleBinding);
            let api = kind.api(client.clone(), namespace);
            let ours = all().labels(&format!("{MANAGED_BY}={MANAGER}"));
            tasks.spawn(feeds::of_children(kind).run_with(api, ours, writer, m, t));
        }
        stores.pools.wait_until_ready().await?;
        stores.tenants.wait_until_ready().await?;
        stores.quotas.wait_until_ready().await?;
        stores.snapshots.wait_until_ready().await?;
        stores.nodes.wait_until_ready().await?;
        stores.pods.wait_until_ready().await?;
        for store in stores.children.values() {
            store.wait_until_ready().await?;
        }
        Ok(stores)
    }

    /// The pool of this name.
    #[must_use]
    pub fn pool(&self, namespace: &str, name: &str) -> Option<Arc<CachePool>> {
        self.pools.get(&ObjectRef::new(name).within(namespace))
    }

    /// The tenants that name this pool.
    #[must_use]
    pub fn tenants_of(&self, namespace: &str, pool: &str) -> Vec<Arc<CacheTenant>> {
        self.tenants.state_filter(|tenant| {
            tenant.metadata.namespace.as_deref() == Some(namespace)
                && tenant.spec.pool_ref.name == pool
        })
    }

    /// The quotas that name this pool.
    #[must_use]
    pub fn quotas_of(&self, namespace: &str, pool: &str) -> Vec<Arc<CacheQuota>> {
        self.quotas.state_filter(|quota| {
            quota.metadata.namespace.as_deref() == Some(namespace)
                && quota.spec.pool_ref.name == pool
        })
    }

    /// The children that carry this label with this value, in whatever namespace.
    #[must_use]
    pub fn labelled(&self, label: &str, value: &str) -> Standing {
        let mut standing = Standing::new();
        for (kind, store) in &self.children {
            let found = store.state_filter(|child| {
                child
                    .metadata
                    .labels
                    .as_ref()
                    .and_then(|l| l.get(label))
                    .map(String::as_str)
                    == Some(value)
            });
            standing.extend(
                found
                    .iter()
                    .map(|child| (key_of(*kind, child), value_of(*kind, child))),
            );
        }
        standing
    }

    /// The children of a pool. In another namespace than its own no child can lie, whatever its
    /// labels say.
    #[must_use]
    pub fn of_pool(&self, pool: &PoolId) -> Standing {
        let mut standing = self.labelled(LABEL_POOL_UID, &pool.uid);
        standing.retain(|key, _| {
            let namespace = key.namespace.as_ref();
            namespace.is_none_or(|namespace| *namespace == pool.namespace)
        });
        standing
    }

    /// The pods of a pool's masters, in order.
    #[must_use]
    pub fn masters_of(&self, pool: &PoolId) -> Vec<PodFacts> {
        let pods = self.pods.state();
        let mut facts: Vec<_> = pods
            .iter()
            .filter_map(|pod| PodFacts::of(pod, pool))
            .collect();
        facts.sort_by_key(|pod| pod.ordinal);
        facts
    }

    /// One child, if it is ours.
    #[must_use]
    pub fn child(&self, key: &ChildKey) -> Option<serde_json::Value> {
        let store = self.children.get(&key.kind)?;
        let mut reference = ObjectRef::new_with(&key.name, key.kind.resource());
        if let Some(namespace) = &key.namespace {
            reference = reference.within(namespace);
        }
        store
            .get(&reference)
            .map(|child| value_of(key.kind, &child))
    }
}

fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

fn key_of(kind: ChildKind, child: &DynamicObject) -> ChildKey {
    ChildKey {
        kind,
        namespace: child.namespace(),
        name: child.name_any(),
    }
}
