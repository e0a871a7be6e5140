//! What there is of a tenant, from the watches and from the latest look at the master.

use std::sync::Arc;

use kube::ResourceExt;
use larder_crds::{CachePool, CacheTenant, TenantSettings};

use super::claims::{self, Refusal};
use crate::child::Standing;
use crate::context::Context;
use crate::master_api::Looks;
use crate::names::PoolId;
use crate::quota::shares::Shares;
use crate::reasons::Reason;

/// What a reconcile goes by.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The pool that the tenant names, if there is one.
    pub pool: Option<Arc<CachePool>>,
    /// The connection, if it stands.
    pub standing: Standing,
    /// Who shares what in that pool.
    pub shares: Shares,
    /// What the pool's master said last.
    pub looks: Option<Looks>,
}

/// Looks; reads nothing from the API server.
#[must_use]
pub fn observe(context: &Context, tenant: &CacheTenant) -> Seen {
    let namespace = tenant.namespace().unwrap_or_default();
    let pool = context.stores.pool(&namespace, &tenant.spec.pool_ref.name);
    let uid = pool.as_ref().and_then(|pool| pool.uid());
    let looks = uid.and_then(|uid| context.masters.get(&uid));
    let key = super::build::connection_key(tenant);
    let standing = context
        .stores
        .child(&key)
        .map(|child| (key, child))
        .into_iter()
        .collect();
    let shares = pool.as_ref().map(|pool| Shares::of(context, pool));
    Seen {
        pool,
        shares: shares.unwrap_or_default(),
        standing,
        looks,
    }
}

/// Whether the tenant is accepted, and with which figures in which pool.
///
/// # Errors
/// Why not.
pub fn judge(
    context: &Context,
    tenant: &CacheTenant,
    seen: &Seen,
) -> Result<(PoolId, TenantSettings), Refusal> {
    let Some(pool) = &seen.pool else {
        let name = &tenant.spec.pool_ref.name;
        let message = format!("there is no CachePool {name} in this namespace");
        return Err(Refusal {
            reason: Reason::PoolNotFound,
            message,
        });
    };
    let id = PoolId::of(pool);
    let all = context.stores.tenants_of(&id.namespace, &id.name);
    let reserved = claims::reserved(&id, &context.service_account());
    claims::judge(tenant, &all, &reserved).map(|settings| (id, settings))
}
