//! What can be wrong with a record.

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Cut off, or lengths that do not fit each other.
    #[error("the record is cut off")]
    Truncated,
    /// Written by a release that this one cannot read.
    #[error("record format {0} is not known to this release")]
    Format(u16),
    /// The checksum does not match.
    #[error("the checksum of the record does not match")]
    Checksum,
    /// A field holds what it may not.
    #[error("the record's {0} is not valid")]
    Field(&'static str),
    /// It does not fit a slot.
    #[error("the record of {used_bytes} bytes does not fit its slot of {slot_bytes}")]
    TooLong {
        /// What it needs, in bytes.
        used_bytes: u64,
        /// What it has, in bytes.
        slot_bytes: u32,
    },
}
