//! `apply`: one op into the state. Total: no clock, no randomness, no refusal.
//!
//! The leader has judged each op before it proposed it, through an overlay of everything proposed
//! before, so an op always fits. One that does not is corruption: skipping it would make replicas
//! differ in silence.

mod mount;
mod object;
mod quota;
mod rebuild;
mod replica;
mod slab;
mod sweep;
mod task;
mod tenant;

use crate::effects::{Corruption, Effects};
use crate::op::Op;
use crate::state::State;
use crate::tasks::Task;

/// What did not fit, for people.
type Fault = String;

/// Applies one op and says what follows from it. On [`Effects::corruption`] the state is not to
/// be used any more.
pub fn apply(state: &mut State, op: &Op) -> Effects {
    let mut effects = Effects::default();
    let head = state.head_hash();
    if let Err(detail) = dispatch(state, op, &mut effects) {
        effects.corruption = Some(Corruption {
            op: op.name(),
            detail,
        });
    }
    state.sum.take(head);
    state.sum.add(state.head_hash());
    effects
}

fn dispatch(state: &mut State, op: &Op, effects: &mut Effects) -> Result<(), Fault> {
    match op {
        Op::AgentMounted { .. } => agent_mounted(state, op, effects),
        Op::AgentForgotten { agent } => mount::agent_forgotten(state, *agent, effects),
        Op::SegmentLost {
            segment,
            generation,
        } => sweep::segment_lost(state, *segment, *generation, effects),
        Op::SlabGive { slab, tenant } => slab::give(state, *slab, tenant, effects),
        Op::SlabReady { slab } => slab::ready(state, *slab, effects),
        Op::SlabTake { slab } => slab::take(state, *slab, effects),
        Op::SlabReturned { slab } => slab::returned(state, *slab, effects),
        Op::TenantSet { tenant, policy } => tenant::set(state, tenant, policy, effects),
        Op::TenantDelete { tenant } => tenant::delete(state, tenant, effects),
        Op::TenantPurge {
            tenant,
            objects_max,
        } => tenant::purge(state, tenant, *objects_max, effects),
        Op::TenantForgotten { tenant } => tenant::forgotten(state, tenant, effects),
        Op::PutEnd { .. } => put_end(state, op, effects),
        Op::Remove { .. } => remove(state, op, effects),
        Op::Released { extents } => slab::released(state, extents, effects),
        Op::SegmentSwept {
            segment,
            objects_max,
        } => sweep::swept(state, *segment, *objects_max, effects),
        Op::ReplicaAdded {
            tenant,
            key,
            version,
            extents,
            instead_of,
        } => {
            let name = (tenant, key, *version);
            replica::added(state, name, extents, *instead_of, effects)
        }
        Op::ReplicaDropped {
            tenant,
            key,
            version,
            agent,
        } => replica::dropped(state, (tenant, key, *version), *agent, effects),
        Op::PinSet {
            tenant,
            key,
            version,
            pin,
        } => object::pin_set(state, (tenant, key), *version, *pin, effects),
        Op::AgentDrain { agent, draining } => mount::agent_drain(state, *agent, *draining, effects),
        Op::AgentLabels { agent, labels } => mount::agent_labels(state, *agent, labels, effects),
        Op::TaskCreated { .. } => task_created(state, op),
        Op::TaskEnded { task, outcome } => task::ended(state, *task, *outcome),
        Op::QuotaSet { quota, policy } => {
            quota::set(state, quota, policy, effects);
            Ok(())
        }
        Op::QuotaDelete { quota } => quota::delete(state, quota, effects),
        Op::PoolBegun { generation } => pool_begun(state, *generation),
        Op::PoolRebuilding { .. }
        | Op::AgentAdopted { .. }
        | Op::SlabAdopted { .. }
        | Op::ExtentFound { .. }
        | Op::PoolRebuilt
        | Op::PoolVersion { .. } => rebuild::dispatch(state, op, effects),
    }
}

fn remove(state: &mut State, op: &Op, effects: &mut Effects) -> Result<(), Fault> {
    let Op::Remove {
        tenant,
        key,
        version,
        cause: _,
    } = op
    else {
        return Err("no removal".to_owned());
    };
    object::remove(state, tenant, key, *version, effects)
}

fn pool_begun(state: &mut State, generation: u64) -> Result<(), Fault> {
    let former = state.generation;
    if generation <= former {
        return Err(format!("generation {generation} follows {former}"));
    }
    let former_head = state.head_hash();
    *state = State::new(generation);
    // The caller takes the head that it saw before out of the sum and adds the new one.
    state.sum.take(state.head_hash());
    state.sum.add(former_head);
    Ok(())
}

fn agent_mounted(state: &mut State, op: &Op, effects: &mut Effects) -> Result<(), Fault> {
    let Op::AgentMounted {
        agent,
        name,
        uid,
        incarnation,
        segments,
        labels,
    } = op
    else {
        return Err("not a mount".to_owned());
    };
    let who = (*agent, name, *uid, *incarnation);
    mount::agent_mounted(state, who, labels, segments, effects)
}

fn put_end(state: &mut State, op: &Op, effects: &mut Effects) -> Result<(), Fault> {
    let Op::PutEnd {
        tenant,
        key,
        version,
        size_bytes,
        digest,
        replicas,
        wanted,
        attributes,
        replaces,
    } = op
    else {
        return Err("not the end of a put".to_owned());
    };
    let object = crate::objects::NewObject {
        version: *version,
        size_bytes: *size_bytes,
        digest: *digest,
        replicas,
        wanted: *wanted,
        attributes,
    };
    object::put_end(state, tenant, key, &object, *replaces, effects)
}

fn task_created(state: &mut State, op: &Op) -> Result<(), Fault> {
    let Op::TaskCreated {
        task,
        tenant,
        key,
        version,
        wish,
    } = op
    else {
        return Err("not a new task".to_owned());
    };
    let new = Task {
        tenant: tenant.clone(),
        key: key.clone(),
        version: *version,
        wish: wish.clone(),
        outcome: None,
    };
    task::created(state, *task, new)
}
