//! Applying what concerns quotas that tenants share: set and delete.

use larder_types::QuotaName;

use super::Fault;
use crate::digest;
use crate::effects::Effects;
use crate::reply::WaitOn;
use crate::request::QuotaPolicy;
use crate::state::State;

pub(super) fn set(
    state: &mut State,
    quota: &QuotaName,
    policy: &QuotaPolicy,
    effects: &mut Effects,
) {
    if let Some(before) = state.quotas.insert(quota.clone(), policy.clone()) {
        state.sum.take(digest::of_quota(quota, &before));
    }
    state.sum.add(digest::of_quota(quota, policy));
    effects.wake(WaitOn::Quota(quota.clone()));
}

pub(super) fn delete(
    state: &mut State,
    quota: &QuotaName,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let before = state
        .quotas
        .remove(quota)
        .ok_or_else(|| format!("quota {quota} is unknown"))?;
    state.sum.take(digest::of_quota(quota, &before));
    effects.wake(WaitOn::Quota(quota.clone()));
    Ok(())
}
