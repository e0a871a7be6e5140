//! Why a stock peer did not do what was asked.

use std::io;

use crate::interop::data::DataError;
use crate::interop::frame::FrameError;
use crate::interop::segment::SegmentError;

/// Why a stock peer did not do what was asked. Whatever it is, nothing touches the caller's
/// bytes any more.
#[derive(Debug, thiserror::Error)]
pub enum InteropError {
    /// The peer lives and does not have it.
    #[error("the peer has no {what}; ask its owner whether it is registered")]
    NotFound {
        /// `segment`, `data port` or `buffer with this range`.
        what: &'static str,
    },
    /// The peer looked at the request and refused it.
    #[error("the peer refused the range (status {code}); it may have been taken back")]
    Rejected {
        /// What it said; 1 = not within one registered buffer.
        code: u32,
    },
    /// No connection to the peer.
    #[error("no connection to the peer at {addr}; check that it runs and can be reached")]
    Unavailable {
        /// `host:port`.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke before the answer was whole. A write may or may not have happened;
    /// repeating it is safe.
    #[error("the connection to the peer was lost during the call; repeat it")]
    ConnectionLost,
    /// The caller's deadline passed. A write may or may not have happened.
    #[error("the deadline passed before the peer was done")]
    DeadlinePassed,
    /// Its segment cannot be used.
    #[error("the peer's segment cannot be used; see the cause")]
    Segment(#[source] SegmentError),
    /// Its handshake port does not speak the protocol.
    #[error("the peer's answer to the handshake makes no sense; see the cause")]
    Frame(#[source] FrameError),
    /// It answered another question.
    #[error("the peer answered the handshake with another kind than the one asked")]
    Mismatch,
    /// Its data port does not speak the protocol.
    #[error("the peer's data port broke the protocol; see the cause")]
    Data(#[from] DataError),
    /// What should be sent cannot be written as JSON.
    #[error("the message cannot be written as JSON")]
    Json(#[from] serde_json::Error),
}

impl InteropError {
    /// Whether the same call may succeed when it is repeated, perhaps after
    /// [`refresh`](super::StockPeer::refresh).
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::ConnectionLost => true,
            Self::Segment(error) => error.is_retryable(),
            Self::Frame(error) => error.is_retryable(),
            Self::Data(error) => error.is_retryable(),
            Self::NotFound { .. }
            | Self::Rejected { .. }
            | Self::DeadlinePassed
            | Self::Mismatch
            | Self::Json(_) => false,
        }
    }

    /// The name as a metric label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "not_found",
            Self::Rejected { .. } => "rejected",
            Self::Unavailable { .. } => "unavailable",
            Self::ConnectionLost => "connection_lost",
            Self::DeadlinePassed => "deadline_passed",
            Self::Segment(_) => "segment",
            Self::Frame(_) | Self::Mismatch | Self::Data(_) => "protocol",
            Self::Json(_) => "json",
        }
    }
}

impl From<SegmentError> for InteropError {
    fn from(error: SegmentError) -> Self {
        match error {
            SegmentError::Missing => Self::NotFound { what: "segment" },
            other => Self::Segment(other),
        }
    }
}

impl From<FrameError> for InteropError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Truncated { .. } => Self::ConnectionLost,
            other => Self::Frame(other),
        }
    }
}

/// Once the connection stands, whatever happens to it means the same.
impl From<io::Error> for InteropError {
    fn from(_: io::Error) -> Self {
        Self::ConnectionLost
    }
}
