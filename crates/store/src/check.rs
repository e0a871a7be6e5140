//! The full check of a state and of a leader's overlay: what must never be found.
//!
//! It believes nothing that is kept beside the objects: charges, allocators, indexes, sums and
//! the digest are counted again and compared.

mod overlay;

use std::collections::BTreeMap;

use larder_types::{Extent, Pin, TenantId};

use crate::alloc::Allocator;
use crate::objects::ObjectId;
use crate::segment::{Segment, Slab, SlabKey, SlabPhase, reserve_extent, slab_key};
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
    /// How many extents of objects lie in each slab.
    noted: BTreeMap<SlabKey, usize>,
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
        noted: BTreeMap::new(),
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
    state.lost.values().for_each(|segment| check.lost(segment));
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
        let mut counted = 0;
        for object in tenant.objects.held() {
            counted += 1;
            let key = object.key();
            used_bytes = used_bytes.saturating_add(object.charge_bytes().unwrap_or(u64::MAX));
            let found = tenant
                .objects
                .held_at(&key.to_key())
                .map(|object| object.id());
            self.expect(found == Some(object.id()), "keys and places", || {
                format!("{key} of {id} is found at {found:?}")
            });
            let (held, replicas): (Vec<_>, _) =
                (object.held_replicas().collect(), object.replicas());
            let mut agents: Vec<_> = replicas
                .iter()
                .filter_map(|r| r.first())
                .map(|e| e.slab.agent)
                .collect();
            agents.sort_unstable();
            agents.dedup();
            self.expect(
                !held.is_empty() && agents.len() == replicas.len(),
                "replicas on different agents",
                || format!("{key} of {id}: {held:?}"),
            );
            for replica in &held {
                let length = replica
                    .iter()
                    .map(|extent| extent.length_bytes)
                    .sum::<u64>();
                self.expect(length == object.size_bytes(), "replicas are whole", || {
                    let size_bytes = object.size_bytes();
                    format!("{key} of {id} has {size_bytes} bytes, not {length}")
                });
                for extent in replica {
                    self.lodging(extent, object.id());
                    if !state.lost.contains_key(&extent.slab.segment) {
                        self.extent(id, extent);
                    }
                }
            }
        }
        self.expect(counted == tenant.objects.len(), "objects", || {
            format!("{id} keeps {}, counted {counted}", tenant.objects.len())
        });
        self.expect(used_bytes == tenant.used_bytes, "charges", || {
            format!(
                "{id} is charged {}, its objects take {used_bytes}",
                tenant.used_bytes
            )
        });
        self.pinned(id, tenant);
        for (agent, segment, index) in &tenant.slabs {
            let owner = state.segment(*segment).or(state.lost.get(segment));
            let fits = owner.is_some_and(|owner| {
                let slab = owner.slabs.get(index);
                owner.agent == *agent && slab.is_some_and(|slab| slab.tenant == *id)
            });
            self.expect(fits, "slabs and tenants", || {
                format!("slab {segment}/{index} of {id}")
            });
        }
    }

    /// What is pinned hard is charged as such.
    fn pinned(&mut self, id: &TenantId, tenant: &Tenant) {
        let objects = tenant.objects.held();
        let pinned = objects.filter(|object| object.attributes().pin == Pin::Hard);
        let bytes = pinned.fold(0u64, |sum, object| {
            sum.saturating_add(object.charge_bytes().unwrap_or(u64::MAX))
        });
        self.expect(bytes == tenant.pinned_bytes, "pinned bytes", || {
            let kept = tenant.pinned_bytes;
            format!("{id} has {kept} pinned, its objects {bytes}")
        });
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

    /// Each extent is noted in its slab, and as many are noted as there are.
    fn lodging(&mut self, extent: &Extent, object: ObjectId) {
        let segment = extent.slab.segment;
        let state = self.state;
        let segment = state.segment(segment).or(state.lost.get(&segment));
        let slab = segment.and_then(|segment| segment.slab(extent.slab));
        let noted = slab.and_then(|slab| slab.lodgers.from(extent.offset_bytes).next());
        let fits = noted == Some((extent.offset_bytes, object));
        self.expect(fits, "extents are noted in their slabs", || {
            format!("{extent:?} of {object:?} is noted as {noted:?}")
        });
        *self.noted.entry(slab_key(extent.slab)).or_insert(0) += 1;
    }

    fn slab_of_any(&mut self, segment: &Segment, index: u16, slab: &Slab) {
        let (id, state) = (segment.id, self.state);
        let listed = state
            .tenants
            .get(&slab.tenant)
            .is_some_and(|tenant| tenant.slabs.contains(&(segment.agent, id, index)));
        self.expect(listed, "slabs and tenants", || {
            format!("slab {id}/{index} is not listed")
        });
        let counted = self.noted.get(&(id, index)).copied().unwrap_or(0);
        let noted = slab.lodgers.len();
        self.expect(noted == counted, "extents are noted in their slabs", || {
            format!("slab {id}/{index} notes {noted}, counted {counted}")
        });
    }

    fn lost(&mut self, segment: &Segment) {
        let id = segment.id;
        let mounted = self.state.segments.contains_key(&id);
        self.expect(!mounted, "a segment is mounted or lost", || {
            format!("segment {id}")
        });
        for (index, slab) in &segment.slabs {
            self.slab_of_any(segment, *index, slab);
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
            self.slab_of_any(segment, *index, slab);
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
            .chain(state.lost.values())
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
        self.expect(state.tasks.is_sound(), "tasks", || {
            format!("{} are open", state.tasks.open_count())
        });
        let newest = state.tasks.iter().map(|(id, _)| id.0).max();
        self.expect(newest < Some(state.next.task), "counters", || {
            format!("task {newest:?}")
        });
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
