//! A new leader learns what there is, in steps: it begins with nothing but the state.

use std::collections::BTreeSet;

use larder_types::{Key, PoolTime, SegmentId, TenantId};

use super::evictor::Evictor;
use crate::objects::ObjectId;
use crate::state::State;

/// How far it has got: everything of lower tenants, and keys up to this of this one.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fill {
    tenant: Option<TenantId>,
    after: Option<Key>,
}

impl Evictor {
    /// Takes in at most `most` objects more of the state, in the order of keys: it says nothing of
    /// their use.
    pub(crate) fn fill(&mut self, state: &State, most: usize, now: PoolTime) {
        let Some(mut at) = self.fill.take() else {
            return;
        };
        let mut left = most;
        let from = at.tenant.take();
        let lower = |id: &TenantId| from.as_ref().is_some_and(|from| id < from);
        let tenants = state.tenants().skip_while(|(id, _)| lower(id));
        for (tenant, held) in tenants.filter(|(_, held)| !held.is_deleting()) {
            let mut after = at.after.take().filter(|_| from.as_ref() == Some(tenant));
            let start = after.clone();
            for (key, object) in held.objects.range(b"", start.as_ref()).take(left) {
                left -= 1;
                after = Some(key.to_key());
                let id = object.id();
                let cache = self.caches.get(tenant);
                if !cache.is_some_and(|cache| cache.knows(id)) {
                    self.take_in(tenant, id, object, false, now.0);
                }
            }
            if left == 0 {
                let tenant = Some(tenant.clone());
                self.fill = Some(Fill { tenant, after });
                return;
            }
        }
    }

    /// Takes out at most `most` entries of what lay on segments that are gone; what has other
    /// replicas comes in again with those.
    pub(crate) fn sweep(&mut self, state: &State, most: usize, now: PoolTime) {
        let mut left = most;
        for segment in self.gone.clone() {
            if !self.sweep_segment(state, segment, &mut left, now) {
                return;
            }
            self.gone.remove(&segment);
        }
    }

    /// Whether nothing is left of it.
    fn sweep_segment(
        &mut self,
        state: &State,
        segment: SegmentId,
        left: &mut usize,
        now: PoolTime,
    ) -> bool {
        let load = self.loads.get(&segment);
        for tenant in load.map(|load| load.tenants.clone()).unwrap_or_default() {
            let Some(cache) = self.caches.get(&tenant) else {
                continue;
            };
            let ids: BTreeSet<ObjectId> = cache.some_on(segment, *left).into_iter().collect();
            *left -= ids.len();
            for id in ids {
                let cache = self.caches.get(&tenant);
                let age_ms = cache.map_or(0, |cache| cache.age_ms(id, now.0));
                self.take_out(&tenant, id);
                let held = state.tenant(&tenant);
                let object = held.and_then(|held| held.objects.by_id(id));
                if let Some((_, object)) = object.filter(|(_, o)| !o.lies_on(segment)) {
                    let used_ms = now.0.saturating_sub(age_ms);
                    self.take_in(&tenant, id, object, false, used_ms);
                }
            }
            if *left == 0 {
                return false;
            }
        }
        true
    }
}
