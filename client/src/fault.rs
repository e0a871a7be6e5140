//! What a failed transfer means to the session: interrupted, out of date, or final.

use larder_transfer::transport::TransferError;
use larder_wire::RefusedReason;
use larder_wire::data::DataReason;

use crate::session::{ReadFault, WriteFault};

/// Of a write.
pub(crate) const fn of_write(error: &TransferError) -> WriteFault {
    match error {
        TransferError::ConnectionLost | TransferError::Unreachable { .. } => {
            WriteFault::Interrupted
        }
        TransferError::Refused(refused) => match refused.reason {
            DataReason::Conflict
            | DataReason::Checksum
            | DataReason::Limit
            | DataReason::Internal => WriteFault::Interrupted,
            reason if reason.is_retryable() => WriteFault::Stale,
            _ => WriteFault::Final,
        },
        TransferError::HelloRefused(refused) => match refused.reason {
            RefusedReason::Expired | RefusedReason::Busy => WriteFault::Interrupted,
            RefusedReason::Stopping => WriteFault::Stale,
            _ => WriteFault::Final,
        },
        _ => WriteFault::Final,
    }
}

/// Whether a new grant may help a write: it has changed hands, or its agent does not answer and
/// another may be chosen.
pub(crate) const fn is_stale(error: &TransferError) -> bool {
    matches!(of_write(error), WriteFault::Stale | WriteFault::Interrupted)
}

/// Of a read.
pub(crate) const fn of_read(error: &TransferError) -> ReadFault {
    match error {
        TransferError::Torn | TransferError::ConnectionLost | TransferError::Unreachable { .. } => {
            ReadFault::Moved
        }
        TransferError::Corrupt => ReadFault::Corrupt,
        TransferError::Refused(refused) if refused.reason.is_retryable() => ReadFault::Moved,
        TransferError::HelloRefused(refused) => match refused.reason {
            RefusedReason::Expired | RefusedReason::Busy | RefusedReason::Stopping => {
                ReadFault::Moved
            }
            _ => ReadFault::Final,
        },
        _ => ReadFault::Final,
    }
}
