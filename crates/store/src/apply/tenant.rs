//! Applying what concerns tenants: set, delete, purge, forget.

use larder_types::TenantId;

use super::{Fault, object};
use crate::digest;
use crate::effects::{Command, Effects, GoneCause};
use crate::objects::{ObjectId, ObjectTable};
use crate::reply::WaitOn;
use crate::request::TenantPolicy;
use crate::state::{State, Tenant};

/// The most chunks of memory that one purge gives back once no object is left: 8 MiB, which the
/// kernel takes within a millisecond.
const MAX_TRIMMED: usize = 32;

pub(super) fn set(
    state: &mut State,
    tenant_id: &TenantId,
    policy: &TenantPolicy,
    effects: &mut Effects,
) -> Result<(), Fault> {
    if let Some(tenant) = state.tenants.get_mut(tenant_id) {
        if tenant.deleting {
            return Err(format!("tenant {tenant_id} is being deleted"));
        }
        state
            .sum
            .take(digest::of_tenant(tenant_id, &tenant.policy, false));
        tenant.policy = policy.clone();
    } else {
        let tenant = Tenant {
            policy: policy.clone(),
            deleting: false,
            used_bytes: 0,
            pinned_bytes: 0,
            objects: ObjectTable::default(),
            slabs: std::collections::BTreeSet::new(),
        };
        state.tenants.insert(tenant_id.clone(), tenant);
    }
    state.sum.add(digest::of_tenant(tenant_id, policy, false));
    effects.wake(WaitOn::Tenant(tenant_id.clone()));
    Ok(())
}

pub(super) fn delete(
    state: &mut State,
    tenant_id: &TenantId,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .filter(|tenant| !tenant.deleting)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown or being deleted"))?;
    state
        .sum
        .take(digest::of_tenant(tenant_id, &tenant.policy, false));
    tenant.deleting = true;
    state
        .sum
        .add(digest::of_tenant(tenant_id, &tenant.policy, true));
    for (agent, _) in state
        .agents
        .iter()
        .filter(|(_, agent)| !agent.segments.is_empty())
    {
        effects.command(
            *agent,
            Command::TenantGone {
                tenant: tenant_id.clone(),
            },
        );
    }
    effects.wake(WaitOn::Tenant(tenant_id.clone()));
    Ok(())
}

pub(super) fn purge(
    state: &mut State,
    tenant_id: &TenantId,
    objects_max: u32,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let purged = |state: &mut State| -> Result<Option<(ObjectId, u32)>, Fault> {
        let tenant = state
            .tenants
            .get_mut(tenant_id)
            .filter(|tenant| tenant.deleting)
            .ok_or_else(|| format!("tenant {tenant_id} is not being deleted"))?;
        let first = tenant.objects.first();
        if first.is_none() {
            tenant.objects.trim(MAX_TRIMMED);
        }
        let weight = |id| tenant.objects.held_by(id).map_or(1, |held| held.weight());
        Ok(first.map(|id| (id, weight(id))))
    };
    // An object in many pieces counts as many.
    let mut left = objects_max;
    while left > 0 {
        let Some((id, weight)) = purged(state)? else {
            break;
        };
        left = left.saturating_sub(weight);
        let (key, version) = object::forget(state, tenant_id, id, effects)?;
        effects.gone(tenant_id, key, version, GoneCause::Purged);
    }
    effects.wake(WaitOn::Tenant(tenant_id.clone()));
    Ok(())
}

pub(super) fn forgotten(
    state: &mut State,
    tenant_id: &TenantId,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let gone = state
        .tenants
        .get(tenant_id)
        .is_some_and(|t| t.deleting && t.objects.is_empty() && t.slabs.is_empty());
    if !gone {
        return Err(format!(
            "tenant {tenant_id} is not being deleted or still holds something"
        ));
    }
    if let Some(tenant) = state.tenants.remove(tenant_id) {
        state
            .sum
            .take(digest::of_tenant(tenant_id, &tenant.policy, true));
    }
    for (id, task) in state.tasks.take_of(tenant_id) {
        state.sum.take(digest::of_task(id, &task));
    }
    effects.wake(WaitOn::Tenant(tenant_id.clone()));
    Ok(())
}
