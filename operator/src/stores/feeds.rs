//! What each watch looks at, and whom a change concerns.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::reflector::Store;
use larder_crds::{CachePool, CacheQuota, CacheTenant, Overcommit};

use super::Stores;
use crate::child::ChildKind;
use crate::conditions::is_true;
use crate::feed::{Feed, Trigger, digest_of};
use crate::names::{LABEL_POOL, LABEL_POOL_NAMESPACE};
use crate::node::facts::NodeFacts;
use crate::reasons::ConditionType;

impl Stores {
    /// Triggers for all tenants of a pool.
    fn each_tenant(&self, namespace: &str, pool: &str) -> Vec<Trigger> {
        let tenants = self.tenants_of(namespace, pool);
        let trigger = |tenant: &Arc<CacheTenant>| Trigger::tenant(namespace, &tenant.name_any());
        tenants.iter().map(trigger).collect()
    }

    /// Triggers for all quotas of a pool.
    fn each_quota(&self, namespace: &str, pool: &str) -> Vec<Trigger> {
        let quotas = self.quotas_of(namespace, pool);
        let trigger = |quota: &Arc<CacheQuota>| Trigger::quota(namespace, &quota.name_any());
        quotas.iter().map(trigger).collect()
    }
}

/// Takes off what nobody reads.
pub(crate) fn without_managed_fields<K: kube::Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// A pool concerns itself, and its tenants and quotas when it comes, goes, or starts or stops to
/// serve.
pub(super) fn of_pools(stores: &Stores) -> Feed<CachePool> {
    let stores = stores.clone();
    Feed {
        kind: "CachePool",
        slim: without_managed_fields,
        digest: |pool| {
            let status = pool.status.as_ref();
            let conditions = status.map_or(&[][..], |status| &status.conditions);
            let nodes = status.and_then(|status| status.nodes.as_ref());
            // Guarantees of a strict pool are judged by the number of nodes.
            let nodes = nodes.map(|nodes| nodes.desired);
            digest_of((
                pool.metadata.generation,
                pool.metadata.deletion_timestamp.is_some(),
                &pool.metadata.finalizers,
                is_true(conditions, ConditionType::Accepted),
                is_true(conditions, ConditionType::LeaderElected),
                nodes.filter(|_| pool.spec.quotas.overcommit == Overcommit::Refuse),
            ))
        },
        route: Arc::new(move |pool| {
            let (namespace, name) = (pool.namespace().unwrap_or_default(), pool.name_any());
            let mut triggers = vec![Trigger::pool(&namespace, &name)];
            triggers.extend(stores.each_tenant(&namespace, &name));
            triggers.extend(stores.each_quota(&namespace, &name));
            triggers.extend(stores.each_snapshot(&namespace, &name));
            triggers
        }),
    }
}

/// A tenant concerns itself, its pool and the quotas of that, one of which it may share.
pub(super) fn of_tenants(stores: &Stores) -> Feed<CacheTenant> {
    let stores = stores.clone();
    Feed {
        kind: "CacheTenant",
        slim: without_managed_fields,
        digest: |tenant| {
            let metadata = &tenant.metadata;
            let is_leaving = metadata.deletion_timestamp.is_some();
            digest_of((
                metadata.generation,
                is_leaving,
                &metadata.finalizers,
                &metadata.labels,
            ))
        },
        route: Arc::new(move |tenant| {
            let namespace = tenant.namespace().unwrap_or_default();
            let pool = &tenant.spec.pool_ref.name;
            let mut triggers = vec![
                Trigger::tenant(&namespace, &tenant.name_any()),
                Trigger::pool(&namespace, pool),
            ];
            triggers.extend(stores.each_quota(&namespace, pool));
            triggers
        }),
    }
}

/// A quota concerns itself, its pool, all tenants of that, which it may name, and the other
/// quotas, which may get a tenant that it had.
pub(super) fn of_quotas(stores: &Stores) -> Feed<CacheQuota> {
    let stores = stores.clone();
    Feed {
        kind: "CacheQuota",
        slim: without_managed_fields,
        digest: |quota| {
            let metadata = &quota.metadata;
            digest_of((metadata.generation, metadata.deletion_timestamp.is_some()))
        },
        route: Arc::new(move |quota| {
            let namespace = quota.namespace().unwrap_or_default();
            let pool = &quota.spec.pool_ref.name;
            let mut triggers = vec![
                Trigger::quota(&namespace, &quota.name_any()),
                Trigger::pool(&namespace, pool),
            ];
            triggers.extend(stores.each_quota(&namespace, pool));
            triggers.extend(stores.each_tenant(&namespace, pool));
            triggers
        }),
    }
}

/// A node may concern every pool; kubelets report each minute, and nearly all of it does not.
pub(super) fn of_nodes(pools: Store<CachePool>) -> Feed<Node> {
    Feed {
        kind: "Node",
        slim: |node| {
            without_managed_fields(node);
            if let Some(status) = &mut node.status {
                status.images = None;
            }
        },
        digest: |node| digest_of(NodeFacts::of(node)),
        route: Arc::new(move |_| {
            let pools = pools.state();
            let pool = |pool: &Arc<CachePool>| {
                Trigger::pool(&pool.namespace().unwrap_or_default(), &pool.name_any())
            };
            pools.iter().map(pool).collect()
        }),
    }
}

pub(super) fn of_children(kind: ChildKind) -> Feed<DynamicObject> {
    Feed {
        kind: kind.text(),
        slim: without_managed_fields,
        // Everything: a change by hand must be seen, and so must counts in the status.
        digest: |child| digest_of(&child.metadata.resource_version),
        route: Arc::new(route_child),
    }
}

fn route_child(child: &DynamicObject) -> Vec<Trigger> {
    let label = |key| child.labels().get(key);
    if let (Some(namespace), Some(pool)) = (label(LABEL_POOL_NAMESPACE), label(LABEL_POOL)) {
        return vec![Trigger::pool(namespace, pool)];
    }
    let Some(namespace) = child.namespace() else {
        return Vec::new();
    };
    let owner = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| match owner
        .kind
        .as_str()
    {
        "CachePool" => Some(Trigger::pool(&namespace, &owner.name)),
        "CacheTenant" => Some(Trigger::tenant(&namespace, &owner.name)),
        _ => None,
    };
    let owners = child.owner_references().iter().filter_map(owner);
    // An owner reference taken off by hand leaves the label.
    let labelled = label(LABEL_POOL).map(|pool| Trigger::pool(&namespace, pool));
    let mut triggers: Vec<Trigger> = owners.chain(labelled).collect();
    triggers.dedup();
    triggers
}
