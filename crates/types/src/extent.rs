//! Extents: where a piece of a replica lies.

use crate::id::{AgentId, Registration, SegmentId};

/// One slab in one life: which segment, which slab of it, and the registration under which it
/// belongs to its present tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SlabRef {
    /// The agent that owns the memory.
    pub agent: AgentId,
    /// The segment within the pool.
    pub segment: SegmentId,
    /// The slab within the segment, from 0; at most 16,383.
    pub index: u16,
    /// The life of the slab.
    pub registration: Registration,
}

/// A contiguous piece of a replica: `length_bytes` of payload from `offset_bytes` of a slab.
/// Space is charged and freed in aligned units, see [`crate::layout::reserved_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Extent {
    /// The slab it lies in.
    pub slab: SlabRef,
    /// Where it starts within the slab, in bytes; a multiple of its alignment.
    pub offset_bytes: u64,
    /// Payload, in bytes; never 0.
    pub length_bytes: u64,
}
