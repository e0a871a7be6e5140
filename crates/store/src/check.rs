//! The full check of a state and of a leader's overlay: what must never be found.
//!
//! It believes nothing that is kept beside the objects: charges, allocators, indexes, sums and
//! the digest are counted again and compared.

mod overlay;

use std::collections::BTreeMap;

use larder_types::{Extent, TenantId};

use crate::alloc::Allocator;
use crate::quota;
use crate::segment::{Segment, SlabKey, SlabPhase, reserve_extent, slab_key};
use crate::state::{State, Tenant};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {detail}")]
pub struct Finding {
    /// Which rule is broken.
    pub rule: &'static str,
    /// Where, with figures.
    pub detail: String,
}

/// What was found so far, and the allocators as the objects say they should be.
struct Check<'a> {
    state: &'a State,
    found: Vec<Finding>,
    slabs: BTreeMap<SlabKey, Allocator>,
}

/// Counts everything that is kept and compares. Reads the whole state.
#[must_use]
pub fn check(state: &State) -> Vec<Finding> {
    let slabs = state
        .segments
        .values()
        .flat_map(|segment| {
            let empty = Allocator::new(segment.slab_bytes);
            segment
                .slabs
                .keys()
                .map(move |index| ((segment.id, *index), empty.clone()))
        })
        .collect();
    let mut check = Check {
        state,
        found: Vec::new(),
        slabs,
    };
    check.agents();
    state
        .tenants
        .iter()
        .for_each(|(id, tenant)| check.tenant(id, tenant));
    state
        .segments
        .values()
        .for_each(|segment| check.segment(segment));
    check.sums();
    check.found
}

impl Check<'_> {
    fn expect(&mut self, holds: bool, rule: &'static str, detail: impl FnOnce() -> String) {
        if !holds {
            self.found.push(Finding {
                rule,
                detail: detail(),
            });
        }
    }

    fn agents(&mut self) {
        let state = self.state;
        self.expect(
            state.names.len() == state.agents.len(),
            "names and agents",
            || format!("{} names, {} agents", state.names.len(), state.agents.len()),
        );
        for (id, agent) in &state.agents {
            self.expect(
                state.names.get(&agent.name) == Some(id),
                "names and agents",
                || format!("agent {id} is not found as {}", agent.name),
            );
            self.expect(id.0 < state.next.agent, "counters", || {
                format!("agent {id}")
            });
            for segment in &agent.segments {
                let owner = state.segments.get(segment).map(|segment| segment.agent);
                self.expect(owner == Some(*id), "segments and agents", || {
                    format!("segment {segment} of agent {id} belongs to {owner:?}")
                });
            }
        }
    }

    fn tenant(&mut self, id: &TenantId, tenant: &Tenant) {
        let state = self.state;
        let mut used_bytes = 0u64;
        for (key, object) in tenant.objects.iter() {
            let charge = quota::charge_of(&object.replicas).unwrap_or(u64::MAX);
            used_bytes = used_bytes.saturating_add(charge);
            let mut agents: Vec<_> = object
                .replicas
                .iter()
                .filter_map(|r| r.first())
                .map(|e| e.slab.agent)
                .collect();
            agents.sort_unstable();
            agents.dedup();
            self.expect(
                !agents.is_empty() && agents.len() == object.replicas.len(),
                "replicas on different agents",
                || format!("{key} of {id}: {:?}", object.replicas),
            );
            for replica in &object.replicas {
                let length = replica
                    .iter()
                    .map(|extent| extent.length_bytes)
                    .sum::<u64>();
                self.expect(length == object.size_bytes, "replicas are whole", || {
                    format!(
                        "{key} of {id} has {} bytes, not {length}",
                        object.size_bytes
                    )
                });
                replica.iter().for_each(|extent| self.extent(id, extent));
            }
        }
        self.expect(used_bytes == tenant.used_bytes, "charges", || {
            format!(
                "{id} is charged {}, its objects take {used_bytes}",
                tenant.used_bytes
            )
        });
        for (agent, segment, index) in &tenant.slabs {
            let owner = state.slab_at(*segment, *index);
            let fits = owner.is_some_and(|(slab, s)| slab.agent == *agent && s.tenant == *id);
            self.expect(fits, "slabs and tenants", || {
                format!("slab {segment}/{index} of {id}")
            });
        }
    }

    /// One extent of a live object: in a ready slab of that tenant, overlapping nothing.
    fn extent(&mut self, tenant: &TenantId, extent: &Extent) {
        let holds = self.state.holds(tenant, extent);
        self.expect(holds, "extents lie in ready slabs of their tenant", || {
            format!("{extent:?} of {tenant}")
        });
        let reserved = match self.slabs.get_mut(&slab_key(extent.slab)) {
            Some(alloc) => reserve_extent(alloc, extent).map_err(|error| error.to_string()),
            None => Err("no such slab".to_owned()),
        };
        if let Err(error) = reserved {
            self.expect(false, "extents do not overlap", || {
                format!("{extent:?}: {error}")
            });
        }
    }

    fn segment(&mut self, segment: &Segment) {
        let state = self.state;
        let id = segment.id;
        let listed = state
            .agents
            .get(&segment.agent)
            .is_some_and(|a| a.segments.contains(&id));
        self.expect(listed, "segments and agents", || {
            format!("segment {id} is not listed")
        });
        self.expect(id.0 < state.next.segment, "counters", || {
            format!("segment {id}")
        });
        let whole = segment.free.len() + segment.slabs.len() == segment.slab_count as usize
            && segment
                .slabs
                .keys()
                .all(|index| !segment.free.contains(index));
        self.expect(whole, "each slab is free or somebody's", || {
            format!("segment {id}")
        });
        for (index, slab) in &segment.slabs {
            let name = segment.slab_ref(*index, slab.registration);
            for (offset_bytes, releasing) in &slab.releasing {
                let (offset_bytes, length_bytes) = (*offset_bytes, releasing.length_bytes);
                self.extent(
                    &slab.tenant,
                    &Extent {
                        slab: name,
                        offset_bytes,
                        length_bytes,
                    },
                );
            }
            let listed = state
                .tenants
                .get(&slab.tenant)
                .is_some_and(|tenant| tenant.slabs.contains(&(segment.agent, id, *index)));
            self.expect(listed, "slabs and tenants", || {
                format!("{name:?} is not listed")
            });
            let empty = slab.phase == SlabPhase::Ready || slab.alloc.is_empty();
            self.expect(empty, "slabs come and go empty", || format!("{name:?}"));
            let given = slab.registration.0 < state.next.registration;
            self.expect(given, "counters", || format!("{name:?}"));
            self.allocator((id, *index), &slab.alloc);
        }
    }

    fn allocator(&mut self, slab: SlabKey, kept: &Allocator) {
        let counted = self.slabs.get(&slab);
        let equal = counted == Some(kept) && kept.is_sound();
        let counted = counted.map(Allocator::free_bytes);
        self.expect(equal, "allocators and extents", || {
            format!(
                "slab {slab:?} has {} bytes free, counted {counted:?}",
                kept.free_bytes()
            )
        });
    }

    fn sums(&mut self) {
        let state = self.state;
        let objects: usize = state
            .tenants
            .values()
            .map(|tenant| tenant.objects.len())
            .sum();
        let capacity: u64 = state.segments.values().map(Segment::capacity_bytes).sum();
        let releasing: u64 = state
            .segments
            .values()
            .flat_map(|segment| segment.slabs.values())
            .flat_map(|slab| slab.releasing.values())
            .filter_map(|r| larder_types::layout::reserved_bytes(r.length_bytes))
            .sum();
        for (rule, kept, counted) in [
            ("objects", state.objects, objects as u64),
            ("capacity", state.capacity_bytes, capacity),
            ("releasing", state.releasing_bytes, releasing),
            ("digest", state.digest(), state.digest_from_scratch()),
        ] {
            self.expect(kept == counted, rule, || {
                format!("kept {kept}, counted {counted}")
            });
        }
        let lost = state
            .names
            .values()
            .filter(|id| !state.agents.contains_key(id))
            .count();
        self.expect(lost == 0, "names and agents", || {
            format!("{lost} names without agent")
        });
    }
}
