//! Writes frames: several into one buffer, and the buffer with a payload in one system call.

use std::io::{self, IoSlice};

use larder_wire::{Frame, FrameError, encode_frame};
use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// A buffer that grew beyond this is let go after a flush, in bytes.
const KEEP_BYTES: usize = 256 * 1024;

/// Collects frames and writes them together.
///
/// The caller bounds how much it pushes before it flushes: one turn of its own loop.
#[derive(Debug, Default)]
pub struct FrameWriter {
    buffer: Vec<u8>,
    /// How many bytes of the buffer were written by a flush that was cancelled.
    sent_bytes: usize,
}

impl FrameWriter {
    /// Adds a frame. If it announces payload, that must be the next thing pushed or flushed.
    ///
    /// # Errors
    /// [`FrameError`] if the body is too long; nothing is added.
    pub fn push<B: Serialize + ?Sized>(
        &mut self,
        frame: Frame,
        body: &B,
    ) -> Result<(), FrameError> {
        encode_frame(&mut self.buffer, frame, body)
    }

    /// Adds `bytes` of payload, which `fill` must write into the zeroed room that it gets. For
    /// small payloads: one copy costs less than another system call.
    ///
    /// # Errors
    /// What `fill` says; nothing is added.
    pub fn push_payload<E>(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.buffer.len();
        self.buffer.resize(start + bytes, 0);
        let filled = fill(&mut self.buffer[start..]);
        if filled.is_err() {
            self.buffer.truncate(start);
        }
        filled
    }

    /// Whether nothing waits to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// How many bytes wait to be written.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len() - self.sent_bytes
    }

    /// Takes back what was pushed since the buffer held `pending_bytes`; nothing of it may have
    /// been flushed.
    pub fn take_back(&mut self, pending_bytes: usize) {
        self.buffer.truncate(self.sent_bytes + pending_bytes);
    }

    /// Writes all that was pushed. May be cancelled; the next flush goes on from there.
    ///
    /// # Errors
    /// Of the socket; close it.
    pub async fn flush<W>(&mut self, sink: &mut W) -> io::Result<()>
    where
        W: AsyncWrite + Unpin + ?Sized,
    {
        while self.sent_bytes < self.buffer.len() {
            let written = sink.write(&self.buffer[self.sent_bytes..]).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.sent_bytes += written;
        }
        self.clear();
        sink.flush().await
    }

    /// Writes all that was pushed and `payload` behind it, together. Must not be cancelled
    /// unless the connection is dropped with it.
    ///
    /// # Errors
    /// Of the socket; close it.
    pub async fn flush_with<W>(&mut self, sink: &mut W, payload: &[u8]) -> io::Result<()>
    where
        W: AsyncWrite + Unpin + ?Sized,
    {
        while self.sent_bytes < self.buffer.len() && !payload.is_empty() {
            let front = &self.buffer[self.sent_bytes..];
            let parts = [IoSlice::new(front), IoSlice::new(payload)];
            let front_bytes = front.len();
            let written = sink.write_vectored(&parts).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.sent_bytes += written.min(front_bytes);
            if let Some(sent) = written.checked_sub(front_bytes) {
                self.clear();
                sink.write_all(&payload[sent..]).await?;
                return sink.flush().await;
            }
        }
        self.flush(sink).await
    }

    /// The bytes that wait, for a sender that has its own way to write; call [`Self::sent`].
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.buffer[self.sent_bytes..]
    }

    /// Says that `bytes` of [`Self::waiting`] were written.
    pub fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes;
        if self.sent_bytes >= self.buffer.len() {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.sent_bytes = 0;
        self.buffer.clear();
        if self.buffer.capacity() > KEEP_BYTES {
            self.buffer = Vec::new();
        }
    }
}
