//! Applying what concerns replicas: one that was copied, one that goes.

use larder_types::{AgentId, Extent, Key, TenantId, Version};

use super::{Fault, object};
use crate::digest;
use crate::effects::Effects;
use crate::quota;
use crate::reply::WaitOn;
use crate::segment::reserve_extent;
use crate::state::State;

/// Adds a replica, in the place of the one with an extent on `instead_of`.
pub(super) fn added(
    state: &mut State,
    (tenant_id, key, version): (&TenantId, &Key, Version),
    extents: &[Extent],
    instead_of: Option<AgentId>,
    effects: &mut Effects,
) -> Result<(), Fault> {
    for extent in extents {
        let slab = state
            .segments
            .get_mut(&extent.slab.segment)
            .and_then(|segment| segment.slab_mut(extent.slab))
            .filter(|slab| slab.is_open_to(tenant_id))
            .ok_or_else(|| format!("{extent:?} lies in no ready slab of tenant {tenant_id}"))?;
        reserve_extent(&mut slab.alloc, extent).map_err(|error| format!("{extent:?}: {error}"))?;
    }
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    let object = tenant
        .objects
        .held_at(key)
        .filter(|object| object.version() == version)
        .ok_or_else(|| format!("{key} of tenant {tenant_id} does not hold {version}"))?;
    let (id, pin) = (object.id(), object.attributes().pin);
    let goes = |replica: &Vec<Extent>| replica.iter().any(|e| Some(e.slab.agent) == instead_of);
    let (gone, mut kept): (Vec<Vec<Extent>>, Vec<_>) = object.held_replicas().partition(goes);
    if gone.is_empty() == instead_of.is_some() || extents.is_empty() {
        return Err(format!(
            "{key} of tenant {tenant_id} has no replica on {instead_of:?}"
        ));
    }
    kept.push(extents.to_vec());
    state.sum.take(digest::of_object(tenant_id, object));
    tenant.objects.set_replicas(id, &kept);
    if let Some(object) = tenant.objects.held_by(id) {
        state.sum.add(digest::of_object(tenant_id, object));
    }
    quota::charge_of(&[extents.to_vec()])
        .and_then(|charge| tenant.charge(charge, pin))
        .ok_or_else(|| format!("the charge of {tenant_id} overflows"))?;
    for extent in extents {
        object::lodge(state, extent, id)?;
    }
    object::refund(state, tenant_id, quota::charge_of(&gone), pin)?;
    for extent in gone.iter().flatten() {
        object::retire(state, extent, (id, version), effects)?;
    }
    effects.wake(WaitOn::Key(tenant_id.clone(), key.clone()));
    Ok(())
}

/// Drops the replica with an extent on that agent. Another one that can be read has to stay.
pub(super) fn dropped(
    state: &mut State,
    (tenant_id, key, version): (&TenantId, &Key, Version),
    agent: AgentId,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    let object = tenant
        .objects
        .held_at(key)
        .filter(|object| object.version() == version)
        .ok_or_else(|| format!("{key} of tenant {tenant_id} does not hold {version}"))?;
    let (id, pin) = (object.id(), object.attributes().pin);
    let on_agent = |replica: &Vec<Extent>| replica.iter().any(|e| e.slab.agent == agent);
    let (gone, kept): (Vec<Vec<Extent>>, Vec<_>) = object.held_replicas().partition(on_agent);
    if gone.is_empty() || kept.is_empty() {
        return Err(format!(
            "{key} of tenant {tenant_id} can spare no replica on agent {agent}"
        ));
    }
    state.sum.take(digest::of_object(tenant_id, object));
    tenant.objects.set_replicas(id, &kept);
    if let Some(object) = tenant.objects.held_by(id) {
        state.sum.add(digest::of_object(tenant_id, object));
    }
    object::refund(state, tenant_id, quota::charge_of(&gone), pin)?;
    for extent in gone.iter().flatten() {
        object::retire(state, extent, (id, version), effects)?;
    }
    effects.wake(WaitOn::Key(tenant_id.clone(), key.clone()));
    Ok(())
}
