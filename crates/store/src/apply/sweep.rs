//! Applying the loss of a segment: at once for readers, in steps for the books.

use larder_types::{Extent, SegmentGeneration, SegmentId, TenantId, layout};

use super::{Fault, object};
use crate::digest;
use crate::effects::{Effects, GoneCause};
use crate::objects::ObjectId;
use crate::quota;
use crate::reply::WaitOn;
use crate::segment::SlabPhase;
use crate::state::State;

/// Withdraws the segment: nobody reads it, and its agent may mount a new one. What is noted on it
/// goes with [`swept`].
pub(super) fn segment_lost(
    state: &mut State,
    id: SegmentId,
    generation: SegmentGeneration,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let segment = match state.segments.remove(&id) {
        Some(segment) if segment.generation == generation => segment,
        _ => {
            return Err(format!(
                "segment {id} of generation {generation} is not mounted"
            ));
        }
    };
    state.sum.take(digest::of_segment(&segment));
    state.sum.add(digest::of_lost(id));
    state.capacity_bytes = state
        .capacity_bytes
        .checked_sub(segment.capacity_bytes())
        .ok_or_else(|| format!("segment {id} is larger than the pool"))?;
    for (index, slab) in &segment.slabs {
        if let Some(tenant) = state.tenants.get_mut(&slab.tenant) {
            tenant.objects.lose(id);
        }
        if slab.phase != SlabPhase::Ready {
            effects.wake(WaitOn::Slab(id, *index));
        }
    }
    if let Some(agent) = state.agents.get_mut(&segment.agent) {
        state.sum.take(digest::of_agent(segment.agent, agent));
        agent.segments.retain(|other| *other != id);
        state.sum.add(digest::of_agent(segment.agent, agent));
    }
    effects.wake(WaitOn::Agent(segment.agent));
    effects.wake(WaitOn::Space);
    state.lost.insert(id, segment);
    Ok(())
}

/// What to drop next.
enum Next {
    Replicas(TenantId, ObjectId),
    Released(TenantId),
    Slab(TenantId),
    Segment,
}

/// Drops up to `objects_max` things that are noted on a lost segment. An object in many pieces
/// counts as many.
pub(super) fn swept(
    state: &mut State,
    id: SegmentId,
    objects_max: u32,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let mut left = objects_max;
    while left > 0 {
        left -= 1;
        match next(state, id)? {
            Next::Replicas(tenant, object) => {
                let held = state.tenants.get(&tenant);
                let held = held.and_then(|held| held.objects.held_by(object));
                left = left.saturating_sub(held.map_or(0, |held| held.weight() - 1));
                drop_replicas(state, &tenant, object, id, effects)?;
            }
            Next::Released(tenant) => drop_released(state, id, &tenant)?,
            Next::Slab(tenant) => drop_slab(state, id, &tenant)?,
            Next::Segment => {
                state.lost.remove(&id);
                state.sum.take(digest::of_lost(id));
                let tenants = state.tenants.values_mut();
                tenants.for_each(|tenant| tenant.objects.swept(id));
                break;
            }
        }
    }
    Ok(())
}

fn next(state: &State, id: SegmentId) -> Result<Next, Fault> {
    let segment = state
        .lost
        .get(&id)
        .ok_or_else(|| format!("segment {id} is not lost"))?;
    let Some((_, slab)) = segment.slabs.first_key_value() else {
        return Ok(Next::Segment);
    };
    let tenant = slab.tenant.clone();
    let object = slab.lodgers.from(0).next();
    Ok(match object {
        Some((_, object)) => Next::Replicas(tenant, object),
        None if slab.releasing.is_empty() => Next::Slab(tenant),
        None => Next::Released(tenant),
    })
}

/// Drops the replicas of one object that had an extent on the lost segment, and the object with
/// its last one. What they had elsewhere is erased.
fn drop_replicas(
    state: &mut State,
    tenant_id: &TenantId,
    id: ObjectId,
    lost: SegmentId,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    let object = tenant
        .objects
        .held_by(id)
        .ok_or_else(|| format!("{id:?} of tenant {tenant_id} holds nothing"))?;
    let (version, pin) = (object.version(), object.attributes().pin);
    let (gone, kept): (Vec<Vec<Extent>>, Vec<_>) = object
        .held_replicas()
        .partition(|replica| replica.iter().any(|extent| extent.slab.segment == lost));
    effects.replicas_lost += gone.len() as u64;
    if kept.is_empty() {
        effects.objects_lost += 1;
        let (key, version) = object::forget(state, tenant_id, id, effects)?;
        effects.gone(tenant_id, key, version, GoneCause::Lost);
        return Ok(());
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
    Ok(())
}

/// Drops the first extent of the first slab that was being released.
fn drop_released(state: &mut State, id: SegmentId, tenant: &TenantId) -> Result<(), Fault> {
    let Some(segment) = state.lost.get_mut(&id) else {
        return Ok(());
    };
    let agent = segment.agent;
    let Some(mut slab) = segment.slabs.first_entry() else {
        return Ok(());
    };
    let index = *slab.key();
    let slab = slab.get_mut();
    let name = larder_types::SlabRef {
        agent,
        segment: id,
        index,
        registration: slab.registration,
    };
    if let Some((offset_bytes, releasing)) = slab.releasing.pop_first() {
        state
            .sum
            .take(digest::of_releasing(name, offset_bytes, &releasing));
        state.releasing_bytes = layout::reserved_bytes(releasing.length_bytes)
            .and_then(|aligned| state.releasing_bytes.checked_sub(aligned))
            .ok_or_else(|| format!("segment {id} releases more than the pool, to {tenant}"))?;
    }
    Ok(())
}

/// Drops the first slab, in which nothing is noted any more.
fn drop_slab(state: &mut State, id: SegmentId, tenant_id: &TenantId) -> Result<(), Fault> {
    let Some(segment) = state.lost.get_mut(&id) else {
        return Ok(());
    };
    let agent = segment.agent;
    let Some((index, slab)) = segment.slabs.pop_first() else {
        return Ok(());
    };
    let name = segment.slab_ref(index, slab.registration);
    state.sum.take(digest::of_slab(name, tenant_id, slab.phase));
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} of slab {id}/{index} is unknown"))?;
    tenant.slabs.remove(&(agent, id, index));
    Ok(())
}
