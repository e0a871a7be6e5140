//! Applying what makes a pool again from what its agents hold, and what its replicas agree on.

use std::collections::BTreeSet;

use larder_types::{Extent, SlabRef, TenantId, Version};

use super::{Fault, mount, slab};
use crate::digest;
use crate::effects::Effects;
use crate::objects::ObjectTable;
use crate::op::Op;
use crate::reply::WaitOn;
use crate::segment::{SlabPhase, reserve_extent};
use crate::state::{Agent, State, Tenant};

/// Numbers of agents and segments that a generation may give before it comes to those of the
/// next, so that what is new does not take a number with which an agent comes back.
const NUMBERS_SHIFT: u32 = 20;
/// Generations after which numbers begin anew.
const NUMBERS_MASK: u64 = 0xfff;

/// The first number that a generation gives which is made again.
fn first_number(generation: u64) -> u32 {
    u32::try_from((generation & NUMBERS_MASK) << NUMBERS_SHIFT | 1).unwrap_or(1)
}

impl State {
    /// Whether this generation was made from what agents held, or is being made. The numbers tell
    /// it that it gives: a pool that begins, from a snapshot too, gives them from 1 on. So does one
    /// of 4,096 generations that follow each other, which is not told from one that begins.
    #[must_use]
    pub fn is_of_inventory(&self) -> bool {
        let first = first_number(self.generation);
        first > 1 && self.next.agent >= first
    }
}

pub(super) fn dispatch(state: &mut State, op: &Op, effects: &mut Effects) -> Result<(), Fault> {
    match op {
        Op::PoolRebuilding {
            generation,
            knows_agents,
        } => rebuilding(state, *generation, *knows_agents),
        Op::AgentAdopted { .. } => agent_adopted(state, op, effects),
        Op::SlabAdopted { slab, tenant } => slab_adopted(state, *slab, tenant),
        Op::ExtentFound { extent, version } => extent_found(state, extent, *version, effects),
        Op::PoolRebuilt => rebuilt(state, effects),
        Op::PoolVersion { version: to } => version(state, *to),
        _ => Err(format!("{} makes no pool again", op.name())),
    }
}

/// A state of the next generation that has what no agent could tell.
fn rebuilding(state: &mut State, generation: u64, knows_agents: bool) -> Result<(), Fault> {
    let former = state.generation;
    if generation <= former {
        return Err(format!("generation {generation} follows {former}"));
    }
    let former_head = state.head_hash();
    let mut next = State::new(generation);
    next.sum.take(next.head_hash());
    let first = first_number(generation);
    next.next.agent = state.next.agent.max(first);
    next.next.segment = state.next.segment.max(first);
    next.rebuilding = true;
    // Of agents that a former rebuild had not heard yet nobody knows.
    next.knows_agents = knows_agents && (!state.rebuilding || state.knows_agents);
    next.version = state.version;
    for (id, tenant) in std::mem::take(&mut state.tenants) {
        let kept = Tenant {
            policy: tenant.policy,
            deleting: tenant.deleting,
            used_bytes: 0,
            pinned_bytes: 0,
            objects: ObjectTable::default(),
            slabs: BTreeSet::new(),
        };
        next.sum
            .add(digest::of_tenant(&id, &kept.policy, kept.deleting));
        next.tenants.insert(id, kept);
    }
    for (name, policy) in std::mem::take(&mut state.quotas) {
        next.sum.add(digest::of_quota(&name, &policy));
        next.quotas.insert(name, policy);
    }
    let agents = std::mem::take(&mut state.agents);
    for (id, mut agent) in agents.into_iter().filter(|_| knows_agents) {
        agent.segments.clear();
        next.sum.add(digest::of_agent(id, &agent));
        next.names.insert(agent.name.clone(), id);
        next.agents.insert(id, agent);
    }
    if knows_agents {
        // Those of a rebuild that did not come to its end are to be gone still.
        next.doomed = std::mem::take(&mut state.doomed);
        next.doomed.extend(state.releasing());
        for (extent, version) in &next.doomed {
            next.sum.add(digest::of_doomed(extent, *version));
        }
    }
    // The caller takes the head that it saw before out of the sum and adds the new one.
    next.sum.add(former_head);
    *state = next;
    Ok(())
}

fn agent_adopted(state: &mut State, op: &Op, effects: &mut Effects) -> Result<(), Fault> {
    let Op::AgentAdopted {
        agent: id,
        name,
        uid,
        incarnation,
        segments: offered,
        labels,
    } = op
    else {
        return Err("no adoption".to_owned());
    };
    let id = *id;
    let known = state.agents.get(&id);
    let is_same = |agent: &Agent| agent.name == *name && agent.segments.is_empty();
    if !state.rebuilding
        || !known.is_none_or(is_same)
        || state.names.get(name).is_some_and(|known| *known != id)
    {
        return Err(format!("agent {id} cannot come back as {name}"));
    }
    let mut agent = Agent {
        name: name.clone(),
        uid: *uid,
        incarnation: *incarnation,
        segments: offered.iter().map(|offer| offer.id).collect(),
        draining: false,
        said: labels.clone(),
        set: larder_types::Labels::default(),
    };
    if let Some(known) = known {
        (agent.draining, agent.set) = (known.draining, known.set.clone());
        state.sum.take(digest::of_agent(id, known));
    }
    state.next.agent = state.next.agent.max(id.0.saturating_add(1));
    for offer in offered {
        if state.segments.contains_key(&offer.id) || state.lost.contains_key(&offer.id) {
            return Err(format!("segment {} is mounted", offer.id));
        }
        let segment = mount::mounted(id, offer)?;
        state.capacity_bytes = state
            .capacity_bytes
            .checked_add(segment.capacity_bytes())
            .ok_or_else(|| "the capacity overflows".to_owned())?;
        state.next.segment = state.next.segment.max(offer.id.0.saturating_add(1));
        state.sum.add(digest::of_segment(&segment));
        state.segments.insert(offer.id, segment);
    }
    state.sum.add(digest::of_agent(id, &agent));
    state.names.insert(name.clone(), id);
    state.agents.insert(id, agent);
    effects.wake(WaitOn::Agent(id));
    Ok(())
}

fn slab_adopted(state: &mut State, slab_ref: SlabRef, tenant_id: &TenantId) -> Result<(), Fault> {
    if !state.rebuilding {
        return Err(format!("{slab_ref:?} is adopted by a pool that is whole"));
    }
    slab::place(state, slab_ref, tenant_id, SlabPhase::Ready).map(drop)
}

fn extent_found(
    state: &mut State,
    extent: &Extent,
    version: Version,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let lies_in = state
        .segments
        .get_mut(&extent.slab.segment)
        .and_then(|segment| segment.slab_mut(extent.slab))
        .ok_or_else(|| format!("{extent:?} lies in no known slab"))?;
    reserve_extent(&mut lies_in.alloc, extent).map_err(|error| format!("{extent:?}: {error}"))?;
    let sums = (&mut state.sum, &mut state.releasing_bytes);
    slab::release(lies_in, sums, extent, version, effects)
}

fn rebuilt(state: &mut State, effects: &mut Effects) -> Result<(), Fault> {
    if !state.rebuilding {
        return Err("nothing is being rebuilt".to_owned());
    }
    (state.rebuilding, state.knows_agents) = (false, false);
    for (extent, version) in std::mem::take(&mut state.doomed) {
        state.sum.take(digest::of_doomed(&extent, version));
    }
    effects.wake(WaitOn::Space);
    Ok(())
}

fn version(state: &mut State, version: u32) -> Result<(), Fault> {
    if version <= state.version {
        return Err(format!("version {version} follows {}", state.version));
    }
    state.version = version;
    Ok(())
}
