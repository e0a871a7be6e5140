//! Records: what stands beside an extent to describe it, and the bytes that they are.
//!
//! All numbers little-endian. A slot never changes its size; a record never outgrows its slot.
//!
//! ```text
//!  0 u32 slot length, bytes: a power of two, at least 128
//!  4 u32 used length, bytes: header and tail
//!  8 u32 CRC-32C of bytes 12 to the used length
//! 12 u16 format = 1
//! 14 u8  state: 0 free, 1 writing, 2 written, 3 erased
//! 15 u8  length of the tenant's id
//! 16 u16 length of the key
//! 18 u16 part, from 0
//! 20 u16 parts of the replica
//! 22 u8  checksum algorithm: 0 none, 1 CRC-32C of each 64 KiB
//! 23 u8  how many replicas were asked for
//! 24 u32 number of block checksums
//! 28 u32 stripe: the same in all extents of one replica
//! 32 u64 where the extent starts in the slab, bytes
//! 40 u64 length of the extent, bytes
//! 48 u64 length of the object, bytes
//! 56 u64 version: generation
//! 64 u64 version: term
//! 72 u64 version: counter
//! 80 u8  pin: 0 none, 1 soft, 2 hard
//! 81 u8  data type
//! 82 u8  length of the group's id; 0 = no group
//! 83 u8  0
//! 84     block checksums (u32 each), tenant's id, key, group's id, and the time of a soft pin
//!        (u64, ms)
//! ```

use std::sync::Arc;

use larder_types::key::MAX_KEY_BYTES;
use larder_types::{Attributes, DataType, Epoch, GroupId, Memo, Pin, TenantId, Version};

mod error;

pub use error::RecordError;

/// The number of this format. Old formats stay readable for one release.
pub const FORMAT: u16 = 1;
/// Length of the fixed part, in bytes.
pub const HEADER_BYTES: usize = 84;
/// The shortest slot, in bytes.
pub const MIN_SLOT_BYTES: u32 = 128;
/// Where the state stands: written alone to free a slot.
pub(crate) const STATE_AT: u64 = 14;
/// The state byte of a slot that holds no record.
pub(crate) const STATE_FREE: u8 = 0;

const CHECKSUM_NONE: u8 = 0;
const CHECKSUM_CRC32C: u8 = 1;

const PIN_NONE: u8 = 0;
const PIN_SOFT: u8 = 1;
const PIN_HARD: u8 = 2;

/// How far a record has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// Some of the bytes may be there.
    Writing,
    /// All bytes are there and were verified.
    Written,
    /// This version, and every lower one, must never be written here again.
    Erased,
}

impl RecordState {
    const fn number(self) -> u8 {
        match self {
            Self::Writing => 1,
            Self::Written => 2,
            Self::Erased => 3,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Writing),
            2 => Some(Self::Written),
            3 => Some(Self::Erased),
            _ => None,
        }
    }
}

/// What is known about the bytes of one extent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Where the extent starts in its slab, in bytes.
    pub offset_bytes: u64,
    /// Its payload, in bytes. Of an erasure: what it covers.
    pub length_bytes: u64,
    /// Which put the bytes come from.
    pub version: Version,
    /// How far it has come.
    pub state: RecordState,
    /// Whose bytes they are.
    pub tenant: TenantId,
    /// The object's key; empty in an erasure.
    pub key: Arc<[u8]>,
    /// Position among the replica's extents, from 0.
    pub part: u16,
    /// How many extents the replica has.
    pub parts: u16,
    /// Size of the whole object, in bytes.
    pub object_bytes: u64,
    /// CRC-32C of each 64 KiB; empty until written.
    pub block_crcs: Arc<[u32]>,
    /// The extents of one replica have the same number; 0 in an erasure.
    pub stripe: u32,
    /// How many replicas were asked for; 0 in an erasure.
    pub wanted: u8,
    /// What the put said; `None` if that is the default, as in an erasure. Beside the record,
    /// because most have none and all are in memory.
    pub attributes: Option<Box<Attributes>>,
}

impl Record {
    /// What it says of its object besides key, place and bytes.
    #[must_use]
    pub fn memo(&self) -> Memo {
        Memo {
            stripe: self.stripe,
            wanted: self.wanted,
            attributes: self.attributes.as_deref().cloned().unwrap_or_default(),
        }
    }

    /// The same record with what a capability says of its object.
    #[must_use]
    pub fn with_memo(mut self, memo: Memo) -> Self {
        self.stripe = memo.stripe;
        self.wanted = memo.wanted;
        let is_default = memo.attributes == Attributes::default();
        self.attributes = (!is_default).then(|| Box::new(memo.attributes));
        self
    }

    /// Length of what follows the block checksums, in bytes.
    fn tail_bytes(&self) -> usize {
        let attributes = self.attributes.as_deref();
        let group = attributes.and_then(|attributes| attributes.group.as_ref());
        let is_soft = attributes.is_some_and(|found| matches!(found.pin, Pin::Soft { .. }));
        self.tenant.as_str().len()
            + self.key.len()
            + group.map_or(0, |group| group.as_str().len())
            + if is_soft { 8 } else { 0 }
    }

    /// How long a slot must be so that this record fits also when it is written, in bytes:
    /// a power of two, so that freed slots serve others.
    ///
    /// At most 2 MiB: 84 + 128 + 4,096 + 128 + 8 bytes and 4 for each 64 KiB of the largest slab
    /// (16 GiB).
    #[must_use]
    pub fn slot_bytes(&self) -> u32 {
        let blocks = match self.state {
            RecordState::Erased => 0,
            _ => larder_types::layout::blocks(self.length_bytes),
        };
        let used = (HEADER_BYTES as u64)
            .saturating_add(blocks.saturating_mul(4))
            .saturating_add(self.tail_bytes() as u64);
        let rounded = used.checked_next_power_of_two().unwrap_or(u64::MAX);
        u32::try_from(rounded)
            .unwrap_or(u32::MAX)
            .max(MIN_SLOT_BYTES)
    }

    /// The record's bytes for a slot of `slot_bytes`; shorter than the slot.
    ///
    /// # Errors
    /// [`RecordError::TooLong`], or [`RecordError::Field`] for a key that is too long.
    pub fn encode(&self, slot_bytes: u32) -> Result<Vec<u8>, RecordError> {
        let tenant = self.tenant.as_str().as_bytes();
        let tenant_bytes = u8::try_from(tenant.len()).map_err(|_| RecordError::Field("tenant"))?;
        let key_bytes = u16::try_from(self.key.len())
            .ok()
            .filter(|bytes| usize::from(*bytes) <= MAX_KEY_BYTES)
            .ok_or(RecordError::Field("key"))?;
        let used = HEADER_BYTES + self.block_crcs.len() * 4 + self.tail_bytes();
        let too_long = RecordError::TooLong {
            used_bytes: used as u64,
            slot_bytes,
        };
        let used_bytes = u32::try_from(used).ok().filter(|used| *used <= slot_bytes);
        let used_bytes = used_bytes.ok_or(too_long)?;
        let blocks = u32::try_from(self.block_crcs.len()).map_err(|_| too_long)?;
        let checksum = if blocks == 0 {
            CHECKSUM_NONE
        } else {
            CHECKSUM_CRC32C
        };

        let mut bytes = Vec::with_capacity(used);
        bytes.extend_from_slice(&slot_bytes.to_le_bytes());
        bytes.extend_from_slice(&used_bytes.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&[self.state.number(), tenant_bytes]);
        bytes.extend_from_slice(&key_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.part.to_le_bytes());
        bytes.extend_from_slice(&self.parts.to_le_bytes());
        bytes.extend_from_slice(&[checksum, self.wanted]);
        bytes.extend_from_slice(&blocks.to_le_bytes());
        bytes.extend_from_slice(&self.stripe.to_le_bytes());
        self.encode_rest(&mut bytes)?;
        let crc = larder_wire::checksum::block_crc(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        Ok(bytes)
    }

    /// The bytes from 32 on.
    fn encode_rest(&self, bytes: &mut Vec<u8>) -> Result<(), RecordError> {
        let epoch = self.version.epoch;
        let long = [
            self.offset_bytes,
            self.length_bytes,
            self.object_bytes,
            epoch.generation,
            epoch.term,
            self.version.counter,
        ];
        for number in long {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let attributes = self.attributes.as_deref();
        let (pin, soft_ms) = match attributes.map_or(Pin::None, |found| found.pin) {
            Pin::None => (PIN_NONE, None),
            Pin::Soft { ttl_ms } => (PIN_SOFT, Some(ttl_ms)),
            Pin::Hard => (PIN_HARD, None),
        };
        let data_type = attributes.map_or(DataType::UNKNOWN, |found| found.data_type);
        let group = attributes.and_then(|found| found.group.as_ref());
        let group = group.map_or("", GroupId::as_str).as_bytes();
        let group_bytes = u8::try_from(group.len()).map_err(|_| RecordError::Field("group"))?;
        bytes.extend_from_slice(&[pin, data_type.number(), group_bytes, 0]);
        for crc in self.block_crcs.iter() {
            bytes.extend_from_slice(&crc.to_le_bytes());
        }
        bytes.extend_from_slice(self.tenant.as_str().as_bytes());
        bytes.extend_from_slice(&self.key);
        bytes.extend_from_slice(group);
        if let Some(soft_ms) = soft_ms {
            bytes.extend_from_slice(&soft_ms.to_le_bytes());
        }
        Ok(())
    }

    /// Reads the record in a slot's bytes; `None` if the slot is free.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn decode(slot: &[u8]) -> Result<Option<Self>, RecordError> {
        let mut fields = Fields { bytes: slot, at: 4 };
        let used = usize::try_from(fields.u32()?).map_err(|_| RecordError::Truncated)?;
        let crc = fields.u32()?;
        let format = fields.u16()?;
        let [state, tenant_bytes] = fields.array()?;
        if state == STATE_FREE {
            return Ok(None);
        }
        if format != FORMAT {
            return Err(RecordError::Format(format));
        }
        let body = slot.get(12..used).ok_or(RecordError::Truncated)?;
        if larder_wire::checksum::block_crc(body) != crc {
            return Err(RecordError::Checksum);
        }
        let key_bytes = fields.u16()?;
        let part = fields.u16()?;
        let parts = fields.u16()?;
        let [checksum, wanted] = fields.array()?;
        let blocks = fields.u32()?;
        let stripe = fields.u32()?;
        let offset_bytes = fields.u64()?;
        let length_bytes = fields.u64()?;
        let object_bytes = fields.u64()?;
        let version = fields.version()?;
        let [pin, data_type, group_bytes, _] = fields.array()?;
        if checksum > CHECKSUM_CRC32C || (checksum == CHECKSUM_NONE) != (blocks == 0) {
            return Err(RecordError::Field("checksum algorithm"));
        }
        let mut block_crcs = Vec::new();
        for _ in 0..blocks {
            block_crcs.push(fields.u32()?);
        }
        let tenant = fields.name(tenant_bytes, TenantId::new, "tenant")?;
        let key = fields.take(usize::from(key_bytes))?.into();
        let group = match group_bytes {
            0 => None,
            _ => Some(fields.name(group_bytes, GroupId::new, "group")?),
        };
        let attributes = Attributes {
            group,
            pin: fields.pin(pin)?,
            data_type: DataType::new(data_type).ok_or(RecordError::Field("data type"))?,
        };
        if fields.at != used {
            return Err(RecordError::Truncated);
        }
        let record = Self {
            offset_bytes,
            length_bytes,
            version,
            state: RecordState::from_number(state).ok_or(RecordError::Field("state"))?,
            tenant,
            key,
            part,
            parts,
            object_bytes,
            block_crcs: block_crcs.into(),
            stripe: 0,
            wanted: 0,
            attributes: None,
        };
        Ok(Some(record.with_memo(Memo {
            stripe,
            wanted,
            attributes,
        })))
    }
}

/// Reads fields one after the other; a cut is an error.
struct Fields<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let end = self.at.checked_add(length).ok_or(RecordError::Truncated)?;
        let taken = self.bytes.get(self.at..end).ok_or(RecordError::Truncated)?;
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RecordError> {
        self.take(N)?.try_into().map_err(|_| RecordError::Truncated)
    }

    fn u16(&mut self) -> Result<u16, RecordError> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, RecordError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, RecordError> {
        self.array().map(u64::from_le_bytes)
    }

    fn version(&mut self) -> Result<Version, RecordError> {
        let epoch = Epoch {
            generation: self.u64()?,
            term: self.u64()?,
        };
        Ok(Version {
            epoch,
            counter: self.u64()?,
        })
    }

    fn name<T, E>(
        &mut self,
        bytes: u8,
        new: fn(&str) -> Result<T, E>,
        field: &'static str,
    ) -> Result<T, RecordError> {
        std::str::from_utf8(self.take(usize::from(bytes))?)
            .ok()
            .and_then(|text| new(text).ok())
            .ok_or(RecordError::Field(field))
    }

    fn pin(&mut self, kind: u8) -> Result<Pin, RecordError> {
        match kind {
            PIN_NONE => Ok(Pin::None),
            PIN_SOFT => Ok(Pin::Soft {
                ttl_ms: self.u64()?,
            }),
            PIN_HARD => Ok(Pin::Hard),
            _ => Err(RecordError::Field("pin")),
        }
    }
}

#[cfg(test)]
mod tests;
