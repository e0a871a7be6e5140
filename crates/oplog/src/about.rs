//! What a snapshot says beside its state: who the members are.
//!
//! | bytes | about |
//! |---|---|
//! | 0 | version of the format, 1 |
//! | 1 | 1 if there is a position, else 0 |
//! | 2..18 | term and index of the position, little-endian; zero if there is none |
//! | 18.. | members |

use crate::format::u64_at;
use crate::{Position, RecordError};

const FORMAT: u8 = 1;
const HEAD: usize = 18;

/// What a snapshot says beside its state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// The last [`Payload::Members`](crate::Payload::Members) through the snapshot's position:
    /// bytes that mean nothing here, [`BLOCK_BYTES_MAX`](crate::BLOCK_BYTES_MAX) less 18 at most.
    pub members: Vec<u8>,
    /// Where they stood in the log; `None` before the first.
    pub members_at: Option<Position>,
}

impl About {
    /// The bytes that a snapshot has about itself.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let at = self.members_at.unwrap_or_default();
        let mut bytes = vec![FORMAT, u8::from(self.members_at.is_some())];
        bytes.extend_from_slice(&at.term.to_le_bytes());
        bytes.extend_from_slice(&at.index.to_le_bytes());
        bytes.extend_from_slice(&self.members);
        bytes
    }

    /// What the bytes say.
    ///
    /// # Errors
    /// [`RecordError::Damaged`], or [`RecordError::Format`]; the snapshot is of no use then.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let (head, members) = bytes
            .split_at_checked(HEAD)
            .ok_or(RecordError::Damaged(None))?;
        if head[0] > FORMAT {
            return Err(RecordError::Format { found: head[0] });
        }
        let at = Position {
            term: u64_at(head, 2),
            index: u64_at(head, 10),
        };
        let members_at = match (head[0], head[1]) {
            (FORMAT, 0) if at == Position::default() => None,
            (FORMAT, 1) => Some(at),
            _ => return Err(RecordError::Damaged(None)),
        };
        Ok(Self {
            members: members.to_vec(),
            members_at,
        })
    }
}
