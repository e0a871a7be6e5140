//! Applying what concerns objects: a put's end and a removal.

use larder_types::{Key, TenantId, Version};

use super::{Fault, retire};
use crate::digest;
use crate::effects::Effects;
use crate::objects::Object;
use crate::quota;
use crate::reply::WaitOn;
use crate::segment::reserve_extent;
use crate::state::State;

pub(super) fn put_end(
    state: &mut State,
    tenant_id: &TenantId,
    key: &Key,
    object: Object,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let charge = quota::charge_of(&object.replicas)
        .filter(|charge| *charge > 0)
        .ok_or_else(|| format!("the replicas of {key} have no size"))?;
    let used_bytes = state
        .tenants
        .get(tenant_id)
        .filter(|tenant| tenant.objects.get(key).is_none())
        .and_then(|tenant| tenant.used_bytes.checked_add(charge))
        .ok_or_else(|| format!("tenant {tenant_id} is unknown or holds {key} already"))?;
    for extent in object.replicas.iter().flatten() {
        if !state.holds(tenant_id, extent) {
            return Err(format!(
                "{extent:?} lies in no ready slab of tenant {tenant_id}"
            ));
        }
        let slab = state
            .segments
            .get_mut(&extent.slab.segment)
            .and_then(|segment| segment.slab_mut(extent.slab))
            .ok_or_else(|| format!("{extent:?} lies in no known slab"))?;
        reserve_extent(&mut slab.alloc, extent).map_err(|error| format!("{extent:?}: {error}"))?;
    }
    state.sum.add(digest::of_object(tenant_id, key, &object));
    if let Some(tenant) = state.tenants.get_mut(tenant_id) {
        tenant.used_bytes = used_bytes;
        tenant.objects.insert(key.clone(), object);
    }
    state.objects += 1;
    effects.wake(WaitOn::Key(tenant_id.clone(), key.clone()));
    Ok(())
}

pub(super) fn remove(
    state: &mut State,
    tenant_id: &TenantId,
    key: &Key,
    version: Version,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let held = state.object(tenant_id, key).map(|object| object.version);
    if held != Some(version) {
        return Err(format!(
            "{key} of tenant {tenant_id} holds {held:?}, not {version}"
        ));
    }
    let object = state
        .tenants
        .get_mut(tenant_id)
        .and_then(|tenant| tenant.objects.remove(key));
    if let Some(object) = object {
        forget(state, tenant_id, key, &object, effects)?;
    }
    effects.wake(WaitOn::Key(tenant_id.clone(), key.clone()));
    Ok(())
}

/// Settles the books for an object that has left the table, and lets its agents erase it.
pub(super) fn forget(
    state: &mut State,
    tenant_id: &TenantId,
    key: &Key,
    object: &Object,
    effects: &mut Effects,
) -> Result<(), Fault> {
    state.sum.take(digest::of_object(tenant_id, key, object));
    refund(state, tenant_id, quota::charge_of(&object.replicas))?;
    state.objects = state
        .objects
        .checked_sub(1)
        .ok_or_else(|| format!("{key} was removed, but no object is counted"))?;
    for extent in object.replicas.iter().flatten() {
        retire(state, extent, object.version, effects)?;
    }
    Ok(())
}

/// Takes `charge` off what the tenant is charged.
pub(super) fn refund(
    state: &mut State,
    tenant_id: &TenantId,
    charge: Option<u64>,
) -> Result<(), Fault> {
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    tenant.used_bytes = charge
        .and_then(|charge| tenant.used_bytes.checked_sub(charge))
        .ok_or_else(|| format!("tenant {tenant_id} is charged less than {charge:?} bytes"))?;
    Ok(())
}
