//! Applying what concerns agents: mounted and forgotten.

use std::collections::BTreeMap;

use larder_types::{AgentId, AgentName, AgentUid, Incarnation, Labels, layout};

use super::Fault;
use crate::digest;
use crate::effects::Effects;
use crate::op::MountedSegment;
use crate::reply::WaitOn;
use crate::segment::Segment;
use crate::state::{Agent, State};

pub(super) fn agent_mounted(
    state: &mut State,
    (id, name, uid, incarnation): (AgentId, &AgentName, AgentUid, Incarnation),
    said: &Labels,
    offered: &[MountedSegment],
    effects: &mut Effects,
) -> Result<(), Fault> {
    // Who empties a node, or says where it is, means that of its name, whatever life its process
    // is in.
    let (mut draining, mut set) = (false, Labels::default());
    match (state.names.get(name), state.agents.get(&id)) {
        (Some(known), Some(agent)) if *known == id && agent.segments.is_empty() => {
            draining = agent.draining;
            set = agent.set.clone();
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
        draining,
        said: said.clone(),
        set,
    };
    state.sum.add(digest::of_agent(id, &agent));
    state.agents.insert(id, agent);
    effects.wake(WaitOn::Agent(id));
    effects.wake(WaitOn::Space);
    Ok(())
}

pub(super) fn mounted(agent: AgentId, offer: &MountedSegment) -> Result<Segment, Fault> {
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
    if slab_bytes > layout::MAX_SLAB_BYTES || slab_bytes % layout::SMALL_ALIGN_BYTES != 0 {
        return Err(format!("segment {id} has slabs of {slab_bytes} bytes"));
    }
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

pub(super) fn agent_drain(
    state: &mut State,
    id: AgentId,
    draining: bool,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let agent = state
        .agents
        .get_mut(&id)
        .ok_or_else(|| format!("agent {id} is unknown"))?;
    state.sum.take(digest::of_agent(id, agent));
    agent.draining = draining;
    state.sum.add(digest::of_agent(id, agent));
    effects.wake(WaitOn::Agent(id));
    Ok(())
}

pub(super) fn agent_labels(
    state: &mut State,
    id: AgentId,
    labels: &Labels,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let agent = state
        .agents
        .get_mut(&id)
        .ok_or_else(|| format!("agent {id} is unknown"))?;
    state.sum.take(digest::of_agent(id, agent));
    agent.set = labels.clone();
    state.sum.add(digest::of_agent(id, agent));
    effects.wake(WaitOn::Agent(id));
    // What found too few hosts may find them now.
    effects.wake(WaitOn::Space);
    Ok(())
}
