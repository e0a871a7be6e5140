//! The allocator of one slab: best fit over 64-bit holes, merged on free.
//!
//! It keeps holes only; what lies between them is known by the objects, so a slab that is full of
//! small objects costs nothing here.

use std::collections::{BTreeMap, BTreeSet};

/// Why a range could not be reserved or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The range is empty or leaves the slab.
    #[error("the range {offset_bytes}+{length_bytes} is empty or leaves the slab")]
    Outside {
        /// Start of the range, in bytes.
        offset_bytes: u64,
        /// Length of the range, in bytes.
        length_bytes: u64,
    },
    /// A part of the range to reserve is in use.
    #[error("a part of the range {offset_bytes}+{length_bytes} is in use")]
    InUse {
        /// Start of the range, in bytes.
        offset_bytes: u64,
        /// Length of the range, in bytes.
        length_bytes: u64,
    },
    /// A part of the range to free is free.
    #[error("a part of the range {offset_bytes}+{length_bytes} is free already")]
    Free {
        /// Start of the range, in bytes.
        offset_bytes: u64,
        /// Length of the range, in bytes.
        length_bytes: u64,
    },
}

/// Which bytes of one slab are free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocator {
    size_bytes: u64,
    free_bytes: u64,
    /// Length of each hole by its offset. No two touch.
    holes: BTreeMap<u64, u64>,
    /// The same holes as (length, offset): best fit is the first that is long enough.
    by_length: BTreeSet<(u64, u64)>,
}

impl Allocator {
    /// An empty slab of `size_bytes`.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        let mut new = Self {
            size_bytes,
            free_bytes: 0,
            holes: BTreeMap::new(),
            by_length: BTreeSet::new(),
        };
        if size_bytes > 0 {
            new.add_hole(0, size_bytes);
            new.free_bytes = size_bytes;
        }
        new
    }

    /// The size of the slab, in bytes.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes in holes.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Whether nothing is reserved.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.free_bytes == self.size_bytes
    }

    /// The longest hole, in bytes.
    #[must_use]
    pub fn largest_hole_bytes(&self) -> u64 {
        self.by_length.last().map_or(0, |&(length, _)| length)
    }

    /// Each hole as (offset, length), in bytes, in order.
    pub fn holes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.holes.iter().map(|(&offset, &length)| (offset, length))
    }

    /// Where `length_bytes` would go at a multiple of `align_bytes`: the start of the shortest
    /// hole that holds it. Changes nothing.
    #[must_use]
    pub fn find(&self, length_bytes: u64, align_bytes: u64) -> Option<u64> {
        if length_bytes == 0 || align_bytes == 0 {
            return None;
        }
        // A hole as long as the payload and one alignment always does, so this looks only at
        // holes of nearly equal length.
        self.by_length
            .range((length_bytes, 0)..)
            .find_map(|&(hole_bytes, hole)| {
                let offset = hole.checked_next_multiple_of(align_bytes)?;
                let end = offset.checked_add(length_bytes)?;
                (end <= hole.checked_add(hole_bytes)?).then_some(offset)
            })
    }

    /// Reserves `length_bytes` at a multiple of `align_bytes`; the offset, in bytes.
    pub fn reserve(&mut self, length_bytes: u64, align_bytes: u64) -> Option<u64> {
        let offset = self.find(length_bytes, align_bytes)?;
        self.reserve_at(offset, length_bytes).ok()?;
        Some(offset)
    }

    /// Reserves exactly this range.
    ///
    /// # Errors
    /// [`AllocError`] if it leaves the slab or a part of it is in use; nothing is changed then.
    pub fn reserve_at(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), AllocError> {
        let end = self.end_of(offset_bytes, length_bytes)?;
        let hole = self
            .holes
            .range(..=offset_bytes)
            .next_back()
            .map(|(&o, &l)| (o, l));
        let Some((hole, hole_bytes)) = hole.filter(|&(o, l)| o + l >= end) else {
            return Err(AllocError::InUse {
                offset_bytes,
                length_bytes,
            });
        };
        self.drop_hole(hole, hole_bytes);
        if hole < offset_bytes {
            self.add_hole(hole, offset_bytes - hole);
        }
        if end < hole + hole_bytes {
            self.add_hole(end, hole + hole_bytes - end);
        }
        self.free_bytes -= length_bytes;
        Ok(())
    }

    /// Frees exactly this range and merges it with the holes beside it.
    ///
    /// # Errors
    /// [`AllocError`] if it leaves the slab or a part of it is free; nothing is changed then.
    pub fn free(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), AllocError> {
        let end = self.end_of(offset_bytes, length_bytes)?;
        let before = self.holes.range(..end).next_back().map(|(&o, &l)| (o, l));
        if before.is_some_and(|(o, l)| o + l > offset_bytes) {
            return Err(AllocError::Free {
                offset_bytes,
                length_bytes,
            });
        }
        let (mut start, mut stop) = (offset_bytes, end);
        if let Some((hole, hole_bytes)) = before.filter(|&(o, l)| o + l == offset_bytes) {
            self.drop_hole(hole, hole_bytes);
            start = hole;
        }
        if let Some(hole_bytes) = self.holes.get(&end).copied() {
            self.drop_hole(end, hole_bytes);
            stop = end + hole_bytes;
        }
        self.add_hole(start, stop - start);
        self.free_bytes += length_bytes;
        Ok(())
    }

    /// Whether the two indexes and the count agree and no two holes touch.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let mut last_end = None;
        let mut sum = 0u64;
        for (offset, length) in self.holes() {
            let end = offset.saturating_add(length);
            let apart = last_end.is_none_or(|last| offset > last);
            if length == 0 || !apart || end > self.size_bytes {
                return false;
            }
            if !self.by_length.contains(&(length, offset)) {
                return false;
            }
            last_end = Some(end);
            sum = sum.saturating_add(length);
        }
        sum == self.free_bytes && self.by_length.len() == self.holes.len()
    }

    /// The end of a range that lies within the slab.
    fn end_of(&self, offset_bytes: u64, length_bytes: u64) -> Result<u64, AllocError> {
        offset_bytes
            .checked_add(length_bytes)
            .filter(|&end| length_bytes > 0 && end <= self.size_bytes)
            .ok_or(AllocError::Outside {
                offset_bytes,
                length_bytes,
            })
    }

    fn add_hole(&mut self, offset: u64, length: u64) {
        self.holes.insert(offset, length);
        self.by_length.insert((length, offset));
    }

    fn drop_hole(&mut self, offset: u64, length: u64) {
        self.holes.remove(&offset);
        self.by_length.remove(&(length, offset));
    }
}

#[cfg(test)]
mod tests;
