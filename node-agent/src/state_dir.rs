//! The folder that one agent keeps: who it is, the highest epoch that it has seen, and the lock
//! that keeps a second agent out.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use larder_types::{AgentUid, Epoch};

use crate::{atomic_file, epoch_file, folder, identity_file};

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
    /// Makes the folder if it is missing, keeps everybody else out of it (0700), and locks it.
    ///
    /// # Errors
    /// [`StateError::Taken`], [`StateError::Io`].
    pub fn open(path: &Path) -> Result<Self, StateError> {
        folder::make(path, 0o700).map_err(failed("making", path))?;
        let mode = std::fs::metadata(path).map(|metadata| metadata.permissions().mode());
        if mode.map_err(failed("looking at", path))? & 0o077 != 0 {
            let closed = std::fs::set_permissions(path, Permissions::from_mode(0o700));
            closed.map_err(failed("closing", path))?;
        }
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

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what agents write here, and then the folder. Nothing else in it is touched, so the
    /// wrong folder in a configuration costs nobody a file.
    ///
    /// # Errors
    /// [`StateError::Io`], also if something else lies there.
    pub fn remove(&self) -> Result<(), StateError> {
        let kept = [EPOCH_FILE, IDENTITY_FILE].into_iter();
        let unfinished = kept
            .clone()
            .map(|name| format!("{name}{}", atomic_file::UNFINISHED));
        let names = kept.map(str::to_owned).chain(unfinished);
        // The lock last: while it is there, no other agent starts here.
        for name in names.chain([LOCK_FILE.to_owned()]) {
            let path = self.path.join(name);
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed("removing", &path)(error));
                }
                _ => {}
            }
        }
        std::fs::remove_dir(&self.path).map_err(failed("removing", &self.path))
    }

    /// Where the epoch lies, for whoever saves it.
    #[must_use]
    pub fn epoch_path(&self) -> PathBuf {
        self.path.join(EPOCH_FILE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_gets_in() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("above/state");
        let mode = || {
            let metadata = std::fs::metadata(&path).expect("there");
            metadata.permissions().mode() & 0o777
        };
        drop(StateDir::open(&path).expect("made"));
        assert_eq!(mode(), 0o700);
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("opened");
        let _state = StateDir::open(&path).expect("there");
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn only_what_agents_write_is_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state");
        let state = StateDir::open(&path).expect("made");
        state.uid().expect("made");
        epoch_file::save(&state.epoch_path(), Epoch::default()).expect("saved");
        std::fs::write(path.join("epoch.new"), "").expect("written");
        std::fs::write(path.join("letters"), "precious").expect("written");
        let error = state.remove().expect_err("something is left");
        assert!(error.to_string().contains("removing"), "{error}");
        let left: Vec<_> = std::fs::read_dir(&path).expect("there").collect();
        assert_eq!(left.len(), 1);
        std::fs::remove_file(path.join("letters")).expect("removed");
        state.remove().expect("removed");
        assert!(!path.exists());
    }
}
