//! Which half-empty slabs are emptied, so that they can go to whoever needs one.
//!
//! Nothing is moved while slabs are free: a slab that its tenant may fill again is worth nothing to
//! anybody then. Of one tenant on one agent one slab at a time is emptied, into the holes of its
//! others.

use larder_types::PoolTime;

use crate::leader::Leader;
use crate::segment::{SlabKey, SlabPhase};
use crate::space::Owned;
use crate::state::State;

/// How often it is looked for such slabs, in milliseconds.
const LOOK_MS: u64 = 10_000;
/// The most slabs that one look reads.
const SLABS_MAX: usize = 4_096;
/// The most slabs of one tenant on one agent that are compared: those with the longest holes.
const COMPARED_MAX: usize = 256;
/// Slabs are short on a segment when fewer than one in so many are free.
const SHORT_PART: usize = 8;

impl Leader {
    /// Looks for slabs that are worth emptying, and forgets those that are not any more.
    pub(super) fn choose_sparse(&mut self, state: &State, now: PoolTime) {
        if now < self.moves.sparse_at {
            return;
        }
        self.moves.sparse_at = now.plus_ms(LOOK_MS);
        let kept = self.moves.sparse.iter().copied();
        let kept = kept.filter(|slab| self.is_sparse(state, *slab)).collect();
        self.moves.sparse = kept;
        let from = self.moves.sparse_from.take();
        let (mut left, mut found) = (SLABS_MAX, Vec::new());
        for (agent, tenant, owned) in self.space.pairs_from(from.as_ref()) {
            if left == 0 {
                self.moves.sparse_from = Some((agent, tenant.clone()));
                break;
            }
            if self.takes_new(state, agent) && !self.tenant_leaves(state, tenant) {
                found.extend(self.sparsest(state, owned, &mut left));
            }
        }
        if !found.is_empty() {
            self.moves.sparse.extend(found);
            self.moves.queue.look_at_slabs();
        }
    }

    /// The slab of one tenant on one agent that is emptied at the least cost, if that is worth it.
    fn sparsest(&self, state: &State, owned: &Owned, left: &mut usize) -> Option<SlabKey> {
        let slabs = owned.with_most_room().take(COMPARED_MAX.min(*left));
        let slabs: Vec<SlabKey> = slabs.collect();
        *left -= slabs.len();
        if slabs.iter().any(|slab| self.moves.sparse.contains(slab)) {
            return None;
        }
        let sparse = slabs.iter().filter(|slab| self.is_sparse(state, **slab));
        let (used, slab, size) = sparse
            .filter_map(|slab| {
                let alloc = self.overlay.alloc(state, *slab)?;
                let used = alloc.size_bytes().saturating_sub(alloc.free_bytes());
                Some((used, *slab, alloc.size_bytes()))
            })
            .min()?;
        // The others take it with half a slab to spare, or the next puts would need one at once.
        let others = owned.free_bytes.saturating_sub(size.saturating_sub(used));
        (others >= used.saturating_add(size / 2)).then_some(slab)
    }

    /// Whether a slab is used, but less than half, and slabs are short where it is.
    fn is_sparse(&self, state: &State, slab: SlabKey) -> bool {
        let Some((segment, (_, found))) = state.segment(slab.0).zip(state.slab_at(slab.0, slab.1))
        else {
            return false;
        };
        let short = segment.free.len() * SHORT_PART < segment.slab_count as usize;
        let ready = found.phase == SlabPhase::Ready && !self.overlay.slabs.contains_key(&slab);
        let half = self
            .overlay
            .alloc(state, slab)
            .is_some_and(|alloc| !alloc.is_empty() && alloc.free_bytes() > alloc.size_bytes() / 2);
        short && ready && half && found.lodgers.len() > 0
    }
}
