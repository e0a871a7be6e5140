//! One write or read on a connection to a peer's data port.

use std::io;
use std::pin::pin;

use bytes::Buf;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::InteropError;
use crate::interop::AddressRange;
use crate::interop::data::{DataError, DataHeader, Dialect, Opcode, STATUS_BYTES, Status};

/// A write of the second dialect: done once the peer says that it applied all of it. On any
/// error the connection must be dropped.
pub(super) async fn write_acknowledged(
    stream: &mut TcpStream,
    range: AddressRange,
    payload: &[u8],
) -> Result<(), InteropError> {
    let header = header(Opcode::Write, Dialect::V2, range);
    let mut all = Buf::chain(&header[..], payload);
    let (mut from, mut to) = stream.split();
    let mut sending = pin!(to.write_all_buf(&mut all));
    let mut answer = pin!(status(&mut from));
    // A peer that refuses says so at once and takes no more: who only sends would wait for ever.
    let (sent, told) = tokio::select! {
        biased;
        sent = &mut sending => (sent, answer.await),
        told = &mut answer => match told {
            // It may be read before this task hears that the last byte has left.
            Ok(Ok(Status::Done)) => (sending.await, told),
            told => (Ok(()), told),
        },
    };
    check(told??)?;
    Ok(sent?)
}

/// A write of the first dialect, on a connection for it alone. Nothing is acknowledged; but a
/// peer that looks for the next header finds the end instead, and closes only then, after it
/// applied the payload.
pub(super) async fn write_unacknowledged(
    mut stream: TcpStream,
    range: AddressRange,
    payload: &[u8],
) -> Result<(), InteropError> {
    let header = header(Opcode::Write, Dialect::V1, range);
    stream
        .write_all_buf(&mut Buf::chain(&header[..], payload))
        .await?;
    stream.shutdown().await?;
    let mut rest = [0; STATUS_BYTES];
    match stream.read(&mut rest).await? {
        0 => Ok(()),
        _ => Err(DataError::Status(u64::from_le_bytes(rest)).into()),
    }
}

/// A read of either dialect. On any error the connection must be dropped, and `out` holds
/// anything.
pub(super) async fn read(
    stream: &mut TcpStream,
    dialect: Dialect,
    range: AddressRange,
    out: &mut [u8],
) -> Result<(), InteropError> {
    stream
        .write_all(&header(Opcode::Read, dialect, range))
        .await?;
    if dialect == Dialect::V2 {
        check(status(stream).await??)?;
    }
    stream.read_exact(out).await?;
    Ok(())
}

fn header(opcode: Opcode, dialect: Dialect, range: AddressRange) -> [u8; 24] {
    let header = DataHeader {
        opcode,
        dialect,
        range,
    };
    header.encode()
}

async fn status(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Result<Status, DataError>> {
    let mut raw = [0; STATUS_BYTES];
    from.read_exact(&mut raw).await?;
    Ok(Status::decode(raw))
}

const fn check(status: Status) -> Result<(), InteropError> {
    match status {
        Status::Done => Ok(()),
        other => Err(InteropError::Rejected { code: other.code() }),
    }
}
