//! Reads frames: header and body with limits and checksum; payload is left to the caller.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use larder_wire::frame::HEADER_BYTES;
use larder_wire::{FrameError, Header, decode_body};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

use super::error::LaneError;

/// How much one read takes at most beyond the frame that is being read, in bytes. Holds a frame
/// with a payload of 4 KiB and what follows it, so that small reads take one system call; also
/// what an idle connection costs.
pub const READ_AHEAD_BYTES: usize = 16 * 1024;
/// How long a peer may stop within a frame, in ms. Between frames it may idle.
pub const STALL_MS: u64 = 30_000;
/// A buffer that grew beyond this for one frame is let go after it, in bytes.
const KEEP_BYTES: usize = 256 * 1024;

/// Reads frames from any stream and keeps what was read ahead of them. May be cancelled between
/// any two bytes without losing one.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    /// Length of the frame that was read last and still stands at the front of the buffer.
    current_bytes: usize,
    max_body_bytes: u32,
}

impl FrameReader {
    /// Makes a reader that refuses longer bodies than `max_body_bytes`.
    #[must_use]
    pub fn new(max_body_bytes: u32) -> Self {
        Self {
            buffer: BytesMut::new(),
            current_bytes: 0,
            max_body_bytes,
        }
    }

    /// Changes the limit, after the hello.
    pub const fn set_max_body_bytes(&mut self, max_body_bytes: u32) {
        self.max_body_bytes = max_body_bytes;
    }

    /// The next frame's header, checked together with its body; `None` if the stream ended
    /// between frames. The payload of the frame before must have been taken.
    ///
    /// # Errors
    /// [`LaneError::Frame`], [`LaneError::Stalled`] or [`LaneError::Io`]; close the connection.
    pub async fn next<R>(&mut self, source: &mut R) -> Result<Option<Header>, LaneError>
    where
        R: AsyncRead + Unpin + ?Sized,
    {
        self.drop_current();
        loop {
            let missing = match self.parse()? {
                Parsed::Frame(header) => return Ok(Some(header)),
                Parsed::Missing(bytes) => bytes,
            };
            // Only a frame that has begun is in a hurry.
            let may_idle = self.buffer.is_empty();
            self.buffer.reserve(missing.max(READ_AHEAD_BYTES));
            let read = source.read_buf(&mut self.buffer);
            let read = if may_idle {
                read.await?
            } else {
                let limit = Duration::from_millis(STALL_MS);
                timeout(limit, read)
                    .await
                    .map_err(|_| LaneError::Stalled)??
            };
            if read == 0 {
                let whole = self.buffer.is_empty();
                return if whole {
                    Ok(None)
                } else {
                    Err(FrameError::Truncated.into())
                };
            }
        }
    }

    fn parse(&mut self) -> Result<Parsed, FrameError> {
        let Some(raw) = self.buffer.first_chunk::<HEADER_BYTES>() else {
            self.refuse_foreign_start()?;
            return Ok(Parsed::Missing(HEADER_BYTES - self.buffer.len()));
        };
        let header = Header::decode(raw, self.max_body_bytes)?;
        // At most MAX_BODY_BYTES, so it fits.
        let frame_bytes = HEADER_BYTES + header.body_bytes as usize;
        let Some(body) = self.buffer.get(HEADER_BYTES..frame_bytes) else {
            return Ok(Parsed::Missing(frame_bytes - self.buffer.len()));
        };
        header.verify(body)?;
        self.current_bytes = frame_bytes;
        Ok(Parsed::Frame(header))
    }

    /// Another protocol may send less than a header and then wait for us, for ever; its first
    /// bytes tell it apart.
    fn refuse_foreign_start(&self) -> Result<(), FrameError> {
        let magic = larder_wire::frame::MAGIC;
        let known = self.buffer.len().min(magic.len());
        if self.buffer[..known] == magic[..known] {
            return Ok(());
        }
        let mut found = [0; 4];
        found[..known].copy_from_slice(&self.buffer[..known]);
        Err(FrameError::Magic(found))
    }

    /// The body of the frame that was read last; empty once its payload is being taken.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        self.buffer
            .get(HEADER_BYTES..self.current_bytes)
            .unwrap_or_default()
    }

    /// Decodes the body of the frame that was read last.
    ///
    /// # Errors
    /// [`FrameError::Body`].
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, FrameError> {
        let header = self
            .buffer
            .first_chunk::<HEADER_BYTES>()
            .ok_or(FrameError::Truncated)?;
        decode_body(
            Header::decode(header, self.max_body_bytes)?.kind,
            self.body(),
        )
    }

    /// Whether the next frame's header and body have come already, or what came is no frame: then
    /// [`Self::next`] does not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let ahead = self.ahead();
        let Some(raw) = ahead.first_chunk::<HEADER_BYTES>() else {
            return false;
        };
        match Header::decode(raw, self.max_body_bytes) {
            Ok(header) => ahead.len() >= HEADER_BYTES + header.body_bytes as usize,
            Err(_) => true,
        }
    }

    /// What was read beyond the last frame: the start of its payload, or of the next frame.
    #[must_use]
    pub fn ahead(&self) -> &[u8] {
        &self.buffer[self.current_bytes..]
    }

    /// Hands up to `max_bytes` of what was read ahead to `take` and forgets them, and the body
    /// before them. Returns how many there were.
    pub fn take_ahead(&mut self, max_bytes: usize, take: impl FnOnce(&[u8])) -> usize {
        self.drop_current();
        let taken = self.buffer.len().min(max_bytes);
        take(&self.buffer[..taken]);
        self.buffer.advance(taken);
        taken
    }

    fn drop_current(&mut self) {
        self.buffer.advance(self.current_bytes);
        self.current_bytes = 0;
        if self.buffer.is_empty() && self.buffer.capacity() > KEEP_BYTES {
            self.buffer = BytesMut::new();
        }
    }
}

enum Parsed {
    Frame(Header),
    /// At least so many bytes are missing.
    Missing(usize),
}
