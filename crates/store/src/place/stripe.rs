//! Objects in several pieces: where they go when no single hole is long enough.
//!
//! * What fits a slab is cut only when no hole takes it whole and no slab can be had.
//! * What is larger than a slab gets whole slabs first and the rest in the tightest hole; slabs
//!   that are lacking are asked for all at once, and the put waits for them. Without them it goes
//!   to whatever holes there are.
//! * A piece is never shorter than a block and each but the last ends with one. So the block
//!   checksums of the pieces are those of the object, copies may be cut otherwise, and the pieces
//!   together are charged exactly what the object would be in one.

use std::cmp::Reverse;

use larder_types::layout::{BLOCK_BYTES, MAX_EXTENT_BYTES};
use larder_types::{AgentId, Extent, Key, SlabRef, TenantId, layout};

use crate::leader::Leader;
use crate::segment::SlabKey;
use crate::state::{Agent, State};

/// The shortest piece, in bytes.
const PIECE_MIN_BYTES: u64 = BLOCK_BYTES;
/// The most holes that are looked at for one replica.
const HOLES_MAX: usize = 4_096;
/// Holes shorter than one so many-th of the object are looked at only if nothing else is left.
const COARSE_PART: u64 = 16;

/// The most extents of one replica under this key: 637 with a key of 3 bytes, 104 with the longest.
///
/// The order of a copy is the longest message about them: it names each twice, with a signature
/// and a tenant's name, in at most 800 bytes, and once with the key. It has half a frame of 1 MiB.
pub(crate) fn extents_max(key: &Key) -> usize {
    const ORDER_BYTES: usize = 500 * 1024;
    const PIECE_BYTES: usize = 800;
    ORDER_BYTES / (PIECE_BYTES + key.as_bytes().len())
}

/// A replica to place on one agent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) agent: AgentId,
    pub(crate) size_bytes: u64,
    pub(crate) extents_max: usize,
}

/// What an agent has for one replica in several pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stripes {
    /// Holes for all of it.
    Ready(Vec<Extent>),
    /// Slabs that belong to nobody and are to be given first, maybe none, and one that comes.
    Coming { give: Vec<SlabKey>, on: SlabKey },
    /// Not enough; with one more hole of this length it might be.
    Short { lacking_bytes: u64 },
}

impl Stripes {
    /// How many slabs are to be given for it.
    pub(crate) fn gives(&self) -> u64 {
        match self {
            Self::Coming { give, .. } => give.len() as u64,
            Self::Ready(_) | Self::Short { .. } => 0,
        }
    }
}

/// A hole that takes a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hole {
    slab: SlabRef,
    /// A multiple of the alignment of long payloads.
    offset_bytes: u64,
    room_bytes: u64,
}

impl Hole {
    /// Whether it takes so much in one piece.
    fn takes(&self, bytes: u64) -> bool {
        let aligned = layout::reserved_bytes(bytes);
        bytes <= MAX_EXTENT_BYTES && aligned.is_some_and(|aligned| aligned <= self.room_bytes)
    }

    const fn piece(&self, length_bytes: u64) -> Extent {
        Extent {
            slab: self.slab,
            offset_bytes: self.offset_bytes,
            length_bytes,
        }
    }
}

const fn whole_blocks(bytes: u64) -> u64 {
    bytes - bytes % BLOCK_BYTES
}

/// Cuts an object of at least one block over holes: the longest are filled first, the rest goes
/// into the tightest that takes it. `None` if it does not fit, or not in so many pieces.
fn cut(size_bytes: u64, mut holes: Vec<Hole>, pieces_max: usize) -> Option<Vec<Extent>> {
    holes.sort_unstable_by_key(|hole| (Reverse(hole.room_bytes), hole.slab, hole.offset_bytes));
    let mut pieces = Vec::new();
    let mut left_bytes = size_bytes;
    for (at, hole) in holes.iter().enumerate().take(pieces_max) {
        if hole.takes(left_bytes) {
            let fitting = holes[at..].partition_point(|hole| hole.takes(left_bytes));
            pieces.push(holes[at + fitting - 1].piece(left_bytes));
            return Some(pieces);
        }
        // The last piece is not shorter than a block either.
        let spare_bytes = left_bytes.saturating_sub(PIECE_MIN_BYTES);
        let bytes = whole_blocks(hole.room_bytes.min(MAX_EXTENT_BYTES).min(spare_bytes));
        if bytes == 0 {
            return None;
        }
        pieces.push(hole.piece(bytes));
        left_bytes -= bytes;
    }
    None
}

/// What is lacking in whole slabs beside these holes, in bytes; at least one slab. What goes beyond
/// whole slabs may lie in a shorter hole.
fn lacking_bytes(size_bytes: u64, slab_bytes: u64, holes: &[Hole]) -> u64 {
    let slabs = size_bytes.div_ceil(slab_bytes);
    let rest_bytes = size_bytes - (slabs - 1) * slab_bytes;
    // It may have to be a little longer, so that it is no shorter than a block.
    let rest_bytes = rest_bytes.max(2 * PIECE_MIN_BYTES);
    let is_whole = |hole: &Hole| hole.room_bytes >= slab_bytes;
    let whole = holes.iter().filter(|hole| is_whole(hole)).count() as u64;
    let has_rest = holes
        .iter()
        .any(|hole| !is_whole(hole) && hole.takes(rest_bytes));
    let found = whole + u64::from(has_rest);
    slabs
        .saturating_sub(found)
        .max(1)
        .saturating_mul(slab_bytes)
}

impl Leader {
    /// What an agent has for a replica in several pieces. `may_use` says which slabs of the tenant
    /// may take one, `may_give` whether the tenant may have so many slabs more.
    pub(crate) fn stripes(
        &self,
        state: &State,
        load: Load<'_>,
        may_use: &dyn Fn(SlabKey) -> bool,
        may_give: &dyn Fn(u64) -> bool,
    ) -> Stripes {
        let size_bytes = load.size_bytes;
        let nothing = Stripes::Short {
            lacking_bytes: size_bytes,
        };
        let Some(agent) = state.agent(load.agent) else {
            return nothing;
        };
        let slab_bytes = self.longest_piece_bytes(state, agent);
        if slab_bytes == 0 || size_bytes < PIECE_MIN_BYTES {
            return nothing;
        }
        let coarse_bytes = (size_bytes / COARSE_PART).max(PIECE_MIN_BYTES);
        let coarse = self.holes(state, load, coarse_bytes, may_use);
        let slabs = size_bytes.div_ceil(slab_bytes);
        let lacking_bytes = lacking_bytes(size_bytes, slab_bytes, &coarse);
        let few = usize::try_from(slabs).map_or(usize::MAX, |slabs| slabs + 1);
        let cut_coarse = cut(size_bytes, coarse, load.extents_max);
        if let Some(pieces) = cut_coarse.as_ref().filter(|pieces| pieces.len() <= few) {
            return Stripes::Ready(pieces.clone());
        }
        let whole_slabs = (slab_bytes, lacking_bytes);
        if let Some(coming) = self.slabs_for(state, (load, agent), whole_slabs, may_give) {
            return coming;
        }
        let fine = self.holes(state, load, PIECE_MIN_BYTES, may_use);
        let have_bytes: u64 = fine.iter().map(|hole| whole_blocks(hole.room_bytes)).sum();
        let cut_fine = || cut(size_bytes, fine, load.extents_max);
        if let Some(pieces) = cut_coarse.or_else(cut_fine) {
            return Stripes::Ready(pieces);
        }
        // There may be enough, but in too many pieces.
        let rest_bytes = match size_bytes.saturating_sub(have_bytes) {
            0 => slab_bytes,
            rest_bytes => rest_bytes,
        };
        let any_slabs = (PIECE_MIN_BYTES, rest_bytes);
        let coming = self.slabs_for(state, (load, agent), any_slabs, may_give);
        coming.unwrap_or(Stripes::Short {
            lacking_bytes: rest_bytes.clamp(PIECE_MIN_BYTES, slab_bytes.min(size_bytes)),
        })
    }

    /// The longest piece that an agent could ever take, in bytes.
    pub(crate) fn longest_piece_bytes(&self, state: &State, agent: &Agent) -> u64 {
        let slabs = self.segments_of(state, agent).map(|s| s.slab_bytes);
        slabs.max().unwrap_or(0).min(MAX_EXTENT_BYTES)
    }

    /// Slabs of at least a size that come to the tenant, or may be given to it, if together they
    /// are as large as is wanted.
    fn slabs_for(
        &self,
        state: &State,
        (load, agent): (Load<'_>, &Agent),
        (least_bytes, wanted_bytes): (u64, u64),
        may_give: &dyn Fn(u64) -> bool,
    ) -> Option<Stripes> {
        let size_of = |slab: &SlabKey| state.segment(slab.0).map_or(0, |found| found.slab_bytes);
        let owned = self.space.owned(load.agent, load.tenant);
        let coming = owned.into_iter().flat_map(|owned| owned.coming());
        let coming = coming.filter(|slab| size_of(slab) >= least_bytes);
        let (mut sum_bytes, mut first, mut give) = (0u64, None, Vec::new());
        for slab in coming {
            first = first.or(Some(slab));
            sum_bytes = sum_bytes.saturating_add(size_of(&slab));
        }
        let failed = &self.soft.failed;
        let segments = self.segments_of(state, agent).filter(|segment| {
            segment.slab_bytes >= least_bytes && !failed.contains_key(&segment.id)
        });
        for segment in segments {
            let free = segment.free.iter().map(|index| (segment.id, *index));
            for slab in free.filter(|slab| !self.overlay.slabs.contains_key(slab)) {
                if sum_bytes >= wanted_bytes {
                    break;
                }
                give.push(slab);
                sum_bytes = sum_bytes.saturating_add(segment.slab_bytes);
            }
        }
        let on = first.or(give.first().copied())?;
        let is_enough = sum_bytes >= wanted_bytes;
        let may_have = give.is_empty() || may_give(give.len() as u64);
        (is_enough && may_have).then_some(Stripes::Coming { give, on })
    }

    /// Holes of at least `least_bytes` in ready slabs of the tenant, until they are enough.
    fn holes(
        &self,
        state: &State,
        load: Load<'_>,
        least_bytes: u64,
        may_use: &dyn Fn(SlabKey) -> bool,
    ) -> Vec<Hole> {
        let mut holes = Vec::new();
        // With some to spare, as what is left beside a piece is not used.
        let enough_bytes = load
            .size_bytes
            .saturating_add(load.size_bytes / COARSE_PART);
        let mut sum_bytes = 0u64;
        let owned = self.space.owned(load.agent, load.tenant);
        let slabs = owned.into_iter().flat_map(|owned| owned.with_most_room());
        for (segment, index) in slabs.take(HOLES_MAX).filter(|slab| may_use(*slab)) {
            let alloc = self.overlay.alloc(state, (segment, index));
            let Some((alloc, slab)) = alloc.zip(state.slab_ref(segment, index)) else {
                continue;
            };
            if alloc.largest_hole_bytes() < least_bytes {
                break;
            }
            for (start_bytes, length_bytes) in alloc.longest_holes() {
                if sum_bytes >= enough_bytes || holes.len() >= HOLES_MAX {
                    return holes;
                }
                if length_bytes < least_bytes {
                    break;
                }
                for hole in rooms(slab, start_bytes, length_bytes) {
                    sum_bytes = sum_bytes.saturating_add(hole.room_bytes);
                    holes.push(hole);
                }
            }
        }
        holes
    }
}

/// What a hole has room for, in parts that are no longer than an extent may be.
fn rooms(slab: SlabRef, start_bytes: u64, length_bytes: u64) -> impl Iterator<Item = Hole> {
    let align_bytes = layout::LARGE_ALIGN_BYTES;
    let end_bytes = start_bytes.saturating_add(length_bytes);
    let first_bytes = start_bytes.next_multiple_of(align_bytes);
    let step = usize::try_from(MAX_EXTENT_BYTES).unwrap_or(usize::MAX);
    let parts = (first_bytes..end_bytes)
        .step_by(step)
        .map(move |offset_bytes| Hole {
            slab,
            offset_bytes,
            room_bytes: (end_bytes - offset_bytes).min(MAX_EXTENT_BYTES) / align_bytes
                * align_bytes,
        });
    parts.filter(|hole| hole.room_bytes >= PIECE_MIN_BYTES)
}

#[cfg(test)]
mod tests;
