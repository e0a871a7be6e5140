//! Where a tenant has room: its slabs by agent and longest hole.
//!
//! An index over what the state and the overlay say, so that a put does not look at every slab of
//! its tenant. It holds exactly the ready slabs of which nothing is proposed, and those that are
//! on their way to the tenant.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{AgentId, SegmentId, TenantId};

use crate::alloc::Allocator;
use crate::segment::{SlabKey, SlabPhase};
use crate::state::State;

/// What one tenant has on one agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    /// Holes in ready slabs, in bytes.
    pub(crate) free_bytes: u64,
    /// Ready slabs by the length of their longest hole, in bytes.
    by_hole: BTreeSet<(u64, SlabKey)>,
    /// Slabs that are being made.
    coming: BTreeSet<SlabKey>,
}

impl Owned {
    /// Ready slabs whose longest hole has at least `bytes`, the tightest first: those with more
    /// room may become empty and go back.
    pub(crate) fn with_hole(&self, bytes: u64) -> impl Iterator<Item = SlabKey> + '_ {
        self.by_hole
            .range((bytes, (SegmentId(0), 0))..)
            .map(|(_, slab)| *slab)
    }

    /// Ready slabs, the one with the longest hole first.
    pub(crate) fn with_most_room(&self) -> impl Iterator<Item = SlabKey> + '_ {
        self.by_hole.iter().rev().map(|(_, slab)| *slab)
    }

    /// The longest hole, in bytes.
    pub(crate) fn largest_hole_bytes(&self) -> u64 {
        self.by_hole.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// Slabs that are being made.
    pub(crate) fn coming(&self) -> impl Iterator<Item = SlabKey> + '_ {
        self.coming.iter().copied()
    }

    fn is_unused(&self) -> bool {
        self.by_hole.is_empty() && self.coming.is_empty()
    }
}

/// What is indexed of one slab.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    agent: AgentId,
    tenant: TenantId,
    room: Room,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Coming,
    Ready { hole_bytes: u64, free_bytes: u64 },
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Space {
    owned: BTreeMap<AgentId, BTreeMap<TenantId, Owned>>,
    slabs: BTreeMap<SlabKey, Entry>,
    /// The agents on which each tenant has any.
    homes: BTreeMap<TenantId, BTreeSet<AgentId>>,
    /// How many of them each tenant has.
    held: BTreeMap<TenantId, u32>,
    /// Tenants of which that number changed since somebody asked.
    pub(crate) recounted: Noted,
}

/// Tenants that are to be looked at. No part of the index that it is noted beside: all are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted(pub(crate) BTreeSet<TenantId>);

impl PartialEq for Noted {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Noted {}

impl Space {
    /// The index of a state on which nothing is reserved or proposed.
    pub(crate) fn new(state: &State) -> Self {
        let mut space = Self::default();
        for segment in state.segments() {
            for (index, slab) in &segment.slabs {
                let key = (segment.id, *index);
                match slab.phase {
                    SlabPhase::Giving => space.comes(key, segment.agent, &slab.tenant),
                    SlabPhase::Ready => {
                        space.changes(key, segment.agent, &slab.tenant, &slab.alloc);
                    }
                    SlabPhase::Taking => {}
                }
            }
        }
        space
    }

    /// What a tenant has on an agent, if anything.
    pub(crate) fn owned(&self, agent: AgentId, tenant: &TenantId) -> Option<&Owned> {
        self.owned.get(&agent)?.get(tenant)
    }

    /// The agents on which a tenant has slabs, from one on and around.
    pub(crate) fn homes_from(
        &self,
        tenant: &TenantId,
        from: AgentId,
    ) -> impl Iterator<Item = AgentId> + '_ {
        let homes = self.homes.get(tenant);
        let behind = homes.into_iter().flat_map(move |homes| homes.range(from..));
        let before = homes.into_iter().flat_map(move |homes| homes.range(..from));
        behind.chain(before).copied()
    }

    /// What each tenant has on each agent, from a pair of them on.
    pub(crate) fn pairs_from<'a>(
        &'a self,
        from: Option<&'a (AgentId, TenantId)>,
    ) -> impl Iterator<Item = (AgentId, &'a TenantId, &'a Owned)> {
        let first = from.map_or(AgentId(0), |(agent, _)| *agent);
        let pairs = self.owned.range(first..).flat_map(|(agent, tenants)| {
            let tenants = tenants.iter();
            tenants.map(move |(tenant, owned)| (*agent, tenant, owned))
        });
        let before = move |agent: AgentId, tenant: &TenantId| {
            from.is_some_and(|(a, t)| agent == *a && tenant < t)
        };
        pairs.skip_while(move |(agent, tenant, _)| before(*agent, tenant))
    }

    /// How many slabs a tenant has, those on their way to it included.
    pub(crate) fn held(&self, tenant: &TenantId) -> u32 {
        self.held.get(tenant).copied().unwrap_or(0)
    }

    /// A slab is on its way to a tenant.
    pub(crate) fn comes(&mut self, slab: SlabKey, agent: AgentId, tenant: &TenantId) {
        self.put(
            slab,
            Entry {
                agent,
                tenant: tenant.clone(),
                room: Room::Coming,
            },
        );
    }

    /// A slab is ready, or its holes changed.
    pub(crate) fn changes(
        &mut self,
        slab: SlabKey,
        agent: AgentId,
        tenant: &TenantId,
        alloc: &Allocator,
    ) {
        let (hole_bytes, free_bytes) = (alloc.largest_hole_bytes(), alloc.free_bytes());
        if self.rerates(slab, tenant, (hole_bytes, free_bytes)) {
            return;
        }
        let room = Room::Ready {
            hole_bytes,
            free_bytes,
        };
        self.put(
            slab,
            Entry {
                agent,
                tenant: tenant.clone(),
                room,
            },
        );
    }

    /// Notes other holes of a slab that is known as this tenant's and ready; whether it is.
    fn rerates(
        &mut self,
        slab: SlabKey,
        tenant: &TenantId,
        (hole_bytes, free_bytes): (u64, u64),
    ) -> bool {
        let Some(entry) = self.slabs.get_mut(&slab).filter(|e| e.tenant == *tenant) else {
            return false;
        };
        let Room::Ready {
            hole_bytes: old_hole_bytes,
            free_bytes: old_free_bytes,
        } = entry.room
        else {
            return false;
        };
        let tenants = self.owned.get_mut(&entry.agent);
        let Some(owned) = tenants.and_then(|tenants| tenants.get_mut(tenant)) else {
            return false;
        };
        if hole_bytes != old_hole_bytes {
            owned.by_hole.remove(&(old_hole_bytes, slab));
            owned.by_hole.insert((hole_bytes, slab));
        }
        owned.free_bytes = owned
            .free_bytes
            .saturating_sub(old_free_bytes)
            .saturating_add(free_bytes);
        entry.room = Room::Ready {
            hole_bytes,
            free_bytes,
        };
        true
    }

    /// A slab leaves its tenant.
    pub(crate) fn goes(&mut self, slab: SlabKey) {
        if let Some(tenant) = self.unlink(slab) {
            self.count_down(tenant);
        }
    }

    fn count_down(&mut self, tenant: TenantId) {
        if let Some(held) = self.held.get_mut(&tenant) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&tenant);
            }
        }
        self.recounted.0.insert(tenant);
    }

    /// Takes a slab out of the index; whose it was.
    fn unlink(&mut self, slab: SlabKey) -> Option<TenantId> {
        let Entry {
            agent,
            tenant,
            room,
        } = self.slabs.remove(&slab)?;
        let tenants = self.owned.get_mut(&agent)?;
        if let Some(owned) = tenants.get_mut(&tenant) {
            match room {
                Room::Coming => {
                    owned.coming.remove(&slab);
                }
                Room::Ready {
                    hole_bytes,
                    free_bytes,
                } => {
                    owned.by_hole.remove(&(hole_bytes, slab));
                    owned.free_bytes = owned.free_bytes.saturating_sub(free_bytes);
                }
            }
            if owned.is_unused() {
                tenants.remove(&tenant);
                if let Some(homes) = self.homes.get_mut(&tenant) {
                    homes.remove(&agent);
                    if homes.is_empty() {
                        self.homes.remove(&tenant);
                    }
                }
            }
        }
        if tenants.is_empty() {
            self.owned.remove(&agent);
        }
        Some(tenant)
    }

    /// All slabs of a segment leave.
    pub(crate) fn loses(&mut self, segment: SegmentId) {
        let slabs = self.slabs.range((segment, 0)..=(segment, u16::MAX));
        let slabs: Vec<SlabKey> = slabs.map(|(slab, _)| *slab).collect();
        slabs.into_iter().for_each(|slab| self.goes(slab));
    }

    /// Whether it is `counted` but for slabs that are `proposed` to be given.
    pub(crate) fn equals(&self, counted: &Self, proposed: &BTreeSet<SlabKey>) -> bool {
        let mut without = self.clone();
        for slab in proposed {
            without.goes(*slab);
        }
        without == *counted
    }

    fn put(&mut self, slab: SlabKey, entry: Entry) {
        let before = self.unlink(slab);
        let tenants = self.owned.entry(entry.agent).or_default();
        let owned = tenants.entry(entry.tenant.clone()).or_insert_with(|| {
            let homes = self.homes.entry(entry.tenant.clone()).or_default();
            homes.insert(entry.agent);
            Owned::default()
        });
        match entry.room {
            Room::Coming => {
                owned.coming.insert(slab);
            }
            Room::Ready {
                hole_bytes,
                free_bytes,
            } => {
                owned.by_hole.insert((hole_bytes, slab));
                owned.free_bytes = owned.free_bytes.saturating_add(free_bytes);
            }
        }
        // Most changes are of holes: the slab stays with its tenant.
        if before.as_ref() != Some(&entry.tenant) {
            if let Some(before) = before {
                self.count_down(before);
            }
            *self.held.entry(entry.tenant.clone()).or_insert(0) += 1;
            self.recounted.0.insert(entry.tenant.clone());
        }
        self.slabs.insert(slab, entry);
    }
}
