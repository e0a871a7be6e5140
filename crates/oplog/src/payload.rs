//! What an entry is for: the bytes that the log holds for each position.
//!
//! | byte 0 | payload | behind it |
//! |---|---|---|
//! | 0 | nothing | nothing |
//! | 1 | ops | the term in which they were decided as 8 bytes, little-endian; the ops |
//! | 2 | members | bytes that mean nothing here |

use crate::RecordError;

/// How many bytes of an entry are not those of its ops or members, at most. Ops of one entry have
/// [`ENTRY_BYTES_MAX`](crate::ENTRY_BYTES_MAX) less this.
pub const PAYLOAD_OVERHEAD_BYTES: usize = 9;

/// The payload of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Payload {
    /// Nothing: a new leader commits what came before it with one.
    Blank,
    /// Ops to apply, if their term is that of the entry's position.
    ///
    /// If it is not, **everybody skips them**: a leader of a former term decided them and lost its
    /// office before they were proposed, so they were judged over a state that is not the one
    /// before this entry. Who applies asks [`Payload::ops_of`].
    Ops {
        /// The term in which a leader decided them.
        term: u64,
        /// What [`crate::encode_ops`] made of them.
        ops: Vec<u8>,
    },
    /// Who the members are from here on.
    Members(Vec<u8>),
}

impl Payload {
    /// The bytes of an entry.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Blank => vec![0],
            Self::Ops { term, ops } => {
                let mut bytes = Vec::with_capacity(PAYLOAD_OVERHEAD_BYTES + ops.len());
                bytes.push(1);
                bytes.extend_from_slice(&term.to_le_bytes());
                bytes.extend_from_slice(ops);
                bytes
            }
            Self::Members(members) => [&[2], &members[..]].concat(),
        }
    }

    /// The payload of an entry. What its ops or members say is not looked at.
    ///
    /// # Errors
    /// [`RecordError::Damaged`]: it is cut short, has something behind nothing, or is of no known
    /// kind; the log must not be served then.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        match bytes {
            [0] => Ok(Self::Blank),
            [1, rest @ ..] => {
                let (term, ops) = rest.split_first_chunk().ok_or(RecordError::Damaged(None))?;
                Ok(Self::Ops {
                    term: u64::from_le_bytes(*term),
                    ops: ops.to_vec(),
                })
            }
            [2, members @ ..] => Ok(Self::Members(members.to_vec())),
            _ => Err(RecordError::Damaged(None)),
        }
    }

    /// The bytes of the ops that are to be applied of an entry at a position of this term; `None`
    /// if it has none, or they are to be skipped.
    #[must_use]
    pub fn ops_of(&self, position_term: u64) -> Option<&[u8]> {
        match self {
            Self::Ops { term, ops } if *term == position_term => Some(ops),
            _ => None,
        }
    }
}
