//! What a log refuses, and why.

use crate::disk::DiskError;
use crate::format::ENTRY_BYTES_MAX;

/// Why a call on a log failed. But for [`Unknown`](Self::Unknown) the log
/// is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A file operation failed.
    #[error("the log was not changed, because its disk refused; see the cause")]
    Disk(#[source] DiskError),
    /// The disk failed in a sync, a rename or in putting a failed write right.
    #[error(
        "the disk failed, and it is not known what of the log is durable; it takes no calls any \
         more: open it again, then it says what can be trusted"
    )]
    Unknown(#[source] DiskError),
    /// The log has reached its bound.
    #[error(
        "the log is full with {entries} entries in {size_bytes} bytes; take a snapshot and purge \
         what it holds, or raise the log's limits"
    )]
    Full {
        /// Entries in the log.
        entries: u64,
        /// Bytes of its segments.
        size_bytes: u64,
    },
    /// An entry does not follow the one before.
    #[error("entry {index} in term {term} does not follow {last}; append from the log's end on")]
    OutOfOrder {
        /// The entry's term.
        term: u64,
        /// The entry's index.
        index: u64,
        /// The entry before, in words.
        last: String,
    },
    /// An entry or a batch is too large.
    #[error(
        "entry {index} makes {size_bytes} bytes; an entry has at most {ENTRY_BYTES_MAX} and a \
         batch {batch_max}: propose fewer operations at once", batch_max = crate::BATCH_BYTES_MAX
    )]
    TooLarge {
        /// The entry that was too much.
        index: u64,
        /// Its payload, or the batch with it, in bytes.
        size_bytes: u64,
    },
    /// The entries are purged.
    #[error("entry {index} is purged, the first one left is {first}; use a snapshot")]
    Purged {
        /// What was asked for.
        index: u64,
        /// The first entry there is.
        first: u64,
    },
    /// There is no such entry yet.
    #[error("entry {index} is not in the log, whose next one is {next}; ask for less")]
    Missing {
        /// What was asked for.
        index: u64,
        /// What will be appended next.
        next: u64,
    },
    /// A vote would go back.
    #[error(
        "a vote in term {term} goes behind the one in term {saved}, which is durable; a replica \
         votes once a term and for no older one"
    )]
    VoteBehind {
        /// The vote's term.
        term: u64,
        /// The term of the vote that stands.
        saved: u64,
    },
    /// Bytes are not what was written.
    #[error(
        "{segment} is damaged at byte {offset}: {what}; keep a copy of the folder, then empty it, \
         so that the replica joins anew and copies the log from the others"
    )]
    Damaged {
        /// The file.
        segment: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A newer Larder wrote the files.
    #[error(
        "{file} has format {version}, this program knows {}; run the newer program again",
        crate::FORMAT_VERSION
    )]
    Newer {
        /// The file.
        file: String,
        /// Its version.
        version: u16,
    },
    /// There is nothing to read.
    #[error(
        "no log is there; name the folder that a master keeps its log in, which is `oplog` in its \
         state folder"
    )]
    NoLog,
    /// The log takes no calls any more.
    #[error("the log has stopped because {why}; drop it and open it again")]
    Halted {
        /// Since when.
        why: &'static str,
    },
    /// An option is out of its range.
    #[error("{option} of the log is out of range; {range}")]
    Option {
        /// Which.
        option: &'static str,
        /// What it may be.
        range: &'static str,
    },
}

impl LogError {
    /// Whether the same call can work later: there was no room on the disk or in the log.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Disk(error) => error.is_full(),
            Self::Full { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn damaged(segment: &str, offset: u64, what: &'static str) -> Self {
        Self::Damaged {
            segment: segment.to_owned(),
            offset,
            what,
        }
    }

    pub(crate) fn newer(file: &str, version: u16) -> Self {
        Self::Newer {
            file: file.to_owned(),
            version,
        }
    }
}

impl From<DiskError> for LogError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}
