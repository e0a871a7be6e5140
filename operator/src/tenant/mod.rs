//! CacheTenants: five calls in a row, observe, validate, build, apply, status.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use larder_crds::{CacheTenant, TenantSettings};
use tokio::time::Instant;

use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::{PoolId, TENANT_FINALIZER};

pub mod apply;
pub mod build;
pub mod claims;
pub mod observe;
pub mod release;
pub mod status;

/// Pause until usage is looked at again.
const PAUSE_READY: Duration = Duration::from_secs(30);
/// Pause while the master is not there yet.
const PAUSE_STARTING: Duration = Duration::from_secs(5);
/// Pause while somebody must change something. A change of the tenant itself comes as a trigger;
/// that an older claimant is gone is only seen by looking again, which costs nothing.
const PAUSE_REFUSED: Duration = Duration::from_secs(15);

/// The accepted tenants of a pool, oldest first.
#[must_use]
pub fn accepted_of(context: &Context, pool: &PoolId) -> Vec<TenantSettings> {
    let all = context.stores.tenants_of(&pool.namespace, &pool.name);
    claims::accepted(&all, &claims::reserved(pool, &context.service_account()))
}

/// Brings the cluster and the master one step nearer to what a tenant's spec says.
///
/// # Errors
/// [`ReconcileError`]; what was written stays, and the next try goes on from there.
pub async fn reconcile(
    tenant: Arc<CacheTenant>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let started = Instant::now();
    let result = steps(&tenant, &context).await;
    let label = result.as_ref().map_or_else(ReconcileError::label, |_| "ok");
    context
        .metrics
        .reconciled("CacheTenant", label, started.elapsed());
    result
}

/// When a failed reconcile is tried again.
pub fn on_error(tenant: Arc<CacheTenant>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let key = key(&tenant);
    let pause = context.failures.count(&key);
    let error = larder_telemetry::error_chain(error);
    tracing::warn!(tenant = key, error, ?pause, "the tenant is tried again");
    Action::requeue(pause)
}

fn key(tenant: &CacheTenant) -> String {
    format!(
        "CacheTenant {}/{}",
        tenant.namespace().unwrap_or_default(),
        tenant.name_any()
    )
}

async fn steps(tenant: &CacheTenant, context: &Context) -> Result<Action, ReconcileError> {
    // Before anything that could fail for lack of a pool.
    if tenant.metadata.deletion_timestamp.is_some() {
        release::release(tenant, context).await?;
        context.failures.clear(&key(tenant));
        return Ok(Action::await_change());
    }
    let seen = observe::observe(context, tenant);
    let outcome = match observe::judge(context, tenant, &seen) {
        Err(refusal) => status::Outcome::Refused(refusal),
        Ok((pool, settings)) => {
            if !tenant
                .finalizers()
                .iter()
                .any(|one| one == TENANT_FINALIZER)
            {
                apply::add_finalizer(context, tenant).await?;
            }
            let wanted = build::build(tenant, &pool, &settings);
            match apply::apply(context, tenant, &pool, &settings, &wanted, &seen).await {
                Ok(answer) => status::Outcome::Applied(Box::new(settings), answer),
                Err(error) => status::Outcome::of_error(error)?,
            }
        }
    };
    status::write(context, tenant, &outcome, &seen).await?;
    if outcome.is_refused_by_api() {
        // As slowly as after other failures: what helps need not be a change that is watched.
        return Ok(Action::requeue(context.failures.count(&key(tenant))));
    }
    context.failures.clear(&key(tenant));
    Ok(Action::requeue(match &outcome {
        status::Outcome::Refused(_) => PAUSE_REFUSED,
        status::Outcome::Applied(_, apply::Answer::Serving) => PAUSE_READY,
        status::Outcome::Applied(..) => PAUSE_STARTING,
    }))
}
