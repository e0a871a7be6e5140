//! A state into its parts.

use std::collections::BTreeMap;
use std::ops::Bound;

use larder_types::{AgentId, Extent, Key, QuotaName, SegmentId, TaskId, TenantId, Version};

use super::Part;
use crate::objects::{Object, ObjectRef};
use crate::op::MountedSegment;
use crate::segment::{Segment, Slab, SlabKey, slab_key};
use crate::state::{Agent, State, Tenant};

/// The section that is walked, and the last of it that was handed out.
#[derive(Clone, Debug)]
enum At {
    Head,
    Life,
    Quotas(Option<QuotaName>),
    Tenants(Option<TenantId>),
    Agents(Option<AgentId>),
    Segments {
        is_lost: bool,
        after: Option<SegmentId>,
    },
    Slabs {
        is_lost: bool,
        after: Option<SlabKey>,
    },
    Releasing {
        is_lost: bool,
        after: Option<(SlabKey, u64)>,
    },
    Tasks(Option<TaskId>),
    Doomed(Option<(Extent, Version)>),
    Objects(Option<(TenantId, Option<Key>)>),
    End,
    Done,
}

/// See the module above.
///
/// The state must be the same from the first call to the last: whoever walks one that goes on
/// walks a copy, or holds back what would change it.
#[derive(Clone, Debug)]
pub struct Walk(At);

impl Default for Walk {
    fn default() -> Self {
        Self(At::Head)
    }
}

/// What a section hands out, and the last of it; `None` when there is no more of it.
type Found<K> = (Vec<Part>, Option<K>);

impl Walk {
    /// The next parts, `parts_max` at most; none when all were handed out.
    pub fn next(&mut self, state: &State, parts_max: usize) -> Vec<Part> {
        let mut parts = Vec::new();
        while parts.len() < parts_max && !matches!(self.0, At::Done) {
            let most = parts_max - parts.len();
            let (found, at) = step(state, &self.0, most);
            parts.extend(found);
            self.0 = at;
        }
        parts
    }
}

fn step(state: &State, at: &At, most: usize) -> (Vec<Part>, At) {
    match at {
        At::Head => (vec![head(state)], At::Life),
        At::Life => (life(state), At::Quotas(None)),
        At::Quotas(after) => {
            let part = |quota: &QuotaName, policy: &_| Part::Quota {
                quota: quota.clone(),
                policy: Clone::clone(policy),
            };
            let (found, last) = section(&state.quotas, after.as_ref(), most, part);
            (
                found,
                last.map_or(At::Tenants(None), |last| At::Quotas(Some(last))),
            )
        }
        At::Tenants(after) => {
            let part = |tenant: &TenantId, held: &Tenant| Part::Tenant {
                tenant: tenant.clone(),
                policy: held.policy.clone(),
                deleting: held.deleting,
                lost: held.objects.lost_segments().collect(),
            };
            let (found, last) = section(&state.tenants, after.as_ref(), most, part);
            (
                found,
                last.map_or(At::Agents(None), |last| At::Tenants(Some(last))),
            )
        }
        At::Agents(after) => {
            let (found, last) = section(&state.agents, after.as_ref(), most, |id, a| agent(*id, a));
            let next = At::Segments {
                is_lost: false,
                after: None,
            };
            (found, last.map_or(next, |last| At::Agents(Some(last))))
        }
        At::Segments { is_lost, after } => segments(state, *is_lost, *after, most),
        At::Slabs { is_lost, after } => slabs(state, *is_lost, *after, most),
        At::Releasing { is_lost, after } => releasing(state, *is_lost, *after, most),
        At::Tasks(after) => {
            let from = after.unwrap_or(TaskId(0));
            let tasks = state.tasks_after(from).take(most);
            let found: Vec<Part> = tasks
                .map(|(id, task)| Part::Task {
                    id,
                    task: task.clone(),
                })
                .collect();
            let next = match found.last() {
                Some(Part::Task { id, .. }) => At::Tasks(Some(*id)),
                _ => At::Doomed(None),
            };
            (found, next)
        }
        At::Doomed(after) => doomed(state, *after, most),
        At::Objects(after) => objects(state, after.as_ref(), most),
        At::End => {
            let end = Part::End {
                digest: state.digest(),
                objects: state.objects(),
            };
            (vec![end], At::Done)
        }
        At::Done => (Vec::new(), At::Done),
    }
}

/// What is not to be found while the pool is made again.
fn doomed(state: &State, after: Option<(Extent, Version)>, most: usize) -> (Vec<Part>, At) {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let behind = state.doomed.range((from, Bound::Unbounded)).take(most);
    let part = |(extent, version): &(Extent, Version)| Part::Doomed {
        extent: *extent,
        version: *version,
    };
    let last = behind.clone().last().copied();
    let next = last.map_or(At::Objects(None), |last| At::Doomed(Some(last)));
    (behind.map(part).collect(), next)
}

/// The entries of a map behind `after`.
fn section<K: Ord + Clone, V>(
    map: &BTreeMap<K, V>,
    after: Option<&K>,
    most: usize,
    part: impl Fn(&K, &V) -> Part,
) -> Found<K> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    let entries = map.range((from, Bound::Unbounded)).take(most);
    let mut last = None;
    let found = entries.map(|(key, value)| {
        last = Some(key.clone());
        part(key, value)
    });
    let found = found.collect();
    (found, last)
}

fn head(state: &State) -> Part {
    Part::Head {
        generation: state.generation,
        next_registration: state.next.registration,
        next_agent: state.next.agent,
        next_segment: state.next.segment,
        next_task: state.next.task,
    }
}

/// Nothing for a pool of the first release, whose snapshots had no such part.
fn life(state: &State) -> Vec<Part> {
    let (rebuilding, version) = (state.rebuilding, state.version);
    let knows_agents = state.knows_agents;
    if !rebuilding && version == 0 {
        return Vec::new();
    }
    vec![Part::Life {
        rebuilding,
        knows_agents,
        version,
    }]
}

fn agent(id: AgentId, agent: &Agent) -> Part {
    let Agent {
        name,
        uid,
        incarnation,
        segments,
        draining,
        said,
        set,
    } = agent.clone();
    Part::Agent {
        agent: id,
        name,
        uid,
        incarnation,
        segments,
        draining,
        said,
        set,
    }
}

/// Where to go on in a section that is walked over mounted segments and then over lost ones.
fn in_both<K>(
    last: Option<K>,
    is_lost: bool,
    here: impl Fn(bool, Option<K>) -> At,
    then: At,
) -> At {
    match (last, is_lost) {
        (Some(last), _) => here(is_lost, Some(last)),
        (None, false) => here(true, None),
        (None, true) => then,
    }
}

const fn map(state: &State, is_lost: bool) -> &BTreeMap<SegmentId, Segment> {
    if is_lost {
        &state.lost
    } else {
        &state.segments
    }
}

fn segments(
    state: &State,
    is_lost: bool,
    after: Option<SegmentId>,
    most: usize,
) -> (Vec<Part>, At) {
    let part = |id: &SegmentId, segment: &Segment| Part::Segment {
        segment: MountedSegment {
            id: *id,
            ordinal: segment.ordinal,
            generation: segment.generation,
            slabs: segment.slab_count,
            slab_bytes: segment.slab_bytes,
            numa: segment.numa,
        },
        agent: segment.agent,
        is_lost,
    };
    let (found, last) = section(map(state, is_lost), after.as_ref(), most, part);
    let here = |is_lost, after| At::Segments { is_lost, after };
    let then = At::Slabs {
        is_lost: false,
        after: None,
    };
    (found, in_both(last, is_lost, here, then))
}

/// Each slab of these segments from a place on.
fn slabs_from(
    state: &State,
    is_lost: bool,
    from: SlabKey,
) -> impl Iterator<Item = (&Segment, u16, &Slab)> {
    let segments = map(state, is_lost).range(from.0..);
    segments.flat_map(move |(id, segment)| {
        let first = if *id == from.0 { from.1 } else { 0 };
        let slabs = segment.slabs.range(first..);
        slabs.map(move |(index, slab)| (segment, *index, slab))
    })
}

fn slabs(state: &State, is_lost: bool, after: Option<SlabKey>, most: usize) -> (Vec<Part>, At) {
    let from = after.unwrap_or((SegmentId(0), 0));
    let behind = slabs_from(state, is_lost, from)
        .filter(|(segment, index, _)| Some((segment.id, *index)) != after);
    let mut last = None;
    let found = behind.take(most).map(|(segment, index, slab)| {
        last = Some((segment.id, index));
        Part::Slab {
            slab: segment.slab_ref(index, slab.registration),
            tenant: slab.tenant.clone(),
            phase: slab.phase,
        }
    });
    let found = found.collect();
    let here = |is_lost, after| At::Slabs { is_lost, after };
    let then = At::Releasing {
        is_lost: false,
        after: None,
    };
    (found, in_both(last, is_lost, here, then))
}

fn releasing(
    state: &State,
    is_lost: bool,
    after: Option<(SlabKey, u64)>,
    most: usize,
) -> (Vec<Part>, At) {
    let from = after.map_or((SegmentId(0), 0), |(slab, _)| slab);
    let behind = slabs_from(state, is_lost, from).flat_map(|(segment, index, slab)| {
        let offset = after.filter(|(of, _)| *of == (segment.id, index));
        let offset = offset.map_or(Bound::Unbounded, |(_, offset)| Bound::Excluded(offset));
        let name = segment.slab_ref(index, slab.registration);
        let extents = slab.releasing.range((offset, Bound::Unbounded));
        extents.map(move |(offset_bytes, releasing)| Part::Releasing {
            slab: name,
            offset_bytes: *offset_bytes,
            releasing: *releasing,
        })
    });
    let found: Vec<Part> = behind.take(most).collect();
    let last = match found.last() {
        Some(Part::Releasing {
            slab, offset_bytes, ..
        }) => Some((slab_key(*slab), *offset_bytes)),
        _ => None,
    };
    let here = |is_lost, after| At::Releasing { is_lost, after };
    (found, in_both(last, is_lost, here, At::Tasks(None)))
}

/// Objects by tenant and key; of one tenant at a time.
fn objects(state: &State, after: Option<&(TenantId, Option<Key>)>, most: usize) -> (Vec<Part>, At) {
    let found = match after {
        None => state.tenants.first_key_value(),
        Some((tenant, _)) => state.tenants.range(tenant.clone()..).next(),
    };
    let Some((id, tenant)) = found else {
        return (Vec::new(), At::End);
    };
    let key = after
        .filter(|(of, _)| of == id)
        .and_then(|(_, key)| key.as_ref());
    let held = tenant.objects.held_after(key).take(most);
    let found: Vec<Part> = held.map(|object| part_of(id, object)).collect();
    let next = match found.last() {
        Some(Part::Object { key, .. }) => Some((id.clone(), Some(key.clone()))),
        // The next tenant, if there is one.
        _ => {
            let behind = (Bound::Excluded(id.clone()), Bound::Unbounded);
            let next = state.tenants.range(behind).next();
            next.map(|(id, _)| (id.clone(), None))
        }
    };
    (found, next.map_or(At::End, |next| At::Objects(Some(next))))
}

fn part_of(tenant: &TenantId, object: ObjectRef<'_>) -> Part {
    Part::Object {
        tenant: tenant.clone(),
        key: object.key().to_key(),
        object: Object {
            replicas: object.held_replicas().collect(),
            ..object.to_object()
        },
    }
}
