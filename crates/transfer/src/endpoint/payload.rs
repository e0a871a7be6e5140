//! Bytes between a socket and a buffer, step by step: before each one it is asked whether the
//! buffer may still be touched.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use larder_wire::FrameError;
use rustix::net::SendFlags;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::OwnMemory;
use crate::lane::{FrameReader, FrameWriter, LaneError, STALL_MS};

/// Up to this length a payload is copied between its frames and leaves with them in one system
/// call, in bytes; above, the copy would cost more than the calls.
pub(super) const COPY_BYTES: u64 = 64 * 1024;
/// So much of frames is collected before it is sent, in bytes.
pub(super) const COLLECT_BYTES: usize = 256 * 1024;
/// The most that one step moves, in bytes, so that the thread's other connections get their turn.
const STEP_BYTES: u64 = 1024 * 1024;
/// Room for payload that nobody wants, in bytes.
const DISCARD_BYTES: usize = 64 * 1024;

/// Where a payload goes or comes from, asked for anew at each step; `None`: nowhere any more.
pub(super) trait Place {
    /// Runs `step` on the memory and the offset at which the payload begins there.
    fn reach<R>(&self, step: impl FnOnce(&OwnMemory, u64) -> R) -> Option<R>;
}

/// Where nothing is wanted.
pub(super) struct Nowhere;

impl Place for Nowhere {
    fn reach<R>(&self, _: impl FnOnce(&OwnMemory, u64) -> R) -> Option<R> {
        None
    }
}

/// Takes a payload of `bytes` off a connection. False: the buffer may not be touched any more, and
/// the rest of it was thrown away.
pub(super) async fn receive(
    stream: &TcpStream,
    reader: &mut FrameReader,
    bytes: u64,
    place: &impl Place,
    mut moved: impl FnMut(),
) -> Result<bool, LaneError> {
    let ahead = usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut copied = None;
    let taken = reader.take_ahead(ahead, |piece| {
        copied = place.reach(|memory, offset| memory.copy_in(offset, piece));
    });
    let mut is_wanted = match copied {
        Some(copied) => copied.map_err(io::Error::other).map(|()| true)?,
        None => false,
    };
    let mut done = taken as u64;
    while done < bytes && is_wanted {
        let step_bytes = (bytes - done).min(STEP_BYTES);
        let step = || {
            let received = place
                .reach(|memory, offset| memory.recv(stream.as_fd(), offset + done, step_bytes));
            received.transpose()
        };
        let step = ready(stream, Interest::READABLE, step).await?;
        moved();
        match step {
            Some(0) => return Err(FrameError::Truncated.into()),
            Some(read) => done += read as u64,
            None => is_wanted = false,
        }
    }
    let mut rest = bytes - done;
    let mut room = Vec::new();
    while rest > 0 {
        let most = DISCARD_BYTES.min(usize::try_from(rest).unwrap_or(DISCARD_BYTES));
        room.resize(most, 0);
        let step = || {
            Ok(rustix::net::recv(
                stream,
                &mut room[..],
                rustix::net::RecvFlags::DONTWAIT,
            )?)
        };
        let (_, read) = ready(stream, Interest::READABLE, step).await?;
        moved();
        match read {
            0 => return Err(FrameError::Truncated.into()),
            read => rest -= read as u64,
        }
    }
    Ok(is_wanted)
}

/// Sends what was pushed, and a payload of `bytes` behind it. False: the buffer may not be touched
/// any more; what was promised cannot be sent, so the connection has to go.
pub(super) async fn send(
    stream: &TcpStream,
    writer: &mut FrameWriter,
    bytes: u64,
    place: &impl Place,
    mut moved: impl FnMut(),
) -> Result<bool, LaneError> {
    while !writer.is_empty() {
        // More follows at once: the peer need not wake for the header alone.
        let flags = SendFlags::MORE | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let step = || Ok(rustix::net::send(stream, writer.waiting(), flags)?);
        let sent = ready(stream, Interest::WRITABLE, step).await?;
        writer.sent(sent);
        moved();
    }
    let mut done = 0;
    while done < bytes {
        let step_bytes = (bytes - done).min(STEP_BYTES);
        let step = || {
            let sent = place
                .reach(|memory, offset| memory.send(stream.as_fd(), offset + done, step_bytes));
            sent.transpose()
        };
        match ready(stream, Interest::WRITABLE, step).await? {
            None => return Ok(false),
            Some(0) => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            Some(sent) => done += sent as u64,
        }
        moved();
    }
    Ok(true)
}

/// One step when the socket is ready for it.
async fn ready<R>(
    stream: &TcpStream,
    interest: Interest,
    step: impl FnMut() -> io::Result<R>,
) -> Result<R, LaneError> {
    let limit = Duration::from_millis(STALL_MS);
    let done = timeout(limit, stream.async_io(interest, step)).await;
    Ok(done.map_err(|_| LaneError::Stalled)??)
}
