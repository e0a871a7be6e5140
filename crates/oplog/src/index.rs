//! Where each entry of the log stands; kept by opening and by writing through the same calls.

use std::collections::VecDeque;

use crate::Position;

/// A segment file and those of its entries that are in the log: one run of indexes, since a
/// truncation takes entries off the end and a purge off the beginning.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) sequence: u64,
    /// The length of the file in bytes.
    pub(crate) bytes: u64,
    /// The index of the first of `entries`.
    from: u64,
    entries: VecDeque<Spot>,
}

/// One entry: 16 bytes of memory, so [`Options::entries_max`](crate::Options::entries_max) of
/// 4 Mi entries bounds the index to 64 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) term: u64,
    /// Of the record in its file; a segment is shorter than 2 GiB.
    pub(crate) offset: u32,
    pub(crate) payload_bytes: u32,
}

/// All segments, from the oldest to the one that is written.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) segments: VecDeque<Segment>,
    /// What stands before the first entry. Its term is 0 if it is not known yet, while a log is
    /// opened.
    base: Option<Position>,
    count: u64,
}

impl Index {
    /// Begins the next segment. The log goes on behind its last entry, or starts over behind
    /// `previous`.
    pub(crate) fn begin(&mut self, sequence: u64, previous: Option<Position>, starts_over: bool) {
        if starts_over || self.segments.is_empty() {
            for segment in &mut self.segments {
                segment.entries.clear();
            }
            self.count = 0;
            self.base = previous;
        }
        self.segments.push_back(Segment {
            sequence,
            bytes: crate::SEGMENT_HEADER_BYTES,
            from: 0,
            entries: VecDeque::new(),
        });
    }

    /// The last entry, or what stands before the first if there is none.
    pub(crate) fn last(&self) -> Option<Position> {
        let filled = self
            .segments
            .iter()
            .rev()
            .find(|one| !one.entries.is_empty());
        filled.map_or(self.base, |segment| {
            let spot = segment.entries.back()?;
            Some(Position {
                term: spot.term,
                index: segment.from + segment.entries.len() as u64 - 1,
            })
        })
    }

    /// The index behind the last entry of the newest segment that stands before an offset in it.
    pub(crate) fn next_before(&self, offset: u64) -> Option<u64> {
        let newest = self.segments.back()?;
        let spots = &newest.entries;
        let before = spots.partition_point(|spot| u64::from(spot.offset) < offset);
        (before > 0).then(|| newest.from + before as u64)
    }

    /// The index of the next entry.
    pub(crate) fn next(&self) -> u64 {
        self.last().map_or(0, |last| last.index.saturating_add(1))
    }

    /// The index of the first entry, or of the next if there is none.
    pub(crate) fn first(&self) -> u64 {
        self.base.map_or(0, |base| base.index.saturating_add(1))
    }

    pub(crate) fn base(&self) -> Option<Position> {
        self.base
    }

    /// How many entries there are.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Whether an entry at `at` can follow. The last index there is stays free.
    pub(crate) fn admits(last: Option<Position>, at: Position) -> bool {
        let next = last.map_or(0, |last| last.index.saturating_add(1));
        at.index == next && at.index < u64::MAX && last.is_none_or(|last| at.term >= last.term)
    }

    /// Adds an entry to the newest segment.
    pub(crate) fn push(&mut self, at: Position, offset: u32, payload_bytes: u32) {
        let Some(segment) = self.segments.back_mut() else {
            return;
        };
        if segment.entries.is_empty() {
            segment.from = at.index;
        }
        segment.entries.push_back(Spot {
            term: at.term,
            offset,
            payload_bytes,
        });
        self.count += 1;
    }

    /// Drops the entries from `from` on, which is at most [`next`](Self::next).
    pub(crate) fn truncate(&mut self, from: u64) {
        for segment in self.segments.iter_mut().rev() {
            let keep = from.saturating_sub(segment.from) as usize;
            if keep < segment.entries.len() {
                self.count -= (segment.entries.len() - keep) as u64;
                segment.entries.truncate(keep);
            }
        }
        if from < self.first() {
            self.base = from.checked_sub(1).map(|index| Position { term: 0, index });
        }
    }

    /// Drops the entries through `through`, which is known to be the last that is not needed.
    pub(crate) fn purge(&mut self, through: Position) {
        for segment in &mut self.segments {
            let past = through.index.saturating_add(1).saturating_sub(segment.from) as usize;
            let gone = past.min(segment.entries.len());
            segment.entries.drain(..gone);
            segment.from += gone as u64;
            self.count -= gone as u64;
        }
        self.base = Some(through);
    }

    /// How many of the oldest segments hold nothing after a purge through `through`. What a later
    /// segment truncates of theirs is of no matter then: its record says where the log goes on.
    pub(crate) fn obsolete(&self, through: Position) -> usize {
        let is_needed = |segment: &Segment| {
            let end = segment.from + segment.entries.len() as u64;
            !segment.entries.is_empty() && end > through.index.saturating_add(1)
        };
        // The newest one stays, since it is written.
        let older = self.segments.len().saturating_sub(1);
        let oldest = self.segments.iter().take(older);
        oldest.take_while(|segment| !is_needed(segment)).count()
    }

    /// The segment of an entry, and where it stands there.
    pub(crate) fn find(&self, index: u64) -> Option<(u64, Spot)> {
        // Segments are few: `Options::bytes_max` over the size of one, 128 by default.
        self.segments.iter().rev().find_map(|segment| {
            let nth = index.checked_sub(segment.from)? as usize;
            Some((segment.sequence, *segment.entries.get(nth)?))
        })
    }

    /// The position of an entry, or of what stands before the first.
    pub(crate) fn position(&self, index: u64) -> Option<Position> {
        if let Some(base) = self.base
            && base.index == index
        {
            return Some(base);
        }
        let (_, spot) = self.find(index)?;
        Some(Position {
            term: spot.term,
            index,
        })
    }

    /// The bytes of all segments.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}
