//! Writing a tenant: its connection into the cluster, its limits into the master.

use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use larder_crds::{CacheTenant, TenantSettings};
use serde_json::json;

use super::observe::Seen;
use crate::child::{self, Child};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::MasterError;
use crate::names::{MANAGER, PoolId, TENANT_FINALIZER};

/// What the master said of the tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It knows the tenant with these limits.
    Serving,
    /// It could not be asked.
    Silent(String),
    /// It will not have the tenant.
    Refused(String),
}

/// Writes what differs. The master is told when its last look does not show these limits: after a
/// change, and after a restart for which its file of tenants came too late.
///
/// # Errors
/// [`ReconcileError`] of the API server; what the master says is an [`Answer`].
pub async fn apply(
    context: &Context,
    tenant: &CacheTenant,
    pool: &PoolId,
    settings: &TenantSettings,
    wanted: &Child,
    seen: &Seen,
) -> Result<Answer, ReconcileError> {
    let uid = tenant.uid().unwrap_or_default();
    child::apply(context, std::slice::from_ref(wanted), &seen.standing, &uid).await?;
    let Some(looks) = &seen.looks else {
        return Ok(Answer::Silent(format!(
            "the master of pool {} does not answer yet",
            pool.name
        )));
    };
    let policy = seen.shares.tenant(settings);
    let known = looks.now.tenants.get(&policy.tenant);
    if known.is_some_and(|known| known.fits(&policy)) {
        return Ok(Answer::Serving);
    }
    Ok(match context.master_api.set_tenant(pool, &policy).await {
        Ok(()) => Answer::Serving,
        Err(error) => {
            let text = larder_telemetry::error_chain(&error);
            match error {
                MasterError::Refused { .. } if !error.is_retryable() => Answer::Refused(text),
                _ => Answer::Silent(text),
            }
        }
    })
}

/// Keeps the tenant until its master has forgotten it.
///
/// # Errors
/// [`ReconcileError::Api`].
pub async fn add_finalizer(context: &Context, tenant: &CacheTenant) -> Result<(), ReconcileError> {
    let mut finalizers = tenant.finalizers().to_vec();
    finalizers.push(TENANT_FINALIZER.to_owned());
    set_finalizers(context, tenant, &finalizers).await
}

/// Lets the tenant go.
///
/// # Errors
/// [`ReconcileError::Api`]; a tenant that is gone is no error.
pub async fn remove_finalizer(
    context: &Context,
    tenant: &CacheTenant,
) -> Result<(), ReconcileError> {
    let mut finalizers = tenant.finalizers().to_vec();
    finalizers.retain(|one| one != TENANT_FINALIZER);
    set_finalizers(context, tenant, &finalizers).await
}

async fn set_finalizers(
    context: &Context,
    tenant: &CacheTenant,
    finalizers: &[String],
) -> Result<(), ReconcileError> {
    let namespace = tenant.namespace().unwrap_or_default();
    let api: Api<CacheTenant> = Api::namespaced(context.client.clone(), &namespace);
    let body = json!({ "metadata": {
        "finalizers": finalizers,
        "resourceVersion": tenant.resource_version(),
        "uid": tenant.uid(),
    } });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api
        .patch_metadata(&tenant.name_any(), &params, &Patch::Merge(&body))
        .await
    {
        Ok(_) => {
            context.metrics.wrote("CacheTenant", "finalizer");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(source) => {
            let object = format!("CacheTenant {namespace}/{}", tenant.name_any());
            Err(ReconcileError::api(
                "change the finalizers of",
                object,
                source,
            ))
        }
    }
}
