//! The objects of one tenant, by key.
//!
//! Its own type so that the table behind it can change: callers see keys in order, nothing else.

use std::collections::BTreeMap;
use std::ops::Bound;

use larder_types::{Attributes, Digest, Extent, Key, SegmentId, Version};

/// A complete object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The put that made it.
    pub version: Version,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// The digest of its bytes.
    pub digest: Digest,
    /// One list of extents per replica; never empty.
    pub replicas: Vec<Vec<Extent>>,
    /// How many replicas were asked for.
    pub wanted: u8,
    /// What it is, besides its bytes.
    pub attributes: Attributes,
}

impl Object {
    /// Whether a replica has an extent on this segment.
    #[must_use]
    pub fn lies_on(&self, segment: SegmentId) -> bool {
        self.replicas
            .iter()
            .flatten()
            .any(|extent| extent.slab.segment == segment)
    }
}

/// The place of an object in the table of its tenant; used again after it has left. Two replicas
/// of one state may give different places to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// Objects by key.
#[derive(Clone, Debug, Default)]
pub struct ObjectTable {
    map: BTreeMap<Key, (ObjectId, Object)>,
    keys: BTreeMap<ObjectId, Key>,
    free: Vec<ObjectId>,
}

impl PartialEq for ObjectTable {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for ObjectTable {}

impl ObjectTable {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The object of this key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<&Object> {
        self.map.get(key).map(|(_, object)| object)
    }

    /// The place of the object of this key.
    #[must_use]
    pub fn id(&self, key: &Key) -> Option<ObjectId> {
        self.map.get(key).map(|(id, _)| *id)
    }

    /// The object at this place.
    #[must_use]
    pub fn by_id(&self, id: ObjectId) -> Option<(&Key, &Object)> {
        let key = self.keys.get(&id)?;
        self.map.get(key).map(|(_, object)| (key, object))
    }

    /// Each object, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Object)> {
        self.map.iter().map(|(key, (_, object))| (key, object))
    }

    /// The objects whose keys start with `prefix` and lie above `after`, in order.
    pub fn range<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Object)> {
        let start = match after {
            Some(after) if after.as_bytes() >= prefix => Bound::Excluded(after.as_bytes()),
            _ => Bound::Included(prefix),
        };
        self.map
            .range::<[u8], _>((start, Bound::Unbounded))
            .take_while(move |(key, _)| key.as_bytes().starts_with(prefix))
            .map(|(key, (_, object))| (key, object))
    }

    pub(crate) fn insert(&mut self, key: Key, object: Object) {
        let next = || ObjectId(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
        let id = self.free.pop().unwrap_or_else(next);
        self.keys.insert(id, key.clone());
        self.map.insert(key, (id, object));
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Object> {
        let (id, object) = self.map.remove(key)?;
        self.keys.remove(&id);
        self.free.push(id);
        Some(object)
    }

    pub(crate) fn remove_first(&mut self) -> Option<(Key, Object)> {
        let (key, (id, object)) = self.map.pop_first()?;
        self.keys.remove(&id);
        self.free.push(id);
        Some((key, object))
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut Object> {
        self.map.get_mut(key).map(|(_, object)| object)
    }
}
