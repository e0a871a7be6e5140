//! The disk of a machine, which outlives the processes on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_oplog::{Disk, DiskError, FakeDisk, ReadDisk, SyncDone, SyncWork};

/// A disk in memory that the world and the process on its machine both reach: the one breaks it,
/// the other writes. Both are on one thread and never hold it over each other's turn; the lock is
/// there because a log wants a disk that can be sent.
#[derive(Clone, Debug, Default)]
pub struct MachineDisk {
    held: Arc<Held>,
}

#[derive(Debug, Default)]
struct Held {
    disk: Mutex<FakeDisk>,
    sync_ns: AtomicU64,
}

impl MachineDisk {
    /// An empty disk without limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cuts the power: what was not synced stays, is gone or is garbage, by this seed. The process
    /// on the machine is to be killed first.
    pub fn lose_power(&self, seed: u64) {
        self.disk().crash(seed);
    }

    /// Leaves so many bytes free; `None`: any number.
    pub fn limit_free(&self, free_bytes: Option<u64>) {
        let mut disk = self.disk();
        let used_bytes = disk.used_bytes();
        disk.set_capacity_bytes(free_bytes.map(|free| used_bytes.saturating_add(free)));
    }

    /// How long a sync takes from now on, in ns. The owner of the log waits so long between the
    /// beginning of a sync and its work.
    pub fn set_sync_ns(&self, sync_ns: u64) {
        self.held.sync_ns.store(sync_ns, Ordering::Relaxed);
    }

    /// See [`Self::set_sync_ns`].
    #[must_use]
    pub fn sync_ns(&self) -> u64 {
        self.held.sync_ns.load(Ordering::Relaxed)
    }

    /// How many syncs there were.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.disk().syncs()
    }

    fn disk(&self) -> MutexGuard<'_, FakeDisk> {
        self.held
            .disk
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadDisk for MachineDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        self.disk().list()
    }

    fn length(&mut self, name: &str) -> Result<u64, DiskError> {
        self.disk().length(name)
    }

    fn read_at(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.disk().read_at(name, offset, into)
    }
}

impl Disk for MachineDisk {
    fn create(&mut self, name: &str) -> Result<(), DiskError> {
        self.disk().create(name)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        self.disk().append(name, bytes)
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), DiskError> {
        self.disk().truncate(name, length)
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        self.disk().sync(name)
    }

    fn begin_sync(&mut self, name: &str) -> Result<SyncWork, DiskError> {
        self.disk().begin_sync(name)
    }

    fn finish_sync(&mut self, done: SyncDone) -> Result<(), DiskError> {
        self.disk().finish_sync(done)
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        self.disk().sync_folder()
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk().rename(from, to)
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        self.disk().remove(name)
    }
}
