//! What can go wrong for a replica of the log.

use std::path::PathBuf;

use larder_oplog::{DiskError, LogError, RecordError, SnapshotError};

use super::snapshots::SnapshotsError;

/// Why a replica does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ConsensusError {
    /// The folder of the log.
    #[error(
        "the log's folder {} cannot be used; check state_dir, its permissions and free space",
        .path.display()
    )]
    Folder {
        /// Which folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The files of the log.
    #[error("the log cannot be used; `larder inspect` on its folder says more")]
    Log(#[from] LogError),
    /// A file beside the log.
    #[error("a file of this replica cannot be used")]
    Disk(#[from] DiskError),
    /// A snapshot.
    #[error("a snapshot cannot be used; `larder inspect` on its folder says more")]
    Snapshot(#[from] SnapshotError),
    /// An entry of the log does not decode.
    #[error("entry {index} of the log does not decode; this replica stops")]
    Entry {
        /// Its index.
        index: u64,
        /// Why.
        source: RecordError,
    },
    /// An op of the log does not fit the state.
    #[error("entry {index} of the log does not fit the state before it; this replica stops")]
    Corrupt {
        /// Its index.
        index: u64,
        /// What does not fit.
        source: larder_store::Corruption,
    },
    /// The pool is ahead of this program.
    #[error(
        "the masters of this pool have agreed on release {version}, this one knows up to \
         {release}; start it with the release of the others"
    )]
    Release {
        /// What the log says.
        version: u32,
        /// What this program knows.
        release: u32,
    },
    /// The state cannot be made again.
    #[error("the state of the pool cannot be made of its log; `larder inspect` says more")]
    Snapshots(#[from] SnapshotsError),
    /// The number of this replica is not one.
    #[error(
        "{} does not hold a replica's number; if the disk of this master was replaced, empty its \
         state_dir: it joins anew",
        .path.display()
    )]
    Number {
        /// Which file.
        path: PathBuf,
    },
    /// openraft stopped.
    #[error("agreement with the other masters ended: {0}")]
    Stopped(String),
}

impl ConsensusError {
    /// Whether another start may succeed without anybody's help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Log(error) => error.is_retryable(),
            Self::Snapshot(error) => error.is_retryable(),
            Self::Stopped(_) => true,
            Self::Folder { .. }
            | Self::Disk(_)
            | Self::Entry { .. }
            | Self::Corrupt { .. }
            | Self::Release { .. }
            | Self::Snapshots(_)
            | Self::Number { .. } => false,
        }
    }
}
