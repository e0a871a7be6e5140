//! Records that are written by one call.

use crate::Position;
use crate::format::{self, Kind, Place};

/// Records for the end of a segment.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) sequence: u64,
    /// Where the first record will stand.
    pub(crate) offset: u64,
    /// At most `BATCH_BYTES_MAX`, and two records without a payload.
    pub(crate) bytes: Vec<u8>,
    /// The end of what a mark in it says is durable.
    pub(crate) marks: Option<u64>,
    pub(crate) has_committed: bool,
}

impl Batch {
    pub(crate) fn new(sequence: u64, offset: u64) -> Self {
        Self {
            sequence,
            offset,
            bytes: Vec::new(),
            marks: None,
            has_committed: false,
        }
    }

    /// Adds a record and returns the offset at which it will stand.
    pub(crate) fn push(&mut self, kind: Kind, at: Position, payload: &[u8]) -> u32 {
        let place = Place {
            sequence: self.sequence,
            offset: self.offset + self.bytes.len() as u64,
        };
        format::encode(&mut self.bytes, kind, at, payload, place);
        place.offset as u32
    }
}
