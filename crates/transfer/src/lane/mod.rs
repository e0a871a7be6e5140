//! Lanes: framed connections after their hello, and the parts that they are made of.
//!
//! ```text
//! FrameReader   bytes -> checked headers and bodies; payload stays where it is
//! FrameWriter   several frames -> one buffer -> one write
//! hello         greet() at the caller's end, accept() at the listener's
//! Lane          a greeted connection used by one call at a time
//! FdStream      a Unix socket that carries file descriptors beside the bytes
//! ```
//!
//! The master's connections use the same reader, writer and hello over split halves; nothing
//! here knows what the calls mean.

mod error;
mod fd_stream;
mod hello;
mod reader;
mod socket;
#[cfg(test)]
mod tests;
mod writer;

pub use error::LaneError;
pub use fd_stream::FdStream;
pub use hello::{Accepted, Admission, accept, farewell, greet};
pub use reader::{FrameReader, READ_AHEAD_BYTES, STALL_MS};
pub use socket::{Socket, connect_tcp, has_ended, is_quiet, tune_tcp};
pub use writer::FrameWriter;

use bytes::{BufMut, BytesMut};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY};
use larder_wire::limit::MAX_HELLO_BYTES;
use larder_wire::{Frame, FrameError, Header, Hello, Kind, Refused, Welcome};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::timeout;

/// A connection whose hello was accepted, used by one call at a time: a frame and its payload go
/// out, then the answer comes in. A lane whose call was not finished must be dropped, because
/// what follows on it belongs to that call.
#[derive(Debug)]
pub struct Lane<S> {
    stream: S,
    reader: FrameReader,
    writer: FrameWriter,
    welcome: Welcome,
    session: u32,
    last_request: u64,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Lane<S> {
    /// Says hello on a fresh connection.
    ///
    /// # Errors
    /// [`LaneError::Refused`] with the listener's reason, [`LaneError::HelloTimeout`], or that
    /// the connection broke.
    pub async fn open(mut stream: S, hello: &Hello) -> Result<Self, LaneError> {
        let mut reader = FrameReader::new(MAX_HELLO_BYTES);
        let mut writer = FrameWriter::default();
        let welcome = greet(&mut stream, &mut reader, &mut writer, hello).await?;
        let session = session_bits(&welcome);
        Ok(Self {
            stream,
            reader,
            writer,
            welcome,
            session,
            last_request: 0,
        })
    }

    /// What the listener said at the hello.
    #[must_use]
    pub const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// The connection itself.
    pub const fn stream(&self) -> &S {
        &self.stream
    }

    /// The connection itself, for descriptors that travel beside frames.
    pub const fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Whether nothing waits to be written and nothing unread has come in.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.writer.is_empty() && self.reader.ahead().is_empty()
    }

    /// Sends a request and its payload; returns its id for [`Self::answer`].
    ///
    /// # Errors
    /// [`LaneError`]; the lane must be dropped.
    pub async fn send<B: Serialize + ?Sized>(
        &mut self,
        kind: Kind,
        body: &B,
        payload: &[u8],
        remaining_ms: u32,
    ) -> Result<u64, LaneError> {
        self.last_request += 1;
        let request = self.last_request;
        let mut frame = Frame::request(kind, request, self.session, remaining_ms);
        frame.payload_bytes = payload.len() as u64;
        self.writer.push(frame, body)?;
        self.writer.flush_with(&mut self.stream, payload).await?;
        Ok(request)
    }

    /// Waits for a frame that belongs to `request`. Its body stays readable by [`Self::decode`]
    /// until payload is taken or the next frame is read.
    ///
    /// # Errors
    /// [`LaneError::Refused`] if the listener says goodbye, [`LaneError::Mismatch`] if the frame
    /// is of another request, session or kind; the lane must be dropped.
    pub async fn answer(&mut self, kind: Kind, request: u64) -> Result<Header, LaneError> {
        let next = self.reader.next(&mut self.stream).await?;
        let header = next.ok_or(LaneError::Closed)?;
        if header.kind == Kind::Goodbye {
            return Err(LaneError::Refused(self.reader.decode::<Refused>()?));
        }
        let mismatch = if header.session != self.session {
            Some("session")
        } else if header.request != request || !header.has(FLAG_REPLY) {
            Some("request")
        } else if header.kind != kind {
            Some("kind")
        } else {
            None
        };
        match mismatch {
            Some(what) => Err(LaneError::Mismatch { what }),
            None => Ok(header),
        }
    }

    /// One request and its answer.
    ///
    /// # Errors
    /// As [`Self::send`] and [`Self::answer`].
    pub async fn call<B: Serialize + ?Sized>(
        &mut self,
        kind: Kind,
        body: &B,
        payload: &[u8],
        remaining_ms: u32,
    ) -> Result<Header, LaneError> {
        let request = self.send(kind, body, payload, remaining_ms).await?;
        self.answer(kind, request).await
    }

    /// Decodes the answer's body: `T`, or the error `E` where the flag `ERROR` is set.
    ///
    /// # Errors
    /// [`FrameError::Body`].
    pub fn decode<T: DeserializeOwned, E: DeserializeOwned>(
        &self,
        header: &Header,
    ) -> Result<Result<T, E>, FrameError> {
        if header.has(FLAG_ERROR) {
            Ok(Err(self.reader.decode()?))
        } else {
            Ok(Ok(self.reader.decode()?))
        }
    }

    /// Appends `bytes` of payload to `buffer` without zeroing it first. `seen` gets the whole
    /// of what this call appended, after each piece, so that checksums run while it is warm.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if the connection ends early, [`LaneError::Stalled`], or that
    /// the connection broke. `buffer` then holds what came.
    pub async fn payload(
        &mut self,
        buffer: &mut BytesMut,
        bytes: usize,
        mut seen: impl FnMut(&[u8]),
    ) -> Result<(), LaneError> {
        let start = buffer.len();
        buffer.reserve(bytes);
        self.reader
            .take_ahead(bytes, |piece| buffer.extend_from_slice(piece));
        while buffer.len() - start < bytes {
            if buffer.len() > start {
                seen(&buffer[start..]);
            }
            let missing = bytes - (buffer.len() - start);
            let mut room = (&mut *buffer).limit(missing);
            let read = timeout(
                Duration::from_millis(STALL_MS),
                self.stream.read_buf(&mut room),
            );
            if read.await.map_err(|_| LaneError::Stalled)?? == 0 {
                return Err(FrameError::Truncated.into());
            }
        }
        seen(&buffer[start..]);
        Ok(())
    }

    /// Takes the lane apart, for owners that read and write at the same time.
    pub fn into_parts(self) -> (S, FrameReader, FrameWriter, Welcome) {
        (self.stream, self.reader, self.writer, self.welcome)
    }
}

/// The part of a session's number that frames carry.
#[must_use]
pub fn session_bits(welcome: &Welcome) -> u32 {
    // The header has 32 bits for it; it guards against mix-ups and is no secret.
    (welcome.session.0 & 0xffff_ffff) as u32
}
