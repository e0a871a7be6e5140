//! Applying what concerns agents: mounted, forgotten, a segment lost.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{
    AgentId, AgentName, AgentUid, Incarnation, Key, SegmentGeneration, SegmentId, TenantId, layout,
};

use super::{Fault, object, retire};
use crate::digest;
use crate::effects::Effects;
use crate::op::MountedSegment;
use crate::quota;
use crate::reply::WaitOn;
use crate::segment::{Segment, SlabPhase};
use crate::state::{Agent, State};

pub(super) fn agent_mounted(
    state: &mut State,
    (id, name, uid, incarnation): (AgentId, &AgentName, AgentUid, Incarnation),
    offered: &[MountedSegment],
    effects: &mut Effects,
) -> Result<(), Fault> {
    match (state.names.get(name), state.agents.get(&id)) {
        (Some(known), Some(agent)) if *known == id && agent.segments.is_empty() => {
            state.sum.take(digest::of_agent(id, agent));
        }
        (None, None) if id.0 >= state.next.agent => {
            state.next.agent = id.0.saturating_add(1);
            state.names.insert(name.clone(), id);
        }
        _ => return Err(format!("agent {id} is not {name}, or has segments")),
    }
    for offer in offered {
        if offer.id.0 < state.next.segment {
            return Err(format!("segment {} was mounted before", offer.id));
        }
        state.next.segment = offer.id.0.saturating_add(1);
        let segment = mounted(id, offer)?;
        state.capacity_bytes = state
            .capacity_bytes
            .checked_add(segment.capacity_bytes())
            .ok_or_else(|| "the capacity overflows".to_owned())?;
        state.sum.add(digest::of_segment(&segment));
        state.segments.insert(offer.id, segment);
    }
    let segments = offered.iter().map(|offer| offer.id).collect();
    let agent = Agent {
        name: name.clone(),
        uid,
        incarnation,
        segments,
    };
    state.sum.add(digest::of_agent(id, &agent));
    state.agents.insert(id, agent);
    effects.wake(WaitOn::Agent(id));
    effects.wake(WaitOn::Space);
    Ok(())
}

fn mounted(agent: AgentId, offer: &MountedSegment) -> Result<Segment, Fault> {
    let MountedSegment {
        id,
        ordinal,
        generation,
        slabs,
        slab_bytes,
        numa,
    } = *offer;
    let count = u16::try_from(slabs)
        .ok()
        .filter(|_| slabs <= layout::MAX_SLABS)
        .ok_or_else(|| format!("segment {id} has {slabs} slabs"))?;
    Ok(Segment {
        id,
        agent,
        ordinal,
        generation,
        slab_count: slabs,
        slab_bytes,
        numa,
        slabs: BTreeMap::new(),
        free: (0..count).collect(),
    })
}

pub(super) fn agent_forgotten(
    state: &mut State,
    id: AgentId,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let agent = state
        .agents
        .get(&id)
        .filter(|agent| agent.segments.is_empty())
        .ok_or_else(|| format!("agent {id} is unknown or has segments"))?;
    state.sum.take(digest::of_agent(id, agent));
    state.names.remove(&agent.name);
    state.agents.remove(&id);
    effects.wake(WaitOn::Agent(id));
    Ok(())
}

pub(super) fn segment_lost(
    state: &mut State,
    id: SegmentId,
    generation: SegmentGeneration,
    effects: &mut Effects,
) -> Result<(), Fault> {
    if state
        .segments
        .get(&id)
        .is_none_or(|segment| segment.generation != generation)
    {
        return Err(format!(
            "segment {id} of generation {generation} is not mounted"
        ));
    }
    let tenants = withdraw(state, id, effects)?;
    for tenant_id in tenants {
        // Every object of the tenants that had a slab here is looked at: the state keeps no
        // index from slabs to objects.
        let hit: Vec<Key> = state
            .tenants
            .get(&tenant_id)
            .into_iter()
            .flat_map(|tenant| tenant.objects.iter())
            .filter(|(_, object)| object.lies_on(id))
            .map(|(key, _)| key.clone())
            .collect();
        for key in hit {
            drop_replicas(state, &tenant_id, &key, id, effects)?;
        }
    }
    effects.wake(WaitOn::Space);
    Ok(())
}

/// Takes the segment out with its slabs; the tenants that had one.
fn withdraw(
    state: &mut State,
    id: SegmentId,
    effects: &mut Effects,
) -> Result<BTreeSet<TenantId>, Fault> {
    let hashes: Vec<u64> = state.slab_hashes(id).collect();
    hashes.into_iter().for_each(|hash| state.sum.take(hash));
    let segment = state
        .segments
        .remove(&id)
        .ok_or_else(|| format!("segment {id} is not mounted"))?;
    state.sum.take(digest::of_segment(&segment));
    state.capacity_bytes = state
        .capacity_bytes
        .checked_sub(segment.capacity_bytes())
        .ok_or_else(|| format!("segment {id} is larger than the pool"))?;
    let mut tenants = BTreeSet::new();
    for (index, slab) in &segment.slabs {
        if let Some(tenant) = state.tenants.get_mut(&slab.tenant) {
            tenant.slabs.remove(&(segment.agent, id, *index));
        }
        tenants.insert(slab.tenant.clone());
        let releasing = slab.releasing.values();
        let bytes = releasing
            .filter_map(|r| layout::reserved_bytes(r.length_bytes))
            .sum();
        state.releasing_bytes = state
            .releasing_bytes
            .checked_sub(bytes)
            .ok_or_else(|| format!("segment {id} releases more than the pool"))?;
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
    Ok(tenants)
}

/// Drops the replicas of one object that had an extent on the lost segment, and the object with
/// its last one. What they had elsewhere is erased.
fn drop_replicas(
    state: &mut State,
    tenant_id: &TenantId,
    key: &Key,
    lost: SegmentId,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    let Some(object) = tenant.objects.get_mut(key) else {
        return Ok(());
    };
    state.sum.take(digest::of_object(tenant_id, key, object));
    let version = object.version;
    let (gone, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut object.replicas)
        .into_iter()
        .partition(|replica| replica.iter().any(|extent| extent.slab.segment == lost));
    effects.replicas_lost += gone.len() as u64;
    object.replicas = kept;
    if object.replicas.is_empty() {
        tenant.objects.remove(key);
        state.objects = state.objects.saturating_sub(1);
        effects.objects_lost += 1;
    } else {
        state.sum.add(digest::of_object(tenant_id, key, object));
    }
    object::refund(state, tenant_id, quota::charge_of(&gone))?;
    for extent in gone
        .iter()
        .flatten()
        .filter(|extent| extent.slab.segment != lost)
    {
        retire(state, extent, version, effects)?;
    }
    Ok(())
}
