//! Segments and their slabs, as the log knows them.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{
    AgentId, Extent, Registration, SegmentGeneration, SegmentId, SlabRef, TenantId, Version, layout,
};

use crate::alloc::{AllocError, Allocator};

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

/// A slab that belongs to a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slab {
    pub(crate) tenant: TenantId,
    pub(crate) registration: Registration,
    pub(crate) phase: SlabPhase,
    pub(crate) alloc: Allocator,
    /// By offset, in bytes.
    pub(crate) releasing: BTreeMap<u64, Releasing>,
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
