//! The words of registration: what is registered, what peers are told, and why not.

use super::REGIONS_MAX;

pub use larder_wire::engine::{BufferAccess as Access, Changes, Described, Known, Refusal, Region};

/// A buffer to register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferSpec {
    /// Its address, as peers name its bytes.
    pub start: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// Its regions, in order; none: all of it lies anywhere.
    pub regions: Vec<Region>,
    /// What peers may do with it.
    pub access: Access,
}

/// Why a buffer was not registered, or not taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// It has no bytes.
    #[error("a buffer at {start:#x} has no bytes; register at least one")]
    Empty {
        /// Its address.
        start: u64,
    },
    /// It leaves the address space.
    #[error("{bytes} bytes from {start:#x} leave the address space")]
    Overflow {
        /// Its address.
        start: u64,
        /// How long it is, in bytes.
        bytes: u64,
    },
    /// Another one has some of its bytes.
    #[error(
        "{bytes} bytes from {start:#x} overlap the buffer of {other_bytes} bytes from \
         {other_start:#x}; unregister that one first, or register what lies beside it"
    )]
    Overlap {
        /// Its address.
        start: u64,
        /// How long it is, in bytes.
        bytes: u64,
        /// The other one's address.
        other_start: u64,
        /// The other one's length, in bytes.
        other_bytes: u64,
    },
    /// Its regions do not follow each other, or do not end where it does.
    #[error(
        "the regions of a buffer follow each other, are {REGIONS_MAX} at most, and end where it \
         does, after {bytes} bytes"
    )]
    Regions {
        /// How long it is, in bytes.
        bytes: u64,
    },
    /// There are as many as there may be.
    #[error("{count} buffers are registered, as many as may be; register fewer, larger ones")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// It is registered no more.
    #[error("this buffer is registered no more")]
    Stale,
}
