//! What happens before a deleted CacheSnapshot may go: its file is deleted, unless it shall stay.
//!
//! Never stuck for lack of a pool: without one nobody knows where the file was.

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use larder_crds::{CacheSnapshot, DeletionPolicy};
use serde_json::json;

use super::observe;
use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::{MANAGER, SNAPSHOT_FINALIZER};

/// Has the file deleted and removes the finalizer.
///
/// # Errors
/// [`ReconcileError`]; the next try goes on.
pub async fn release(snapshot: &CacheSnapshot, context: &Context) -> Result<(), ReconcileError> {
    let mut finalizers = snapshot.finalizers().iter();
    if !finalizers.any(|one| one == SNAPSHOT_FINALIZER) {
        return Ok(());
    }
    let seen = observe::observe(context, snapshot);
    let is_there = observe::judge(snapshot, &seen).is_none();
    if is_there
        && snapshot.spec.deletion_policy == DeletionPolicy::Delete
        && let Some(pool) = seen.pool_id()
    {
        let name = snapshot.name_any();
        let told = context.master_api.delete_snapshot(&pool, &name).await;
        told.map_err(|source| ReconcileError::Master {
            pool: pool.key(),
            source,
        })?;
    }
    set_finalizer(context, snapshot, false).await
}

/// Keeps the object until its file is gone, or lets it go.
///
/// # Errors
/// [`ReconcileError::Api`]; an object that is gone is no error.
pub async fn set_finalizer(
    context: &Context,
    snapshot: &CacheSnapshot,
    on: bool,
) -> Result<(), ReconcileError> {
    let mut finalizers = snapshot.finalizers().to_vec();
    finalizers.retain(|one| one != SNAPSHOT_FINALIZER);
    if on {
        finalizers.push(SNAPSHOT_FINALIZER.to_owned());
    }
    let namespace = snapshot.namespace().unwrap_or_default();
    let api: Api<CacheSnapshot> = Api::namespaced(context.client.clone(), &namespace);
    let body = json!({ "metadata": {
        "finalizers": finalizers,
        "resourceVersion": snapshot.resource_version(),
        "uid": snapshot.uid(),
    } });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let name = snapshot.name_any();
    match api
        .patch_metadata(&name, &params, &Patch::Merge(&body))
        .await
    {
        Ok(_) => {
            context.metrics.wrote("CacheSnapshot", "finalizer");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => {
            let object = format!("CacheSnapshot {namespace}/{name}");
            Err(ReconcileError::api(
                "change the finalizers of",
                object,
                source,
            ))
        }
    }
}
