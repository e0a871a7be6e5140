//! CacheSnapshots: five calls in a row, observe, validate, build, apply, status. Build is a name,
//! that of the object.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::runtime::controller::Action;
use larder_crds::{CacheSnapshot, SnapshotPhase};
use tokio::time::Instant;

use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::SNAPSHOT_FINALIZER;

pub mod apply;
pub mod observe;
pub mod release;
pub mod status;

/// Pause until it is looked whether a snapshot is still there.
const PAUSE_READY: Duration = Duration::from_secs(600);
/// Pause while it is taken. Most are there at once.
const PAUSE_TAKING: Duration = Duration::from_secs(2);
/// Pause while something has to come first.
const PAUSE_WAITING: Duration = Duration::from_secs(10);

/// Brings a snapshot one step nearer to being there.
///
/// # Errors
/// [`ReconcileError`]; the next try goes on.
pub async fn reconcile(
    snapshot: Arc<CacheSnapshot>,
    context: Arc<Context>,
) -> Result<Action, ReconcileError> {
    let started = Instant::now();
    let result = steps(&snapshot, &context).await;
    let label = result.as_ref().map_or_else(ReconcileError::label, |_| "ok");
    context
        .metrics
        .reconciled("CacheSnapshot", label, started.elapsed());
    result
}

/// When a failed reconcile is tried again.
pub fn on_error(
    snapshot: Arc<CacheSnapshot>,
    error: &ReconcileError,
    context: Arc<Context>,
) -> Action {
    let key = key(&snapshot);
    let pause = context.failures.count(&key);
    let error = larder_telemetry::error_chain(error);
    tracing::warn!(snapshot = key, error, ?pause, "the snapshot is tried again");
    Action::requeue(pause)
}

fn key(snapshot: &CacheSnapshot) -> String {
    format!(
        "CacheSnapshot {}/{}",
        snapshot.namespace().unwrap_or_default(),
        snapshot.name_any()
    )
}

async fn steps(snapshot: &CacheSnapshot, context: &Context) -> Result<Action, ReconcileError> {
    if snapshot.metadata.deletion_timestamp.is_some() {
        release::release(snapshot, context).await?;
        context.failures.clear(&key(snapshot));
        return Ok(Action::await_change());
    }
    let seen = observe::observe(context, snapshot);
    let outcome = match observe::judge(snapshot, &seen) {
        // It has failed once and for all.
        None if seen.phase == Some(SnapshotPhase::Failed) => return Ok(Action::await_change()),
        Some(refusal) => status::Outcome::Refused(refusal),
        None => {
            let mut finalizers = snapshot.finalizers().iter();
            if !finalizers.any(|one| one == SNAPSHOT_FINALIZER) {
                release::set_finalizer(context, snapshot, true).await?;
            }
            status::Outcome::Asked(apply::apply(context, snapshot, &seen).await)
        }
    };
    status::write(context, snapshot, &outcome).await?;
    context.failures.clear(&key(snapshot));
    Ok(match &outcome {
        status::Outcome::Asked(apply::Answer::Kept(_)) => Action::requeue(PAUSE_READY),
        status::Outcome::Asked(apply::Answer::UnderWay(_)) => Action::requeue(PAUSE_TAKING),
        status::Outcome::Asked(apply::Answer::Failed(_) | apply::Answer::Lost) => {
            Action::await_change()
        }
        status::Outcome::Asked(_) | status::Outcome::Refused(_) => Action::requeue(PAUSE_WAITING),
    })
}
