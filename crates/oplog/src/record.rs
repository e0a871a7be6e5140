//! What stands in entries and snapshots: the durable form of ops and of a state's parts.
//!
//! A block is the version of the format in one byte and `postcard` behind it. The types here say
//! once more what those of the store are, so that a change there cannot change bytes in silence:
//! it does not compile before it is made here too. Bytes once written are read for ever: what
//! changes gets a new record at the end of its list, and the old one stays. Golden bytes hold that.

mod op;
mod part;

use larder_store::Op;
use larder_store::snapshot::Part;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use op::OpDef;
use part::PartDef;

/// The format that is written.
const FORMAT: u8 = 1;

/// Why bytes are no records.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// They are of a later release.
    #[error("the records have format {found}, this release reads up to {FORMAT}; upgrade it")]
    Format {
        /// What they say.
        found: u8,
    },
    /// They are no records, or not all of them; or of a later release that knows more of them.
    #[error(
        "the records are damaged or of a later release; upgrade this replica, or take them from \
         another one"
    )]
    Damaged(#[source] Option<postcard::Error>),
    /// A record does not fit the memory.
    #[error("the records cannot be written")]
    Unwritten(#[source] postcard::Error),
}

impl RecordError {
    /// Never: bytes do not change by being read again.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        false
    }
}

/// The payload of an entry of these ops.
///
/// # Errors
/// [`RecordError::Unwritten`].
pub fn encode_ops(ops: &[Op]) -> Result<Vec<u8>, RecordError> {
    encode(&ops.iter().map(Written).collect::<Vec<_>>())
}

/// The ops of an entry's payload.
///
/// # Errors
/// [`RecordError`]; the log must not be served then.
pub fn decode_ops(bytes: &[u8]) -> Result<Vec<Op>, RecordError> {
    let records: Vec<OpRecord> = decode(bytes)?;
    Ok(records.into_iter().map(|record| record.0).collect())
}

/// A piece of a snapshot.
///
/// # Errors
/// [`RecordError::Unwritten`].
pub fn encode_parts(parts: Vec<Part>) -> Result<Vec<u8>, RecordError> {
    encode(&parts.into_iter().map(PartRecord).collect::<Vec<_>>())
}

/// The parts in a piece of a snapshot.
///
/// # Errors
/// [`RecordError`]; the snapshot is of no use then.
pub fn decode_parts(bytes: &[u8]) -> Result<Vec<Part>, RecordError> {
    let records: Vec<PartRecord> = decode(bytes)?;
    Ok(records.into_iter().map(|record| record.0).collect())
}

/// An op that is written.
struct Written<'a>(&'a Op);

impl Serialize for Written<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OpDef::serialize(self.0, serializer)
    }
}

/// An op that is read.
#[derive(Deserialize)]
struct OpRecord(#[serde(with = "OpDef")] Op);

#[derive(Serialize, Deserialize)]
struct PartRecord(#[serde(with = "PartDef")] Part);

fn encode<T: Serialize>(records: &T) -> Result<Vec<u8>, RecordError> {
    postcard::to_extend(records, vec![FORMAT]).map_err(RecordError::Unwritten)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, RecordError> {
    match bytes.split_first() {
        Some((&FORMAT, rest)) => {
            let taken = postcard::take_from_bytes(rest);
            match taken.map_err(|error| RecordError::Damaged(Some(error)))? {
                (records, []) => Ok(records),
                _ => Err(RecordError::Damaged(None)),
            }
        }
        Some((found, _)) if *found > FORMAT => Err(RecordError::Format { found: *found }),
        _ => Err(RecordError::Damaged(None)),
    }
}
