//! Frames: a fixed header, a postcard body and, on data lanes, raw payload.

use serde::{Serialize, de::DeserializeOwned};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::kind::Kind;
use crate::limit::{MAX_BODY_BYTES, MAX_PAYLOAD_BYTES};

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"LRD1";
/// Length of the header, in bytes.
pub const HEADER_BYTES: usize = 40;
/// The frame answers the request of the same id.
pub const FLAG_REPLY: u8 = 1;
/// The body is an error: [`crate::master::CallError`], or [`crate::hello::Refused`] for a hello.
pub const FLAG_ERROR: u8 = 2;
/// `remaining_ms` of a request without a deadline.
pub const NO_DEADLINE: u32 = u32::MAX;

/// The header as it lies on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    kind: U16,
    class: u8,
    flags: u8,
    request: U64,
    body_bytes: U32,
    remaining_ms: U32,
    payload_bytes: U64,
    session: U32,
    crc: U32,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);

/// A frame's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is.
    pub kind: Kind,
    /// Class of service; 0 = foreground.
    pub class: u8,
    /// [`FLAG_REPLY`], [`FLAG_ERROR`].
    pub flags: u8,
    /// Chosen by the requester, given back in the reply; 0 = wants no reply.
    pub request: u64,
    /// Length of the body, in bytes.
    pub body_bytes: u32,
    /// Time left for the request when it was sent, in ms; [`NO_DEADLINE`] = for ever.
    pub remaining_ms: u32,
    /// Length of the payload behind the body, in bytes.
    pub payload_bytes: u64,
    /// The session that the hello gave, low 32 bits; guards against bytes of another connection.
    pub session: u32,
    crc: u32,
}

/// Why bytes are no frame. After any of these the connection is closed: what follows cannot be
/// trusted to start at a frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first four bytes belong to another protocol.
    #[error("not a Larder frame (magic {0:02x?}); the peer speaks another protocol")]
    Magic([u8; 4]),
    /// The kind is unknown to this release.
    #[error("unknown kind {0}; the peer is newer than this release")]
    Kind(u16),
    /// Body or payload are longer than allowed.
    #[error("{what} of {bytes} bytes is longer than the {max_bytes} allowed")]
    Oversize {
        /// `body` or `payload`.
        what: &'static str,
        /// Announced length, in bytes.
        bytes: u64,
        /// The limit, in bytes.
        max_bytes: u64,
    },
    /// Header or body were changed on the way.
    #[error("checksum of header and body does not match")]
    Crc,
    /// The body does not decode as its kind.
    #[error("body of {kind:?} does not decode")]
    Body {
        /// The kind that the header named.
        kind: Kind,
    },
    /// The connection ended within a frame.
    #[error("the connection ended within a frame")]
    Truncated,
}

impl FrameError {
    /// The name as a metric label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Magic(_) => "magic",
            Self::Kind(_) => "kind",
            Self::Oversize { .. } => "oversize",
            Self::Crc => "crc",
            Self::Body { .. } => "body",
            Self::Truncated => "truncated",
        }
    }
}

impl Header {
    /// Reads a header and checks magic, kind and lengths. `max_body_bytes` is
    /// [`MAX_BODY_BYTES`], or less before the hello.
    ///
    /// # Errors
    /// [`FrameError`]; the caller must close the connection.
    pub fn decode(bytes: &[u8; HEADER_BYTES], max_body_bytes: u32) -> Result<Self, FrameError> {
        let raw = RawHeader::read_from_bytes(bytes).map_err(|_| FrameError::Truncated)?;
        if raw.magic != MAGIC {
            return Err(FrameError::Magic(raw.magic));
        }
        let limits = [
            (
                "body",
                u64::from(raw.body_bytes.get()),
                u64::from(max_body_bytes),
            ),
            ("payload", raw.payload_bytes.get(), MAX_PAYLOAD_BYTES),
        ];
        for (what, bytes, max_bytes) in limits {
            if bytes > max_bytes {
                return Err(FrameError::Oversize {
                    what,
                    bytes,
                    max_bytes,
                });
            }
        }
        let kind = raw.kind.get();
        Ok(Self {
            kind: Kind::from_number(kind).ok_or(FrameError::Kind(kind))?,
            class: raw.class,
            flags: raw.flags,
            request: raw.request.get(),
            body_bytes: raw.body_bytes.get(),
            remaining_ms: raw.remaining_ms.get(),
            payload_bytes: raw.payload_bytes.get(),
            session: raw.session.get(),
            crc: raw.crc.get(),
        })
    }

    /// Checks the body, and the header with it, against the checksum.
    ///
    /// # Errors
    /// [`FrameError::Crc`].
    pub fn verify(&self, body: &[u8]) -> Result<(), FrameError> {
        if self.raw().checksum(body) == self.crc {
            Ok(())
        } else {
            Err(FrameError::Crc)
        }
    }

    /// Whether a flag is set.
    #[must_use]
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn raw(&self) -> RawHeader {
        RawHeader {
            magic: MAGIC,
            kind: U16::new(self.kind as u16),
            class: self.class,
            flags: self.flags,
            request: U64::new(self.request),
            body_bytes: U32::new(self.body_bytes),
            remaining_ms: U32::new(self.remaining_ms),
            payload_bytes: U64::new(self.payload_bytes),
            session: U32::new(self.session),
            crc: U32::new(0),
        }
    }
}

impl RawHeader {
    /// CRC-32C over the header with `crc` = 0 and the body.
    fn checksum(&self, body: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(self.as_bytes()), body)
    }
}

/// What a sender fills in; lengths and checksum are computed.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// What the frame is.
    pub kind: Kind,
    /// Class of service; 0 = foreground.
    pub class: u8,
    /// [`FLAG_REPLY`], [`FLAG_ERROR`].
    pub flags: u8,
    /// Request id; 0 = wants no reply.
    pub request: u64,
    /// Time left, in ms; [`NO_DEADLINE`] = for ever.
    pub remaining_ms: u32,
    /// Length of the payload that the caller sends behind the frame, in bytes.
    pub payload_bytes: u64,
    /// Low 32 bits of the session.
    pub session: u32,
}

impl Frame {
    /// A request without payload.
    #[must_use]
    pub const fn request(kind: Kind, request: u64, session: u32, remaining_ms: u32) -> Self {
        Self {
            kind,
            class: 0,
            flags: 0,
            request,
            remaining_ms,
            payload_bytes: 0,
            session,
        }
    }

    /// The reply to a request.
    #[must_use]
    pub const fn reply(to: &Header, flags: u8) -> Self {
        Self {
            kind: to.kind,
            class: to.class,
            flags: flags | FLAG_REPLY,
            request: to.request,
            remaining_ms: NO_DEADLINE,
            payload_bytes: 0,
            session: to.session,
        }
    }
}

/// Appends a frame's header and body to `out`. Payload, if any, is sent by the caller after it.
///
/// # Errors
/// [`FrameError::Oversize`] if the body is longer than [`MAX_BODY_BYTES`]; `out` is unchanged.
pub fn encode_frame<T: Serialize + ?Sized>(
    out: &mut Vec<u8>,
    frame: Frame,
    body: &T,
) -> Result<(), FrameError> {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    let encoded = postcard::to_extend(body, std::mem::take(out));
    *out = encoded.map_err(|_| FrameError::Body { kind: frame.kind })?;
    let body_bytes = out.len() - start - HEADER_BYTES;
    let fits = u32::try_from(body_bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_BODY_BYTES);
    let Some(body_bytes) = fits else {
        out.truncate(start);
        return Err(FrameError::Oversize {
            what: "body",
            bytes: body_bytes as u64,
            max_bytes: u64::from(MAX_BODY_BYTES),
        });
    };
    let mut raw = RawHeader {
        magic: MAGIC,
        kind: U16::new(frame.kind as u16),
        class: frame.class,
        flags: frame.flags,
        request: U64::new(frame.request),
        body_bytes: U32::new(body_bytes),
        remaining_ms: U32::new(frame.remaining_ms),
        payload_bytes: U64::new(frame.payload_bytes),
        session: U32::new(frame.session),
        crc: U32::new(0),
    };
    raw.crc = U32::new(raw.checksum(&out[start + HEADER_BYTES..]));
    out[start..start + HEADER_BYTES].copy_from_slice(raw.as_bytes());
    Ok(())
}

/// Decodes a body; trailing bytes are an error.
///
/// # Errors
/// [`FrameError::Body`].
pub fn decode_body<T: DeserializeOwned>(kind: Kind, body: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::Body { kind }),
    }
}
