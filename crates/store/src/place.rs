//! Placement: which agents get the replicas of a new object.
//!
//! A survey reads what an agent could offer; the choice is a function of that alone ([`choose`]).
//! In a small pool all agents are surveyed, in a larger one a sample ([`Roster`] draws it), and
//! all only when the sample does not do.

mod choose;
mod roster;
mod sample;
pub(crate) mod stripe;

pub(crate) use choose::{Site, Wish, choose, hosts};
pub(crate) use roster::Roster;
pub(crate) use sample::Wanted;

use larder_types::{AgentId, Extent, TenantId, layout};

use crate::leader::Leader;
use crate::overlay::SlabOp;
use crate::segment::{Segment, SlabKey};
use crate::soft::Contact;
use crate::space::Owned;
use crate::state::{Agent, State};

/// What a put asks of one slab.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) size_bytes: u64,
    /// Aligned.
    pub(crate) bytes: u64,
}

impl Need {
    pub(crate) fn of(size_bytes: u64) -> Option<Self> {
        Some(Self {
            size_bytes,
            bytes: layout::reserved_bytes(size_bytes)?,
        })
    }

    /// Whether one extent may hold it.
    const fn may_be_whole(self) -> bool {
        self.size_bytes <= layout::MAX_EXTENT_BYTES
    }

    /// Whether there may be two pieces of it.
    pub(crate) const fn may_be_cut(self) -> bool {
        self.size_bytes >= 2 * layout::BLOCK_BYTES
    }

    pub(crate) const fn align_bytes(self) -> u64 {
        layout::align_bytes(self.size_bytes)
    }
}

/// The best that an agent has for one replica. The order is the one of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Room {
    /// A hole in a ready slab of the tenant.
    Ready(Extent),
    /// A slab is being made for the tenant.
    Coming(SlabKey),
    /// A slab that belongs to nobody.
    Free(SlabKey),
    /// Perhaps several holes or slabs, see [`stripe`].
    Pieces,
}

/// What one agent could offer, and what speaks for or against it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) agent: AgentId,
    pub(crate) site: Site<'a>,
    pub(crate) room: Option<Room>,
    /// Holes in slabs of the tenant, in bytes.
    pub(crate) own_bytes: u64,
    /// The longest of them, in bytes.
    pub(crate) hole_bytes: u64,
    /// Slabs that belong to nobody, in bytes.
    pub(crate) unused_bytes: u64,
    /// All its segments, in bytes.
    pub(crate) capacity_bytes: u64,
    /// Reserved there for puts and copies that are under way, in bytes.
    pub(crate) in_flight_bytes: u64,
    /// It said that it has more to do than it can.
    pub(crate) overloaded: bool,
    /// The room is on a segment over its high watermark: what comes there pushes something out.
    pub(crate) crowded: bool,
    /// Its part of the lots, out of the sum of all.
    pub(crate) weight: u64,
}

impl Candidate<'_> {
    pub(crate) const fn free_bytes(&self) -> u64 {
        self.own_bytes.saturating_add(self.unused_bytes)
    }

    /// Whether a small tenant could have nothing better: room where it has a slab, on an agent that
    /// has neither too much to do nor too little room.
    pub(crate) const fn is_at_home(&self) -> bool {
        matches!(self.room, Some(Room::Ready(_))) && !self.overloaded && !self.crowded
    }
}

impl Leader {
    /// An agent's segments that are not being lost.
    pub(crate) fn segments_of<'a>(
        &'a self,
        state: &'a State,
        agent: &'a Agent,
    ) -> impl Iterator<Item = &'a Segment> {
        agent
            .segments
            .iter()
            .filter(|id| !self.overlay.segments_lost.contains(id))
            .filter_map(|id| state.segment(*id))
    }

    /// What one agent could offer to one replica.
    pub(crate) fn survey<'a>(
        &self,
        state: &State,
        tenant: &TenantId,
        (id, agent): (AgentId, &'a Agent),
        need: Need,
    ) -> Candidate<'a> {
        let owned = self.space.owned(id, tenant);
        let ready = owned.and_then(|owned| self.ready(state, owned, need));
        let coming = owned.and_then(|owned| {
            owned.coming().find(|(segment, _)| {
                state
                    .segment(*segment)
                    .is_some_and(|segment| segment.slab_bytes >= need.bytes)
            })
        });
        let (unused_bytes, free) = self.unused(state, agent, need);
        let has_room = ready.is_some() || coming.is_some();
        let may_take = has_room || self.may_take(state, tenant);
        let free = free.filter(|_| may_take);
        let own_bytes = owned.map_or(0, |owned| owned.free_bytes);
        let pieces = || {
            let coming = owned.into_iter().flat_map(Owned::coming);
            let slab_bytes = |slab: SlabKey| state.segment(slab.0).map_or(0, |s| s.slab_bytes);
            let coming_bytes: u64 = coming.map(slab_bytes).sum();
            let free_bytes = if may_take { unused_bytes } else { 0 };
            let bytes = own_bytes
                .saturating_add(coming_bytes)
                .saturating_add(free_bytes);
            (bytes >= need.bytes && need.may_be_cut()).then_some(Room::Pieces)
        };
        let room = ready
            .map(Room::Ready)
            .or(coming.map(Room::Coming))
            .or(free.map(Room::Free))
            .filter(|_| need.may_be_whole())
            .or_else(pieces);
        let hole_bytes = owned.map_or(0, |owned| owned.largest_hole_bytes());
        let (mut capacity_bytes, mut in_flight_bytes) = (0u64, 0u64);
        for segment in self.segments_of(state, agent) {
            let reserved = self.overlay.reserved_on.get(&segment.id).copied();
            in_flight_bytes = in_flight_bytes.saturating_add(reserved.unwrap_or(0));
            capacity_bytes = capacity_bytes.saturating_add(segment.capacity_bytes());
        }
        let high = self.settings.high_watermark;
        let below = |hole: Extent| self.stays_below(state, hole.slab.segment, need.bytes, high);
        let crowded = ready.is_some_and(|hole| !below(hole));
        let contact = self.soft.contacts.get(&id);
        Candidate {
            agent: id,
            site: Site::of(id, agent),
            room,
            own_bytes,
            hole_bytes,
            unused_bytes,
            capacity_bytes,
            in_flight_bytes,
            overloaded: contact.is_some_and(Contact::is_overloaded),
            crowded,
            weight: capacity_bytes,
        }
    }

    /// The tightest hole of the tenant's ready slabs there that takes a replica whole.
    fn ready(&self, state: &State, owned: &Owned, need: Need) -> Option<Extent> {
        owned.with_hole(need.bytes).find_map(|(segment, index)| {
            let alloc = self.overlay.alloc(state, (segment, index))?;
            Some(Extent {
                offset_bytes: alloc.find(need.bytes, need.align_bytes())?,
                slab: state.slab_ref(segment, index)?,
                length_bytes: need.size_bytes,
            })
        })
    }

    /// The slabs of an agent that belong to nobody, in bytes, and the first that would do.
    pub(crate) fn unused(
        &self,
        state: &State,
        agent: &Agent,
        need: Need,
    ) -> (u64, Option<SlabKey>) {
        let (mut bytes, mut first) = (0u64, None);
        let failed = &self.soft.failed;
        for segment in self
            .segments_of(state, agent)
            .filter(|s| !failed.contains_key(&s.id))
        {
            let proposed = self
                .overlay
                .slabs
                .range((segment.id, 0)..=(segment.id, u16::MAX));
            let busy = proposed.filter(|(_, op)| **op == SlabOp::Give).count();
            let free = segment.free.len().saturating_sub(busy) as u64;
            bytes = bytes.saturating_add(free.saturating_mul(segment.slab_bytes));
            if first.is_none() && segment.slab_bytes >= need.bytes {
                first = segment
                    .free
                    .iter()
                    .map(|index| (segment.id, *index))
                    .find(|key| !self.overlay.slabs.contains_key(key));
            }
        }
        (bytes, first)
    }
}
