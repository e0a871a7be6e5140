//! Why a call of the client failed.

use std::sync::Arc;

use larder_transfer::transport::TransferError;
use larder_types::{ErrorCode, Reason};
use larder_wire::{CallError, FrameError, Refused, RefusedReason};

/// Why a call failed. Cheap to clone: one cause may fail many calls.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The master answered, and the answer is no.
    #[error("{}{}{detail}", .reason.advice(), if .detail.is_empty() { "" } else { ": " })]
    Refused {
        /// Why.
        reason: Reason,
        /// Numbers and names of the case; may be empty.
        detail: String,
    },
    /// A master or agent did not accept the credential or the protocol.
    #[error("{listener} did not accept this client")]
    HelloRefused {
        /// Who refused.
        listener: String,
        /// Why.
        source: Refused,
    },
    /// The bytes could not be moved to or from an agent.
    #[error("moving the bytes to or from agent {agent} failed")]
    Transfer {
        /// The agent.
        agent: String,
        /// Why.
        source: Arc<TransferError>,
    },
    /// No master answers.
    #[error("no master answers at {masters} ({detail}); check that the pool is up")]
    Unreachable {
        /// The masters that were tried.
        masters: String,
        /// What the last one gave.
        detail: String,
    },
    /// The connection to the master broke, and the call may not be repeated.
    #[error("the connection to the master broke ({detail}); whether the call was done is unknown")]
    ConnectionLost {
        /// What broke it.
        detail: String,
    },
    /// The deadline passed before the call was done.
    #[error("the deadline passed {during}; allow more time or look at the load of the pool")]
    DeadlinePassed {
        /// What was going on.
        during: &'static str,
    },
    /// The bytes read are not those that were put, on every replica.
    #[error("the bytes read do not match the object's digest; get it again or remove it")]
    Corrupt,
    /// A view needs an agent on this node that holds the object.
    #[error("the object cannot be viewed in place: {detail}; use get instead")]
    NotLocal {
        /// What is missing.
        detail: String,
    },
    /// An argument is out of range.
    #[error("{detail}")]
    BadArgument {
        /// Which, and what is allowed.
        detail: String,
    },
    /// The peer broke the protocol, or a message does not fit a frame.
    #[error("the master and this client do not understand each other")]
    Protocol(#[from] FrameError),
    /// The peer answered with something that does not belong to the call.
    #[error("the master's answer does not fit the call: {detail}")]
    Answer {
        /// What does not fit.
        detail: &'static str,
    },
    /// The client was closed during the call.
    #[error("the client is closed")]
    Closed,
}

impl ClientError {
    /// Whether the same call may succeed later without anybody changing anything.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { reason, .. } => reason.is_retryable(),
            Self::HelloRefused { source, .. } => matches!(
                source.reason,
                RefusedReason::Busy | RefusedReason::Stopping | RefusedReason::Expired
            ),
            Self::Transfer { source, .. } => source.is_retryable(),
            Self::Unreachable { .. }
            | Self::ConnectionLost { .. }
            | Self::DeadlinePassed { .. }
            | Self::Corrupt => true,
            Self::NotLocal { .. }
            | Self::BadArgument { .. }
            | Self::Protocol(_)
            | Self::Answer { .. }
            | Self::Closed => false,
        }
    }

    /// The master's reason, where a master refused.
    #[must_use]
    pub const fn reason(&self) -> Option<Reason> {
        match self {
            Self::Refused { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// The code with the number that scripts know.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused { reason, .. } => reason.code(),
            Self::HelloRefused { .. } => ErrorCode::IllegalClient,
            Self::Transfer { source, .. } => match **source {
                TransferError::Corrupt => ErrorCode::ChecksumMismatch,
                TransferError::DeadlinePassed => ErrorCode::RpcTimeout,
                _ => ErrorCode::TransferFail,
            },
            Self::Unreachable { .. }
            | Self::ConnectionLost { .. }
            | Self::Protocol(_)
            | Self::Answer { .. } => ErrorCode::RpcFail,
            Self::DeadlinePassed { .. } => ErrorCode::RpcTimeout,
            Self::Corrupt => ErrorCode::ChecksumMismatch,
            Self::NotLocal { .. } => ErrorCode::NotSupported,
            Self::BadArgument { .. } => ErrorCode::InvalidParams,
            Self::Closed => ErrorCode::UnavailableInCurrentStatus,
        }
    }

    /// A short name for scripts and metric labels: lower case with underscores.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Refused { reason, .. } => reason.label(),
            Self::HelloRefused { .. } => "hello_refused",
            Self::Transfer { .. } => "transfer",
            Self::Unreachable { .. } => "unreachable",
            Self::ConnectionLost { .. } => "connection_lost",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::Corrupt => "corrupt",
            Self::NotLocal { .. } => "not_local",
            Self::BadArgument { .. } => "bad_argument",
            Self::Protocol(_) => "protocol",
            Self::Answer { .. } => "answer",
            Self::Closed => "closed",
        }
    }
}

impl From<CallError> for ClientError {
    fn from(error: CallError) -> Self {
        match error.reason {
            Reason::DeadlinePassed => Self::DeadlinePassed {
                during: "at the master",
            },
            reason => Self::Refused {
                reason,
                detail: error.detail,
            },
        }
    }
}
