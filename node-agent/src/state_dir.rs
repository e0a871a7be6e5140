//! The folder that one agent keeps: who it is, the highest epoch that it has seen, and the lock
//! that keeps a second agent out.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use larder_types::{AgentUid, Epoch};

use crate::{epoch_file, identity_file};

const LOCK_FILE: &str = "lock";
const EPOCH_FILE: &str = "epoch";
const IDENTITY_FILE: &str = "uid";

/// Why the folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another agent uses it.
    #[error(
        "another agent runs on the state folder {0}; stop it, or give this one a state_dir of its \
         own"
    )]
    Taken(PathBuf),
    /// A file or the folder cannot be read or written.
    #[error("the state folder cannot be used: {action} {path} failed; check its owner and space")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file does not hold what this agent writes. Going on could obey a leader of the past.
    #[error(
        "{path} is damaged ({found}); if the pool may start empty on this node, remove the folder"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        found: String,
    },
}

/// The folder, locked until this value is dropped or the process ends.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

/// Puts path and action to an error.
pub(crate) fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    let path = path.to_owned();
    move |source| StateError::Io {
        action,
        path,
        source,
    }
}

impl StateDir {
    /// Makes the folder (0700) if it is missing, and locks it.
    ///
    /// # Errors
    /// [`StateError::Taken`], [`StateError::Io`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(failed("making", path))?;
        let lock_path = path.join(LOCK_FILE);
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&lock_path);
        let lock = opened.map_err(failed("opening", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(StateError::Taken(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(failed("locking", &lock_path)(error)),
        }
    }

    /// The agent's number: read, or made and kept the first time.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn uid(&self) -> Result<AgentUid, StateError> {
        identity_file::load_or_make(&self.path.join(IDENTITY_FILE))
    }

    /// The highest epoch that was saved; the lowest there is, if none was.
    ///
    /// # Errors
    /// [`StateError`].
    pub fn epoch(&self) -> Result<Epoch, StateError> {
        epoch_file::load(&self.path.join(EPOCH_FILE))
    }

    /// Where the epoch lies, for whoever saves it.
    #[must_use]
    pub fn epoch_path(&self) -> PathBuf {
        self.path.join(EPOCH_FILE)
    }
}
