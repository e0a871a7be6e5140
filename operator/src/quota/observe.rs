//! What there is of a quota, from the watches and from the latest look at the master.

use std::sync::Arc;

use kube::ResourceExt;
use larder_crds::{CachePool, CacheQuota, QuotaSettings};

use super::shares::{QUOTAS_MAX, Shares};
use super::{Bound, bound, pool_of};
use crate::context::Context;
use crate::master_api::Looks;
use crate::names::PoolId;
use crate::reasons::Reason;
use crate::tenant::claims::Refusal;

/// What a reconcile goes by.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The pool that the quota names, if there is one.
    pub pool: Option<Arc<CachePool>>,
    /// Who shares what in it.
    pub shares: Shares,
    /// The tenants that this quota binds, by name.
    pub bound: Vec<Bound>,
    /// What the pool's master said last.
    pub looks: Option<Looks>,
}

/// Looks; reads nothing from the API server.
#[must_use]
pub fn observe(context: &Context, quota: &CacheQuota) -> Seen {
    let (namespace, name) = pool_of(quota);
    let pool = context.stores.pool(&namespace, &name);
    let shares = pool.as_ref().map(|pool| Shares::of(context, pool));
    let shares = shares.unwrap_or_default();
    let id = pool.as_ref().map(|pool| PoolId::of(pool));
    let looks = id.as_ref().and_then(|id| context.masters.get(&id.uid));
    let mut bound = id.map_or_else(Vec::new, |id| {
        bound(context, &id, &shares, &quota.name_any())
    });
    bound.sort_by(|a, b| a.name.cmp(&b.name));
    Seen {
        pool,
        shares,
        bound,
        looks,
    }
}

/// Whether the quota is accepted, and with which figures in which pool.
///
/// # Errors
/// Why not.
pub fn judge(quota: &CacheQuota, seen: &Seen) -> Result<(PoolId, QuotaSettings), Refusal> {
    let refuse = |reason, message: String| Err(Refusal { reason, message });
    let Some(pool) = &seen.pool else {
        let name = &quota.spec.pool_ref.name;
        let message = format!("there is no CachePool {name} in this namespace");
        return refuse(Reason::PoolNotFound, message);
    };
    let settings = match quota.settings() {
        Ok(settings) => settings,
        Err(problems) => return refuse(Reason::InvalidSpec, problems.to_string()),
    };
    if !seen.shares.quotas.contains(&settings) {
        let message = format!("{QUOTAS_MAX} older CacheQuotas belong to the pool");
        return refuse(Reason::PoolFull, message);
    }
    Ok((PoolId::of(pool), settings))
}
