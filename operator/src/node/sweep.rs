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
use crate::names::{LABEL_POOL_UID, MANAGED_BY, MANAGER, NODE_LABEL_PREFIX};

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
    if context.config.watch_namespace.is_some() {
        // Pools of other namespaces are not seen here, and their labels are not ours to judge.
        return Ok(());
    }
    let pools = context.stores.pools.state();
    context.metrics.pools(pools.len());
    let living: BTreeSet<String> = pools.iter().filter_map(|pool| pool.uid()).collect();
    for node in context.stores.nodes.state() {
        for label in node.labels().keys() {
            let uid = label.strip_prefix(NODE_LABEL_PREFIX);
            if uid.is_some_and(|uid| !living.contains(uid)) {
                labels::take(context, &node.name_any(), label).await?;
            }
        }
    }
    let bindings = context.stores.labelled(MANAGED_BY, MANAGER);
    let stale = bindings.into_iter().filter(|(key, body)| {
        let uid = body["metadata"]["labels"][LABEL_POOL_UID].as_str();
        key.kind == ChildKind::ClusterRoleBinding && uid.is_some_and(|uid| !living.contains(uid))
    });
    let stale: Vec<ChildKey> = stale.map(|(key, _)| key).collect();
    remove(context, &stale).await
}
