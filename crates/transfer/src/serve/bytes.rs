//! Writes and reads over a socket: payload straight into the slab and straight from it.

use std::io;
use std::sync::Arc;

use larder_types::layout::BLOCK_BYTES;
use larder_wire::data::{DataError, DataReason, Read, ReadEnd, ReadStart, Write};
use larder_wire::frame::{FLAG_REPLY, NO_DEADLINE};
use larder_wire::{Frame, FrameError, Header, Kind};
use rustix::net::SendFlags;
use tokio::io::{AsyncReadExt, Interest};
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Connection, deadline, stall};
use super::session::{Begun, Reached, Reading, Writing};
use crate::SlabMemory;
use crate::lane::{FrameReader, LaneError, Socket};

/// Up to this length a payload is copied between its frames and leaves in one system call, in
/// bytes; above, the copy would cost more than the calls.
const COPY_BYTES: u64 = 64 * 1024;
/// The most that one receive or send moves, in bytes, so that the thread's other connections
/// get their turn.
const STEP_BYTES: u64 = 1024 * 1024;
/// Checksums of what arrived are computed in pieces of so many bytes, while it is in the cache.
const CHECK_BYTES: u64 = 4 * BLOCK_BYTES;
/// Room for payload that nobody wants, in bytes.
const DISCARD_BYTES: usize = 64 * 1024;

impl<S: Socket> Connection<S> {
    pub(super) async fn write(&mut self, header: &Header) -> Result<(), LaneError> {
        let body: Write = self.reader.decode()?;
        let reached = self.reached.clone();
        let begun = begin_write(&reached, header, &body, self.now());
        let writing = match begun {
            Ok(Begun::Go(writing)) => writing,
            Ok(Begun::Already(receipt, crcs)) => {
                self.discard(header.payload_bytes).await?;
                if crcs == body.block_crcs {
                    return self.answer(header, &receipt).await;
                }
                return self.refuse(header, DataReason::Checksum.into()).await;
            }
            Err(refused) => {
                self.discard(header.payload_bytes).await?;
                return self.refuse(header, refused).await;
            }
        };
        let limit = deadline(header);
        let own_crcs = receive(&self.stream, &mut self.reader, &writing, limit).await?;
        match writing.finish(&body.block_crcs, &own_crcs) {
            Ok(receipt) => {
                self.options
                    .metrics
                    .moved(Kind::Write, header.payload_bytes);
                self.answer(header, &receipt).await
            }
            Err(refused) => self.refuse(header, refused).await,
        }
    }

    pub(super) async fn read(&mut self, header: &Header) -> Result<(), LaneError> {
        let body: Read = self.reader.decode()?;
        self.discard(header.payload_bytes).await?;
        let reached = self.reached.clone();
        let (from, length) = (body.offset_bytes, body.length_bytes);
        let begun = reached.begin_read(&body.capability, from, length, self.now());
        let sent = match begun {
            Ok(reading) if length <= COPY_BYTES => match self.push_read(header, reading) {
                Ok(()) => self.flush().await,
                Err(refused) => return self.refuse(header, refused).await,
            },
            Ok(reading) => self.send_read(header, reading).await,
            Err(refused) => return self.refuse(header, refused).await,
        };
        sent?;
        self.options.metrics.moved(Kind::Read, length);
        Ok(())
    }

    /// A small read: all of it is taken in this turn, so nothing can change in between.
    fn push_read(&mut self, header: &Header, reading: Reading<'_>) -> Result<(), DataError> {
        let before = self.writer.pending_bytes();
        let pushed = self.push_read_parts(header, &reading);
        let ended = pushed.and_then(|()| {
            let end = ReadEnd {
                unchanged: reading.end(),
            };
            self.writer
                .push(end_frame(header), &end)
                .map_err(|error| internal(&error))
        });
        if ended.is_err() {
            self.writer.take_back(before);
        }
        ended
    }

    fn push_read_parts(&mut self, header: &Header, reading: &Reading<'_>) -> Result<(), DataError> {
        let ticket = reading.ticket()?;
        let bytes = ticket.length_bytes;
        let start = ReadStart {
            version: ticket.version,
            block_crcs: ticket.block_crcs.clone(),
        };
        self.writer
            .push(start_frame(header, bytes), &start)
            .map_err(|error| internal(&error))?;
        // At most COPY_BYTES.
        let room = usize::try_from(bytes).map_err(|error| internal(&error))?;
        let copied = self.writer.push_payload(room, |room| {
            ticket.memory.copy_out(ticket.offset_bytes, room)
        });
        copied.map_err(|error| internal(&error))
    }

    /// A large read: the payload goes from the slab to the socket, and the record is compared
    /// again after the last byte.
    async fn send_read(&mut self, header: &Header, reading: Reading<'_>) -> Result<(), LaneError> {
        let Ok(ticket) = reading.ticket() else {
            return self.refuse(header, DataReason::Internal.into()).await;
        };
        let bytes = ticket.length_bytes;
        let start = ReadStart {
            version: ticket.version,
            block_crcs: ticket.block_crcs.clone(),
        };
        self.writer.push(start_frame(header, bytes), &start)?;
        let memory = Arc::clone(&ticket.memory);
        let offset_bytes = ticket.offset_bytes;
        self.send_front().await?;
        send(&self.stream, &memory, offset_bytes, bytes).await?;
        let end = ReadEnd {
            unchanged: reading.end(),
        };
        self.writer.push(end_frame(header), &end)?;
        self.flush().await
    }

    /// Writes what was pushed and tells the kernel that more follows at once, so that it does
    /// not wake the peer for the header alone.
    async fn send_front(&mut self) -> Result<(), LaneError> {
        while !self.writer.is_empty() {
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let step = || {
                Ok(rustix::net::send(
                    self.stream.as_fd(),
                    self.writer.waiting(),
                    flags,
                )?)
            };
            let sent = timeout(stall(), self.stream.when_ready(Interest::WRITABLE, step)).await;
            self.writer.sent(sent.map_err(|_| LaneError::Stalled)??);
        }
        Ok(())
    }

    /// Reads payload that nobody wants, so that the next frame can be read. Whoever sends more
    /// than fits into 30 s is closed instead.
    pub(super) async fn discard(&mut self, bytes: u64) -> Result<(), LaneError> {
        if bytes == 0 {
            return Ok(());
        }
        let ahead = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut left = bytes - self.reader.take_ahead(ahead, |_| ()) as u64;
        let give_up = Instant::now() + stall();
        let mut room = Vec::new();
        while left > 0 {
            room.resize(
                DISCARD_BYTES.min(usize::try_from(left).unwrap_or(DISCARD_BYTES)),
                0,
            );
            let read = timeout_at(give_up, self.stream.read(&mut room)).await;
            match read.map_err(|_| LaneError::Stalled)?? {
                0 => return Err(FrameError::Truncated.into()),
                read => left -= read as u64,
            }
        }
        Ok(())
    }
}

/// Refuses before the first byte of payload is taken.
fn begin_write<'a>(
    reached: &'a Reached,
    header: &Header,
    body: &Write,
    now: crate::LocalMs,
) -> Result<Begun<'a>, DataError> {
    let begun = reached.begin_write(&body.capability, now)?;
    if let Begun::Go(writing) = &begun
        && writing.length_bytes != header.payload_bytes
    {
        let (want, got) = (writing.length_bytes, header.payload_bytes);
        let detail = format!("the extent has {want} bytes, the payload {got}");
        return Err(DataError {
            reason: DataReason::OutOfBounds,
            detail,
        });
    }
    Ok(begun)
}

/// Takes all of a write's payload into the slab; returns the checksums of the bytes there.
async fn receive<S: Socket>(
    stream: &S,
    reader: &mut FrameReader,
    writing: &Writing<'_>,
    deadline: Option<Instant>,
) -> Result<Vec<u32>, LaneError> {
    let (memory, offset, length) = (&writing.memory, writing.offset_bytes, writing.length_bytes);
    let mut copied = Ok(());
    let ahead = usize::try_from(length).unwrap_or(usize::MAX);
    let taken = reader.take_ahead(ahead, |piece| copied = memory.copy_in(offset, piece));
    copied.map_err(io::Error::other)?;
    let mut done = taken as u64;
    let mut checked = 0;
    let mut crcs = Vec::new();
    loop {
        let whole = if done == length {
            length
        } else {
            done - done % BLOCK_BYTES
        };
        if done == length || whole - checked >= CHECK_BYTES {
            let more = memory.block_crcs(offset + checked, whole - checked);
            crcs.extend(more.map_err(io::Error::other)?);
            checked = whole;
        }
        if done == length {
            return Ok(crcs);
        }
        let step_bytes = (length - done).min(STEP_BYTES);
        let step = || memory.recv(stream.as_fd(), offset + done, step_bytes);
        let give_up = Instant::now() + stall();
        let give_up = deadline.map_or(give_up, |deadline| deadline.min(give_up));
        let read = timeout_at(give_up, stream.when_ready(Interest::READABLE, step)).await;
        match read.map_err(|_| LaneError::Stalled)?? {
            0 => return Err(FrameError::Truncated.into()),
            read => done += read as u64,
        }
    }
}

/// Sends a range of a slab.
async fn send<S: Socket>(
    stream: &S,
    memory: &SlabMemory,
    offset_bytes: u64,
    length_bytes: u64,
) -> Result<(), LaneError> {
    let mut done = 0;
    while done < length_bytes {
        let step_bytes = (length_bytes - done).min(STEP_BYTES);
        let step = || memory.send(stream.as_fd(), offset_bytes + done, step_bytes);
        let sent = timeout(stall(), stream.when_ready(Interest::WRITABLE, step)).await;
        match sent.map_err(|_| LaneError::Stalled)?? {
            0 => return Err(io::Error::from(io::ErrorKind::WriteZero).into()),
            sent => done += sent as u64,
        }
    }
    Ok(())
}

const fn start_frame(header: &Header, payload_bytes: u64) -> Frame {
    let mut frame = Frame::reply(header, 0);
    frame.payload_bytes = payload_bytes;
    frame
}

const fn end_frame(header: &Header) -> Frame {
    Frame {
        kind: Kind::ReadEnd,
        class: header.class,
        flags: FLAG_REPLY,
        request: header.request,
        remaining_ms: NO_DEADLINE,
        payload_bytes: 0,
        session: header.session,
    }
}

fn internal(error: &dyn std::fmt::Display) -> DataError {
    tracing::error!(%error, "a slab could not be read");
    DataReason::Internal.into()
}
