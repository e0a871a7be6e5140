//! Applying what concerns slabs: given, ready, taken, returned, and extents that come back.

use std::collections::BTreeMap;

use larder_types::{Extent, SlabRef, TenantId, Version, layout};

use super::Fault;
use crate::alloc::Allocator;
use crate::digest::{self, Sum};
use crate::effects::{Command, Effects};
use crate::reply::WaitOn;
use crate::segment::{Lodgers, Releasing, Slab, SlabPhase, free_extent};
use crate::state::State;

pub(super) fn give(
    state: &mut State,
    slab: SlabRef,
    tenant_id: &TenantId,
    effects: &mut Effects,
) -> Result<(), Fault> {
    if slab.registration.0 < state.next.registration {
        return Err(format!(
            "{slab:?} brings a registration that was given before"
        ));
    }
    let slab_bytes = place(state, slab, tenant_id, SlabPhase::Giving)?;
    state.next.registration = slab.registration.0.saturating_add(1);
    let tenant = tenant_id.clone();
    effects.command(
        slab.agent,
        Command::SlabGive {
            slab,
            tenant,
            slab_bytes,
        },
    );
    Ok(())
}

/// A slab of a segment becomes a tenant's. The result is its size in bytes.
pub(super) fn place(
    state: &mut State,
    slab: SlabRef,
    tenant_id: &TenantId,
    phase: SlabPhase,
) -> Result<u64, Fault> {
    let tenant = state
        .tenants
        .get_mut(tenant_id)
        .ok_or_else(|| format!("tenant {tenant_id} is unknown"))?;
    let segment = state
        .segments
        .get_mut(&slab.segment)
        .filter(|segment| segment.agent == slab.agent && segment.free.contains(&slab.index))
        .ok_or_else(|| format!("{slab:?} is not free"))?;
    segment.free.remove(&slab.index);
    let placed = Slab {
        tenant: tenant_id.clone(),
        registration: slab.registration,
        phase,
        alloc: Allocator::new(segment.slab_bytes),
        releasing: BTreeMap::new(),
        lodgers: Lodgers::default(),
    };
    segment.slabs.insert(slab.index, placed);
    tenant.slabs.insert((slab.agent, slab.segment, slab.index));
    state.sum.add(digest::of_slab(slab, tenant_id, phase));
    Ok(segment.slab_bytes)
}

/// An extent whose bytes are taken waits from now on for its agent to erase it. Whoever calls has
/// found its slab already.
pub(super) fn release(
    slab: &mut Slab,
    (sum, releasing_bytes): (&mut Sum, &mut u64),
    extent: &Extent,
    version: Version,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let releasing = Releasing {
        length_bytes: extent.length_bytes,
        version,
    };
    let former = slab.releasing.insert(extent.offset_bytes, releasing);
    if former.is_some() {
        return Err(format!("{extent:?} is being released already"));
    }
    let aligned = layout::reserved_bytes(extent.length_bytes)
        .ok_or_else(|| format!("{extent:?} is too long"))?;
    *releasing_bytes = releasing_bytes.saturating_add(aligned);
    let digest = digest::of_releasing(extent.slab, extent.offset_bytes, &releasing);
    sum.add(digest);
    effects.erase(*extent, version);
    Ok(())
}

pub(super) fn ready(state: &mut State, slab: SlabRef, effects: &mut Effects) -> Result<(), Fault> {
    turn(state, slab, SlabPhase::Giving, SlabPhase::Ready)?;
    effects.wake(WaitOn::Slab(slab.segment, slab.index));
    Ok(())
}

pub(super) fn take(state: &mut State, slab: SlabRef, effects: &mut Effects) -> Result<(), Fault> {
    if !state.slab(slab).is_some_and(|found| found.alloc.is_empty()) {
        return Err(format!("{slab:?} is unknown or not empty"));
    }
    turn(state, slab, SlabPhase::Ready, SlabPhase::Taking)?;
    effects.command(slab.agent, Command::SlabTake { slab });
    Ok(())
}

fn turn(state: &mut State, slab: SlabRef, from: SlabPhase, to: SlabPhase) -> Result<(), Fault> {
    let found = state
        .segments
        .get_mut(&slab.segment)
        .and_then(|segment| segment.slab_mut(slab))
        .filter(|found| found.phase == from)
        .ok_or_else(|| format!("{slab:?} is not {from:?}"))?;
    found.phase = to;
    state.sum.take(digest::of_slab(slab, &found.tenant, from));
    state.sum.add(digest::of_slab(slab, &found.tenant, to));
    Ok(())
}

pub(super) fn returned(
    state: &mut State,
    slab: SlabRef,
    effects: &mut Effects,
) -> Result<(), Fault> {
    let may_go = state
        .slab(slab)
        .is_some_and(|found| found.phase != SlabPhase::Ready && found.alloc.is_empty());
    let segment = state
        .segments
        .get_mut(&slab.segment)
        .filter(|_| may_go)
        .ok_or_else(|| format!("{slab:?} is neither being given nor being taken"))?;
    if let Some(gone) = segment.slabs.remove(&slab.index) {
        segment.free.insert(slab.index);
        state
            .sum
            .take(digest::of_slab(slab, &gone.tenant, gone.phase));
        if let Some(tenant) = state.tenants.get_mut(&gone.tenant) {
            tenant.slabs.remove(&(slab.agent, slab.segment, slab.index));
        }
    }
    effects.wake(WaitOn::Slab(slab.segment, slab.index));
    effects.wake(WaitOn::Space);
    Ok(())
}

pub(super) fn released(
    state: &mut State,
    extents: &[(Extent, Version)],
    effects: &mut Effects,
) -> Result<(), Fault> {
    for (extent, version) in extents {
        let slab = state
            .segments
            .get_mut(&extent.slab.segment)
            .and_then(|segment| segment.slab_mut(extent.slab))
            .filter(|slab| slab.releases(extent, *version))
            .ok_or_else(|| format!("{extent:?} of {version} is not being released"))?;
        free_extent(&mut slab.alloc, extent.offset_bytes, extent.length_bytes)
            .map_err(|error| format!("{extent:?}: {error}"))?;
        if let Some(gone) = slab.releasing.remove(&extent.offset_bytes) {
            state.sum.take(digest::of_releasing(
                extent.slab,
                extent.offset_bytes,
                &gone,
            ));
        }
        state.releasing_bytes = layout::reserved_bytes(extent.length_bytes)
            .and_then(|aligned| state.releasing_bytes.checked_sub(aligned))
            .ok_or_else(|| format!("{extent:?} is longer than all that is being released"))?;
    }
    effects.wake(WaitOn::Space);
    Ok(())
}
