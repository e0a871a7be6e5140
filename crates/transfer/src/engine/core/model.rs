//! The words of the engine's core: what it is asked, what it says, and what it holds.

use std::collections::BTreeSet;

use slotmap::new_key_type;

use crate::engine::buffers::{BufferKey, Mirror, Refusal};
use crate::engine::plan::{Direction, Place, Qos, Slice};
use crate::engine::queue::{Queue, QueueFull, QueueLimits};
use crate::engine::rails::{Rails, Underway};
use crate::engine::request::Outcome;

new_key_type! {
    /// A peer that is open. Stale ones find nothing.
    pub struct PeerKey;
    /// A request that lives. Stale ones find nothing.
    pub struct RequestKey;
    /// A slice that is under way. Stale ones find nothing.
    pub struct SliceKey;
}

/// What the engine holds at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreLimits {
    /// Buffers of this process.
    pub buffers: usize,
    /// Buffers that are known of one peer.
    pub peer_buffers: usize,
    /// Requests that live.
    pub requests: usize,
    /// Transfers of one request.
    pub transfers: usize,
    /// What waits for one peer.
    pub queue: QueueLimits,
}

/// A range to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it begins here.
    pub local_address: u64,
    /// Where it begins at the peer.
    pub remote_address: u64,
    /// How many bytes; at least 1.
    pub bytes: u64,
}

/// What is to be done to which slice.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send it, and tell how it ended.
    Send(SliceKey, Job),
    /// Stop it, and tell that it ended: nothing touches its buffer then.
    Stop(SliceKey),
    /// A request has ended, and nothing touches its buffers.
    Ended(RequestKey, Outcome),
    /// A buffer that was taken back has gone: nothing touches it.
    Released(BufferKey),
}

/// A slice to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// To whom.
    pub peer: PeerKey,
    /// On which of its rails.
    pub rail: usize,
    /// Where bytes go.
    pub direction: Direction,
    /// The own buffer.
    pub buffer: BufferKey,
    /// From where in it, in bytes.
    pub offset_bytes: u64,
    /// The peer's buffer: its registration, and from where in it, in bytes.
    pub remote: Place,
    /// The epoch of the peer's buffer, as it is known.
    pub epoch: u64,
    /// How many bytes.
    pub bytes: u64,
    /// Class, tenant and deadline.
    pub qos: Qos,
}

/// How a slice ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceEnd {
    /// All of its bytes are there.
    Done,
    /// The rail broke, or nothing came over it.
    RailFailed,
    /// The peer refused it.
    Refused(Refusal),
    /// It was stopped, as it was to be.
    Stopped,
}

/// Why a request was not taken. Nothing of it is done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The peer was closed.
    #[error("this peer is not open any more")]
    NoPeer,
    /// It moves nothing.
    #[error("a request of no bytes; transfer number {number} has none, or there is none at all")]
    Empty {
        /// Which transfer.
        number: usize,
    },
    /// No buffer here has these bytes.
    #[error("transfer {number}: {bytes} bytes from {address:#x} are in no registered buffer here")]
    NotLocal {
        /// Which transfer.
        number: usize,
        /// Where they begin.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// No buffer of the peer that is known has these bytes.
    #[error("transfer {number}: {bytes} bytes from {address:#x} are in no buffer of the peer")]
    NotRemote {
        /// Which transfer.
        number: usize,
        /// Where they begin.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// More than is taken at once.
    #[error("{count} transfers or requests at once; {count_max} are the most")]
    TooMany {
        /// How many there would be.
        count: usize,
        /// How many may be.
        count_max: usize,
    },
    /// Too much waits already.
    #[error(transparent)]
    Full(#[from] QueueFull),
}

impl SubmitError {
    /// Whether the same may be taken later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Full(_))
    }
}

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) mirror: Mirror,
    pub(super) rails: Rails,
    /// Its requests that have something to send.
    pub(super) queue: Queue<RequestKey>,
    pub(super) requests: BTreeSet<RequestKey>,
    pub(super) is_closed: bool,
}

#[derive(Debug)]
pub(super) struct Flying {
    pub(super) request: RequestKey,
    pub(super) slice: Slice,
    pub(super) underway: Underway,
    pub(super) failed_on: u64,
    pub(super) tries: u32,
}
