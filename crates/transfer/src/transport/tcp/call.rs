//! One write or read on a lane, over any stream.

use larder_types::layout::blocks;
use larder_wire::data::{DataError, DataReason, Read, ReadEnd, ReadStart, Write};
use larder_wire::frame::FLAG_ERROR;
use larder_wire::{FrameError, Kind, Receipt};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::lane::Lane;
use crate::transport::verify::BlockCheck;
use crate::transport::{ReadFacts, ReadOp, TransferError, WriteOp, remaining_ms};

/// Writes over the socket. The outer error means that the lane must be dropped, the inner one
/// that it can go on.
pub(in crate::transport) async fn write_on<S>(
    lane: &mut Lane<S>,
    op: &WriteOp,
) -> Result<Result<Receipt, DataError>, TransferError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let body = Write {
        capability: op.capability.clone(),
        block_crcs: op.block_crcs.to_vec(),
    };
    let left_ms = remaining_ms(op.deadline);
    let header = lane.call(Kind::Write, &body, &op.payload, left_ms).await?;
    no_payload(&header)?;
    Ok(lane.decode(&header)?)
}

/// What would be refused anyway, without asking.
pub(in crate::transport) fn check_read(op: &ReadOp) -> Result<(), DataError> {
    let fits = usize::try_from(op.length_bytes).is_ok();
    if op.length_bytes > 0 && fits {
        Ok(())
    } else {
        Err(DataReason::OutOfBounds.into())
    }
}

/// Reads over the socket and verifies the blocks while they arrive. The outer error means that
/// the lane must be dropped, the inner one that it can go on.
pub(in crate::transport) async fn read_on<S>(
    lane: &mut Lane<S>,
    op: &mut ReadOp,
) -> Result<Result<ReadFacts, TransferError>, TransferError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let body = Read {
        capability: op.capability.clone(),
        offset_bytes: op.offset_bytes,
        length_bytes: op.length_bytes,
    };
    let request = lane
        .send(Kind::Read, &body, &[], remaining_ms(op.deadline))
        .await?;
    let header = lane.answer(Kind::Read, request).await?;
    let start: ReadStart = match lane.decode::<_, DataError>(&header)? {
        Ok(start) => start,
        Err(refused) => return Ok(Err(refused.into())),
    };
    let bytes = payload_bytes(op)?;
    if header.payload_bytes != op.length_bytes
        || start.block_crcs.len() as u64 != blocks(op.length_bytes)
    {
        return Err(FrameError::Body { kind: Kind::Read }.into());
    }
    let check = BlockCheck::new(&start.block_crcs, bytes);
    let mut check = check.ok_or(FrameError::Body { kind: Kind::Read })?;
    lane.payload(&mut op.buffer, bytes, |payload| check.see(payload))
        .await?;
    let is_right = check.is_right();
    let header = lane.answer(Kind::ReadEnd, request).await?;
    if header.has(FLAG_ERROR) {
        return Err(FrameError::Body {
            kind: Kind::ReadEnd,
        }
        .into());
    }
    let end = lane.decode::<ReadEnd, DataError>(&header)??;
    if !end.unchanged {
        Ok(Err(TransferError::Torn))
    } else if is_right {
        Ok(Ok(ReadFacts {
            version: start.version,
            block_crcs: start.block_crcs,
        }))
    } else {
        // Whatever changed the bytes may sit in this connection.
        Err(TransferError::Corrupt)
    }
}

fn payload_bytes(op: &ReadOp) -> Result<usize, TransferError> {
    let bytes = usize::try_from(op.length_bytes);
    bytes.map_err(|_| DataError::new(DataReason::OutOfBounds).into())
}

fn no_payload(header: &larder_wire::Header) -> Result<(), TransferError> {
    if header.payload_bytes == 0 {
        Ok(())
    } else {
        Err(FrameError::Body { kind: header.kind }.into())
    }
}
