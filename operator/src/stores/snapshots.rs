//! The watch of snapshots.

use std::sync::Arc;

use kube::ResourceExt;
use larder_crds::CacheSnapshot;

use super::{Stores, without_managed_fields};
use crate::feed::{Feed, Trigger, digest_of};

impl Stores {
    /// Triggers for all snapshots of a pool.
    pub(super) fn each_snapshot(&self, namespace: &str, pool: &str) -> Vec<Trigger> {
        let snapshots = self.snapshots.state_filter(|snapshot| {
            snapshot.metadata.namespace.as_deref() == Some(namespace)
                && snapshot.spec.pool_ref.name == pool
        });
        let trigger = |one: &Arc<CacheSnapshot>| Trigger::snapshot(namespace, &one.name_any());
        snapshots.iter().map(trigger).collect()
    }
}

/// A snapshot concerns itself only.
pub(super) fn feed() -> Feed<CacheSnapshot> {
    Feed {
        kind: "CacheSnapshot",
        slim: without_managed_fields,
        digest: |snapshot| {
            let metadata = &snapshot.metadata;
            digest_of((
                metadata.generation,
                metadata.deletion_timestamp.is_some(),
                &metadata.finalizers,
            ))
        },
        route: Arc::new(|snapshot| {
            let namespace = snapshot.namespace().unwrap_or_default();
            vec![Trigger::snapshot(&namespace, &snapshot.name_any())]
        }),
    }
}
