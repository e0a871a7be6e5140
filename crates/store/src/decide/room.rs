//! Where what an agent holds may lie while a pool is made again: in slabs that are known, on bytes
//! that nothing else has.
//!
//! An agent may name a place twice. Whoever is first has it; an op for the other one would be
//! corruption, so none is made.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use larder_types::{Extent, SlabRef, TenantId};

use crate::alloc::Allocator;
use crate::segment::{SlabKey, SlabPhase, reserve_extent, slab_key};
use crate::state::State;

/// Slabs and their bytes as they are after the ops that are decided together.
pub(crate) struct Room<'a> {
    state: &'a State,
    /// Slabs that the state does not have yet.
    slabs: BTreeMap<SlabKey, (SlabRef, TenantId)>,
    /// Allocators as they are after the ops so far.
    allocs: BTreeMap<SlabKey, Allocator>,
}

impl<'a> Room<'a> {
    pub(crate) const fn new(state: &'a State) -> Self {
        Self {
            state,
            slabs: BTreeMap::new(),
            allocs: BTreeMap::new(),
        }
    }

    pub(crate) fn is_new(&self, slab: SlabRef) -> bool {
        !self.slabs.contains_key(&slab_key(slab))
    }

    pub(crate) fn add(&mut self, slab: SlabRef, tenant: TenantId) {
        self.slabs.insert(slab_key(slab), (slab, tenant));
    }

    /// Whose slab this is, if it is known and has objects.
    pub(crate) fn tenant_of(&self, slab: SlabRef) -> Option<&TenantId> {
        if let Some((known, tenant)) = self.slabs.get(&slab_key(slab)) {
            return (*known == slab).then_some(tenant);
        }
        let known = self.state.slab(slab)?;
        (known.phase == SlabPhase::Ready).then_some(&known.tenant)
    }

    /// Takes the bytes, if the slab is known and nothing else has them.
    pub(crate) fn reserve(&mut self, extent: &Extent) -> bool {
        if self.tenant_of(extent.slab).is_none() {
            return false;
        }
        let alloc = match self.allocs.entry(slab_key(extent.slab)) {
            Entry::Occupied(held) => held.into_mut(),
            Entry::Vacant(none) => {
                let committed = self.state.slab(extent.slab).map(|slab| slab.alloc.clone());
                let Some(segment) = self.state.segment(extent.slab.segment) else {
                    return false;
                };
                let fresh = || Allocator::new(segment.slab_bytes);
                none.insert(committed.unwrap_or_else(fresh))
            }
        };
        reserve_extent(alloc, extent).is_ok()
    }
}
