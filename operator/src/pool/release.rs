//! What happens before a deleted pool may go: its traces outside its namespace are removed. What
//! lies inside has the pool as owner and is collected by Kubernetes.

use std::collections::BTreeSet;

use kube::ResourceExt;
use larder_crds::CachePool;

use super::apply::remove_finalizer;
use super::observe::node_names;
use crate::child::{ChildKey, ChildKind, remove};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::{POOL_FINALIZER, PoolId};
use crate::node::labels;

/// Removes the traces and then the finalizer. It needs neither a valid spec nor a master.
///
/// # Errors
/// [`ReconcileError`]; the next try goes on.
pub async fn release(pool: &CachePool, context: &Context) -> Result<(), ReconcileError> {
    let id = PoolId::of(pool);
    context.masters.forget(&id.uid);
    context.root_keys.forget(&id.uid);
    context.drains.forget(&id);
    context.topology.forget(&id);
    context.signal_times.forget(&id.uid);
    if !pool.finalizers().iter().any(|one| one == POOL_FINALIZER) {
        return Ok(());
    }
    let standing = context.stores.of_pool(&id);
    let of_kind = |kind: ChildKind| -> Vec<ChildKey> {
        standing
            .keys()
            .filter(|key| key.kind == kind)
            .cloned()
            .collect()
    };
    // CacheNodes first: an agent that is stopped and finds its CacheNode gone knows that the node
    // has left for good, and removes its folders.
    remove(context, &of_kind(ChildKind::CacheNode)).await?;
    let label = id.node_label();
    // The watch of nodes may lag behind the labels that were put last; CacheNodes name those.
    let mut members: BTreeSet<String> = node_names(&standing).collect();
    let nodes = context.stores.nodes.state();
    let labelled = nodes.iter().filter(|n| n.labels().contains_key(&label));
    members.extend(labelled.map(|node| node.name_any()));
    for node in &members {
        labels::take(context, node, &label).await?;
    }
    remove(context, &of_kind(ChildKind::ClusterRoleBinding)).await?;
    remove_finalizer(context, pool).await?;
    tracing::info!(pool = id.key(), "the pool is released");
    Ok(())
}
