//! Why a state was not rebuilt, or no snapshot was made of it.

use larder_store::Corruption;

use crate::{LogError, Position, RecordError, SnapshotError};

/// A snapshot that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the snapshot through {at} cannot be used: {why}")]
pub struct Unusable {
    /// What it stands for.
    pub at: Position,
    /// Why not.
    pub why: SnapshotError,
}

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The log cannot be read.
    #[error("the log cannot be read; see the cause")]
    Log(#[from] LogError),
    /// Which snapshots there are cannot be read, or a new one not written.
    #[error("the snapshots cannot be read or written; see the cause")]
    Snapshots(#[source] SnapshotError),
    /// The log begins later than any snapshot that can be used ends.
    #[error(
        "the log begins with entry {first} and there is no usable snapshot of what is before it{}; \
         keep a copy of the folder, then empty it, so that the replica joins anew and copies all \
         from the others", tried.iter().map(|one| format!("; {one}")).collect::<String>()
    )]
    NoBase {
        /// The first entry that is there.
        first: u64,
        /// The snapshots that cannot be used, in words.
        tried: Vec<String>,
    },
    /// The log is damaged, so its end is not known.
    #[error("the log cannot be applied to its end: {because}")]
    Damaged {
        /// What was found, in words.
        because: String,
    },
    /// The log ends before what was asked for.
    #[error("the log ends at entry {next}, before entry {through}{}", because.as_ref()
        .map(|because| format!(": {because}")).unwrap_or_default())]
    Short {
        /// What was asked for.
        through: u64,
        /// The entry that is missing.
        next: u64,
        /// What was found there, in words.
        because: Option<String>,
    },
    /// An entry says nothing that is known.
    #[error(
        "{at} in {file} cannot be read; keep a copy of the folder, then empty it, so that the \
         replica joins anew, or run the newer program that wrote it"
    )]
    Entry {
        /// Which entry.
        at: Position,
        /// Where it stands.
        file: String,
        /// Why not.
        source: RecordError,
    },
    /// An op does not fit the state.
    #[error(
        "op {nth} of {at} in {file} does not fit the state before it; keep a copy of the folder, \
         then empty it, so that the replica joins anew and copies all from the others"
    )]
    Op {
        /// Which entry.
        at: Position,
        /// Which op of it, from 0 on.
        nth: usize,
        /// Where it stands.
        file: String,
        /// What does not fit.
        source: Corruption,
    },
    /// A part of the state cannot be written.
    #[error("a part of the state cannot be written")]
    Unwritten(#[source] RecordError),
    /// It was asked for before its last step.
    #[error("it is not finished; take more steps")]
    Unfinished,
}

impl RebuildError {
    /// Whether the same can work later: there was no room on the disk.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Log(error) => error.is_retryable(),
            Self::Snapshots(error) => error.is_retryable(),
            _ => false,
        }
    }
}
