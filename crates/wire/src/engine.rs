//! Calls between engines: the bytes of registered buffers, what is registered, and notices.
//!
//! Every frame carries the session that the hello gave, and a connection ends with either process,
//! so the incarnations that the hello exchanged are those of every frame. Registration and epoch
//! stand in each call and are compared at each step of a payload, not only before it.

use serde::{Deserialize, Serialize};

use crate::location::Location;

/// The most buffers in one answer to [`Kind::EngineChanges`](crate::Kind::EngineChanges).
pub const MAX_CHANGES: usize = 4_096;
/// The longest name of a notice, in bytes.
pub const MAX_NOTICE_NAME_BYTES: usize = 256;
/// The longest notice, in bytes.
pub const MAX_NOTICE_BYTES: usize = 64 * 1024;

/// Writes into a buffer: the payload is what goes there. Answer: `()`, when all of it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineWrite {
    /// The buffer, as its owner told.
    pub registration: u64,
    /// Its epoch, as its owner told.
    pub epoch: u64,
    /// From where in it, in bytes.
    pub offset_bytes: u64,
}

/// Reads from a buffer. The answer is `()` with the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineRead {
    /// The buffer, as its owner told.
    pub registration: u64,
    /// Its epoch, as its owner told.
    pub epoch: u64,
    /// From where in it, in bytes.
    pub offset_bytes: u64,
    /// How many bytes; at least 1.
    pub length_bytes: u64,
}

/// Ends another connection of the caller's. Answer: `()`, when nothing of what was sent on it will
/// be done any more; also when there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCut {
    /// The session that its hello gave.
    pub session: u64,
}

/// Something to tell the other process. Answer: `()`, when it stands in its line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// What it is about, of at most [`MAX_NOTICE_NAME_BYTES`].
    pub name: String,
    /// What there is to say, of at most [`MAX_NOTICE_BYTES`].
    pub message: Vec<u8>,
}

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
pub struct BufferAccess {
    /// Read it.
    pub read: bool,
    /// Write it.
    pub write: bool,
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
    pub access: BufferAccess,
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

/// Why a peer may not do what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
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
    /// Its line of notices is full.
    #[error("too many notices wait there already; try again later")]
    Busy,
    /// It is longer than it may be.
    #[error("a name or message is longer than it may be")]
    TooLong,
    /// No such call there.
    #[error("the peer does not offer this call")]
    Unsupported,
}

impl Refusal {
    /// Whether the same may go well after asking what is registered there now, or later.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::StaleRegistration | Self::StaleEpoch | Self::Busy
        )
    }
}
