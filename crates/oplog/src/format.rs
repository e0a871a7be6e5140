//! The bytes of a segment file: its header and its records. The tables stand in the crate's doc.

use crate::Position;

/// What a segment file starts with.
const MAGIC: [u8; 8] = *b"LARDRLOG";
/// The format that this crate writes. It reads this one only; an older one there is not.
pub const FORMAT_VERSION: u16 = 1;
/// The length of a segment's header in bytes.
pub const SEGMENT_HEADER_BYTES: u64 = 64;
/// The length of a record's header in bytes.
pub const RECORD_HEADER_BYTES: u64 = 32;
/// The largest payload of an entry: 16 MiB. An entry of 4,096 ops of 160 bytes has 640 KiB.
pub const ENTRY_BYTES_MAX: usize = 16 << 20;

const HEADER: usize = SEGMENT_HEADER_BYTES as usize;
const HEAD: usize = RECORD_HEADER_BYTES as usize;
const STARTS_OVER: u8 = 1;
const HAS_PREVIOUS: u8 = 2;

/// Why bytes are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// The file ends before they do.
    Short,
    /// They are there and wrong.
    Bad(&'static str),
    /// A newer version wrote them.
    Newer(u16),
}

/// The header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Segments are numbered in the order in which they were begun, without a gap.
    pub(crate) sequence: u64,
    /// The entry before the first one that may stand here.
    pub(crate) previous: Option<Position>,
    /// Everything through `previous` is purged, whether the log had it or not.
    pub(crate) starts_over: bool,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let previous = self.previous.unwrap_or_default();
        let starts_over = if self.starts_over { STARTS_OVER } else { 0 };
        let has_previous = self.previous.map_or(0, |_| HAS_PREVIOUS);
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[10] = starts_over | has_previous;
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..32].copy_from_slice(&previous.term.to_le_bytes());
        bytes[32..40].copy_from_slice(&previous.index.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of a file with this number.
    pub(crate) fn parse(file: &[u8], sequence: u64) -> Result<Self, Flaw> {
        let bytes: &[u8; HEADER] = file.first_chunk().ok_or(Flaw::Short)?;
        if bytes[..8] != MAGIC {
            return Err(Flaw::Bad("it does not start like a segment of a log"));
        }
        if crc32c::crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(Flaw::Bad("the segment's header has another checksum"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > FORMAT_VERSION {
            return Err(Flaw::Newer(version));
        }
        let flags = bytes[10];
        let is_zero = |range: &[u8]| range.iter().all(|byte| *byte == 0);
        if version == 0 || flags > 3 || !is_zero(&bytes[11..16]) || !is_zero(&bytes[40..60]) {
            return Err(Flaw::Bad("the segment's header has fields of no version"));
        }
        let header = Self {
            sequence: u64_at(bytes, 16),
            previous: (flags & HAS_PREVIOUS != 0).then(|| Position {
                term: u64_at(bytes, 24),
                index: u64_at(bytes, 32),
            }),
            starts_over: flags & STARTS_OVER != 0,
        };
        if header.sequence != sequence {
            return Err(Flaw::Bad("it has the number of another segment"));
        }
        Ok(header)
    }
}

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An entry of the log, at its position.
    Entry = 1,
    /// All bytes of the segment before the offset that stands in its index are durable.
    Mark = 2,
    /// Entries from this index on are gone.
    Truncate = 3,
    /// Entries through this position are committed.
    Committed = 4,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Entry),
            2 => Some(Self::Mark),
            3 => Some(Self::Truncate),
            4 => Some(Self::Committed),
            _ => None,
        }
    }
}

/// Where a record stands. It is part of its checksum, so that bytes of another place are never
/// taken for it: what a disk left in a recycled block, or a payload that looks like a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) sequence: u64,
    pub(crate) offset: u64,
}

/// A record without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) at: Position,
    pub(crate) payload_bytes: u32,
}

impl Record {
    /// The length of the whole record in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        RECORD_HEADER_BYTES + u64::from(self.payload_bytes)
    }
}

/// Appends a record. The payload has at most [`ENTRY_BYTES_MAX`] bytes.
pub(crate) fn encode(into: &mut Vec<u8>, kind: Kind, at: Position, payload: &[u8], place: Place) {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    head[8..12].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
    head[12] = kind as u8;
    head[16..24].copy_from_slice(&at.term.to_le_bytes());
    head[24..].copy_from_slice(&at.index.to_le_bytes());
    let crc = head_crc(&head, place);
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    into.extend_from_slice(&head);
    into.extend_from_slice(payload);
}

/// The record at the start of `bytes`, which go on to the end of the file, and its payload.
pub(crate) fn parse(bytes: &[u8], place: Place) -> Result<(Record, &[u8]), Flaw> {
    let head: &[u8; HEAD] = bytes.first_chunk().ok_or(Flaw::Short)?;
    if head_crc(head, place) != u32_at(head, 4) {
        return Err(Flaw::Bad("a record's header has another checksum"));
    }
    let (Some(kind), 0, 0, 0) = (Kind::of(head[12]), head[13], head[14], head[15]) else {
        return Err(Flaw::Bad("a record is of no kind"));
    };
    let payload_bytes = u32_at(head, 0);
    if payload_bytes as usize > ENTRY_BYTES_MAX || (kind != Kind::Entry && payload_bytes != 0) {
        return Err(Flaw::Bad("a record says that it is larger than it can be"));
    }
    let payload = bytes.get(HEAD..HEAD + payload_bytes as usize);
    let payload = payload.ok_or(Flaw::Short)?;
    if crc32c::crc32c(payload) != u32_at(head, 8) {
        return Err(Flaw::Bad("a record's payload has another checksum"));
    }
    let at = Position {
        term: u64_at(head, 16),
        index: u64_at(head, 24),
    };
    let record = Record {
        kind,
        at,
        payload_bytes,
    };
    Ok((record, payload))
}

/// What stands behind a bad record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    /// Good records.
    pub(crate) records: u64,
    /// Whether one of them is a mark that says that the bad one was durable once.
    pub(crate) has_mark: bool,
}

/// Looks for good records behind the bad one at `offset`; the length in a bad header helps not,
/// so every byte may start one. The first bytes refuse nearly all before a checksum is computed.
pub(crate) fn look_behind(file: &[u8], sequence: u64, offset: u64) -> Behind {
    let mut behind = Behind::default();
    let mut at = offset as usize + 1;
    while let Some(head) = file.get(at..).and_then(|rest| rest.first_chunk::<HEAD>()) {
        let is_likely = Kind::of(head[12]).is_some() && head[13..16] == [0; 3];
        let place = Place {
            sequence,
            offset: at as u64,
        };
        match is_likely.then(|| parse(&file[at..], place)) {
            Some(Ok((record, _))) => {
                behind.records += 1;
                behind.has_mark |= record.kind == Kind::Mark && record.at.index > offset;
                at += record.bytes() as usize;
            }
            _ => at += 1,
        }
    }
    behind
}

fn head_crc(head: &[u8; HEAD], place: Place) -> u32 {
    let mut crc = crc32c::crc32c(&place.sequence.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &place.offset.to_le_bytes());
    crc = crc32c::crc32c_append(crc, &head[..4]);
    crc32c::crc32c_append(crc, &head[8..])
}

/// The number at `at`, which is a constant that fits.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(number)
}

/// The number at `at`, which is a constant that fits.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(number)
}

#[cfg(test)]
mod tests;
