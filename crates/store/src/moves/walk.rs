//! The walks over tables and slabs that find what is to be copied.

use larder_types::{KeyRef, PoolTime, TenantId};

use super::Why;
use super::queue::InTables;
use crate::leader::Leader;
use crate::segment::{Slab, SlabKey};
use crate::state::State;

/// The most objects that one turn looks at.
const WALKED_MAX: usize = 1_024;

impl Leader {
    /// Looks at the next objects of the tables.
    pub(super) fn walk_tables(&mut self, state: &State, now: PoolTime) {
        let Some(InTables { first, behind }) = self.moves.queue.tables.place(now) else {
            return;
        };
        let (from, mut after) = behind.unzip();
        let mut left = WALKED_MAX;
        let tenants = from.as_ref().map_or_else(
            || state.tenants.range::<TenantId, _>(..),
            |from| state.tenants.range(from..),
        );
        for (id, tenant) in tenants.filter(|(_, tenant)| !tenant.deleting) {
            let start = after.take().flatten();
            let mut last = None;
            for (key, object) in tenant.objects.range(&[], start.as_ref()) {
                let due = self.due(state, object);
                let wanted = due.filter(|why| !first || *why == Why::Endangered);
                let full = wanted.is_some_and(|why| !self.moves.queue.has_room(why));
                if left == 0 || full {
                    let last = last.map(KeyRef::to_key).or_else(|| start.clone());
                    let behind = Some((id.clone(), last));
                    self.moves.queue.tables.stop_at(InTables { first, behind });
                    return;
                }
                left -= 1;
                if !first {
                    self.moves.queue.counted += self.missing(state, object);
                }
                if let Some(why) = wanted {
                    self.queue(why, id, key);
                }
                last = Some(key);
            }
        }
        if first {
            let (first, behind) = (false, None);
            self.moves.queue.tables.stop_at(InTables { first, behind });
        } else {
            self.moves.queue.tables_passed(now);
        }
    }

    /// Looks at the next objects in slabs that are to be emptied.
    pub(super) fn walk_slabs(&mut self, state: &State, now: PoolTime) {
        let Some(place) = self.moves.queue.slabs.place(now) else {
            return;
        };
        let (from, mut offset_bytes) = place.unzip();
        let mut left = WALKED_MAX;
        for (slab_key, slab) in self.leaving_slabs(state, from) {
            let start = offset_bytes.take().filter(|_| Some(slab_key) == from);
            for (offset_bytes, id) in slab.lodgers.from(start.unwrap_or(0)) {
                let held = state.tenant(&slab.tenant);
                let found = held.and_then(|held| held.objects.by_id(id));
                let due = found.and_then(|(_, object)| self.due(state, object));
                let full = due.is_some_and(|why| !self.moves.queue.has_room(why));
                if left == 0 || full {
                    let place = Some((slab_key, offset_bytes));
                    self.moves.queue.slabs.stop_at(place);
                    return;
                }
                left -= 1;
                if let (Some(why), Some((key, _))) = (due, found) {
                    self.queue(why, &slab.tenant, key);
                }
            }
        }
        self.moves.queue.slabs.passed(now);
    }

    /// Slabs of agents that are to be emptied, and those that are half empty, from one on.
    fn leaving_slabs<'a>(
        &self,
        state: &'a State,
        from: Option<SlabKey>,
    ) -> Vec<(SlabKey, &'a Slab)> {
        let draining = state.agents.values().filter(|agent| agent.draining);
        let segments = draining.flat_map(|agent| &agent.segments);
        let mut slabs: Vec<(SlabKey, &Slab)> = segments
            .filter_map(|id| state.segment(*id))
            .flat_map(|segment| {
                let slabs = segment.slabs.iter();
                slabs.map(|(index, slab)| ((segment.id, *index), slab))
            })
            .collect();
        let sparse = self.moves.sparse.iter();
        slabs.extend(sparse.filter_map(|key| Some((*key, state.slab_at(key.0, key.1)?.1))));
        slabs.sort_unstable_by_key(|(key, _)| *key);
        slabs.dedup_by_key(|(key, _)| *key);
        slabs.retain(|(key, _)| from.is_none_or(|from| *key >= from));
        slabs
    }

    fn queue(&mut self, why: Why, tenant: &TenantId, key: KeyRef<'_>) {
        let name = (tenant.clone(), key.to_key());
        if !self.overlay.copies.by_key.contains_key(&name) {
            self.moves.queue.push(why, name);
        }
    }
}
