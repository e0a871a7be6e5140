//! The connection of a tenant: a ConfigMap that engine pods mount or read variables from.

use kube::ResourceExt;
use larder_crds::{CacheTenant, TenantSettings};
use serde_json::json;

use crate::child::{Child, ChildKey, ChildKind};
use crate::names::{MANAGED_BY, MANAGER, PoolId, SOCKET_FILE};

/// Which ConfigMap it is.
#[must_use]
pub fn connection_key(tenant: &CacheTenant) -> ChildKey {
    ChildKey {
        kind: ChildKind::ConfigMap,
        namespace: tenant.namespace(),
        name: format!("{}-connection", tenant.name_any()),
    }
}

/// The connection to a pool. Nothing in it is secret: who a client is, its ServiceAccount token
/// proves. It depends on names only, so that a copy of it does not age.
#[must_use]
pub fn build(tenant: &CacheTenant, pool: &PoolId, settings: &TenantSettings) -> Child {
    let masters = [pool.masters_addr()];
    let folder = pool.socket_folder();
    let document = json!({
        "pool": pool.name,
        "tenant": settings.tenant_id,
        "masters": masters,
        "socket": format!("{folder}/{SOCKET_FILE}"),
        "audience": pool.audience(),
    });
    let labels = json!({ "app.kubernetes.io/name": "larder", MANAGED_BY: MANAGER });
    let owner = json!({
        "apiVersion": format!("{}/{}", larder_crds::GROUP, larder_crds::VERSION),
        "kind": "CacheTenant",
        "name": tenant.name_any(),
        "uid": tenant.uid().unwrap_or_default(),
        "controller": true,
        "blockOwnerDeletion": true,
    });
    let data = json!({
        // One file for clients that read JSON, and the same as single values for `env`.
        "connection.json": format!("{document:#}\n"),
        "LARDER_MASTERS": masters.join(","),
        "LARDER_TENANT": settings.tenant_id,
        "LARDER_SOCKET": format!("{folder}/{SOCKET_FILE}"),
        // The hostPath that an engine pod mounts at the same path.
        "LARDER_SOCKET_FOLDER": folder,
        "LARDER_TOKEN_AUDIENCE": pool.audience(),
    });
    Child::new(
        connection_key(tenant),
        &labels,
        Some(&owner),
        json!({ "data": data }),
    )
}
