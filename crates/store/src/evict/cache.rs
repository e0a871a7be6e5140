//! What one tenant holds, as eviction sees it: a policy for each segment, groups, the ghost, and
//! what was counted.
//!
//! Objects with one replica and objects with more lie in different queues of a segment: a replica
//! beyond the first goes before any object does.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{Extent, GroupId, SegmentId, layout};

use super::ghost::Ghost;
use super::nodes::{EntryId, Lane, Nodes};
use super::signals::Counts;
use super::{Policy, S3Fifo};
use crate::objects::{ObjectId, ObjectRef};

/// What an object has on one segment, in bytes.
pub(crate) type Place = (SegmentId, u64);

/// Which queue of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// Replicas of objects that have another one.
    Surplus = 0,
    /// The last replicas of objects.
    Last = 1,
}

/// One queue.
#[derive(Clone, Debug, Default)]
struct Row {
    segment: Option<SegmentId>,
    policy: S3Fifo,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    nodes: Nodes,
    rows: Vec<Row>,
    /// Rows that nothing uses.
    free: Vec<Lane>,
    by_segment: BTreeMap<SegmentId, [Lane; 2]>,
    /// Objects in queues.
    len: u32,
    pub(crate) ghost: Ghost,
    members: BTreeMap<GroupId, BTreeSet<ObjectId>>,
    groups: BTreeMap<ObjectId, GroupId>,
    /// Objects whose removal, or the removal of a replica, is proposed: bytes that go, and since
    /// when they were not used, in milliseconds.
    leaving: BTreeMap<ObjectId, (u64, u64)>,
    leaving_bytes: u64,
    pub(crate) counts: Counts,
}

/// Where the replicas of an object lie: aligned bytes by segment.
pub(crate) fn places_of(object: ObjectRef<'_>) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::with_capacity(1);
    for extent in object.extents() {
        let (segment, bytes) = (extent.slab.segment, bytes_of(&extent));
        match places.iter_mut().find(|(other, _)| *other == segment) {
            Some((_, sum)) => *sum += bytes,
            None => places.push((segment, bytes)),
        }
    }
    places
}

impl Class {
    /// That of the replicas of an object.
    pub(crate) fn of(object: ObjectRef<'_>) -> Self {
        // Most have one; the others are few, and some of theirs may be on their way out.
        if object.held_count() > 1 && object.replicas().len() > 1 {
            Self::Surplus
        } else {
            Self::Last
        }
    }
}

/// The aligned bytes of an extent.
pub(crate) fn bytes_of(extent: &Extent) -> u64 {
    layout::reserved_bytes(extent.length_bytes).unwrap_or(0)
}

impl Cache {
    /// Takes in an object, which is in no queue. `again`: its key was evicted not long ago.
    pub(crate) fn insert(&mut self, id: ObjectId, object: ObjectRef<'_>, again: bool, now_ms: u64) {
        let class = Class::of(object);
        for (segment, bytes) in places_of(object) {
            let Some(lane) = self.lane(segment, class) else {
                continue;
            };
            let entry = self.nodes.add(id, lane, bytes, now_ms);
            self.rows[lane.number()]
                .policy
                .insert(&mut self.nodes, entry, again);
        }
        self.len += 1;
        if let Some(group) = &object.attributes().group {
            self.members.entry(group.clone()).or_default().insert(id);
            self.groups.insert(id, group.clone());
        }
    }

    /// Takes an object out of all queues; where it lay.
    pub(crate) fn remove(&mut self, id: ObjectId) -> Vec<Place> {
        let entries: Vec<EntryId> = self.nodes.of(id).collect();
        let mut places = Vec::with_capacity(entries.len());
        for entry in &entries {
            if let Some(place) = self.unlink(*entry) {
                places.push(place);
            }
        }
        self.drop_nodes(id, !entries.is_empty());
        places
    }

    fn unlink(&mut self, entry: EntryId) -> Option<Place> {
        let lane = self.nodes.lane(entry)?;
        let bytes = self.nodes.size_bytes(entry);
        self.rows
            .get_mut(lane.number())?
            .policy
            .remove(&mut self.nodes, entry);
        Some((self.segment_of(lane)?, bytes))
    }

    fn drop_nodes(&mut self, id: ObjectId, was_in: bool) {
        self.nodes.drop_all(id);
        self.len -= u32::from(was_in);
        if let Some(group) = self.groups.remove(&id)
            && let Some(members) = self.members.get_mut(&group)
        {
            members.remove(&id);
            if members.is_empty() {
                self.members.remove(&group);
            }
        }
    }

    /// An object was used; how many entries it has.
    pub(crate) fn touch(&mut self, id: ObjectId, now_ms: u64) -> u64 {
        let entries: Vec<EntryId> = self.nodes.of(id).collect();
        let count = entries.len() as u64;
        for entry in entries {
            self.nodes.used_at(entry, now_ms);
            if let Some(row) = self.nodes.lane(entry).map(Lane::number)
                && let Some(row) = self.rows.get_mut(row)
            {
                row.policy.touch(&mut self.nodes, entry);
            }
        }
        count
    }

    /// The object that goes next of those in this queue that `may` go, judged with the members of
    /// its group. It stays where it is.
    pub(crate) fn victim(
        &mut self,
        segment: SegmentId,
        class: Class,
        steps: &mut u32,
        may: &mut dyn FnMut(ObjectId, Option<&BTreeSet<ObjectId>>) -> bool,
    ) -> Option<ObjectId> {
        let lane = self.by_segment.get(&segment)?[class as usize];
        let policy = &mut self.rows.get_mut(lane.number())?.policy;
        let (members, groups) = (&self.members, &self.groups);
        let mut may = |id| {
            let group = groups.get(&id).and_then(|group| members.get(group));
            may(id, group)
        };
        let entry = policy.victim(&mut self.nodes, steps, &mut may)?;
        Some(self.nodes.object(entry))
    }

    /// An object goes, or one of its replicas: it is in no queue until that is committed.
    pub(crate) fn leaves(&mut self, id: ObjectId, bytes: u64, now_ms: u64) -> (Vec<Place>, u64) {
        let age_ms = self.age_ms(id, now_ms);
        self.leaving.insert(id, (bytes, age_ms));
        self.leaving_bytes = self.leaving_bytes.saturating_add(bytes);
        (self.remove(id), age_ms)
    }

    /// What was proposed for an object is committed; for how long it was not used then.
    pub(crate) fn left(&mut self, id: ObjectId) -> Option<u64> {
        let (bytes, age_ms) = self.leaving.remove(&id)?;
        self.leaving_bytes = self.leaving_bytes.saturating_sub(bytes);
        Some(age_ms)
    }

    /// An object of which something is proposed to go.
    pub(crate) fn one_leaving(&self) -> Option<ObjectId> {
        self.leaving.last_key_value().map(|(id, _)| *id)
    }

    /// Bytes that go with proposed evictions.
    pub(crate) const fn leaving_bytes(&self) -> u64 {
        self.leaving_bytes
    }

    /// For how long an object was not used, in milliseconds.
    pub(crate) fn age_ms(&self, id: ObjectId, now_ms: u64) -> u64 {
        let first = self.nodes.of(id).next();
        first.map_or(0, |entry| self.nodes.age_ms(entry, now_ms))
    }

    /// Whether it is in a queue, or on its way out.
    pub(crate) fn knows(&self, id: ObjectId) -> bool {
        self.is_in(id) || self.leaving.contains_key(&id)
    }

    /// Whether it is in a queue.
    pub(crate) fn is_in(&self, id: ObjectId) -> bool {
        self.nodes.of(id).next().is_some()
    }

    /// Objects in queues.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// The members of the group that an object belongs to.
    pub(crate) fn companions(&self, id: ObjectId) -> Option<&BTreeSet<ObjectId>> {
        self.members.get(self.groups.get(&id)?)
    }

    /// What lies on a segment, in bytes: replicas of that class.
    pub(crate) fn bytes_on(&self, segment: SegmentId, class: Class) -> u64 {
        let lanes = self.by_segment.get(&segment);
        let row = lanes.and_then(|lanes| self.rows.get(lanes[class as usize].number()));
        row.map_or(0, |row| row.policy.bytes())
    }

    /// What lies on a segment, in bytes.
    pub(crate) fn all_on(&self, segment: SegmentId) -> u64 {
        self.bytes_on(segment, Class::Surplus) + self.bytes_on(segment, Class::Last)
    }

    /// The segments that something of it lies on.
    pub(crate) fn segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.by_segment.keys().copied()
    }

    /// At most `most` of the objects that lie on a segment.
    pub(crate) fn some_on(&self, segment: SegmentId, most: usize) -> Vec<ObjectId> {
        let Some(lanes) = self.by_segment.get(&segment) else {
            return Vec::new();
        };
        let rows = lanes.iter().filter_map(|lane| self.rows.get(lane.number()));
        rows.flat_map(|row| row.policy.iter(&self.nodes))
            .take(most)
            .map(|entry| self.nodes.object(entry))
            .collect()
    }

    /// Gives the rows of a segment up when nothing lies on it; whether it has none now.
    pub(crate) fn prune(&mut self, segment: SegmentId) -> bool {
        let Some(lanes) = self.by_segment.get(&segment).copied() else {
            return true;
        };
        let used = |lane: &Lane| {
            let row = self.rows.get(lane.number());
            row.is_some_and(|row| row.policy.len() > 0)
        };
        if lanes.iter().any(used) {
            return false;
        }
        self.by_segment.remove(&segment);
        for lane in lanes {
            self.rows[lane.number()] = Row::default();
            self.free.push(lane);
        }
        true
    }

    fn segment_of(&self, lane: Lane) -> Option<SegmentId> {
        self.rows.get(lane.number())?.segment
    }

    /// The queue of a segment. `None` when the tenant lies on more segments than lanes can be
    /// told apart, 16,383: what lies beyond is not evicted.
    fn lane(&mut self, segment: SegmentId, class: Class) -> Option<Lane> {
        if let Some(lanes) = self.by_segment.get(&segment) {
            return Some(lanes[class as usize]);
        }
        let lanes = [self.new_lane(segment)?, self.new_lane(segment)?];
        self.by_segment.insert(segment, lanes);
        Some(lanes[class as usize])
    }

    fn new_lane(&mut self, segment: SegmentId) -> Option<Lane> {
        let lane = match self.free.pop() {
            Some(lane) => lane,
            None => {
                let number = u16::try_from(self.rows.len()).ok();
                let number = number.filter(|number| *number < Lane::COUNT)?;
                self.rows.push(Row::default());
                Lane::new(number)
            }
        };
        self.rows[lane.number()].segment = Some(segment);
        Some(lane)
    }

    /// Which queues an object is in.
    pub(crate) fn class_of(&self, id: ObjectId) -> Option<Class> {
        let lane = self.nodes.lane(self.nodes.of(id).next()?)?;
        let lanes = self.by_segment.get(&self.segment_of(lane)?)?;
        let is_last = lanes[Class::Last as usize] == lane;
        Some(if is_last { Class::Last } else { Class::Surplus })
    }

    /// What an object has in queues: bytes by segment.
    pub(crate) fn listed(&self, id: ObjectId) -> Vec<(SegmentId, u64)> {
        let place = |entry| {
            let segment = self.segment_of(self.nodes.lane(entry)?)?;
            Some((segment, self.nodes.size_bytes(entry)))
        };
        self.nodes.of(id).filter_map(place).collect()
    }
}
