//! The words of registration: what is registered, what peers are told, and why not.

use serde::{Deserialize, Serialize};

use super::REGIONS_MAX;
use crate::topology::Location;

/// A part of a buffer that lies in one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Where it ends within the buffer, in bytes; the next one begins there.
    pub end_bytes: u64,
    /// Where it lies.
    pub location: Location,
}

/// What peers may do with a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Read it.
    pub read: bool,
    /// Write it.
    pub write: bool,
}

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

/// What peers are told of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Described {
    /// Its number.
    pub registration: u64,
    /// Frames that name a lower one are refused.
    pub epoch: u64,
    /// Its address.
    pub start: u64,
    /// How long it is, in bytes.
    pub bytes: u64,
    /// Its regions, in order.
    pub regions: Vec<Region>,
    /// What peers may do with it.
    pub access: Access,
}

/// What is known of somebody's buffers. The default: nothing.
///
/// Two numbers, as buffers are told page by page and what went while they were is told with each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// Buffers that came or changed through this revision.
    pub added: u64,
    /// Buffers that went through this revision.
    pub removed: u64,
}

/// What has changed beyond what is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// Forget everything first: what was known is too old.
    pub is_whole: bool,
    /// Registrations that went.
    pub removed: Vec<u64>,
    /// Buffers that came or changed, in the order in which they did. What they overlap has gone.
    pub added: Vec<Described>,
    /// What is known with this.
    pub known: Known,
    /// There is more; ask again.
    pub has_more: bool,
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

/// Why a peer may not do what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such registration, or none any more.
    #[error("there is no such registration any more")]
    StaleRegistration,
    /// The owner has cut off what was allowed until then.
    #[error("the owner has fenced this buffer since then")]
    StaleEpoch,
    /// The range leaves the buffer.
    #[error("the range leaves the buffer")]
    OutOfRange,
    /// Not for peers.
    #[error("the owner does not let peers do this")]
    NotAllowed,
}
