//! Placement: which agents get the replicas of a new object.
//!
//! A survey reads what each agent could offer; ranking and choice are functions of it alone.

pub(crate) mod stripe;

use std::cmp::Reverse;

use larder_types::{AgentId, Extent, TenantId, layout};

use crate::leader::Leader;
use crate::overlay::SlabOp;
use crate::segment::{Segment, SlabKey};
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
    const fn may_be_cut(self) -> bool {
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

/// What one agent could offer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) agent: AgentId,
    pub(crate) room: Option<Room>,
    /// Holes in slabs of the tenant, in bytes.
    pub(crate) own_bytes: u64,
    /// The longest of them, in bytes.
    pub(crate) hole_bytes: u64,
    /// Slabs that belong to nobody, in bytes.
    pub(crate) unused_bytes: u64,
    /// What decides between equals, once it is drawn.
    pub(crate) lot: u64,
}

impl Candidate {
    pub(crate) fn free_bytes(&self) -> u64 {
        self.own_bytes.saturating_add(self.unused_bytes)
    }
}

/// How to rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// Best first.
    pub(crate) preferred: &'a [AgentId],
    /// The tenant holds less than a slab per agent: it stays where it has slabs, or it would take
    /// one on every agent for a few bytes.
    pub(crate) compact: bool,
}

/// The best `count` first: those with room; of them the preferred in their order, then (for a
/// small tenant) those where it has a slab already, then those that take it in one piece, then the
/// one with the most free bytes; equals by lot. The others follow in any order.
pub(crate) fn rank(
    candidates: &mut [Candidate],
    count: usize,
    wish: Wish<'_>,
    random: &mut dyn FnMut() -> u64,
) {
    for candidate in candidates.iter_mut() {
        candidate.lot = random();
    }
    let order = |candidate: &Candidate| {
        let class = candidate
            .room
            .filter(|_| wish.compact)
            .map(|room| match room {
                Room::Ready(_) => 0,
                Room::Coming(_) => 1,
                Room::Free(_) => 2,
                Room::Pieces => 3,
            });
        let mut preferred = wish.preferred.iter();
        (
            candidate.room.is_none(),
            preferred
                .position(|agent| *agent == candidate.agent)
                .unwrap_or(usize::MAX),
            class,
            matches!(candidate.room, Some(Room::Pieces)),
            Reverse(candidate.free_bytes()),
            candidate.lot,
        )
    };
    for first in 0..count.min(candidates.len()) {
        let rest = candidates.iter().enumerate().skip(first);
        if let Some((best, _)) = rest.min_by_key(|(_, candidate)| order(candidate)) {
            candidates.swap(first, best);
        }
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
    pub(crate) fn survey(
        &self,
        state: &State,
        tenant: &TenantId,
        (id, agent): (AgentId, &Agent),
        need: Need,
    ) -> Candidate {
        let owned = self.space.owned(id, tenant);
        let ready = owned.and_then(|owned| {
            owned.with_hole(need.bytes).find_map(|(segment, index)| {
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
        });
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
        Candidate {
            agent: id,
            room,
            own_bytes,
            hole_bytes,
            unused_bytes,
            lot: 0,
        }
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

#[cfg(test)]
mod tests {
    use larder_types::SegmentId;

    use super::*;

    fn candidate(agent: u32, room: Option<Room>, free: u64) -> Candidate {
        let agent = AgentId(agent);
        Candidate {
            agent,
            room,
            own_bytes: free,
            hole_bytes: free,
            unused_bytes: 0,
            lot: 0,
        }
    }

    fn order(mut candidates: Vec<Candidate>, wish: Wish<'_>) -> Vec<u32> {
        let mut lot = 0;
        let count = candidates.len();
        rank(&mut candidates, count, wish, &mut || {
            lot += 1;
            lot
        });
        candidates
            .iter()
            .map(|candidate| candidate.agent.0)
            .collect()
    }

    const FREE: Option<Room> = Some(Room::Free((SegmentId(1), 0)));
    const COMING: Option<Room> = Some(Room::Coming((SegmentId(1), 0)));

    #[test]
    fn the_freest_is_first_and_the_preferred_before_it() {
        let agents = vec![
            candidate(1, FREE, 10),
            candidate(2, COMING, 30),
            candidate(3, FREE, 20),
        ];
        let none = Wish {
            preferred: &[],
            compact: false,
        };
        assert_eq!(order(agents.clone(), none), [2, 3, 1]);
        let wish = Wish {
            preferred: &[AgentId(1)],
            compact: false,
        };
        assert_eq!(order(agents, wish), [1, 2, 3]);
    }

    #[test]
    fn several_preferred_agents_come_in_their_order() {
        let agents = vec![
            candidate(1, FREE, 10),
            candidate(2, FREE, 30),
            candidate(3, FREE, 20),
        ];
        let wish = Wish {
            preferred: &[AgentId(9), AgentId(3), AgentId(1)],
            compact: true,
        };
        assert_eq!(order(agents, wish), [3, 1, 2]);
    }

    #[test]
    fn a_preferred_agent_without_room_is_no_better() {
        let agents = vec![candidate(1, None, 90), candidate(2, FREE, 10)];
        let wish = Wish {
            preferred: &[AgentId(1)],
            compact: false,
        };
        assert_eq!(order(agents, wish), [2, 1]);
    }

    #[test]
    fn a_small_tenant_stays_where_it_is() {
        let agents = vec![candidate(1, FREE, 90), candidate(2, COMING, 10)];
        assert_eq!(
            order(
                agents,
                Wish {
                    preferred: &[],
                    compact: true
                }
            ),
            [2, 1]
        );
    }
}
