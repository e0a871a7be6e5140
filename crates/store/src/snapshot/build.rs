//! Parts into a state.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{AgentId, Extent, Key, SegmentId, SlabRef, TenantId, layout};

use super::Part;
use crate::alloc::Allocator;
use crate::digest;
use crate::objects::{NewObject, Object, ObjectTable};
use crate::op::MountedSegment;
use crate::quota;
use crate::segment::{Lodgers, Releasing, Segment, Slab, SlabPhase, reserve_extent};
use crate::state::{Agent, Counters, State, Tenant};

/// A part that does not fit those before it, or parts that do not make a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the snapshot is damaged: {detail}")]
pub struct Misfit {
    /// What does not fit.
    pub detail: String,
}

/// Makes a state of the parts of a [`super::Walk`], in their order.
#[derive(Debug, Default)]
pub struct Builder {
    state: Option<State>,
    /// What the end said: digest and objects.
    end: Option<(u64, u64)>,
}

fn misfit<T>(detail: String) -> Result<T, Misfit> {
    Err(Misfit { detail })
}

impl Builder {
    /// Takes the next part.
    ///
    /// # Errors
    /// [`Misfit`]; nothing is to be made of these parts any more.
    pub fn take(&mut self, part: Part) -> Result<(), Misfit> {
        if self.end.is_some() {
            return misfit("something follows its end".to_owned());
        }
        match (part, &mut self.state) {
            (part @ Part::Head { .. }, None) => {
                self.state = Some(empty(&part)?);
                Ok(())
            }
            (Part::End { digest, objects }, Some(_)) => {
                self.end = Some((digest, objects));
                Ok(())
            }
            (part, Some(state)) => add(state, part),
            (part, None) => misfit(format!("it begins with {part:?}")),
        }
    }

    /// The state.
    ///
    /// # Errors
    /// [`Misfit`] if parts are missing, or make another state than they were taken from.
    pub fn finish(self) -> Result<State, Misfit> {
        let (Some(state), Some((digest, objects))) = (self.state, self.end) else {
            return misfit("it has no end".to_owned());
        };
        if (state.digest(), state.objects()) != (digest, objects) {
            return misfit(format!(
                "{} objects of digest {:016x} were read, {objects} of {digest:016x} were written",
                state.objects(),
                state.digest()
            ));
        }
        Ok(state)
    }
}

fn empty(head: &Part) -> Result<State, Misfit> {
    let Part::Head {
        generation,
        next_registration,
        next_agent,
        next_segment,
        next_task,
    } = *head
    else {
        return misfit("it has no head".to_owned());
    };
    let mut state = State::new(generation);
    state.sum.take(state.head_hash());
    state.next = Counters {
        registration: next_registration,
        agent: next_agent,
        segment: next_segment,
        task: next_task,
    };
    state.sum.add(state.head_hash());
    Ok(state)
}

fn add(state: &mut State, part: Part) -> Result<(), Misfit> {
    let is_new = match part {
        Part::Head { .. } | Part::End { .. } => false,
        Part::Quota { quota, policy } => {
            state.sum.add(digest::of_quota(&quota, &policy));
            state.quotas.insert(quota, policy).is_none()
        }
        Part::Tenant {
            tenant,
            policy,
            deleting,
            lost,
        } => {
            state.sum.add(digest::of_tenant(&tenant, &policy, deleting));
            let mut objects = ObjectTable::default();
            lost.into_iter().for_each(|segment| objects.lose(segment));
            let held = Tenant {
                policy,
                deleting,
                used_bytes: 0,
                pinned_bytes: 0,
                objects,
                slabs: BTreeSet::new(),
            };
            state.tenants.insert(tenant, held).is_none()
        }
        part @ Part::Agent { .. } => add_agent(state, part),
        part @ (Part::Doomed { .. } | Part::Life { .. }) => add_life(state, &part),
        Part::Segment {
            segment,
            agent,
            is_lost,
        } => add_segment(state, segment, agent, is_lost)?,
        Part::Slab {
            slab,
            tenant,
            phase,
        } => add_slab(state, slab, &tenant, phase)?,
        Part::Releasing {
            slab,
            offset_bytes,
            releasing,
        } => add_releasing(state, slab, offset_bytes, releasing)?,
        Part::Task { id, task } => {
            state.sum.add(digest::of_task(id, &task));
            state.tasks.restore(id, task)
        }
        Part::Object {
            tenant,
            key,
            object,
        } => add_object(state, &tenant, &key, &object)?,
    };
    if is_new {
        return Ok(());
    }
    misfit("something stands in it twice".to_owned())
}

/// What a pool says of itself, and of what is not to be found in it.
fn add_life(state: &mut State, part: &Part) -> bool {
    match *part {
        Part::Doomed { extent, version } => {
            state.sum.add(digest::of_doomed(&extent, version));
            state.doomed.insert((extent, version))
        }
        Part::Life {
            rebuilding,
            knows_agents,
            version,
        } => {
            let is_new = !state.rebuilding && state.version == 0;
            state.sum.take(state.head_hash());
            (state.rebuilding, state.version) = (rebuilding, version);
            state.knows_agents = knows_agents;
            state.sum.add(state.head_hash());
            is_new
        }
        _ => false,
    }
}

fn add_agent(state: &mut State, part: Part) -> bool {
    let Part::Agent {
        agent: id,
        name,
        uid,
        incarnation,
        segments,
        draining,
        said,
        set,
    } = part
    else {
        return false;
    };
    let agent = Agent {
        name: name.clone(),
        uid,
        incarnation,
        segments,
        draining,
        said,
        set,
    };
    state.sum.add(digest::of_agent(id, &agent));
    state.agents.insert(id, agent).is_none() && state.names.insert(name, id).is_none()
}

fn add_segment(
    state: &mut State,
    new: MountedSegment,
    agent: AgentId,
    is_lost: bool,
) -> Result<bool, Misfit> {
    // Indexes of slabs have 16 bits; a mount with more is refused.
    let Ok(slabs) = u16::try_from(new.slabs.saturating_sub(1)) else {
        return misfit(format!("segment {} has {} slabs", new.id, new.slabs));
    };
    let segment = Segment {
        id: new.id,
        agent,
        ordinal: new.ordinal,
        generation: new.generation,
        slab_count: new.slabs,
        slab_bytes: new.slab_bytes,
        numa: new.numa,
        slabs: BTreeMap::new(),
        free: if new.slabs == 0 {
            BTreeSet::new()
        } else {
            (0..=slabs).collect()
        },
    };
    if is_lost {
        state.sum.add(digest::of_lost(new.id));
    } else {
        state.sum.add(digest::of_segment(&segment));
        let bytes = state.capacity_bytes.checked_add(segment.capacity_bytes());
        let Some(bytes) = bytes else {
            return misfit("its capacity overflows".to_owned());
        };
        state.capacity_bytes = bytes;
    }
    let known = state.segments.contains_key(&new.id) || state.lost.contains_key(&new.id);
    let map = if is_lost {
        &mut state.lost
    } else {
        &mut state.segments
    };
    Ok(!known && map.insert(new.id, segment).is_none())
}

fn segment_mut(state: &mut State, id: SegmentId) -> Result<(&mut Segment, bool), Misfit> {
    let is_lost = state.lost.contains_key(&id);
    let map = if is_lost {
        &mut state.lost
    } else {
        &mut state.segments
    };
    match map.get_mut(&id) {
        Some(segment) => Ok((segment, is_lost)),
        None => misfit(format!("segment {id} is named and missing")),
    }
}

fn add_slab(
    state: &mut State,
    name: SlabRef,
    tenant: &TenantId,
    phase: SlabPhase,
) -> Result<bool, Misfit> {
    let (segment, _) = segment_mut(state, name.segment)?;
    if segment.agent != name.agent || !segment.free.remove(&name.index) {
        return misfit(format!("{name:?} is no free slab of its segment"));
    }
    let slab = Slab {
        tenant: tenant.clone(),
        registration: name.registration,
        phase,
        alloc: Allocator::new(segment.slab_bytes),
        releasing: BTreeMap::new(),
        lodgers: Lodgers::default(),
    };
    segment.slabs.insert(name.index, slab);
    let Some(held) = state.tenants.get_mut(tenant) else {
        return misfit(format!("tenant {tenant} of {name:?} is missing"));
    };
    state.sum.add(digest::of_slab(name, tenant, phase));
    Ok(held.slabs.insert((name.agent, name.segment, name.index)))
}

/// The slab that an extent lies in, with the extent reserved. On a lost segment nothing is: it is
/// never given out again.
fn reserved<'a>(state: &'a mut State, extent: &Extent) -> Result<&'a mut Slab, Misfit> {
    let (segment, is_lost) = segment_mut(state, extent.slab.segment)?;
    let Some(slab) = segment.slab_mut(extent.slab) else {
        return misfit(format!("the slab of {extent:?} is missing"));
    };
    if !is_lost && let Err(error) = reserve_extent(&mut slab.alloc, extent) {
        return misfit(format!("{extent:?}: {error}"));
    }
    Ok(slab)
}

fn add_releasing(
    state: &mut State,
    slab: SlabRef,
    offset_bytes: u64,
    releasing: Releasing,
) -> Result<bool, Misfit> {
    let extent = Extent {
        slab,
        offset_bytes,
        length_bytes: releasing.length_bytes,
    };
    let held = reserved(state, &extent)?;
    let is_new = held.releasing.insert(offset_bytes, releasing).is_none();
    let aligned = layout::reserved_bytes(releasing.length_bytes);
    let sum = aligned.and_then(|bytes| state.releasing_bytes.checked_add(bytes));
    let Some(sum) = sum else {
        return misfit(format!("{extent:?} is too long"));
    };
    state.releasing_bytes = sum;
    let hash = digest::of_releasing(slab, offset_bytes, &releasing);
    state.sum.add(hash);
    Ok(is_new)
}

fn add_object(
    state: &mut State,
    tenant_id: &TenantId,
    key: &Key,
    object: &Object,
) -> Result<bool, Misfit> {
    let extents = || object.replicas.iter().flatten();
    for extent in extents() {
        if reserved(state, extent)?.tenant != *tenant_id {
            return misfit(format!("{extent:?} is not of tenant {tenant_id}"));
        }
    }
    let charge = quota::charge_of(&object.replicas).filter(|charge| *charge > 0);
    let held = state.tenants.get_mut(tenant_id);
    let (Some(held), Some(charge)) = (held, charge) else {
        return misfit(format!("{key} has no tenant or no size"));
    };
    if held.objects.held_at(key).is_some() {
        return Ok(false);
    }
    if held.charge(charge, object.attributes.pin).is_none() {
        return misfit(format!("the charge of {tenant_id} overflows"));
    }
    let new = NewObject {
        version: object.version,
        size_bytes: object.size_bytes,
        digest: object.digest,
        replicas: &object.replicas,
        wanted: object.wanted,
        attributes: &object.attributes,
    };
    let id = held.objects.insert(key, &new);
    if let Some(held) = held.objects.held_by(id) {
        state.sum.add(digest::of_object(tenant_id, held));
    }
    state.objects += 1;
    for extent in extents() {
        let (segment, _) = segment_mut(state, extent.slab.segment)?;
        let slab = segment.slab_mut(extent.slab);
        if !slab.is_some_and(|slab| slab.lodgers.add(extent.offset_bytes, id)) {
            return Ok(false);
        }
    }
    Ok(true)
}
