//! Why a call to a peer, or a transfer to its end, came to nothing.

use larder_wire::engine::Refusal;

use crate::engine::Failure;
use crate::engine::buffers::MirrorError;
use crate::engine::core::SubmitError;
use crate::lane::LaneError;

/// Why a call to a peer came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// It was closed, or never opened.
    #[error("this peer is not open any more")]
    NoPeer,
    /// Nothing answers there.
    #[error("{addr} is not reached; see the cause, and whether an engine listens there")]
    Unreachable {
        /// `host:port`.
        addr: String,
        /// What the socket said.
        source: std::io::Error,
    },
    /// It did not answer a moment ago and is asked again only later.
    #[error("{addr} did not answer a moment ago; it is asked again in {again_ms} ms")]
    Resting {
        /// `host:port`.
        addr: String,
        /// When it is asked again, in ms from now.
        again_ms: u64,
    },
    /// The connection was refused or broke.
    #[error("the connection to {addr} came to nothing; see the cause")]
    Lane {
        /// `host:port`.
        addr: String,
        /// Why.
        source: LaneError,
    },
    /// It did not answer in time.
    #[error("{addr} did not answer within {limit_ms} ms")]
    Silent {
        /// `host:port`.
        addr: String,
        /// How long it had, in ms.
        limit_ms: u64,
    },
    /// Another process was met there while this one answered.
    #[error("another process answers at {addr} by now; ask again")]
    OtherLife {
        /// `host:port`.
        addr: String,
    },
    /// It does not do that.
    #[error("the peer refuses")]
    Refused(#[source] Refusal),
    /// What it says of its buffers makes no sense.
    #[error("what the peer says of its buffers makes no sense")]
    Unsound(#[from] MirrorError),
}

impl CallError {
    /// Whether the same may go well later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Resting { .. }
            | Self::Silent { .. }
            | Self::OtherLife { .. } => true,
            Self::Lane { source, .. } => source.is_retryable(),
            Self::Refused(refusal) => refusal.is_retryable(),
            Self::NoPeer | Self::Unsound(_) => false,
        }
    }
}

/// Why a transfer did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum TransferFailed {
    /// It was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The peer could not be asked what is registered there.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A range failed.
    #[error("range number {number} failed: {failure}")]
    Range {
        /// Which range.
        number: usize,
        /// Why.
        failure: Failure,
    },
}

impl TransferFailed {
    /// Whether the same may go well later.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Submit(error) => error.is_retryable(),
            Self::Call(error) => error.is_retryable(),
            Self::Range { failure, .. } => failure.is_retryable(),
        }
    }

    /// Whether the peer may have registered something else since it was asked.
    pub(super) const fn is_stale(&self) -> bool {
        match self {
            Self::Submit(SubmitError::NotRemote { .. }) => true,
            Self::Range { failure, .. } => matches!(
                failure,
                Failure::PeerRestarted
                    | Failure::Refused(Refusal::StaleRegistration | Refusal::StaleEpoch)
            ),
            _ => false,
        }
    }
}
