//! Why a framed connection cannot be used any more.

use std::io;

use larder_wire::limit::HELLO_TIMEOUT_MS;
use larder_wire::{FrameError, Refused, RefusedReason};

use super::reader::STALL_MS;

/// Why a framed connection cannot be used any more. After any of these it must be closed.
#[derive(Debug, thiserror::Error)]
pub enum LaneError {
    /// The peer's bytes are no frame, or not the one that was due.
    #[error("the peer broke the protocol; see the cause")]
    Frame(#[from] FrameError),
    /// The socket failed.
    #[error("the connection broke; connect again")]
    Io(#[from] io::Error),
    /// The peer closed the connection between frames.
    #[error("the peer closed the connection; connect again")]
    Closed,
    /// The peer stopped within a frame.
    #[error("the peer made no progress within a frame for {STALL_MS} ms; connect again")]
    Stalled,
    /// The peer did not finish its hello in time.
    #[error("the peer did not finish its hello within {HELLO_TIMEOUT_MS} ms")]
    HelloTimeout,
    /// The peer refused the hello, or said goodbye.
    #[error("the peer does not serve this connection; see the cause")]
    Refused(#[source] Refused),
    /// The frame belongs to something else than what was asked.
    #[error("the peer answered with another {what} than the one asked; connect again")]
    Mismatch {
        /// `session`, `request` or `kind`.
        what: &'static str,
    },
}

impl LaneError {
    /// The name as a metric label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Frame(error) => error.label(),
            Self::Io(_) => "io",
            Self::Closed => "closed",
            Self::Stalled => "stalled",
            Self::HelloTimeout => "hello_timeout",
            Self::Refused(refused) => refused.reason.label(),
            Self::Mismatch { what } => what,
        }
    }

    /// Whether a fresh connection may do better.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Io(_) | Self::Closed | Self::Stalled | Self::HelloTimeout => true,
            Self::Mismatch { .. } | Self::Frame(FrameError::Truncated | FrameError::Crc) => true,
            Self::Frame(_) => false,
            Self::Refused(refused) => matches!(
                refused.reason,
                RefusedReason::Expired | RefusedReason::Busy | RefusedReason::Stopping
            ),
        }
    }
}
