//! Room for a put that found none: a hole among what its tenant has, or a slab of another tenant.
//!
//! A slab belongs to one tenant, so evicting here and there helps only the tenant itself. For
//! another one a whole slab has to become empty; it is closed to its owner meanwhile.

use std::collections::BTreeSet;

use larder_types::{AgentId, PoolTime, SegmentId, TenantId};

use super::cache::Class;
use super::expel::{Aim, Budget};
use super::guard::{Guard, Kept};
use super::signals::EvictionCause;
use crate::alloc::Allocator;
use crate::leader::Leader;
use crate::objects::ObjectId;
use crate::op::Op;
use crate::place::Need;
use crate::segment::{SlabKey, SlabPhase, free_extent};
use crate::state::State;

/// How many of the coldest objects are tried as the middle of a hole.
const MAX_TRIES: usize = 8;
/// The most objects of a slab that one put looks at.
const MAX_NEIGHBOURS: usize = 4096;
/// After this long a slab that was closed to become empty, and has not, is open again.
const CLOSED_MS: u64 = 10_000;

/// What an eviction for a put came to.
#[derive(Debug)]
pub(crate) enum Relief {
    /// These ops make room once their extents are released.
    Coming(Vec<Op>),
    /// There is none to be had: what was looked at stays, for people.
    None(String),
}

/// Where a put may go, and what may be done for it.
#[derive(Clone, Copy)]
struct Search<'a> {
    tenant: &'a TenantId,
    need: Need,
    segments: &'a [SegmentId],
    spares_soft_pins: bool,
    now: PoolTime,
}

/// A slab to look at, and whose it is.
#[derive(Clone, Copy)]
struct Spot<'a> {
    tenant: &'a TenantId,
    slab: SlabKey,
    offset_bytes: u64,
    terms: (bool, u64),
}

impl Leader {
    /// Makes room for one replica on one of these agents. Those lose who hold most beyond what is
    /// guaranteed to them. The tenant that asks is one of them; of two that hold about the same it
    /// is the one, as its own holes help at once.
    pub(crate) fn make_room(
        &mut self,
        state: &State,
        tenant: &TenantId,
        need: Need,
        agents: &[AgentId],
        now: PoolTime,
    ) -> Relief {
        if !self.settings.evict {
            return Relief::None("this pool evicts nothing".to_owned());
        }
        let fitting: Vec<(SegmentId, u64)> = agents
            .iter()
            .filter_map(|id| state.agent(*id))
            .flat_map(|agent| self.segments_of(state, agent))
            .filter(|segment| segment.slab_bytes >= need.bytes)
            .map(|segment| (segment.id, segment.slab_bytes))
            .collect();
        let segments: Vec<SegmentId> = fitting.iter().map(|(id, _)| *id).collect();
        if self
            .soft
            .closed
            .keys()
            .any(|slab| segments.contains(&slab.0))
        {
            return Relief::Coming(Vec::new());
        }
        let slab_bytes = fitting.iter().map(|(_, bytes)| *bytes).max();
        let own = self.excess_bytes(state, tenant).saturating_add(need.bytes);
        let margin = own.saturating_add(slab_bytes.unwrap_or(0));
        let mut budget = Budget::new(self.settings.max_touched_objects);
        let soft_pins: &[bool] = if self.settings.evict_soft_pinned {
            &[true, false]
        } else {
            &[true]
        };
        for spares_soft_pins in soft_pins {
            // What stays is counted once: the last pass sees all of it.
            budget.kept = Kept::default();
            let search = Search {
                tenant,
                need,
                segments: &segments,
                spares_soft_pins: *spares_soft_pins,
                now,
            };
            // Others that hold much more, then its own, then others that hold more at all.
            if self.empties_a_slab(state, search, margin, &mut budget)
                || self.makes_a_hole(state, search, &mut budget)
                || self.empties_a_slab(state, search, own, &mut budget)
            {
                return Relief::Coming(budget.ops);
            }
        }
        Relief::None(budget.kept.detail())
    }

    /// Evicts neighbours of the tenant's coldest until a hole is long enough; whether one will be.
    fn makes_a_hole(&mut self, state: &State, search: Search<'_>, budget: &mut Budget) -> bool {
        let Search {
            tenant, need, now, ..
        } = search;
        let mut places: Vec<(u64, SegmentId)> = search
            .segments
            .iter()
            .map(|segment| (self.evict.held_on(tenant, *segment), *segment))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        let terms = (search.spares_soft_pins, u64::MAX);
        let mut tried = BTreeSet::new();
        for class in [Class::Surplus, Class::Last] {
            for (_, segment) in &places {
                while let Some(spot) = self.next_spot(
                    state,
                    (tenant, *segment, class),
                    terms,
                    &mut tried,
                    budget,
                    now,
                ) {
                    let Some(chosen) = self.hole(state, spot, need, budget, now) else {
                        continue;
                    };
                    self.expel_all(state, tenant, *segment, &chosen, budget, now);
                    return true;
                }
            }
        }
        false
    }

    /// Empties a slab of another tenant that holds more than `above_bytes` beyond what is
    /// guaranteed to it; whether there is one.
    fn empties_a_slab(
        &mut self,
        state: &State,
        search: Search<'_>,
        above_bytes: u64,
        budget: &mut Budget,
    ) -> bool {
        let now = search.now;
        let mut tried = BTreeSet::new();
        for class in [Class::Surplus, Class::Last] {
            for segment in search.segments {
                let mut spared = BTreeSet::from([search.tenant.clone()]);
                while let Some((loser, excess)) = self.loser(state, *segment, class, &spared)
                    && excess > above_bytes
                {
                    let terms = (search.spares_soft_pins, excess);
                    let place = (&loser, *segment, class);
                    while let Some(spot) =
                        self.next_spot(state, place, terms, &mut tried, budget, now)
                    {
                        let Some(chosen) = self.whole_slab(state, spot, budget, now) else {
                            continue;
                        };
                        let until = now.plus_ms(CLOSED_MS);
                        self.soft.closed.insert(spot.slab, until);
                        self.space.goes(spot.slab);
                        self.expel_all(state, &loser, *segment, &chosen, budget, now);
                        return true;
                    }
                    spared.insert(loser);
                }
            }
        }
        false
    }

    /// Where the coldest object lies that was not tried yet.
    fn next_spot<'a>(
        &mut self,
        state: &State,
        (tenant, segment, class): (&'a TenantId, SegmentId, Class),
        terms: (bool, u64),
        tried: &mut BTreeSet<ObjectId>,
        budget: &mut Budget,
        now: PoolTime,
    ) -> Option<Spot<'a>> {
        if tried.len() >= MAX_TRIES || budget.is_spent() {
            return None;
        }
        let aim = Aim {
            tenant,
            segment,
            class,
            want_bytes: 0,
            most_bytes: terms.1,
            cause: EvictionCause::NoRoom,
            spares_soft_pins: terms.0,
        };
        let id = self.next_victim(state, aim, tried, budget, now)?;
        tried.insert(id);
        let (_, object) = state.tenant(tenant)?.objects.by_id(id)?;
        let extent = object
            .extents()
            .find(|extent| extent.slab.segment == segment)?;
        Some(Spot {
            tenant,
            slab: crate::segment::slab_key(extent.slab),
            offset_bytes: extent.offset_bytes,
            terms,
        })
    }

    /// What has to go for a hole of that length in this slab, from the coldest on.
    fn hole(
        &self,
        state: &State,
        spot: Spot<'_>,
        need: Need,
        budget: &mut Budget,
        now: PoolTime,
    ) -> Option<Vec<ObjectId>> {
        let mut trial = self.without_releasing(state, spot.slab)?;
        let (_, slab) = state.slab_at(spot.slab.0, spot.slab.1)?;
        let before = slab
            .objects_from(0)
            .take_while(|(at, _)| *at < spot.offset_bytes);
        let neighbours = slab.objects_from(spot.offset_bytes).chain(before);
        let mut guard = Guard::of(self, state, spot.tenant, spot.terms, now)?;
        let mut gone: Vec<(u64, u64, ObjectId)> = Vec::new();
        let mut found = None;
        for (offset, id) in neighbours.take(MAX_NEIGHBOURS) {
            let Some(bytes) = self.lets_go(state, spot, (offset, id), &mut guard) else {
                continue;
            };
            trial.free(offset, bytes).ok()?;
            gone.push((offset, bytes, id));
            found = trial.find(need.bytes, need.align_bytes());
            if found.is_some() {
                break;
            }
        }
        budget.kept.add(guard.kept);
        let start = found?;
        let end = start.saturating_add(need.bytes);
        gone.retain(|(offset, bytes, _)| *offset < end && start < offset + bytes);
        Some(gone.into_iter().map(|(_, _, id)| id).collect())
    }

    /// Everything in this slab, if all of it may go: the first of it, where it is much.
    fn whole_slab(
        &self,
        state: &State,
        spot: Spot<'_>,
        budget: &mut Budget,
        now: PoolTime,
    ) -> Option<Vec<ObjectId>> {
        let mut trial = self.without_releasing(state, spot.slab)?;
        let (_, slab) = state.slab_at(spot.slab.0, spot.slab.1)?;
        let mut guard = Guard::of(self, state, spot.tenant, spot.terms, now)?;
        let mut gone = Vec::new();
        let mut all = true;
        for (offset, id) in slab.objects_from(0).take(MAX_NEIGHBOURS) {
            match self.lets_go(state, spot, (offset, id), &mut guard) {
                Some(bytes) => trial.free(offset, bytes).ok()?,
                None => all = false,
            }
            gone.push(id);
        }
        budget.kept.add(guard.kept);
        let is_all = slab.extent_count() <= MAX_NEIGHBOURS;
        // Pending puts have a part of it otherwise, or it would cost its owner too much.
        let fits = (slab.alloc.size_bytes() - slab.alloc.free_bytes()) <= spot.terms.1;
        (all && fits && (trial.is_empty() || !is_all)).then_some(gone)
    }

    /// Whether an object may go for its extent at this place, and how long that is.
    fn lets_go(
        &self,
        state: &State,
        spot: Spot<'_>,
        (offset, id): (u64, ObjectId),
        guard: &mut Guard<'_>,
    ) -> Option<u64> {
        let (_, object) = state.tenant(spot.tenant)?.objects.by_id(id)?;
        let members = self.evict.caches.get(spot.tenant)?.companions(id);
        if !guard.may(id, Class::of(object), members) {
            return None;
        }
        let mut extents = object.extents();
        let extent = extents.find(|extent| {
            crate::segment::slab_key(extent.slab) == spot.slab && extent.offset_bytes == offset
        })?;
        Some(super::cache::bytes_of(&extent))
    }

    /// The allocator of a slab once everything that is being released has come back.
    fn without_releasing(&self, state: &State, slab: SlabKey) -> Option<Allocator> {
        let (_, found) = state.slab_at(slab.0, slab.1)?;
        let busy = self.overlay.slabs.contains_key(&slab) || self.soft.closed.contains_key(&slab);
        if found.phase != SlabPhase::Ready || busy {
            return None;
        }
        let mut alloc = self.overlay.alloc(state, slab)?.clone();
        for (offset, releasing) in &found.releasing {
            free_extent(&mut alloc, *offset, releasing.length_bytes).ok()?;
        }
        Some(alloc)
    }

    /// Has objects go, with their groups; of those with other replicas only the one here.
    fn expel_all(
        &mut self,
        state: &State,
        tenant: &TenantId,
        segment: SegmentId,
        chosen: &[ObjectId],
        budget: &mut Budget,
        now: PoolTime,
    ) {
        for id in chosen {
            let cache = self.evict.caches.get(tenant);
            // It may have gone with its group, or lie here twice.
            if cache.is_some_and(|cache| cache.is_in(*id)) {
                let cause = EvictionCause::NoRoom;
                self.expel_unit(state, (tenant, *id), segment, cause, budget, now);
            }
        }
    }

    /// Goes on with slabs that are being emptied, and opens those again that were not in time.
    pub(crate) fn closed_slabs(&mut self, state: &State, budget: &mut Budget, now: PoolTime) {
        for (slab, until) in self.soft.closed.clone() {
            if until <= now {
                self.soft.closed.remove(&slab);
                self.holes_changed(state, slab);
                self.effects.wake(crate::reply::WaitOn::Space);
                continue;
            }
            let Some((_, found)) = state.slab_at(slab.0, slab.1) else {
                continue;
            };
            let tenant = found.tenant.clone();
            let terms = (
                !self.settings.evict_soft_pinned,
                self.excess_bytes(state, &tenant),
            );
            let Some(mut guard) = Guard::of(self, state, &tenant, terms, now) else {
                continue;
            };
            let spot = Spot {
                tenant: &tenant,
                slab,
                offset_bytes: 0,
                terms,
            };
            let left = found.objects_from(0).take(MAX_NEIGHBOURS);
            let left: Vec<ObjectId> = left
                .filter(|place| self.lets_go(state, spot, *place, &mut guard).is_some())
                .map(|(_, id)| id)
                .collect();
            self.expel_all(state, &tenant, slab.0, &left, budget, now);
        }
    }
}
