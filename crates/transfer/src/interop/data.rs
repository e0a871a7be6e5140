//! The data port's header before a payload, and the status that the second dialect adds.
//!
//! ```text
//! header   u64 bytes, u64 address, u8 opcode, 7 bytes of no meaning; little-endian
//! v1       WRITE: header, payload                READ: header -> payload
//! v2       WRITE: header, payload -> status      READ: header -> status, payload
//! ```
//!
//! A refusal is a status in v2, after which the connection is closed; v1 can only close it.

use super::AddressRange;

#[cfg(test)]
mod tests;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// Bytes of a status.
pub const STATUS_BYTES: usize = 8;
/// Marks an opcode of the second dialect.
const V2: u8 = 0x80;
/// The upper half of every status.
const STATUS_MAGIC: u64 = 0x4d43_5456;

/// Which way the payload goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Opcode {
    /// From the memory of the peer with the data port.
    Read,
    /// Into it.
    Write,
}

/// How the two ends of a data connection talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// Nothing is acknowledged.
    V1,
    /// Writes are acknowledged, and refusals told.
    V2,
}

impl Dialect {
    /// The newest that a peer understands whose segment names this version.
    #[must_use]
    pub const fn of_version(version: u64) -> Self {
        if version >= 2 { Self::V2 } else { Self::V1 }
    }
}

/// What precedes a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataHeader {
    /// Which way the payload goes.
    pub opcode: Opcode,
    /// How the other end talks.
    pub dialect: Dialect,
    /// Whose payload: addresses of the peer with the data port.
    pub range: AddressRange,
}

/// Why bytes are no header or status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataError {
    /// The opcode is none of this protocol.
    #[error("opcode {0:#04x} is not known")]
    Opcode(u8),
    /// No status starts like this; a peer of the first dialect sends payload in its place.
    #[error("{0:#018x} is no status; the peer speaks an older dialect than its segment says")]
    Status(u64),
}

impl DataError {
    /// Whether the same call may do better: never, before the peer is another one.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

impl DataHeader {
    /// The bytes on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let opcode = match self.opcode {
            Opcode::Read => 0,
            Opcode::Write => 1,
        };
        let dialect = match self.dialect {
            Dialect::V1 => 0,
            Dialect::V2 => V2,
        };
        let mut raw = [0; HEADER_BYTES];
        raw[..8].copy_from_slice(&self.range.bytes.to_le_bytes());
        raw[8..16].copy_from_slice(&self.range.address.to_le_bytes());
        raw[16] = opcode | dialect;
        raw
    }

    /// Reads a header. The last 7 bytes may hold anything: some releases leave memory there.
    ///
    /// # Errors
    /// [`DataError::Opcode`].
    pub fn decode(raw: &[u8; HEADER_BYTES]) -> Result<Self, DataError> {
        let opcode = match raw[16] & !V2 {
            0 => Opcode::Read,
            1 => Opcode::Write,
            _ => return Err(DataError::Opcode(raw[16])),
        };
        let dialect = if raw[16] & V2 == 0 {
            Dialect::V1
        } else {
            Dialect::V2
        };
        let (mut bytes, mut address) = ([0; 8], [0; 8]);
        bytes.copy_from_slice(&raw[..8]);
        address.copy_from_slice(&raw[8..16]);
        let range = AddressRange {
            address: u64::from_le_bytes(address),
            bytes: u64::from_le_bytes(bytes),
        };
        Ok(Self {
            opcode,
            dialect,
            range,
        })
    }
}

/// What the peer says about a request, in the second dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// A write was applied; or the payload of a read follows.
    Done,
    /// The range is not within one registered buffer.
    Rejected,
    /// Something that this release does not know; not success.
    Other(u32),
}

impl Status {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u32 {
        match self {
            Self::Done => 0,
            Self::Rejected => 1,
            Self::Other(code) => code,
        }
    }

    /// The bytes on the wire.
    #[must_use]
    pub fn encode(self) -> [u8; STATUS_BYTES] {
        (STATUS_MAGIC << 32 | u64::from(self.code())).to_le_bytes()
    }

    /// Reads a status.
    ///
    /// # Errors
    /// [`DataError::Status`].
    pub fn decode(raw: [u8; STATUS_BYTES]) -> Result<Self, DataError> {
        let whole = u64::from_le_bytes(raw);
        if whole >> 32 != STATUS_MAGIC {
            return Err(DataError::Status(whole));
        }
        let [a, b, c, d, ..] = raw;
        Ok(match u32::from_le_bytes([a, b, c, d]) {
            0 => Self::Done,
            1 => Self::Rejected,
            code => Self::Other(code),
        })
    }
}
