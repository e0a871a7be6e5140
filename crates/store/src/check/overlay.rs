//! The check of what a leader keeps beside the state.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{Extent, SessionId, Version};

use super::Finding;
use crate::alloc::Allocator;
use crate::leader::Leader;
use crate::moves::Phase;
use crate::overlay::SlabOp;
use crate::quota::{Charge, charge_of};
use crate::segment::{SlabKey, SlabPhase, reserve_extent, slab_key};
use crate::space::Space;
use crate::state::State;

impl Leader {
    /// Counts what the leader keeps beside the state and compares. Reads the whole overlay. While
    /// a pool is made again nothing is kept: it is all made when that ends.
    #[must_use]
    pub fn check(&self, state: &State) -> Vec<Finding> {
        let mut found = Vec::new();
        if self.rebuild.is_some() {
            return found;
        }
        self.check_books(&mut found);
        self.check_quotas(state, &mut found);
        self.check_allocators(state, &mut found);
        self.check_slabs(state, &mut found);
        self.check_space(state, &mut found);
        self.check_eviction(state, &mut found);
        self.check_copies(&mut found);
        found
    }

    /// Reservations and the indexes of pending puts.
    fn check_books(&self, found: &mut Vec<Finding>) {
        let mut by_version = BTreeMap::new();
        let mut by_session: BTreeSet<(SessionId, Version)> = BTreeSet::new();
        for (id, tenant) in &self.overlay.tenants {
            let mut reserved = Charge::default();
            let mut pinning_bytes: u64 = tenant.pins.values().sum();
            for (key, put) in &tenant.puts {
                reserved.bytes += charge_of(&put.replicas).unwrap_or(u64::MAX);
                reserved.objects += 1;
                pinning_bytes = pinning_bytes.saturating_add(put.pinned_bytes);
                by_version.insert(put.version, (id.clone(), key.clone()));
                by_session.insert((put.session, put.version));
            }
            if reserved != tenant.reserved {
                let detail = format!("{id}: kept {:?}, counted {reserved:?}", tenant.reserved);
                found.push(Finding {
                    rule: "reservations",
                    detail,
                });
            }
            if pinning_bytes != tenant.pinning_bytes {
                let kept = tenant.pinning_bytes;
                let detail = format!("{id}: kept {kept}, counted {pinning_bytes}");
                found.push(Finding {
                    rule: "bytes being pinned",
                    detail,
                });
            }
        }
        if by_version != self.overlay.by_version || by_session != self.overlay.by_session {
            let detail = format!("{} of {}", self.overlay.by_version.len(), by_version.len());
            found.push(Finding {
                rule: "pending puts are found",
                detail,
            });
        }
    }

    /// The indexes and charges of copies that are under way.
    fn check_copies(&self, found: &mut Vec<Finding>) {
        let copies = &self.overlay.copies;
        let mut by_key = BTreeMap::new();
        let mut reserved = BTreeMap::new();
        for (id, copy) in &copies.by_id {
            by_key.insert((copy.tenant.clone(), copy.key.clone()), *id);
            if copy.charge_bytes() > 0 {
                *reserved.entry(copy.tenant.clone()).or_insert(0) += copy.charge_bytes();
            }
        }
        let one_each = by_key.len() == copies.by_id.len();
        if by_key != copies.by_key || reserved != copies.reserved || !one_each {
            let detail = format!("{copies:?}");
            found.push(Finding {
                rule: "copies are found and charged",
                detail,
            });
        }
    }

    /// Each copied allocator is the committed one and the extents of pending and discarded puts.
    fn check_allocators(&self, state: &State, found: &mut Vec<Finding>) {
        let mut counted: BTreeMap<SlabKey, Allocator> = self
            .overlay
            .allocs
            .keys()
            .filter_map(|key| Some((*key, state.slab_at(key.0, key.1)?.1.alloc.clone())))
            .collect();
        let pending = self
            .overlay
            .tenants
            .values()
            .flat_map(|tenant| tenant.puts.values());
        let pending = pending.flat_map(|put| put.replicas.iter().flatten());
        let discarded = self.overlay.discarded.values().flat_map(|d| &d.extents);
        let copies = self.overlay.copies.extents();
        // On a segment that is being lost nothing is freed any more, only forgotten.
        let lost = &self.overlay.segments_lost;
        let alive = |extent: &&Extent| !lost.contains(&extent.slab.segment);
        for extent in pending.chain(discarded).chain(copies).filter(alive) {
            let reserved = counted
                .get_mut(&slab_key(extent.slab))
                .ok_or_else(|| "in no copied slab".to_owned())
                .and_then(|alloc| reserve_extent(alloc, extent).map_err(|e| e.to_string()));
            if let Err(error) = reserved {
                let detail = format!("{extent:?}: {error}");
                found.push(Finding {
                    rule: "reservations do not overlap",
                    detail,
                });
            }
        }
        for (slab, alloc) in self
            .overlay
            .allocs
            .iter()
            .filter(|(slab, _)| !lost.contains(&slab.0))
        {
            if counted.get(slab) != Some(alloc) || !alloc.is_sound() {
                let detail = format!("slab {slab:?}");
                found.push(Finding {
                    rule: "copied allocators",
                    detail,
                });
            }
        }
    }

    /// Exactly the ready slabs without a reservation are known as empty.
    fn check_slabs(&self, state: &State, found: &mut Vec<Finding>) {
        let mut empty = BTreeSet::new();
        let mut taking = BTreeSet::new();
        for segment in state.segments() {
            for (index, slab) in &segment.slabs {
                let key = (segment.id, *index);
                let nothing = self
                    .overlay
                    .alloc(state, key)
                    .is_some_and(|alloc| alloc.is_empty());
                let leaves = self.soft.taking.contains(&key);
                if slab.phase == SlabPhase::Taking || leaves {
                    taking.insert(key);
                } else if slab.phase == SlabPhase::Ready && nothing {
                    empty.insert(key);
                }
            }
        }
        if !empty.iter().eq(self.soft.empty.keys()) {
            let detail = format!("kept {:?}, counted {empty:?}", self.soft.empty.keys());
            found.push(Finding {
                rule: "empty slabs",
                detail,
            });
        }
        if taking != self.soft.taking {
            let detail = format!("kept {:?}, counted {taking:?}", self.soft.taking);
            found.push(Finding {
                rule: "slabs that are being taken",
                detail,
            });
        }
        let settled = self.overlay.in_flight > 0
            || (self.overlay.slabs.is_empty()
                && self.overlay.agents.is_empty()
                && self.overlay.names.is_empty()
                && self.overlay.segments_lost.is_empty()
                && self.overlay.sweeping.is_empty()
                && self.overlay.released.is_empty()
                && self.overlay.tasks_created == 0
                && (self.overlay.copies.by_id.values()).all(|copy| copy.phase != Phase::Ending)
                && self
                    .overlay
                    .tenants
                    .values()
                    .all(|t| t.touched.is_empty() && t.pins.is_empty() && t.op.is_none()));
        if !settled {
            let detail = format!("{:?}", self.overlay);
            found.push(Finding {
                rule: "nothing is touched when nothing is in flight",
                detail,
            });
        }
    }

    /// The index of space is what it would be if it were made now.
    fn check_space(&self, state: &State, found: &mut Vec<Finding>) {
        let mut space = Space::default();
        for (key, slab, agent) in state.segments().flat_map(|segment| {
            let slabs = segment.slabs.iter();
            slabs.map(move |(index, slab)| ((segment.id, *index), slab, segment.agent))
        }) {
            if self.overlay.segments_lost.contains(&key.0) {
                continue;
            }
            match (slab.phase, self.overlay.slabs.get(&key)) {
                (SlabPhase::Giving, None | Some(SlabOp::Ready)) => {
                    space.comes(key, agent, &slab.tenant);
                }
                (SlabPhase::Ready, None) if !self.soft.closed.contains_key(&key) => {
                    let alloc = self.overlay.alloc(state, key).unwrap_or(&slab.alloc);
                    space.changes(key, agent, &slab.tenant, alloc);
                }
                _ => {}
            }
        }
        // What is proposed to be given is not in the state yet.
        let proposed = self
            .overlay
            .slabs
            .iter()
            .filter(|(_, op)| **op == SlabOp::Give);
        let proposed: BTreeSet<SlabKey> = proposed.map(|(key, _)| *key).collect();
        if !self.space.equals(&space, &proposed) {
            let detail = format!("kept {:?}, counted {space:?}", self.space);
            found.push(Finding {
                rule: "index of space",
                detail,
            });
        }
    }
}
