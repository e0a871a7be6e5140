//! The few file operations that a log needs, as a trait with one file per implementation.

mod fake;
mod std_disk;
mod std_read;
mod sync_work;

use std::io;

pub use fake::{FakeDisk, Operation};
pub use std_disk::StdDisk;
pub use std_read::StdReadDisk;
pub use sync_work::{SyncDone, SyncWork};

/// A folder of files that is read.
pub trait ReadDisk {
    /// The names of all files in the folder, sorted. Sub-folders are left out.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn list(&mut self) -> Result<Vec<String>, DiskError>;

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// There is no such file.
    fn length(&mut self, name: &str) -> Result<u64, DiskError>;

    /// Fills `into` from `offset` on.
    ///
    /// # Errors
    /// [`DiskError::is_short`]: the file ends before that.
    fn read_at(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError>;
}

/// One folder of files, held by one owner.
///
/// What is written may be lost by a loss of power until [`sync`](Self::sync) of the file returned;
/// that a file was created, renamed or removed may be lost until
/// [`sync_folder`](Self::sync_folder) returned. A process that dies loses neither.
///
/// Names are plain file names of at most 64 bytes. Both implementations pass one suite
/// (`tests/conformance.rs`).
pub trait Disk: ReadDisk {
    /// Makes an empty file.
    ///
    /// # Errors
    /// There is one with that name, or no room for it.
    fn create(&mut self, name: &str) -> Result<(), DiskError>;

    /// Writes at the end of a file.
    ///
    /// # Errors
    /// [`DiskError::is_full`]: no room. After any error a part of the bytes may stand there; the
    /// caller cuts it off.
    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError>;

    /// Cuts a file to `length` bytes, of which it has at least as many.
    ///
    /// # Errors
    /// There is no such file, or the disk fails.
    fn truncate(&mut self, name: &str, length: u64) -> Result<(), DiskError>;

    /// Makes the bytes and the length of a file durable.
    ///
    /// # Errors
    /// The disk fails. What was not yet durable may be lost then, even if a later call succeeds:
    /// the kernel drops pages that it could not write and reports it once.
    fn sync(&mut self, name: &str) -> Result<(), DiskError>;

    /// Begins a [`sync`](Self::sync) of what a file holds now, whose [`SyncWork::run`] may be on
    /// another thread; the file may be written meanwhile. One at a time for a file.
    ///
    /// # Errors
    /// There is no such file, or it cannot be opened once more. Nothing was begun then.
    fn begin_sync(&mut self, name: &str) -> Result<SyncWork, DiskError>;

    /// Ends what [`begin_sync`](Self::begin_sync) began: what the file held then, and still
    /// holds, is durable. If it was removed meanwhile there is nothing to end.
    ///
    /// # Errors
    /// As those of [`sync`](Self::sync).
    fn finish_sync(&mut self, done: SyncDone) -> Result<(), DiskError>;

    /// Makes durable which files there are under which names.
    ///
    /// # Errors
    /// The disk fails.
    fn sync_folder(&mut self) -> Result<(), DiskError>;

    /// Gives a file another name in one step, and takes the place of a file that has it.
    ///
    /// # Errors
    /// There is no such file, or the disk fails.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file.
    ///
    /// # Errors
    /// [`DiskError::is_missing`]: there is no such file.
    fn remove(&mut self, name: &str) -> Result<(), DiskError>;
}

/// A disk whose kind its user need not know.
impl<D: ReadDisk + ?Sized> ReadDisk for Box<D> {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        (**self).list()
    }

    fn length(&mut self, name: &str) -> Result<u64, DiskError> {
        (**self).length(name)
    }

    fn read_at(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_at(name, offset, into)
    }
}

impl<D: Disk + ?Sized> Disk for Box<D> {
    fn create(&mut self, name: &str) -> Result<(), DiskError> {
        (**self).create(name)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).append(name, bytes)
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), DiskError> {
        (**self).truncate(name, length)
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        (**self).sync(name)
    }

    fn begin_sync(&mut self, name: &str) -> Result<SyncWork, DiskError> {
        (**self).begin_sync(name)
    }

    fn finish_sync(&mut self, done: SyncDone) -> Result<(), DiskError> {
        (**self).finish_sync(done)
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        (**self).sync_folder()
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        (**self).rename(from, to)
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        (**self).remove(name)
    }
}

/// So that an owner can lend its disk to a log, as the simulator does.
impl<D: ReadDisk + ?Sized> ReadDisk for &mut D {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        (**self).list()
    }

    fn length(&mut self, name: &str) -> Result<u64, DiskError> {
        (**self).length(name)
    }

    fn read_at(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        (**self).read_at(name, offset, into)
    }
}

impl<D: Disk + ?Sized> Disk for &mut D {
    fn create(&mut self, name: &str) -> Result<(), DiskError> {
        (**self).create(name)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> Result<(), DiskError> {
        (**self).append(name, bytes)
    }

    fn truncate(&mut self, name: &str, length: u64) -> Result<(), DiskError> {
        (**self).truncate(name, length)
    }

    fn sync(&mut self, name: &str) -> Result<(), DiskError> {
        (**self).sync(name)
    }

    fn begin_sync(&mut self, name: &str) -> Result<SyncWork, DiskError> {
        (**self).begin_sync(name)
    }

    fn finish_sync(&mut self, done: SyncDone) -> Result<(), DiskError> {
        (**self).finish_sync(done)
    }

    fn sync_folder(&mut self) -> Result<(), DiskError> {
        (**self).sync_folder()
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), DiskError> {
        (**self).rename(from, to)
    }

    fn remove(&mut self, name: &str) -> Result<(), DiskError> {
        (**self).remove(name)
    }
}

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {tried} {path}; {}", self.advice())]
pub struct DiskError {
    /// What was tried, as a verb.
    pub tried: &'static str,
    /// The file or folder.
    pub path: String,
    /// Why it failed.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    /// Whether there is no room; the same call may work once there is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self.source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    }

    /// Whether the file is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.source.kind() == io::ErrorKind::NotFound
    }

    /// Whether the file ends before what was to be read.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.source.kind() == io::ErrorKind::UnexpectedEof
    }

    fn advice(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "make room on the volume or give it more"
            }
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "give the user of this process write access to the folder"
            }
            io::ErrorKind::NotFound => "check that the volume is mounted there",
            io::ErrorKind::ResourceBusy => "stop the other process that holds the folder",
            _ => "look for the disk's errors in the kernel's log",
        }
    }
}
