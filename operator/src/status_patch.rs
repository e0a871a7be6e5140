//! The one patch that writes the status of a pool, tenant or quota.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::MANAGER;

/// Writes a whole status by server-side apply. Returns whether the object was there: one that was
/// deleted in between has no status to write.
///
/// # Errors
/// [`ReconcileError::Api`].
pub async fn write<K>(
    context: &Context,
    object: &K,
    status: &impl Serialize,
) -> Result<bool, ReconcileError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let kind = K::kind(&());
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": kind,
        "metadata": { "name": name },
        "status": status,
    });
    let api: Api<K> = Api::namespaced(context.client.clone(), &namespace);
    let params = PatchParams::apply(MANAGER).force();
    match api.patch_status(&name, &params, &Patch::Apply(&body)).await {
        Ok(_) => {
            context.metrics.wrote(&kind, "status");
            Ok(true)
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        Err(source) => {
            let object = format!("{kind} {namespace}/{name}");
            Err(ReconcileError::api("write the status of", object, source))
        }
    }
}
