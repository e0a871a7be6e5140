//! Tickets: leave to move the bytes of one range, given out once and given back once.
//!
//! A ticket that is dropped keeps its range held for ever; whoever bears one gives it back from a
//! guard, also when its connection dies. One whose slab or version has ended meanwhile is given
//! back like any other, and only counted.

use std::sync::Arc;

use larder_types::{SlabRef, Version};
use larder_wire::Receipt;

use super::hold::HoldId;
use crate::memory::SlabMemory;

/// What comes of asking to write.
#[derive(Debug)]
#[must_use]
pub enum WriteStart {
    /// Put the bytes there, then finish or abort.
    Go(WriteTicket),
    /// This very version is written already: the receipt again, and its block checksums.
    Already(Receipt, Vec<u32>),
}

/// Leave to write one extent. Its bearer alone touches the range.
#[derive(Debug)]
#[must_use = "give it back with finish_write or abort_write"]
pub struct WriteTicket {
    pub(super) id: HoldId,
    /// The slab's memory.
    pub memory: Arc<SlabMemory>,
    /// Where the extent starts in the slab, in bytes.
    pub offset_bytes: u64,
    /// How long it is, in bytes.
    pub length_bytes: u64,
}

/// Leave to read a part of one written extent.
#[derive(Debug)]
#[must_use = "give it back with end_read"]
pub struct ReadTicket {
    pub(super) id: HoldId,
    /// The slab's memory.
    pub memory: Arc<SlabMemory>,
    /// Where the asked bytes start in the slab, in bytes.
    pub offset_bytes: u64,
    /// How many were asked, in bytes.
    pub length_bytes: u64,
    /// The version that the record names.
    pub version: Version,
    /// CRC-32C of each 64 KiB of the asked bytes, from the record.
    pub block_crcs: Vec<u32>,
}

/// A hold on one written extent for reading in place.
#[derive(Debug)]
#[must_use = "give it back with close_view"]
pub struct ViewTicket {
    pub(super) id: HoldId,
    /// The slab's memory, for the descriptor that the client needs.
    pub memory: Arc<SlabMemory>,
    /// The slab.
    pub slab: SlabRef,
    /// Where the extent starts in the slab, in bytes.
    pub offset_bytes: u64,
    /// How long it is, in bytes.
    pub length_bytes: u64,
    /// The version that the record names.
    pub version: Version,
    /// CRC-32C of each 64 KiB, from the record.
    pub block_crcs: Vec<u32>,
}
