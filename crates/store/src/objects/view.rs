//! An object of a table, to be read.

use larder_types::{Attributes, Digest, Extent, KeyRef, SegmentId, Version};

use super::record::Record;
use super::{Object, ObjectId, ObjectTable};
use crate::quota;

/// What an object without attributes has.
static PLAIN: Attributes = Attributes {
    pin: larder_types::Pin::None,
    group: None,
    data_type: larder_types::DataType::UNKNOWN,
};

/// A complete object where it lies in its table; as cheap to copy as a reference.
#[derive(Clone, Copy)]
pub struct ObjectRef<'a> {
    pub(super) table: &'a ObjectTable,
    pub(super) record: &'a Record,
    pub(super) id: ObjectId,
}

impl<'a> ObjectRef<'a> {
    /// Its place in the table.
    #[must_use]
    pub const fn id(&self) -> ObjectId {
        self.id
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> KeyRef<'a> {
        KeyRef::from(&self.record.key)
    }

    /// The put that made it.
    #[must_use]
    pub fn version(&self) -> Version {
        Version {
            epoch: self.table.shared.epochs.value(self.record.epoch),
            counter: self.record.counter,
        }
    }

    /// Its size, in bytes.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.record.size_bytes
    }

    /// The digest of its bytes.
    #[must_use]
    pub const fn digest(&self) -> Digest {
        Digest(self.record.digest)
    }

    /// How many replicas were asked for.
    #[must_use]
    pub const fn wanted(&self) -> u8 {
        self.record.wanted
    }

    /// What it is, besides its bytes.
    #[must_use]
    pub fn attributes(&self) -> &'a Attributes {
        self.record
            .more
            .as_ref()
            .map_or(&PLAIN, |more| &more.attributes)
    }

    /// One list of extents for each replica that can be read: none of it lies on a segment that
    /// was lost.
    #[must_use]
    pub fn replicas(&self) -> Vec<Vec<Extent>> {
        self.held_replicas()
            .filter(|replica| !self.table.has_lost(replica.iter().copied()))
            .collect()
    }

    /// The extents of all replicas that can be read.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + use<'a> {
        let this = *self;
        (0..self.held_count())
            .filter(move |replica| !this.table.has_lost(this.replica(*replica)))
            .flat_map(move |replica| this.replica(replica))
    }

    /// Whether a replica that can be read has an extent on this segment.
    #[must_use]
    pub fn lies_on(&self, segment: SegmentId) -> bool {
        self.extents().any(|extent| extent.slab.segment == segment)
    }

    /// Whether a replica can be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.table.lost.is_empty() || self.extents().next().is_some()
    }

    /// How many replicas are noted, those on lost segments included.
    pub(crate) fn held_count(&self) -> u8 {
        self.record.replica_count()
    }

    /// The extents of one replica, readable or not.
    pub(crate) fn replica(&self, replica: u8) -> impl Iterator<Item = Extent> + use<'a> {
        let table = self.table;
        self.record
            .places()
            .filter(move |place| place.replica == replica)
            .map(move |place| place.extent(&table.shared))
    }

    /// The extents of all replicas, those on lost segments included.
    pub(crate) fn held_extents(&self) -> impl Iterator<Item = Extent> + use<'a> {
        let table = self.table;
        self.record
            .places()
            .map(move |place| place.extent(&table.shared))
    }

    /// How many objects it counts for when a turn may touch so many: one, and one more for each
    /// extent beyond the first of a replica.
    pub(crate) fn weight(&self) -> u32 {
        let replicas = usize::from(self.held_count());
        let more = self.record.extent_count().saturating_sub(replicas);
        u32::try_from(more).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// What its tenant is charged, in bytes; `None` on overflow.
    #[must_use]
    pub fn charge_bytes(&self) -> Option<u64> {
        quota::charge_of_extents(self.held_extents())
    }

    /// One list of extents for each replica, readable or not.
    pub(crate) fn held_replicas(&self) -> impl Iterator<Item = Vec<Extent>> + use<'a> {
        let this = *self;
        (0..self.held_count()).map(move |replica| this.replica(replica).collect())
    }

    /// The object, owned, with the replicas that can be read.
    #[must_use]
    pub fn to_object(&self) -> Object {
        Object {
            version: self.version(),
            size_bytes: self.size_bytes(),
            digest: self.digest(),
            replicas: self.replicas(),
            wanted: self.wanted(),
            attributes: self.attributes().clone(),
        }
    }
}

/// By what is said of the object, not by its place.
impl PartialEq for ObjectRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
            && self.version() == other.version()
            && self.size_bytes() == other.size_bytes()
            && self.digest() == other.digest()
            && self.wanted() == other.wanted()
            && self.attributes() == other.attributes()
            && self.held_count() == other.held_count()
            && (0..self.held_count()).all(|at| self.replica(at).eq(other.replica(at)))
    }
}

impl Eq for ObjectRef<'_> {}

impl std::fmt::Debug for ObjectRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ObjectRef")
            .field(&self.id)
            .field(&self.key())
            .field(&self.version())
            .field(&self.held_replicas().collect::<Vec<_>>())
            .finish()
    }
}
