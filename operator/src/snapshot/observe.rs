//! What there is of a snapshot, from the watches.

use std::sync::Arc;

use kube::ResourceExt;
use larder_crds::{CachePool, CacheSnapshot, SnapshotPhase};

use crate::context::Context;
use crate::names::PoolId;
use crate::reasons::Reason;
use crate::tenant::claims::Refusal;

/// What a reconcile goes by.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The pool that the snapshot names, if there is one.
    pub pool: Option<Arc<CachePool>>,
    /// Where the snapshot stood when it was last told.
    pub phase: Option<SnapshotPhase>,
}

impl Seen {
    /// How many masters the pool has.
    #[must_use]
    pub fn masters(&self) -> u32 {
        let spec = self.pool.as_ref().map(|pool| &pool.spec);
        spec.map_or(1, |spec| spec.masters.replicas)
    }

    /// The pool that masters are asked of.
    #[must_use]
    pub fn pool_id(&self) -> Option<PoolId> {
        self.pool.as_ref().map(|pool| PoolId::of(pool))
    }
}

/// Looks; reads nothing from the API server.
#[must_use]
pub fn observe(context: &Context, snapshot: &CacheSnapshot) -> Seen {
    let namespace = snapshot.namespace().unwrap_or_default();
    let status = snapshot.status.as_ref();
    Seen {
        pool: context
            .stores
            .pool(&namespace, &snapshot.spec.pool_ref.name),
        phase: status.and_then(|status| status.phase),
    }
}

/// What stands in the way of asking the masters.
#[must_use]
pub fn judge(snapshot: &CacheSnapshot, seen: &Seen) -> Option<Refusal> {
    let name = &snapshot.spec.pool_ref.name;
    let Some(pool) = &seen.pool else {
        let message = format!("there is no CachePool {name} in this namespace");
        let reason = Reason::PoolNotFound;
        return Some(Refusal { reason, message });
    };
    pool.metadata.deletion_timestamp.is_some().then(|| Refusal {
        reason: Reason::PoolNotFound,
        message: format!("CachePool {name} is being deleted"),
    })
}
