//! The objects of one tenant, by key and by place.
//!
//! Each object is a record of 88 bytes in an arena, with its key if that is short. A radix tree
//! keeps the order; a hash index beside it makes look-ups fast. Nothing is rebuilt or copied as a
//! whole when it grows. What few objects have, more extents or attributes, lies in a box; what
//! many share, slabs and epochs, is kept once. With 15 bytes each for the tree and the hash index,
//! and 8 in the list of its slab, an object costs about 130.

mod arena;
mod radix;
mod record;
mod shards;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeSet;

use larder_types::{Attributes, Digest, Extent, Key, KeyRef, Pin, SegmentId, Version};

use arena::Arena;
use radix::{Keys, Radix};
use record::{Record, Shared};
use shards::{Found, Shards, hash_of};
pub use view::ObjectRef;

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

/// An object as it comes, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewObject<'a> {
    pub(crate) version: Version,
    pub(crate) size_bytes: u64,
    pub(crate) digest: Digest,
    pub(crate) replicas: &'a [Vec<Extent>],
    pub(crate) wanted: u8,
    pub(crate) attributes: &'a Attributes,
}

/// The place of an object in the table of its tenant; used again after it has left. Two replicas
/// of one state may give different places to one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// Objects by key.
///
/// An object without a replica that can be read, because all lay on segments that were lost, is
/// not found by key or place and not listed, though it is counted and charged until it is swept.
/// The `held` methods find it.
#[derive(Clone, Debug, Default)]
pub struct ObjectTable {
    index: Radix,
    hashes: Shards,
    records: Records,
    shared: Shared,
    len: usize,
    /// Segments that were lost and on which replicas may still be noted.
    lost: BTreeSet<SegmentId>,
}

#[derive(Clone, Debug, Default)]
struct Records(Arena<Option<Record>>);

impl Records {
    fn get(&self, at: u32) -> Option<&Record> {
        self.0.get(at)?.as_ref()
    }
}

impl Keys for Records {
    fn key(&self, leaf: u32) -> &[u8] {
        // The tree holds only leaves whose record is there; no key is empty.
        self.get(leaf).map_or(&[], |record| record.key.as_bytes())
    }
}

/// By content: places may differ.
impl PartialEq for ObjectTable {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.lost == other.lost && self.held().eq(other.held())
    }
}

impl Eq for ObjectTable {}

impl ObjectTable {
    /// How many there are, those that cannot be read included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none, not even one that cannot be read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The object of this key.
    #[must_use]
    pub fn get(&self, key: &Key) -> Option<ObjectRef<'_>> {
        self.held_at(key).filter(ObjectRef::is_readable)
    }

    /// Calls `found` with the object of each key, in order: faster than one by one, as the memory
    /// of all is fetched side by side.
    pub fn get_all<'a>(&'a self, keys: &[&Key], mut found: impl FnMut(Option<ObjectRef<'a>>)) {
        let hashes: Vec<u32> = keys.iter().map(|key| hash_of(key.as_bytes())).collect();
        let first = |hash: &u32| self.hashes.find(*hash, |_| true);
        let near: Vec<Found> = hashes.iter().map(first).collect();
        for (near, key) in near.into_iter().zip(keys) {
            let object = match near {
                Found::Nothing => None,
                Found::Is(leaf) => self.view(leaf).filter(|object| object.key() == **key),
                Found::Unknown => None,
            };
            let settled = object.is_some() || near == Found::Nothing;
            let object = if settled { object } else { self.held_at(key) };
            found(object.filter(ObjectRef::is_readable));
        }
    }

    /// The place of the object of this key.
    #[must_use]
    pub fn id(&self, key: &Key) -> Option<ObjectId> {
        self.get(key).map(|object| object.id())
    }

    /// The object at this place.
    #[must_use]
    pub fn by_id(&self, id: ObjectId) -> Option<(KeyRef<'_>, ObjectRef<'_>)> {
        let object = self.view(id.0).filter(ObjectRef::is_readable)?;
        Some((object.key(), object))
    }

    /// Each object, in the order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (KeyRef<'_>, ObjectRef<'_>)> {
        self.held()
            .filter(ObjectRef::is_readable)
            .map(|object| (object.key(), object))
    }

    /// The objects whose keys start with `prefix` and lie above `after`, in order.
    pub fn range<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a Key>,
    ) -> impl Iterator<Item = (KeyRef<'a>, ObjectRef<'a>)> {
        let leaves = match after {
            Some(after) if after.as_bytes() >= prefix => {
                self.index.from(after.as_bytes(), false, &self.records)
            }
            _ => self.index.from(prefix, true, &self.records),
        };
        leaves
            .filter_map(|leaf| self.view(leaf))
            .take_while(move |object| object.key().as_bytes().starts_with(prefix))
            .filter(ObjectRef::is_readable)
            .map(|object| (object.key(), object))
    }

    /// Each object, those included that cannot be read.
    pub(crate) fn held(&self) -> impl Iterator<Item = ObjectRef<'_>> {
        self.index.iter().filter_map(|leaf| self.view(leaf))
    }

    /// The object of this key, even if it cannot be read.
    pub(crate) fn held_at(&self, key: &Key) -> Option<ObjectRef<'_>> {
        let bytes = key.as_bytes();
        let is = |leaf| self.records.key(leaf) == bytes;
        match self.hashes.find(hash_of(bytes), is) {
            Found::Is(leaf) => self.view(leaf),
            Found::Nothing => None,
            Found::Unknown => self.view(self.index.get(bytes, &self.records)?),
        }
    }

    /// The object at this place, even if it cannot be read.
    pub(crate) fn held_by(&self, id: ObjectId) -> Option<ObjectRef<'_>> {
        self.view(id.0)
    }

    /// Adds an object under a key that holds none; its place.
    pub(crate) fn insert(&mut self, key: &Key, object: &NewObject<'_>) -> ObjectId {
        let record = Record::new(key, object, &mut self.shared);
        let leaf = self.records.0.add(Some(record));
        self.index.insert(key.as_bytes(), leaf, &self.records);
        self.hashes.insert(hash_of(key.as_bytes()), leaf);
        self.len += 1;
        ObjectId(leaf)
    }

    /// The place of the lowest key, even if it cannot be read.
    pub(crate) fn first(&self) -> Option<ObjectId> {
        self.index.iter().next().map(ObjectId)
    }

    /// Takes the object at this place out; the key that it had.
    pub(crate) fn remove(&mut self, id: ObjectId) -> Option<Key> {
        let key = self.records.get(id.0)?.key.clone();
        self.index.remove(key.as_bytes(), &self.records);
        self.hashes.remove(hash_of(key.as_bytes()), id.0);
        let mut record = self.records.0.get_mut(id.0).and_then(Option::take)?;
        record.displace(&mut self.shared);
        self.shared.epochs.give_back(record.epoch);
        self.records.0.give_back(id.0);
        self.len -= 1;
        Some(key)
    }

    /// Gives an object other replicas. With none it is not to stay.
    pub(crate) fn set_replicas(&mut self, id: ObjectId, replicas: &[Vec<Extent>]) {
        if let Some(Some(record)) = self.records.0.get_mut(id.0) {
            record.displace(&mut self.shared);
            record.place(replicas, &mut self.shared);
        }
    }

    /// Gives an object another pin.
    pub(crate) fn set_pin(&mut self, id: ObjectId, pin: Pin) {
        if let Some(Some(record)) = self.records.0.get_mut(id.0) {
            record.set_pin(pin);
        }
    }

    /// Each object whose key is above `after`, those included that cannot be read.
    pub(crate) fn held_after(&self, after: Option<&Key>) -> impl Iterator<Item = ObjectRef<'_>> {
        let leaves = match after {
            Some(after) => self.index.from(after.as_bytes(), false, &self.records),
            None => self.index.iter(),
        };
        leaves.filter_map(|leaf| self.view(leaf))
    }

    /// Segments that were lost and on which replicas may still be noted.
    pub(crate) fn lost_segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        self.lost.iter().copied()
    }

    /// Replicas on this segment cannot be read any more.
    pub(crate) fn lose(&mut self, segment: SegmentId) {
        self.lost.insert(segment);
    }

    /// No replica is noted on this segment any more.
    pub(crate) fn swept(&mut self, segment: SegmentId) {
        self.lost.remove(&segment);
    }

    /// Frees some memory of a table without objects; whether all of it is free now. A table that
    /// was large is not dropped in one step: giving back gigabytes takes long.
    pub(crate) fn trim(&mut self, chunks_max: usize) -> bool {
        if self.len > 0 {
            return false;
        }
        let mut freed = self.index.trim(chunks_max);
        freed += self.hashes.trim(chunks_max - freed);
        freed += self.records.0.trim(chunks_max - freed);
        freed < chunks_max
    }

    /// Whether no memory of a chunk is held.
    pub(crate) fn is_trimmed(&self) -> bool {
        self.records.0.is_unused() && self.index.is_unused() && self.hashes.is_unused()
    }

    fn view(&self, leaf: u32) -> Option<ObjectRef<'_>> {
        Some(ObjectRef {
            table: self,
            record: self.records.get(leaf)?,
            id: ObjectId(leaf),
        })
    }

    /// Whether some of its objects may be such that cannot be read any more.
    pub(crate) fn has_unreadable(&self) -> bool {
        !self.lost.is_empty()
    }

    fn has_lost(&self, mut extents: impl Iterator<Item = Extent>) -> bool {
        !self.lost.is_empty() && extents.any(|extent| self.lost.contains(&extent.slab.segment))
    }
}
