//! Handshake frames: a `u64` length in little-endian order, a kind, and JSON.
//!
//! The length counts the kind and the JSON. One connection carries one frame each way.

#[cfg(test)]
mod tests;

/// The most that the length of a frame may say, in bytes: what stock engines accept by default.
pub const MAX_FRAME_BYTES: u64 = 1024 * 1024;
/// Bytes of the length in front of each frame.
const LENGTH_BYTES: usize = size_of::<u64>();

/// What a frame is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Queue pairs of rdma find each other.
    Connection,
    /// The segments of both sides.
    Metadata,
    /// A short message.
    Notify,
    /// Whether the peer lives.
    Probe,
    /// As [`Self::Connection`], from before kinds existed: the JSON starts right after the
    /// length. A kind of 0xff is read as this too, and never written: stock engines do not
    /// answer it.
    Legacy,
}

/// The kind of old frames where one is written out.
const LEGACY: u8 = 0xff;

impl FrameKind {
    /// The byte on the wire; `None` = the frame is written without one.
    #[must_use]
    pub const fn byte(self) -> Option<u8> {
        match self {
            Self::Connection => Some(0),
            Self::Metadata => Some(1),
            Self::Notify => Some(2),
            Self::Probe => Some(3),
            Self::Legacy => None,
        }
    }

    /// The kind, and how many bytes said so.
    const fn decode(byte: u8) -> Result<(Self, usize), FrameError> {
        match byte {
            0 => Ok((Self::Connection, 1)),
            1 => Ok((Self::Metadata, 1)),
            2 => Ok((Self::Notify, 1)),
            3 => Ok((Self::Probe, 1)),
            LEGACY => Ok((Self::Legacy, 1)),
            b'{' => Ok((Self::Legacy, 0)),
            other => Err(FrameError::Kind(other)),
        }
    }
}

/// A whole frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is about.
    pub kind: FrameKind,
    /// Its JSON, not looked at.
    pub json: Vec<u8>,
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length leaves no room for a kind.
    #[error("the handshake frame is empty")]
    Empty,
    /// It says that it is longer than frames may be.
    #[error("the handshake frame says it has {bytes} bytes; {limit_bytes} are the most")]
    TooLong {
        /// What it says, in bytes.
        bytes: u64,
        /// The most, in bytes.
        limit_bytes: u64,
    },
    /// The kind is none of this protocol.
    #[error("handshake kind {0} is not known")]
    Kind(u8),
    /// The stream ended within the frame.
    #[error("the handshake frame is cut off after {bytes} bytes")]
    Truncated {
        /// What came, length included, in bytes.
        bytes: usize,
    },
    /// Something follows the frame, on a connection for one.
    #[error("{bytes} bytes follow the handshake frame")]
    Trailing {
        /// How many, in bytes.
        bytes: usize,
    },
}

impl FrameError {
    /// Whether the same request may get a whole answer next time.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Truncated { .. })
    }
}

/// The bytes of a frame.
///
/// # Errors
/// [`FrameError::TooLong`] where the peer would refuse it.
pub fn encode(kind: FrameKind, json: &[u8]) -> Result<Vec<u8>, FrameError> {
    let kind = kind.byte();
    let bytes = json.len() as u64 + u64::from(kind.is_some());
    check_length(bytes)?;
    let mut frame = Vec::with_capacity(LENGTH_BYTES + 1 + json.len());
    frame.extend_from_slice(&bytes.to_le_bytes());
    frame.extend(kind);
    frame.extend_from_slice(json);
    Ok(frame)
}

const fn check_length(bytes: u64) -> Result<(), FrameError> {
    match bytes {
        0 => Err(FrameError::Empty),
        1..=MAX_FRAME_BYTES => Ok(()),
        _ => Err(FrameError::TooLong {
            bytes,
            limit_bytes: MAX_FRAME_BYTES,
        }),
    }
}

/// Collects one frame from pieces of any size. Holds what came and no more, whatever the length
/// claims; refuses at the first byte that cannot be right.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
}

impl FrameDecoder {
    /// Takes the next bytes of the stream; the frame, once it is whole.
    ///
    /// # Errors
    /// [`FrameError`]; the connection is of no use then.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
        self.buffer.extend_from_slice(bytes);
        let Some(raw) = self.buffer.first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u64::from_le_bytes(*raw);
        check_length(length)?;
        let Some(first) = self.buffer.get(LENGTH_BYTES) else {
            return Ok(None);
        };
        let (kind, kind_bytes) = FrameKind::decode(*first)?;
        // At most MAX_FRAME_BYTES, so it fits.
        let end = LENGTH_BYTES + usize::try_from(length).unwrap_or(usize::MAX - LENGTH_BYTES);
        if self.buffer.len() < end {
            return Ok(None);
        }
        if self.buffer.len() > end {
            let bytes = self.buffer.len() - end;
            return Err(FrameError::Trailing { bytes });
        }
        let mut json = std::mem::take(&mut self.buffer);
        json.drain(..LENGTH_BYTES + kind_bytes);
        Ok(Some(Frame { kind, json }))
    }

    /// What the end of the stream means: nothing before the first byte of a frame.
    ///
    /// # Errors
    /// [`FrameError::Truncated`].
    pub const fn finish(&self) -> Result<(), FrameError> {
        match self.buffer.len() {
            0 => Ok(()),
            bytes => Err(FrameError::Truncated { bytes }),
        }
    }
}
