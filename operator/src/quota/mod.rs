//! CacheQuotas: five calls in a row, observe, validate, build, apply, status.
//!
//! A quota has no finalizer, so its deletion waits for nothing: the reconcile of its pool, which
//! the deletion asks for, takes away what the master still knows of it ([`sweep`]).

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use larder_crds::CacheQuota;
use tokio::time::Instant;

use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::MasterView;
use crate::names::PoolId;

pub mod apply;
pub mod observe;
pub mod shares;
pub mod status;

use shares::{Shares, key};

/// Pause until usage is looked at again.
const PAUSE_READY: Duration = Duration::from_secs(30);
/// Pause while the master is not there yet.
const PAUSE_STARTING: Duration = Duration::from_secs(5);
/// Pause while somebody must change something.
const PAUSE_REFUSED: Duration = Duration::from_secs(15);

/// Brings the master one step nearer to what a quota's spec says.
///
/// # Errors
/// [`ReconcileError`]; the next try goes on.
pub async fn reconcile(
    quota: Arc<CacheQuota>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let started = Instant::now();
    let result = steps(&quota, &context).await;
    let label = result.as_ref().map_or_else(ReconcileError::label, |_| "ok");
    context
        .metrics
        .reconciled("CacheQuota", label, started.elapsed());
    result
}

/// When a failed reconcile is tried again.
pub fn on_error(quota: Arc<CacheQuota>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let key = key(&quota);
    let pause = context.failures.count(&key);
    let error = larder_telemetry::error_chain(error);
    tracing::warn!(quota = key, error, ?pause, "the quota is tried again");
    Action::requeue(pause)
}

async fn steps(quota: &CacheQuota, context: &Context) -> Result<Action, ReconcileError> {
    if quota.metadata.deletion_timestamp.is_some() {
        // Somebody else's finalizer keeps it; for its pool it is gone already.
        return Ok(Action::await_change());
    }
    let seen = observe::observe(context, quota);
    let outcome = match observe::judge(quota, &seen) {
        Err(refusal) => status::Outcome::Refused(refusal),
        Ok((pool, settings)) => {
            let policy = seen.shares.quota(&settings);
            let answer = apply::apply(context, &pool, &policy, &seen).await;
            status::Outcome::Applied(settings, answer)
        }
    };
    status::write(context, quota, &outcome, &seen).await?;
    context.failures.clear(&key(quota));
    Ok(Action::requeue(match &outcome {
        status::Outcome::Refused(_) => PAUSE_REFUSED,
        status::Outcome::Applied(_, crate::tenant::apply::Answer::Serving) => PAUSE_READY,
        status::Outcome::Applied(..) => PAUSE_STARTING,
    }))
}

/// Takes away what the master of a pool knows of quotas that are no more.
///
/// # Errors
/// [`ReconcileError::Master`]; the next reconcile of the pool tries again.
pub async fn sweep(
    context: &Context,
    pool: &PoolId,
    shares: &Shares,
    view: &MasterView,
) -> Result<(), ReconcileError> {
    let is_wanted = |name: &str| shares.quotas.iter().any(|quota| quota.name == name);
    for name in view.quotas.keys().filter(|name| !is_wanted(name)) {
        let told = context.master_api.delete_quota(pool, name).await;
        told.map_err(|source| ReconcileError::Master {
            pool: pool.key(),
            source,
        })?;
        context.masters.forget_quota(&pool.uid, name);
        tracing::info!(pool = pool.key(), quota = name, "a quota was released");
    }
    Ok(())
}

/// The tenants that a quota of this name binds, oldest first; accepted ones only.
#[must_use]
pub fn bound(context: &Context, pool: &PoolId, shares: &Shares, name: &str) -> Vec<Bound> {
    let tenants = crate::tenant::accepted_of(context, pool);
    let is_bound = |tenant: &larder_crds::TenantSettings| {
        let quota = tenant.quota_of(&shares.quotas);
        quota.is_some_and(|quota| quota.name == name)
    };
    tenants
        .into_iter()
        .filter(is_bound)
        .map(|tenant| Bound {
            name: tenant.name,
            id: tenant.tenant_id,
        })
        .collect()
}

/// A tenant that a quota binds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Name of the CacheTenant.
    pub name: String,
    /// Its id in the pool.
    pub id: String,
}

/// Namespace and name of the pool of a quota.
#[must_use]
pub fn pool_of(quota: &CacheQuota) -> (String, String) {
    (
        quota.namespace().unwrap_or_default(),
        quota.spec.pool_ref.name.clone(),
    )
}
