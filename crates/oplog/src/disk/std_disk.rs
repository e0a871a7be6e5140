//! A folder of a real disk, locked for one process.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this file is the one place of the crate that touches files"
)]

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::{Disk, DiskError, ReadDisk, SyncDone, SyncWork};

/// Held for the life of the disk, so that two processes never write one log.
const LOCK: &str = "lock";
/// Only the user of the process may enter the folder and read its files.
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Files kept open. Those with unsynced bytes come on top of it, which are at most two in a log:
/// its last segment and the file that is to replace its state.
const OPEN_FILES_MAX: usize = 16;

/// A folder of a real disk.
#[derive(Debug)]
pub struct StdDisk {
    folder: PathBuf,
    /// Locked until it is dropped.
    lock: File,
    open: BTreeMap<String, OpenFile>,
    uses: u64,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    /// Never closed then: the error of a write-back in between could be reported to nobody.
    is_dirty: bool,
    /// Whether it was cut since its last sync; `fdatasync` promises a grown length only.
    is_cut: bool,
    /// How often it was written or cut.
    writes: u64,
    /// Its `writes` when the sync began that is under way.
    syncing: Option<u64>,
    used: u64,
}

impl StdDisk {
    /// Takes a folder, and makes it and those above it if need be.
    ///
    /// # Errors
    /// It cannot be made or written, or another process has it.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let folder = folder.into();
        let failed = |tried, source| DiskError {
            tried,
            path: folder.display().to_string(),
            source,
        };
        if !folder.is_dir() {
            DirBuilder::new()
                .recursive(true)
                .mode(FOLDER_MODE)
                .create(&folder)
                .map_err(|source| failed("make the folder", source))?;
            let above = folder
                .parent()
                .filter(|above| !above.as_os_str().is_empty());
            File::open(above.unwrap_or(Path::new(".")))
                .and_then(|above| above.sync_all())
                .map_err(|source| failed("sync the folder above", source))?;
        }
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .open(folder.join(LOCK))
            .map_err(|source| failed("make a file in", source))?;
        lock.try_lock().map_err(|why| match why {
            TryLockError::WouldBlock => failed("lock", io::ErrorKind::ResourceBusy.into()),
            TryLockError::Error(source) => failed("lock", source),
        })?;
        Ok(Self {
            folder,
            lock,
            open: BTreeMap::new(),
            uses: 0,
        })
    }

    /// The same folder for another thread, under the same lock. What one of both writes, renames
    /// or removes the other must leave alone: the log's files are its owner's, a thread that makes
    /// snapshots has those, and reads the log.
    ///
    /// # Errors
    /// The process may open no more files.
    pub fn share(&self) -> Result<Self, DiskError> {
        let lock = self.lock.try_clone();
        Ok(Self {
            folder: self.folder.clone(),
            lock: lock.map_err(|source| self.failed("lock", "", source))?,
            open: BTreeMap::new(),
            uses: 0,
        })
    }

    fn failed(&self, tried: &'static str, name: &str, source: io::Error) -> DiskError {
        let path = if name.is_empty() {
            self.folder.clone()
        } else {
            self.folder.join(name)
        };
        DiskError {
            tried,
            path: path.display().to_string(),
            source,
        }
    }

    /// Runs `act` on an open file.
    fn with<T>(
        &mut self,
        tried: &'static str,
        name: &str,
        act: impl FnOnce(&mut OpenFile) -> io::Result<T>,
    ) -> Result<T, DiskError> {
        self.uses += 1;
        if !self.open.contains_key(name) {
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                .open(self.folder.join(name))
                .map_err(|source| self.failed(tried, name, source))?;
            self.keep(name, file);
        }
        let uses = self.uses;
        let done = match self.open.get_mut(name) {
            Some(open) => {
                open.used = uses;
                act(open)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        };
        done.map_err(|source| self.failed(tried, name, source))
    }

    /// Keeps a file open, and closes the one that was not used for longest if there are too many.
    fn keep(&mut self, name: &str, file: File) {
        let clean = self.open.iter().filter(|(_, open)| !open.is_dirty);
        let oldest = clean.min_by_key(|(_, open)| open.used);
        let oldest = oldest.map(|(name, _)| name.clone());
        if self.open.len() >= OPEN_FILES_MAX
            && let Some(oldest) = oldest
        {
            self.open.remove(&oldest);
        }
        let open = OpenFile {
            file,
            is_dirty: false,
            is_cut: false,
            writes: 0,
            syncing: None,
            used: self.uses,
        };
        self.open.insert(name.to_owned(), open);
    }
}

/// The names of the files of a folder, sorted, without the lock.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_file = entry.file_type()?.is_file();
        // A name that is not text is none of ours.
        if let Ok(name) = entry.file_name().into_string()
            && is_file
            && name != LOCK
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

impl ReadDisk for StdDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        names(&self.folder).map_err(|source| self.failed("list", "", source))
    }

    fn length(&mut self, name: &str) -> Result<u64, DiskError> {
        self.with("look at", name, |open| Ok(open.file.metadata()?.len()))
    }

    fn read_at(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.with("read", name, |open| open.file.read_exact_at(into, offset))
    }
}

impl Disk for StdDisk {
    fn create(&mut self, name: &str) -> Result<(), DiskError> {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(self.folder.join(name))
            .map_err(|source| self.failed("create", name, source))?;
        self.uses += 1;
        self.keep(name, file);
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.with("write", name, |open| {
            open.is_dirty = true;
            open.writes += 1;
            open.file.write_all(bytes)
        })
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), DiskError> {
        self.with("cut", name, |open| {
            open.is_dirty = true;
            open.is_cut = true;
            open.writes += 1;
            open.file.set_len(length)
        })
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.with("sync", name, |open| {
            if open.is_cut {
                open.file.sync_all()?;
            } else {
                open.file.sync_data()?;
            }
            open.is_dirty = false;
            open.is_cut = false;
            Ok(())
        })
    }

    fn begin_sync(&mut self, name: &str) -> Result<SyncWork, DiskError> {
        let path = self.folder.join(name);
        self.with("sync", name, |open| {
            // Opened once more and not a copy of the descriptor: the kernel reports the error of
            // a write-back once to each opening, so that a sync by the owner meanwhile hears of
            // it too.
            let file = File::open(path)?;
            let is_cut = open.is_cut;
            open.syncing = Some(open.writes);
            Ok(SyncWork::new(name, move || {
                if is_cut {
                    file.sync_all()
                } else {
                    file.sync_data()
                }
            }))
        })
    }

    fn finish_sync(&mut self, done: SyncDone) -> Result<(), DiskError> {
        let SyncDone { name, outcome } = done;
        outcome.map_err(|source| self.failed("sync", &name, source))?;
        // What is still dirty is open; what was closed or removed needs nothing.
        if let Some(open) = self.open.get_mut(&name)
            && open.syncing.take() == Some(open.writes)
        {
            open.is_dirty = false;
            open.is_cut = false;
        }
        Ok(())
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        File::open(&self.folder)
            .and_then(|folder| folder.sync_all())
            .map_err(|source| self.failed("sync", "", source))
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        fs::rename(self.folder.join(from), self.folder.join(to))
            .map_err(|source| self.failed("rename", from, source))?;
        self.open.remove(to);
        if let Some(open) = self.open.remove(from) {
            self.open.insert(to.to_owned(), open);
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.open.remove(name);
        fs::remove_file(self.folder.join(name))
            .map_err(|source| self.failed("remove", name, source))
    }
}
