//! A disk in memory that tells written bytes from durable ones, and loses power from a seed.

mod file;

use std::collections::BTreeMap;
use std::io;

use self::file::{Dice, FakeFile};
use super::{Disk, DiskError, ReadDisk, SyncDone, SyncWork};

/// The operations of a [`Disk`], to say which is to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// [`Disk::list`].
    List,
    /// [`Disk::create`].
    Create,
    /// [`Disk::length`].
    Length,
    /// [`Disk::append`].
    Append,
    /// [`Disk::read_at`].
    Read,
    /// [`Disk::truncate`].
    Truncate,
    /// [`Disk::sync`] and [`Disk::finish_sync`].
    Sync,
    /// [`Disk::sync_folder`].
    SyncFolder,
    /// [`Disk::rename`].
    Rename,
    /// [`Disk::remove`].
    Remove,
}

/// A disk in memory for tests and the simulator. All it does follows from the calls and seeds.
///
/// It holds every byte in memory: its owner bounds it by
/// [`set_capacity_bytes`](Self::set_capacity_bytes).
#[derive(Debug, Clone, Default)]
pub struct FakeDisk {
    files: BTreeMap<u64, FakeFile>,
    names: BTreeMap<String, u64>,
    /// The names that a loss of power leaves.
    durable_names: BTreeMap<String, u64>,
    /// What was done to the names since.
    changes: Vec<Change>,
    next_file: u64,
    capacity_bytes: Option<u64>,
    faults: Vec<(Operation, u64)>,
    operations_left: Option<u64>,
    syncs: u64,
}

#[derive(Debug, Clone)]
enum Change {
    Add(String, u64),
    Rename(String, String, u64),
    Remove(String),
}

impl FakeDisk {
    /// An empty disk without a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the sum of the files' lengths. An append takes what fits, and fails.
    pub fn set_capacity_bytes(&mut self, capacity_bytes: Option<u64>) {
        self.capacity_bytes = capacity_bytes;
    }

    /// The sum of the files' lengths in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let files = self.names.values().filter_map(|id| self.files.get(id));
        files.map(|file| file.current.len() as u64).sum()
    }

    /// Lets one operation of this kind fail, after `skip` more of them.
    ///
    /// A failing append writes half of its bytes. What a failing sync should have made durable is
    /// lost with the power, even if later syncs succeed.
    pub fn fail(&mut self, operation: Operation, skip: u64) {
        self.faults.push((operation, skip));
    }

    /// Lets everything fail after `operations` more, until [`crash`](Self::crash) or
    /// [`revive`](Self::revive).
    pub fn stop_after(&mut self, operations: u64) {
        self.operations_left = Some(operations);
    }

    /// Takes back what was to fail.
    pub fn revive(&mut self) {
        self.faults.clear();
        self.operations_left = None;
    }

    /// How many files and folders were synced.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.syncs
    }

    /// The bytes of a file.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        let file = self.files.get(self.names.get(name)?)?;
        Some(&file.current)
    }

    /// The names of the files, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }

    /// Puts a durable file there, or takes one away, whatever stood there.
    pub fn put(&mut self, name: &str, bytes: Option<&[u8]>) {
        let id = self.next_file;
        self.next_file += 1;
        self.names.remove(name);
        self.durable_names.remove(name);
        if let Some(bytes) = bytes {
            self.files.insert(id, FakeFile::durable(bytes));
            self.names.insert(name.to_owned(), id);
            self.durable_names.insert(name.to_owned(), id);
        }
    }

    /// Cuts the power and leaves exactly what was synced.
    pub fn cut_at_synced(&mut self) {
        self.names = self.durable_names.clone();
        self.restart(FakeFile::undo);
    }

    /// Cuts the power. What was synced stays. Of each unsynced tail stays a part from its
    /// beginning; the rest is gone, reads as zeroes or as garbage, or stays but for some sectors.
    /// An unsynced cut may be undone. Each unsynced change of names is kept or lost by itself.
    pub fn crash(&mut self, seed: u64) {
        let mut dice = Dice(seed);
        let mut names = std::mem::take(&mut self.durable_names);
        for change in std::mem::take(&mut self.changes) {
            if dice.below(2) == 0 {
                change.make(&mut names);
            }
        }
        self.names = names;
        self.restart(|file| file.crash(&mut dice));
    }

    fn restart(&mut self, mut each: impl FnMut(&mut FakeFile)) {
        self.revive();
        self.changes.clear();
        self.durable_names = self.names.clone();
        let names = &self.names;
        self.files
            .retain(|id, _| names.values().any(|named| named == id));
        for file in self.files.values_mut() {
            each(file);
            file.settle();
        }
    }

    /// Whether this operation may be done.
    fn allow(&mut self, operation: Operation, tried: &'static str, name: &str) -> Outcome {
        let mut is_fault = false;
        self.faults.retain_mut(|(kind, skip)| {
            if *kind != operation || is_fault {
                return true;
            }
            is_fault = *skip == 0;
            *skip = skip.saturating_sub(1);
            !is_fault
        });
        match &mut self.operations_left {
            Some(0) => is_fault = true,
            Some(left) => *left -= 1,
            None => {}
        }
        if is_fault {
            return Err(failed(tried, name, io::Error::other("injected")));
        }
        Ok(())
    }

    fn file(&mut self, tried: &'static str, name: &str) -> Result<&mut FakeFile, DiskError> {
        let id = self.names.get(name);
        id.and_then(|id| self.files.get_mut(id))
            .ok_or_else(|| failed(tried, name, io::ErrorKind::NotFound.into()))
    }
}

type Outcome = Result<(), DiskError>;

fn failed(tried: &'static str, name: &str, source: io::Error) -> DiskError {
    DiskError {
        tried,
        path: format!("fake/{name}"),
        source,
    }
}

impl Change {
    fn make(self, names: &mut BTreeMap<String, u64>) {
        match self {
            Self::Add(name, id) => {
                names.insert(name, id);
            }
            Self::Rename(from, to, id) => {
                names.insert(to, id);
                if names.get(&from) == Some(&id) {
                    names.remove(&from);
                }
            }
            Self::Remove(name) => {
                names.remove(&name);
            }
        }
    }
}

impl ReadDisk for FakeDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        self.allow(Operation::List, "list", "")?;
        Ok(self.names.keys().cloned().collect())
    }

    fn length(&mut self, name: &str) -> Result<u64, DiskError> {
        self.allow(Operation::Length, "look at", name)?;
        Ok(self.file("look at", name)?.current.len() as u64)
    }

    fn read_at(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Outcome {
        self.allow(Operation::Read, "read", name)?;
        let file = self.file("read", name)?;
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(into.len());
        let Some(bytes) = file.current.get(start..end) else {
            return Err(failed("read", name, io::ErrorKind::UnexpectedEof.into()));
        };
        into.copy_from_slice(bytes);
        Ok(())
    }
}

impl Disk for FakeDisk {
    fn create(&mut self, name: &str) -> Outcome {
        self.allow(Operation::Create, "create", name)?;
        if self.names.contains_key(name) {
            return Err(failed("create", name, io::ErrorKind::AlreadyExists.into()));
        }
        let id = self.next_file;
        self.next_file += 1;
        self.files.insert(id, FakeFile::default());
        self.names.insert(name.to_owned(), id);
        self.changes.push(Change::Add(name.to_owned(), id));
        Ok(())
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Outcome {
        let allowed = self.allow(Operation::Append, "write", name);
        let room = self.capacity_bytes.map_or(u64::MAX, |capacity| {
            capacity.saturating_sub(self.used_bytes())
        });
        let is_dead = self.operations_left == Some(0) && allowed.is_err();
        let file = self.file("write", name)?;
        if allowed.is_err() {
            // A dead disk takes nothing, so that what failed before cannot be changed.
            let half = if is_dead { 0 } else { bytes.len() / 2 };
            file.current.extend_from_slice(&bytes[..half]);
            return allowed;
        }
        if room < bytes.len() as u64 {
            file.current.extend(bytes.iter().take(room as usize));
            return Err(failed("write", name, io::ErrorKind::StorageFull.into()));
        }
        file.current.extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, name: &str, length: u64) -> Outcome {
        self.allow(Operation::Truncate, "cut", name)?;
        let file = self.file("cut", name)?;
        file.cut(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn sync(&mut self, name: &str) -> Outcome {
        let allowed = self.allow(Operation::Sync, "sync", name);
        let file = self.file("sync", name)?;
        let whole = file.current.len();
        if let Err(fault) = allowed {
            file.doomed = Some(file.floor..whole);
            return Err(fault);
        }
        file.floor = whole;
        file.old_tail.clear();
        self.syncs += 1;
        Ok(())
    }

    fn begin_sync(&mut self, name: &str) -> Result<SyncWork, DiskError> {
        let file = self.file("sync", name)?;
        file.syncing = Some(file.current.len());
        // The bytes are durable from `finish_sync` on; a loss of power before it keeps any part.
        Ok(SyncWork::new(name, || Ok(())))
    }

    fn finish_sync(&mut self, done: SyncDone) -> Outcome {
        let allowed = self.allow(Operation::Sync, "sync", &done.name);
        let Ok(file) = self.file("sync", &done.name) else {
            return allowed;
        };
        let Some(length) = file.syncing.take() else {
            return allowed;
        };
        if let Err(fault) = allowed {
            file.doomed = Some(file.floor.min(length)..length);
            return Err(fault);
        }
        file.floor = file.floor.max(length);
        file.old_tail.clear();
        self.syncs += 1;
        Ok(())
    }

    fn sync_folder(&mut self) -> Outcome {
        self.allow(Operation::SyncFolder, "sync", "")?;
        self.durable_names = self.names.clone();
        self.changes.clear();
        let names = &self.names;
        self.files
            .retain(|id, _| names.values().any(|named| named == id));
        self.syncs += 1;
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Outcome {
        self.allow(Operation::Rename, "rename", from)?;
        let Some(id) = self.names.remove(from) else {
            return Err(failed("rename", from, io::ErrorKind::NotFound.into()));
        };
        self.names.insert(to.to_owned(), id);
        let change = Change::Rename(from.to_owned(), to.to_owned(), id);
        self.changes.push(change);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> Outcome {
        self.allow(Operation::Remove, "remove", name)?;
        if self.names.remove(name).is_none() {
            return Err(failed("remove", name, io::ErrorKind::NotFound.into()));
        }
        self.changes.push(Change::Remove(name.to_owned()));
        Ok(())
    }
}
