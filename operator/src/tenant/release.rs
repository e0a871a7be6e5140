//! What happens before a deleted tenant may go: the master forgets it first.
//!
//! Never stuck for lack of something: without a pool, without masters, or in a pool that is being
//! deleted itself, there is nothing to forget.

use kube::ResourceExt;
use larder_crds::CacheTenant;

use super::apply::remove_finalizer;
use super::claims;
use crate::child::{ChildKey, ChildKind};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::{PoolId, TENANT_FINALIZER};

/// Tells the master and removes the finalizer.
///
/// # Errors
/// [`ReconcileError`]; the next try goes on.
pub async fn release(tenant: &CacheTenant, context: &Context) -> Result<(), ReconcileError> {
    if !tenant
        .finalizers()
        .iter()
        .any(|one| one == TENANT_FINALIZER)
    {
        return Ok(());
    }
    if let Some(pool) = master_to_tell(tenant, context) {
        let id = claims::id(tenant);
        let told = context.master_api.delete_tenant(&pool, &id).await;
        told.map_err(|source| ReconcileError::Master {
            pool: pool.key(),
            source,
        })?;
        context.masters.forget_tenant(&pool.uid, &id);
    }
    remove_finalizer(context, tenant).await
}

/// The pool whose master knows of the tenant, if there is one.
fn master_to_tell(tenant: &CacheTenant, context: &Context) -> Option<PoolId> {
    let namespace = tenant.namespace().unwrap_or_default();
    let pool = context
        .stores
        .pool(&namespace, &tenant.spec.pool_ref.name)?;
    if pool.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let id = PoolId::of(&pool);
    // One that was refused for its id must not take its namesake along.
    if !claims::owns_id(tenant, &context.stores.tenants_of(&id.namespace, &id.name)) {
        return None;
    }
    let masters = ChildKey {
        kind: ChildKind::StatefulSet,
        namespace: Some(namespace),
        name: id.master(),
    };
    let masters = context.stores.child(&masters)?;
    let count = |field: &str| masters["status"][field].as_u64().unwrap_or(0);
    // Where no pod of it exists, not even a failing one, no master has anything to forget: the
    // next one starts from files that no longer name the tenant.
    (count("replicas").max(count("readyReplicas")) > 0).then_some(id)
}
