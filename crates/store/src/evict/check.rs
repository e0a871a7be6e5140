//! What eviction keeps beside the state is what the state says.

use std::collections::BTreeMap;

use larder_types::SegmentId;

use super::cache::{Class, places_of};
use crate::check::Finding;
use crate::leader::Leader;
use crate::state::State;

impl Leader {
    /// Every object is in the queues of its segments, unless something is proposed for it; bytes
    /// and objects are counted exactly. What is still to be learned or swept is not looked at.
    pub(crate) fn check_eviction(&self, state: &State, found: &mut Vec<Finding>) {
        let rule = "queues of eviction";
        let complete = self.evict.fill.is_none() && self.evict.gone.is_empty();
        let mut loads: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for (id, held) in state.tenants().filter(|(_, held)| !held.is_deleting()) {
            let Some(cache) = self.evict.caches.get(id) else {
                let detail = format!("{id} has none");
                found.push(Finding { rule, detail });
                continue;
            };
            let mut count = 0;
            for (key, object) in held.objects.iter() {
                let at = object.id();
                if !cache.is_in(at) {
                    if complete && !cache.knows(at) {
                        let detail = format!("{key} of {id} is in none");
                        found.push(Finding { rule, detail });
                    }
                    continue;
                }
                count += 1;
                let (mut kept, mut counted) = (cache.listed(at), places_of(object));
                kept.sort_unstable();
                counted.sort_unstable();
                let class = cache.class_of(at);
                if complete && (kept != counted || class != Some(Class::of(object))) {
                    let detail = format!("{key} of {id}: kept {kept:?}, counted {counted:?}");
                    found.push(Finding { rule, detail });
                }
                for (segment, bytes) in kept {
                    *loads.entry(segment).or_default() += bytes;
                }
            }
            if complete && count != cache.len() {
                let detail = format!("{id}: kept {} objects, counted {count}", cache.len());
                found.push(Finding { rule, detail });
            }
        }
        let kept = self.evict.loads.iter();
        let kept: BTreeMap<SegmentId, u64> =
            kept.map(|(id, load)| (*id, load.live_bytes)).collect();
        if complete && kept != loads {
            let detail = format!("kept {kept:?}, counted {loads:?}");
            found.push(Finding { rule, detail });
        }
        let mut reserved: BTreeMap<SegmentId, u64> = BTreeMap::new();
        let tenants = self.overlay.tenants.values();
        for put in tenants.flat_map(|tenant| tenant.puts.values()) {
            for extent in put.replicas.iter().flatten() {
                *reserved.entry(extent.slab.segment).or_default() += super::cache::bytes_of(extent);
            }
        }
        for extent in self.overlay.copies.extents() {
            *reserved.entry(extent.slab.segment).or_default() += super::cache::bytes_of(extent);
        }
        if reserved != self.overlay.reserved_on {
            let detail = format!("kept {:?}, counted {reserved:?}", self.overlay.reserved_on);
            found.push(Finding {
                rule: "reservations by segment",
                detail,
            });
        }
    }
}
