//! Room for copies: holes on their targets.

use larder_types::{AgentId, Extent, PoolTime, SegmentId, TenantId};

use super::Why;

use crate::leader::Leader;
use crate::place::Need;
use crate::segment::{SlabKey, slab_key};
use crate::state::State;

/// What an agent has for a copy.
#[derive(Debug)]
pub(super) enum Room {
    /// These extents; they are reserved now.
    Reserved(Vec<Extent>),
    /// A slab is on its way to the tenant.
    Coming,
    /// A slab that belongs to nobody.
    Free(SlabKey),
    Nothing,
}

impl Leader {
    /// Whether new things may be placed on an agent.
    pub(crate) fn takes_new(&self, state: &State, agent: AgentId) -> bool {
        let contact = self.soft.contacts.get(&agent);
        contact.is_some_and(|c| c.is_alive()) && !state.is_draining(agent)
    }

    /// Reserves an extent of each length on an agent, or nothing. Slabs that are being emptied
    /// take no copy.
    pub(super) fn reserve_room(
        &mut self,
        state: &State,
        (tenant, agent, why): (&TenantId, AgentId, Why),
        lengths: &[u64],
        now: PoolTime,
    ) -> Room {
        let mut reserved: Vec<Extent> = Vec::new();
        for length_bytes in lengths {
            let Some(need) = Need::of(*length_bytes) else {
                return Room::Nothing;
            };
            let found = self.copy_hole(state, (tenant, agent, why), need);
            let taken = found.filter(|extent| self.overlay.reserve(state, extent).is_ok());
            let Some(extent) = taken else {
                for extent in &reserved {
                    // Reserved above, so it can be freed.
                    drop(self.freed(state, extent, now));
                }
                return self.other_room(state, (tenant, agent, why), need);
            };
            self.soft.empty.remove(&slab_key(extent.slab));
            self.holes_changed(state, slab_key(extent.slab));
            reserved.push(extent);
        }
        Room::Reserved(reserved)
    }

    /// Whether an agent has, or may have, room for one extent of a copy.
    pub(super) fn has_room(
        &self,
        state: &State,
        (tenant, agent, why): (&TenantId, AgentId, Why),
        need: Need,
    ) -> bool {
        let place = (tenant, agent, why);
        self.copy_hole(state, place, need).is_some()
            || !matches!(self.other_room(state, place, need), Room::Nothing)
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
        let adds = matches!(why, Why::Endangered | Why::Missing);
        !adds || self.has_slack(state, segment, need.bytes)
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
        let adds = matches!(why, Why::Endangered | Why::Missing);
        free.filter(|_| !adds || self.may_take(state, tenant))
            .filter(|(segment, _)| self.takes(state, *segment, why, need))
            .map_or(Room::Nothing, Room::Free)
    }
}
