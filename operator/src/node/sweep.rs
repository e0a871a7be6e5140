//! Takes away what pools left behind that no longer exist: labels on nodes and bindings.
//!
//! A finalizer does this when a pool is deleted. The sweep is for finalizers that somebody removed
//! by hand, and it never looks at names, only at uids.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::ResourceExt;

use super::labels;
use crate::child::{ChildKey, ChildKind, remove};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::{LABEL_POOL_NAMESPACE, LABEL_POOL_UID, MANAGED_BY, MANAGER, NODE_LABEL_PREFIX};

/// Pause between two sweeps. The first comes when an operator begins to lead.
pub const PAUSE: Duration = Duration::from_secs(300);

/// Sweeps until it is dropped.
pub async fn run(context: &Context) {
    loop {
        if let Err(error) = once(context).await {
            let error = larder_telemetry::error_chain(&error);
            tracing::warn!(error, "the sweep did not end; the next one goes on");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One sweep.
///
/// # Errors
/// What the API server said.
pub async fn once(context: &Context) -> Result<(), ReconcileError> {
    let pools = context.stores.pools.state();
    context.metrics.pools(pools.len());
    let living: BTreeSet<String> = pools.iter().filter_map(|pool| pool.uid()).collect();
    let watched = context.config.watch_namespace.as_deref();
    let bindings = context.stores.labelled(MANAGED_BY, MANAGER);
    let stale = bindings.into_iter().filter_map(|(key, body)| {
        let labels = &body["metadata"]["labels"];
        let uid = labels[LABEL_POOL_UID].as_str()?;
        let is_seen = watched.is_none_or(|one| labels[LABEL_POOL_NAMESPACE].as_str() == Some(one));
        let is_stale =
            key.kind == ChildKind::ClusterRoleBinding && is_seen && !living.contains(uid);
        is_stale.then(|| (key, uid.to_owned()))
    });
    let (stale, dead): (Vec<ChildKey>, BTreeSet<String>) = stale.unzip();
    // A label does not say of which namespace its pool was. Where only one is watched, the pool's
    // binding tells, which is made before its labels and removed after them.
    let is_dead = |uid: &str| match watched {
        Some(_) => dead.contains(uid),
        None => !living.contains(uid),
    };
    for node in context.stores.nodes.state() {
        for label in node.labels().keys() {
            if label.strip_prefix(NODE_LABEL_PREFIX).is_some_and(is_dead) {
                labels::take(context, &node.name_any(), label).await?;
            }
        }
    }
    remove(context, &stale).await
}
