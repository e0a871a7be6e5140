//! Segments and their slabs, as the log knows them.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{
    AgentId, Extent, Registration, SegmentGeneration, SegmentId, SlabRef, TenantId, Version, layout,
};

use crate::alloc::{AllocError, Allocator};
use crate::objects::ObjectId;
use crate::pages::SortedPages;

/// Which slab of the pool: the segment and the index within it.
pub(crate) type SlabKey = (SegmentId, u16);

/// The place of a slab without its life.
pub(crate) const fn slab_key(slab: SlabRef) -> SlabKey {
    (slab.segment, slab.index)
}

/// Where a slab that belongs to a tenant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlabPhase {
    /// Its agent was told to make it.
    Giving,
    /// It holds extents, or may.
    Ready,
    /// Its agent was told to take it back; it is empty.
    Taking,
}

/// An extent that is erased as soon as its agent says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releasing {
    /// Payload, in bytes.
    pub length_bytes: u64,
    /// The version that lay there.
    pub version: Version,
}

/// Which object has an extent where in one slab: 8 bytes each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lodgers(SortedPages);

impl Lodgers {
    /// The word of an extent: offset in units of 256 bytes, then the place of the object.
    fn word(offset_bytes: u64, id: ObjectId) -> u64 {
        (offset_bytes / layout::SMALL_ALIGN_BYTES) << 32 | u64::from(id.0)
    }

    pub(crate) fn add(&mut self, offset_bytes: u64, id: ObjectId) -> bool {
        self.0.insert(Self::word(offset_bytes, id))
    }

    pub(crate) fn remove(&mut self, offset_bytes: u64, id: ObjectId) -> bool {
        self.0.remove(Self::word(offset_bytes, id))
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Offsets, in bytes, from `offset_bytes` on, with their objects.
    pub(crate) fn from(&self, offset_bytes: u64) -> impl Iterator<Item = (u64, ObjectId)> + '_ {
        self.0
            .from(Self::word(offset_bytes, ObjectId(0)))
            .map(split)
    }
}

fn split(word: u64) -> (u64, ObjectId) {
    // The lower half is a place.
    let id = ObjectId(u32::try_from(word & 0xffff_ffff).unwrap_or(u32::MAX));
    ((word >> 32) * layout::SMALL_ALIGN_BYTES, id)
}

/// By offsets: replicas of a state may keep an object at other places of the table.
impl PartialEq for Lodgers {
    fn eq(&self, other: &Self) -> bool {
        let offsets = |lodgers: &Self| lodgers.0.iter().map(|w| w >> 32).collect::<Vec<u64>>();
        self.len() == other.len() && offsets(self) == offsets(other)
    }
}

impl Eq for Lodgers {}

/// A slab that belongs to a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slab {
    pub(crate) tenant: TenantId,
    pub(crate) registration: Registration,
    pub(crate) phase: SlabPhase,
    pub(crate) alloc: Allocator,
    /// By offset, in bytes.
    pub(crate) releasing: BTreeMap<u64, Releasing>,
    pub(crate) lodgers: Lodgers,
}

impl Slab {
    /// Whose it is.
    #[must_use]
    pub const fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The life of the slab.
    #[must_use]
    pub const fn registration(&self) -> Registration {
        self.registration
    }

    /// Where it stands.
    #[must_use]
    pub const fn phase(&self) -> SlabPhase {
        self.phase
    }

    /// Which bytes neither an object nor an extent that is being released has.
    #[must_use]
    pub const fn alloc(&self) -> &Allocator {
        &self.alloc
    }

    /// The extents that are being released, by offset in bytes.
    #[must_use]
    pub const fn releasing(&self) -> &BTreeMap<u64, Releasing> {
        &self.releasing
    }

    /// How many extents of objects lie here.
    #[must_use]
    pub const fn extent_count(&self) -> usize {
        self.lodgers.len()
    }

    /// Extents of objects from `offset_bytes` on, in order: each offset, in bytes, and the place
    /// of the object in its tenant's table. An object with several extents here comes as often.
    pub fn objects_from(&self, offset_bytes: u64) -> impl Iterator<Item = (u64, ObjectId)> + '_ {
        self.lodgers.from(offset_bytes)
    }

    /// Whether objects of this tenant may lie here.
    pub(crate) fn is_open_to(&self, tenant: &TenantId) -> bool {
        self.phase == SlabPhase::Ready && self.tenant == *tenant
    }

    /// Whether exactly this extent of this version is being released.
    pub(crate) fn releases(&self, extent: &Extent, version: Version) -> bool {
        self.registration == extent.slab.registration
            && self.releasing.get(&extent.offset_bytes)
                == Some(&Releasing {
                    length_bytes: extent.length_bytes,
                    version,
                })
    }
}

/// A segment that an agent offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub(crate) id: SegmentId,
    pub(crate) agent: AgentId,
    pub(crate) ordinal: u16,
    pub(crate) generation: SegmentGeneration,
    pub(crate) slab_count: u32,
    pub(crate) slab_bytes: u64,
    pub(crate) numa: u16,
    /// The slabs that belong to a tenant.
    pub(crate) slabs: BTreeMap<u16, Slab>,
    /// All others.
    pub(crate) free: BTreeSet<u16>,
}

impl Segment {
    /// Its number.
    #[must_use]
    pub const fn id(&self) -> SegmentId {
        self.id
    }

    /// Whose memory it is.
    #[must_use]
    pub const fn agent(&self) -> AgentId {
        self.agent
    }

    /// Which segment of its agent it is.
    #[must_use]
    pub const fn ordinal(&self) -> u16 {
        self.ordinal
    }

    /// The life of its bytes.
    #[must_use]
    pub const fn generation(&self) -> SegmentGeneration {
        self.generation
    }

    /// How many slabs it has.
    #[must_use]
    pub const fn slab_count(&self) -> u32 {
        self.slab_count
    }

    /// The size of each slab, in bytes.
    #[must_use]
    pub const fn slab_bytes(&self) -> u64 {
        self.slab_bytes
    }

    /// The NUMA node that it lies on.
    #[must_use]
    pub const fn numa(&self) -> u16 {
        self.numa
    }

    /// Its size, in bytes. A mount whose product overflows is refused.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.slab_count).saturating_mul(self.slab_bytes)
    }

    /// The slabs that belong to a tenant, by index.
    #[must_use]
    pub const fn slabs(&self) -> &BTreeMap<u16, Slab> {
        &self.slabs
    }

    /// How many slabs belong to nobody.
    #[must_use]
    pub fn free_slabs(&self) -> usize {
        self.free.len()
    }

    /// The slab in the life that the reference names.
    pub(crate) fn slab(&self, slab: SlabRef) -> Option<&Slab> {
        let found = self.slabs.get(&slab.index)?;
        (found.registration == slab.registration && self.agent == slab.agent).then_some(found)
    }

    /// As [`Self::slab`].
    pub(crate) fn slab_mut(&mut self, slab: SlabRef) -> Option<&mut Slab> {
        if self.agent != slab.agent {
            return None;
        }
        self.slabs
            .get_mut(&slab.index)
            .filter(|found| found.registration == slab.registration)
    }

    /// The name of a slab in its present life.
    pub(crate) fn slab_ref(&self, index: u16, registration: Registration) -> SlabRef {
        SlabRef {
            agent: self.agent,
            segment: self.id,
            index,
            registration,
        }
    }
}

/// Reserves the aligned space of `extent`.
pub(crate) fn reserve_extent(alloc: &mut Allocator, extent: &Extent) -> Result<(), AllocError> {
    let (offset_bytes, length_bytes) = (extent.offset_bytes, extent.length_bytes);
    let outside = AllocError::Outside {
        offset_bytes,
        length_bytes,
    };
    let aligned = layout::reserved_bytes(length_bytes).ok_or(outside)?;
    if offset_bytes % layout::align_bytes(length_bytes) != 0 {
        return Err(outside);
    }
    alloc.reserve_at(offset_bytes, aligned)
}

/// Frees the aligned space of an extent.
pub(crate) fn free_extent(
    alloc: &mut Allocator,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<(), AllocError> {
    let outside = AllocError::Outside {
        offset_bytes,
        length_bytes,
    };
    let aligned = layout::reserved_bytes(length_bytes).ok_or(outside)?;
    alloc.free(offset_bytes, aligned)
}
