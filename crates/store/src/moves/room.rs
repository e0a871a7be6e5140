//! Room for copies: holes on their targets.

use std::collections::BTreeSet;

use larder_types::{AgentId, Extent, PoolTime, SegmentId, TenantId};

use super::Why;

use crate::leader::Leader;
use crate::place::Need;
use crate::place::stripe::{Load, Stripes};
use crate::segment::{SlabKey, slab_key};
use crate::state::State;

/// What an agent has for a copy.
#[derive(Debug)]
pub(super) enum Room {
    /// These extents; they are reserved now.
    Reserved(Vec<Extent>),
    /// A slab is on its way to the tenant.
    Coming,
    /// Slabs that belong to nobody.
    Free(Vec<SlabKey>),
    Nothing,
}

impl Leader {
    /// Whether new things may be placed on an agent.
    pub(crate) fn takes_new(&self, state: &State, agent: AgentId) -> bool {
        let contact = self.soft.contacts.get(&agent);
        contact.is_some_and(|c| c.is_alive()) && !state.is_draining(agent)
    }

    /// Reserves room for a replica on an agent, in one piece if there is a hole, or nothing. Slabs
    /// that are being emptied take no copy.
    pub(super) fn reserve_room(
        &mut self,
        state: &State,
        place: (&TenantId, AgentId, Why),
        (size_bytes, extents_max): (u64, usize),
        now: PoolTime,
    ) -> Room {
        let Some(need) = Need::of(size_bytes) else {
            return Room::Nothing;
        };
        if let Some(extent) = self.copy_hole(state, place, need) {
            return self.reserve_all(state, vec![extent], now);
        }
        match self.other_room(state, place, need) {
            Room::Nothing => {}
            room => return room,
        }
        let (tenant, agent, why) = place;
        let load = Load {
            tenant,
            agent,
            size_bytes,
            extents_max,
        };
        let may_use = |slab: SlabKey| {
            !self.moves.sparse.contains(&slab) && self.takes(state, slab.0, why, need)
        };
        // A move takes no more than it gives back.
        let may_give = |slabs| !why.adds() || self.may_take_slabs(state, tenant, slabs);
        match self.stripes(state, load, &may_use, &may_give) {
            Stripes::Ready(extents) => self.reserve_all(state, extents, now),
            Stripes::Coming { give, .. } if give.is_empty() => Room::Coming,
            Stripes::Coming { give, .. } => {
                let takes = |slab: &SlabKey| self.takes(state, slab.0, why, need);
                if give.iter().all(takes) {
                    Room::Free(give)
                } else {
                    Room::Nothing
                }
            }
            Stripes::Short { .. } => Room::Nothing,
        }
    }

    fn reserve_all(&mut self, state: &State, extents: Vec<Extent>, now: PoolTime) -> Room {
        for (at, extent) in extents.iter().enumerate() {
            if self.overlay.reserve(state, extent).is_err() {
                for extent in &extents[..at] {
                    // Reserved above, so it can be freed.
                    drop(self.freed(state, extent, now));
                }
                return Room::Nothing;
            }
            self.soft.empty.remove(&slab_key(extent.slab));
        }
        let slabs: BTreeSet<SlabKey> = extents.iter().map(|e| slab_key(e.slab)).collect();
        for slab in slabs {
            self.holes_changed(state, slab);
        }
        Room::Reserved(extents)
    }

    /// Whether an agent has, or may have, room for a copy.
    pub(super) fn has_room(
        &self,
        state: &State,
        (tenant, agent, why): (&TenantId, AgentId, Why),
        need: Need,
    ) -> bool {
        let place = (tenant, agent, why);
        self.copy_hole(state, place, need).is_some()
            || !matches!(self.other_room(state, place, need), Room::Nothing)
            || self.may_have_pieces(state, place, need)
    }

    /// Whether an agent has as many free bytes as a copy that may be cut needs: the pieces are
    /// looked for only where it is tried.
    fn may_have_pieces(
        &self,
        state: &State,
        (tenant, agent, why): (&TenantId, AgentId, Why),
        need: Need,
    ) -> bool {
        let own = self.space.owned(agent, tenant).map_or(0, |o| o.free_bytes);
        let unused = || {
            let known = state.agent(agent);
            let may_give = !why.adds() || self.may_take(state, tenant);
            let known = known.filter(|_| may_give);
            known.map_or(0, |known| self.unused(state, known, need).0)
        };
        need.may_be_cut() && own.saturating_add(unused()) >= need.bytes
    }

    fn copy_hole(
        &self,
        state: &State,
        (tenant, agent, why): (&TenantId, AgentId, Why),
        need: Need,
    ) -> Option<Extent> {
        let owned = self.space.owned(agent, tenant)?;
        let slabs = owned.with_hole(need.bytes);
        slabs
            .filter(|slab| !self.moves.sparse.contains(slab))
            .filter(|(segment, _)| self.takes(state, *segment, why, need))
            .find_map(|(segment, index)| {
                let alloc = self.overlay.alloc(state, (segment, index))?;
                let offset_bytes = alloc.find(need.bytes, need.align_bytes())?;
                let slab = state.slab_ref(segment, index)?;
                let length_bytes = need.size_bytes;
                Some(Extent {
                    slab,
                    offset_bytes,
                    length_bytes,
                })
            })
    }

    /// Whether a segment takes a copy for this reason. What makes up for something lost leaves
    /// the rest of the pool alone.
    fn takes(&self, state: &State, segment: SegmentId, why: Why, need: Need) -> bool {
        !why.adds() || self.has_slack(state, segment, need.bytes)
    }

    fn other_room(
        &self,
        state: &State,
        (tenant, agent, why): (&TenantId, AgentId, Why),
        need: Need,
    ) -> Room {
        let fits = |(segment, _): &SlabKey| {
            let found = state.segment(*segment);
            found.is_some_and(|segment| segment.slab_bytes >= need.bytes)
        };
        let owned = self.space.owned(agent, tenant);
        if owned.is_some_and(|owned| owned.coming().any(|slab| fits(&slab))) {
            return Room::Coming;
        }
        let free = state
            .agent(agent)
            .and_then(|known| self.unused(state, known, need).1);
        // A move takes no more than it gives back.
        free.filter(|_| !why.adds() || self.may_take(state, tenant))
            .filter(|(segment, _)| self.takes(state, *segment, why, need))
            .map_or(Room::Nothing, |slab| Room::Free(vec![slab]))
    }
}
