//! Reads one segment's bytes into the index, and judges what is wrong at its end.

use std::ops::Range;

use crate::disk::ReadDisk;
use crate::error::LogError;
use crate::format::{
    self, Behind, Flaw, Header, Kind, Place, RECORD_HEADER_BYTES, Record, SEGMENT_HEADER_BYTES,
};
use crate::index::{Index, Spot};
use crate::{Entry, Position, Restart};

/// What is known after the segments read so far.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) index: Index,
    pub(crate) committed: Option<Position>,
    /// How many entries, counted by index, were durable for sure: one more than the last one's.
    pub(crate) durable_end: u64,
    /// What the last mark of the segment says is durable, as an offset.
    pub(crate) marked_end: u64,
    /// Where the last entry or truncation of the segment ends.
    pub(crate) changed_end: u64,
    /// Whether a segment started over, behind a purge that it holds.
    pub(crate) has_started_over: bool,
}

/// A bad end that may be cut off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TornAt {
    pub(crate) offset: u64,
    pub(crate) behind: Behind,
}

/// The name of a segment's file.
pub(crate) fn segment_name(sequence: u64) -> String {
    format!("segment-{sequence:020}.log")
}

/// The number in a segment's name.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("segment-")?.strip_suffix(".log")?;
    let sequence = number.parse().ok()?;
    (segment_name(sequence) == name).then_some(sequence)
}

impl Scan {
    /// Begins with the segment's header. That it is there says that all before it is durable.
    pub(crate) fn begin(&mut self, header: Header) -> Result<(), &'static str> {
        let is_first = self.index.segments.is_empty();
        let previous = header.previous;
        if previous.is_some_and(|previous| previous.index == u64::MAX) {
            return Err("its first index is none");
        }
        // The terms are not compared: that of what stands before the first entry may be unknown.
        let first = previous.map_or(0, |previous| previous.index + 1);
        if header.starts_over && (previous.is_none() || (!is_first && first <= self.index.next())) {
            return Err("it starts over at an entry that the log has");
        }
        if !header.starts_over && !is_first && first != self.index.next() {
            return Err("it does not follow the segment before");
        }
        self.index
            .begin(header.sequence, previous, header.starts_over);
        self.has_started_over |= header.starts_over;
        self.durable_end = self.index.next();
        self.marked_end = SEGMENT_HEADER_BYTES;
        self.changed_end = SEGMENT_HEADER_BYTES;
        Ok(())
    }

    /// Reads the records of the segment that was begun. `restart` is given for the last one, whose
    /// end may be torn.
    pub(crate) fn records(
        &mut self,
        file: &[u8],
        sequence: u64,
        restart: Option<Restart>,
    ) -> Result<Option<TornAt>, LogError> {
        let name = segment_name(sequence);
        let mut offset = SEGMENT_HEADER_BYTES;
        let mut torn = None;
        while let Some(rest) = file.get(offset as usize..).filter(|rest| !rest.is_empty()) {
            let place = Place { sequence, offset };
            match format::parse(rest, place) {
                Ok((record, _)) => {
                    self.take(record, offset)
                        .map_err(|what| LogError::damaged(&name, offset, what))?;
                    offset += record.bytes();
                }
                Err(flaw) => {
                    let behind = format::look_behind(file, sequence, offset);
                    if let Some(what) = damage(flaw, behind, restart) {
                        return Err(LogError::damaged(&name, offset, what));
                    }
                    torn = Some(TornAt { offset, behind });
                    break;
                }
            }
        }
        if let Some(segment) = self.index.segments.back_mut() {
            segment.bytes = offset;
        }
        Ok(torn)
    }

    fn take(&mut self, record: Record, offset: u64) -> Result<(), &'static str> {
        let at = record.at;
        match record.kind {
            Kind::Entry => {
                if !Index::admits(self.index.last(), at) {
                    return Err("an entry does not follow the one before");
                }
                self.index.push(at, offset as u32, record.payload_bytes);
                self.changed_end = offset + record.bytes();
            }
            Kind::Mark => {
                if at.index > offset {
                    return Err("a mark says that what is behind it is durable");
                }
                self.marked_end = self.marked_end.max(at.index);
                let durable_next = self.index.next_before(at.index);
                self.durable_end = durable_next.unwrap_or(self.durable_end);
            }
            Kind::Truncate => {
                if at.index >= self.index.next() {
                    return Err("it truncates entries that are not there");
                }
                self.index.truncate(at.index);
                self.durable_end = self.durable_end.min(at.index);
                self.changed_end = offset + record.bytes();
            }
            Kind::Committed => self.committed = self.committed.max(Some(at)),
        }
        Ok(())
    }
}

/// Entries of a log whose index is known; see [`Log::read`](crate::Log::read).
pub(crate) fn read(
    disk: &mut impl ReadDisk,
    index: &Index,
    range: Range<u64>,
    bytes_max: usize,
) -> Result<Vec<Entry>, LogError> {
    let first = index.first();
    if range.start < first && !range.is_empty() {
        let index = range.start;
        return Err(LogError::Purged { index, first });
    }
    let mut entries = Vec::new();
    let mut bytes = 0;
    for number in range {
        let Some((sequence, spot)) = index.find(number) else {
            break;
        };
        bytes += RECORD_HEADER_BYTES as usize + spot.payload_bytes as usize;
        if bytes > bytes_max && !entries.is_empty() {
            break;
        }
        entries.push(read_entry(disk, sequence, spot, number)?);
    }
    Ok(entries)
}

fn read_entry(
    disk: &mut impl ReadDisk,
    sequence: u64,
    spot: Spot,
    index: u64,
) -> Result<Entry, LogError> {
    let name = segment_name(sequence);
    let offset = u64::from(spot.offset);
    let length = RECORD_HEADER_BYTES as usize + spot.payload_bytes as usize;
    let mut bytes = vec![0; length];
    let damaged = |what| LogError::damaged(&name, offset, what);
    match disk.read_at(&name, offset, &mut bytes) {
        Err(error) if error.is_short() => return Err(damaged("the file has become shorter")),
        other => other?,
    }
    let at = Position {
        term: spot.term,
        index,
    };
    match format::parse(&bytes, Place { sequence, offset }) {
        Ok((record, payload)) if record.kind == Kind::Entry && record.at == at => Ok(Entry {
            at,
            payload: payload.to_vec(),
        }),
        Err(Flaw::Bad(what)) => Err(damaged(what)),
        _ => Err(damaged("another record stands in an entry's place")),
    }
}

/// What a flaw means, if it is more than a torn end. The crate's doc has the reasons.
fn damage(flaw: Flaw, behind: Behind, restart: Option<Restart>) -> Option<&'static str> {
    let what = match flaw {
        Flaw::Short => "the file ends in the middle of a record",
        Flaw::Bad(what) => what,
        Flaw::Newer(_) => "a record is of a newer version",
    };
    match restart {
        // Segments before the last were made durable before the next was begun.
        None | Some(Restart::Clean | Restart::Fresh) => Some(what),
        Some(Restart::Killed) => (flaw != Flaw::Short).then_some(what),
        Some(Restart::PowerLost) => behind.has_mark.then_some(what),
    }
}
