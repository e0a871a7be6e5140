//! The allocator of one slab: best fit over 64-bit holes, merged on free.
//!
//! It keeps holes only; what lies between them is known by the objects, so a slab that is full of
//! small objects costs nothing here. Both indexes are flat words, so that the leader's copy of a
//! slab with many holes is a matter of microseconds.

use larder_types::layout;

use crate::pages::SortedPages;

/// Holes are counted in units of the smallest alignment.
const UNIT: u64 = layout::SMALL_ALIGN_BYTES;
/// How many holes that are long enough but badly aligned are looked at before one is taken that
/// is long enough for any alignment.
const TRIES: usize = 64;

/// Why a range could not be reserved or freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocError {
    /// The range is empty, leaves the slab, or is not made of whole units of 256 bytes.
    #[error("the range {offset_bytes}+{length_bytes} is empty, uneven or leaves the slab")]
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
    /// Each hole as its offset and length, in units. No two touch.
    holes: SortedPages,
    /// The same holes as length and offset: best fit is the first that is long enough.
    by_length: SortedPages,
}

/// Two numbers of units in one word, which sorts by the first.
const fn pair(first: u64, second: u64) -> u64 {
    first << 32 | second
}

/// The two numbers of a word.
const fn halves(word: u64) -> (u64, u64) {
    (word >> 32, word & 0xffff_ffff)
}

impl Allocator {
    /// An empty slab of `size_bytes`: a multiple of 256, at most [`layout::MAX_SLAB_BYTES`]. What
    /// is more is not used.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        let units = size_bytes.min(layout::MAX_SLAB_BYTES) / UNIT;
        let mut new = Self {
            size_bytes: units * UNIT,
            free_bytes: units * UNIT,
            holes: SortedPages::default(),
            by_length: SortedPages::default(),
        };
        if units > 0 {
            new.add_hole(0, units);
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
        self.by_length
            .last()
            .map_or(0, |word| halves(word).0 * UNIT)
    }

    /// How many holes there are.
    #[must_use]
    pub const fn hole_count(&self) -> usize {
        self.holes.len()
    }

    /// Each hole as (offset, length), in bytes, in order.
    pub fn holes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.holes.iter().map(|word| {
            let (offset, length) = halves(word);
            (offset * UNIT, length * UNIT)
        })
    }

    /// Each hole as (offset, length), in bytes, the longest first.
    pub fn longest_holes(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_length.descending().map(|word| {
            let (length, offset) = halves(word);
            (offset * UNIT, length * UNIT)
        })
    }

    /// Where `length_bytes` would go at a multiple of `align_bytes`: the start of the shortest
    /// hole that holds it. Changes nothing.
    #[must_use]
    pub fn find(&self, length_bytes: u64, align_bytes: u64) -> Option<u64> {
        if length_bytes == 0 || length_bytes > self.free_bytes || align_bytes == 0 {
            return None;
        }
        let (length, align) = (length_bytes.div_ceil(UNIT), align_bytes.div_ceil(UNIT));
        let fits = |word: u64| {
            let (hole_units, hole) = halves(word);
            let offset = hole.checked_next_multiple_of(align)?;
            (offset + length <= hole + hole_units).then_some(offset * UNIT)
        };
        // A hole as long as the payload and one alignment always does. There may be very many
        // that are a little shorter and lie badly, so only some of them are tried.
        let near = self.by_length.from(pair(length, 0));
        let sure = pair(length.saturating_add(align - 1).min(u64::from(u32::MAX)), 0);
        let any = || self.by_length.from(sure).next().and_then(fits);
        near.take(TRIES).find_map(fits).or_else(any)
    }

    /// Reserves `length_bytes` at a multiple of `align_bytes`; the offset, in bytes.
    pub fn reserve(&mut self, length_bytes: u64, align_bytes: u64) -> Option<u64> {
        let offset = self.find(length_bytes, align_bytes)?;
        self.reserve_at(offset, length_bytes).ok()?;
        Some(offset)
    }

    /// Reserves exactly this range, in multiples of 256 bytes.
    ///
    /// # Errors
    /// [`AllocError`] if it leaves the slab or a part of it is in use; nothing is changed then.
    pub fn reserve_at(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), AllocError> {
        let (offset, end) = self.range_of(offset_bytes, length_bytes)?;
        let hole = self.hole_at_or_below(offset);
        let Some((hole, hole_end)) = hole.filter(|(_, hole_end)| *hole_end >= end) else {
            return Err(AllocError::InUse {
                offset_bytes,
                length_bytes,
            });
        };
        self.drop_hole(hole, hole_end - hole);
        if hole < offset {
            self.add_hole(hole, offset - hole);
        }
        if end < hole_end {
            self.add_hole(end, hole_end - end);
        }
        self.free_bytes -= length_bytes;
        Ok(())
    }

    /// Frees exactly this range and merges it with the holes beside it.
    ///
    /// # Errors
    /// [`AllocError`] if it leaves the slab or a part of it is free; nothing is changed then.
    pub fn free(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), AllocError> {
        let (offset, end) = self.range_of(offset_bytes, length_bytes)?;
        let before = self.hole_at_or_below(end - 1);
        if before.is_some_and(|(_, hole_end)| hole_end > offset) {
            return Err(AllocError::Free {
                offset_bytes,
                length_bytes,
            });
        }
        let (mut start, mut stop) = (offset, end);
        if let Some((hole, hole_end)) = before.filter(|(_, hole_end)| *hole_end == offset) {
            self.drop_hole(hole, hole_end - hole);
            start = hole;
        }
        if let Some((hole, hole_end)) = self.hole_at_or_below(end).filter(|(hole, _)| *hole == end)
        {
            self.drop_hole(hole, hole_end - hole);
            stop = hole_end;
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
        for (offset, length) in self.holes.iter().map(halves) {
            let end = offset + length;
            let apart = last_end.is_none_or(|last| offset > last);
            if length == 0 || !apart || end * UNIT > self.size_bytes {
                return false;
            }
            last_end = Some(end);
            sum += length * UNIT;
        }
        let mut by_length: Vec<u64> = self.holes.iter().map(|word| word.rotate_left(32)).collect();
        by_length.sort_unstable();
        sum == self.free_bytes && self.by_length.iter().eq(by_length)
    }

    /// Start and end, in units, of a range that lies within the slab.
    fn range_of(&self, offset_bytes: u64, length_bytes: u64) -> Result<(u64, u64), AllocError> {
        let whole = offset_bytes.is_multiple_of(UNIT) && length_bytes.is_multiple_of(UNIT);
        let end_bytes = offset_bytes.checked_add(length_bytes);
        match end_bytes.filter(|end| whole && length_bytes > 0 && *end <= self.size_bytes) {
            Some(end_bytes) => Ok((offset_bytes / UNIT, end_bytes / UNIT)),
            None => Err(AllocError::Outside {
                offset_bytes,
                length_bytes,
            }),
        }
    }

    /// Start and end of the last hole that starts at or below `unit`.
    fn hole_at_or_below(&self, unit: u64) -> Option<(u64, u64)> {
        let word = self.holes.at_or_below(pair(unit, u64::from(u32::MAX)))?;
        let (offset, length) = halves(word);
        Some((offset, offset + length))
    }

    fn add_hole(&mut self, offset: u64, length: u64) {
        self.holes.insert(pair(offset, length));
        self.by_length.insert(pair(length, offset));
    }

    fn drop_hole(&mut self, offset: u64, length: u64) {
        self.holes.remove(pair(offset, length));
        self.by_length.remove(pair(length, offset));
    }
}

#[cfg(test)]
mod tests;
