//! The objects of one tenant, by key.
//!
//! Its own type so that the table behind it can change: callers see keys in order, nothing else.

use std::collections::BTreeMap;
use std::ops::Bound;

use larder_types::{Digest, Extent, Key, SegmentId, Version};

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

/// Objects by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectTable {
    map: BTreeMap<Key, Object>,
}

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
        self.map.get(key)
    }

    /// Each object, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Object)> {
        self.map.iter()
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
    }

    pub(crate) fn insert(&mut self, key: Key, object: Object) {
        self.map.insert(key, object);
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Object> {
        self.map.remove(key)
    }

    pub(crate) fn remove_first(&mut self) -> Option<(Key, Object)> {
        self.map.pop_first()
    }

    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut Object> {
        self.map.get_mut(key)
    }
}
