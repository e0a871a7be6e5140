//! A folder of a real disk that is only read, whoever else has it.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this file and its sibling are the places of the crate that touch files"
)]

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use super::{DiskError, ReadDisk, std_disk};

/// A folder of a real disk that is only read: without its lock, and nothing is made in it. Its
/// owner may write it at the same time.
#[derive(Debug)]
pub struct StdReadDisk {
    folder: PathBuf,
    /// The file that was read last, as most are read from start to end.
    open: Option<(String, File)>,
}

impl StdReadDisk {
    /// Opens a folder.
    ///
    /// # Errors
    /// It is not there, is no folder, or cannot be read.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let mut disk = Self {
            folder: folder.into(),
            open: None,
        };
        disk.list()?;
        Ok(disk)
    }

    fn failed(&self, tried: &'static str, name: &str, source: io::Error) -> DiskError {
        DiskError {
            tried,
            path: self.folder.join(name).display().to_string(),
            source,
        }
    }

    /// Opens a file, unless it is the one that is open and still has this name.
    fn file(&mut self, name: &str) -> io::Result<&File> {
        let is_open = self.open.as_ref().is_some_and(|(open, _)| open == name);
        if !is_open {
            let file = File::open(self.folder.join(name))?;
            self.open = Some((name.to_owned(), file));
        }
        let open = self.open.as_ref().map(|(_, file)| file);
        open.ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl ReadDisk for StdReadDisk {
    fn list(&mut self) -> Result<Vec<String>, DiskError> {
        self.open = None;
        std_disk::names(&self.folder).map_err(|source| self.failed("list", "", source))
    }

    fn length(&mut self, name: &str) -> Result<u64, DiskError> {
        // By its name: another file may have taken it since.
        self.open = None;
        let facts = fs::metadata(self.folder.join(name));
        let length = facts.map(|facts| facts.len());
        length.map_err(|source| self.failed("look at", name, source))
    }

    fn read_at(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DiskError> {
        let read = self
            .file(name)
            .and_then(|file| file.read_exact_at(into, offset));
        read.map_err(|source| self.failed("read", name, source))
    }
}
