//! Why a transfer did not happen, and what that means for the caller.

use std::io;

use larder_wire::data::{DataError, DataReason};
use larder_wire::{FrameError, Kind, Refused, RefusedReason};

use crate::lane::LaneError;

/// Why a transfer did not happen. Whatever it is, the buffer of the call is free to be used
/// again: a late answer finds its connection closed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The agent said no.
    #[error("the agent refused")]
    Refused(#[from] DataError),
    /// No connection to the agent.
    #[error("no connection to the agent at {addr}; check that it runs and can be reached")]
    Unreachable {
        /// Where it should be: `host:port` or the path of a socket.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
    /// The connection broke during the call. A write may or may not have happened; repeating it
    /// is safe.
    #[error("the connection to the agent was lost during the call; repeat it")]
    ConnectionLost,
    /// The caller's deadline passed. A write may or may not have happened.
    #[error("the deadline passed before the transfer was done")]
    DeadlinePassed,
    /// The bytes that came do not match their checksums.
    #[error("the bytes that arrived do not match their checksums; read again")]
    Corrupt,
    /// The object changed while it was read.
    #[error("the object was removed or replaced while it was read; ask the master again")]
    Torn,
    /// The peer's bytes made no sense; the connection was closed.
    #[error("the agent broke the protocol; check that both sides are of releases that fit")]
    Protocol(#[source] FrameError),
    /// The agent did not accept the session.
    #[error("the agent did not accept the session; see the cause")]
    HelloRefused(#[source] Refused),
}

impl TransferError {
    /// Whether asking the master again and repeating may succeed.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Refused(refused) => refused.reason.is_retryable(),
            Self::Unreachable { .. } | Self::ConnectionLost | Self::Corrupt | Self::Torn => true,
            Self::DeadlinePassed | Self::Protocol(_) => false,
            Self::HelloRefused(refused) => matches!(
                refused.reason,
                RefusedReason::Expired | RefusedReason::Busy | RefusedReason::Stopping
            ),
        }
    }

    /// Whether what is known about the agent (its address, its process) is stale and must be
    /// asked for again.
    #[must_use]
    pub const fn is_about_agent(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::ConnectionLost => true,
            Self::Refused(refused) => matches!(refused.reason, DataReason::StaleIncarnation),
            _ => false,
        }
    }

    /// The name as a metric label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Refused(refused) => refused.reason.label(),
            Self::Unreachable { .. } => "unreachable",
            Self::ConnectionLost => "connection_lost",
            Self::DeadlinePassed => "deadline_passed",
            Self::Corrupt => "corrupt",
            Self::Torn => "torn",
            Self::Protocol(_) => "protocol",
            Self::HelloRefused(_) => "hello_refused",
        }
    }

    /// What a failed hello means.
    pub(super) fn of_connect(addr: &str, error: LaneError) -> Self {
        let source = match error {
            LaneError::Io(source) => source,
            LaneError::HelloTimeout | LaneError::Stalled => {
                io::Error::new(io::ErrorKind::TimedOut, error)
            }
            // Closed before the welcome: nobody there who wants to talk to us.
            LaneError::Closed | LaneError::Frame(FrameError::Truncated) => {
                io::Error::new(io::ErrorKind::ConnectionReset, error)
            }
            other => return other.into(),
        };
        Self::Unreachable {
            addr: addr.to_owned(),
            source,
        }
    }
}

impl From<LaneError> for TransferError {
    fn from(error: LaneError) -> Self {
        match error {
            LaneError::Frame(FrameError::Truncated)
            | LaneError::Io(_)
            | LaneError::Closed
            | LaneError::Stalled
            | LaneError::HelloTimeout => Self::ConnectionLost,
            LaneError::Frame(error) => Self::Protocol(error),
            LaneError::Mismatch { .. } => Self::Protocol(FrameError::Body { kind: Kind::Hello }),
            LaneError::Refused(refused) => Self::HelloRefused(refused),
        }
    }
}

impl From<FrameError> for TransferError {
    fn from(error: FrameError) -> Self {
        LaneError::Frame(error).into()
    }
}
