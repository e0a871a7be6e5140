//! Applying what concerns replicas: one that goes.

use larder_types::{AgentId, Extent, Key, TenantId, Version};

use super::{Fault, object};
use crate::digest;
use crate::effects::Effects;
use crate::quota;
use crate::reply::WaitOn;
use crate::state::State;

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
