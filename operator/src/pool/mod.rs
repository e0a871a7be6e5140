//! CachePools: five calls in a row, observe, validate, build, apply, status.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use larder_crds::CachePool;
use tokio::time::Instant;

use crate::child::Child;
use crate::context::Context;
use crate::error::ReconcileError;
use crate::masters::{self, roll::Step};
use crate::names::{POOL_FINALIZER, PoolId};
use crate::node::members::Members;
use crate::node::{leave, members, topology};
use crate::quota::shares::Shares;
use crate::{quota, tenant};

use observe::Seen;
use validate::ValidPool;

pub mod apply;
pub mod build;
pub mod events;
pub mod observe;
pub mod recovery;
pub mod release;
mod scale_in;
pub mod signals;
pub mod status;
pub mod validate;

/// Pause until the master is asked again while all is well.
const PAUSE_READY: Duration = Duration::from_secs(30);
/// The same while something is still coming up, or should go.
const PAUSE_STARTING: Duration = Duration::from_secs(5);

/// The same while masters are made again: who is in sync, only the leader knows.
const PAUSE_ROLLING: Duration = Duration::from_secs(1);

/// Brings the cluster one step nearer to what a pool's spec says.
///
/// # Errors
/// [`ReconcileError`]; what was written stays, and the next try goes on from there.
pub async fn reconcile(
    pool: Arc<CachePool>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let started = Instant::now();
    let result = steps(&pool, &context).await;
    let label = result.as_ref().map_or_else(ReconcileError::label, |_| "ok");
    context
        .metrics
        .reconciled("CachePool", label, started.elapsed());
    context.metrics.pools(context.stores.pools.len());
    result
}

/// When a failed reconcile is tried again.
pub fn on_error(pool: Arc<CachePool>, error: &ReconcileError, context: Arc<Context>) -> Action {
    let key = key(&pool);
    let pause = context.failures.count(&key);
    let error = larder_telemetry::error_chain(error);
    tracing::warn!(pool = key, error, ?pause, "the pool is tried again");
    Action::requeue(pause)
}

fn key(pool: &CachePool) -> String {
    format!(
        "CachePool {}/{}",
        pool.namespace().unwrap_or_default(),
        pool.name_any()
    )
}

async fn steps(pool: &CachePool, context: &Context) -> Result<Action, ReconcileError> {
    if pool.metadata.deletion_timestamp.is_some() {
        release::release(pool, context).await?;
        context.failures.clear(&key(pool));
        return Ok(Action::await_change());
    }
    if !pool.finalizers().iter().any(|one| one == POOL_FINALIZER) {
        apply::add_finalizer(context, pool).await?;
    }
    let id = PoolId::of(pool);
    let mut seen = observe::observe(context, pool).await;
    let mut more = false;
    let outcome = match validate::validate(pool) {
        Err(refused) => status::Outcome::Refused(refused),
        Ok(valid) => {
            let need_bytes = valid.agent_memory_bytes;
            let label = id.node_label();
            let view = seen.master.view();
            let settings = &valid.settings;
            let marks = leave::marks(&seen.standing);
            let mut members =
                members::choose(settings, &label, need_bytes, &seen.nodes, view, &marks);
            let deadline_s = settings.drain_deadline_s;
            let advanced = leave::advance(context, &id, deadline_s, &mut members, &seen).await;
            let known = observe::node_names(&seen.standing);
            let mut nodes = members::lingering(known, &seen.nodes, view);
            nodes.extend(members.nodes.iter().cloned());
            let account = context.service_account();
            let tenants = tenant::accepted_of(context, &id);
            let shares = Shares::of(context, pool);
            let inputs = build::Inputs {
                masters: seen.masters_now(),
                config: &context.config,
                operator_account: &account,
                tenants: &tenants,
                shares: &shares,
                nodes: &nodes,
            };
            let wanted = build::build(&valid, &inputs);
            seen.pods.of_template(&wanted, &seen.standing);
            let applied = match advanced {
                Ok(()) => carry_out(context, &valid, &members, &wanted, &seen).await,
                Err(error) => Err(error),
            };
            match applied {
                Ok(()) => {
                    if let Some(view) = view {
                        quota::sweep(context, &id, &shares, view).await?;
                        more = topology::tell(context, &id, settings, &seen.nodes, view).await;
                    }
                    status::Outcome::Applied(members)
                }
                Err(error) => status::Outcome::of_error(error)?,
            }
        }
    };
    let is_ready = status::write(context, pool, &outcome, &seen).await?;
    if outcome.is_refused_by_api() {
        // As slowly as after other failures: what helps need not be a change that is watched.
        return Ok(Action::requeue(context.failures.count(&key(pool))));
    }
    context.failures.clear(&key(pool));
    // Somebody waits for a node to leave, and only the master knows when it is empty.
    let is_rebuilt = !seen
        .master
        .view()
        .is_some_and(|view| view.status.rebuilding);
    let is_settled = is_ready && !outcome.is_scaling_in() && !more && is_rebuilt;
    Ok(Action::requeue(pause(is_settled, &seen)))
}

fn pause(is_settled: bool, seen: &Seen) -> Duration {
    if seen.roll().is_some_and(|roll| roll.next() != Step::Done) {
        PAUSE_ROLLING
    } else if is_settled {
        PAUSE_READY
    } else {
        PAUSE_STARTING
    }
}

/// Writes what differs, and takes the next step with the masters' pods.
async fn carry_out(
    context: &Context,
    valid: &ValidPool,
    members: &Members,
    wanted: &[Child],
    seen: &Seen,
) -> Result<(), ReconcileError> {
    apply::apply(context, valid, members, wanted, seen).await?;
    masters::advance(context, seen, seen.roll().as_ref()).await
}
