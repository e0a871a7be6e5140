//! Moving bytes: memory, slabs, records and the transports that reach them.
//!
//! [`memory`] is the only place of `unsafe` code. [`Segments`] is the pure half of an agent's data
//! path: told time and commands, it says which bytes may be touched and when they may be reused.

pub mod endpoint;
pub mod engine;
pub mod interop;
pub mod lane;
pub mod memory;
pub mod record;
pub mod record_file;
pub mod segments;
pub mod serve;
pub mod topology;
pub mod transport;

pub use memory::{ForeignMap, MemoryError, OwnMemory, SharedBuffer, SlabMemory, ViewMap};
pub use segments::{
    InventoryCursor, InventoryPage, LocalMs, ReadTicket, Segments, SegmentsHandle, SegmentsStats,
    StaleEpoch, ViewTicket, WriteStart, WriteTicket,
};
