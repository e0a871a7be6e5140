//! A client's memory file as the agent sees it: mapped for reading, never trusted.

use std::os::fd::{AsFd, OwnedFd};

use super::mapping::{MapFor, Mapping};
use super::{MemoryError, memfd};

/// A client's memory file, mapped for reading. Its bytes may change at any moment, so there is no
/// way to look at them in place: [`super::SlabMemory::copy_from`] copies, then checks the copy.
#[derive(Debug)]
pub struct ForeignMap(Mapping);

impl ForeignMap {
    /// Checks that `fd` is a memory file of at least `bytes`, sealed against shrinking, and maps
    /// its first `bytes`. The descriptor is closed; the mapping keeps the file.
    ///
    /// # Errors
    /// [`MemoryError::NotMemoryFile`], [`MemoryError::NotSealed`], [`MemoryError::TooShort`],
    /// [`MemoryError::Size`] for 0 bytes, or a limit of the process.
    pub fn map(fd: OwnedFd, bytes: u64) -> Result<Self, MemoryError> {
        memfd::check_passed(fd.as_fd(), bytes)?;
        Mapping::new(fd.as_fd(), bytes, MapFor::Reading).map(Self)
    }

    /// How many bytes are mapped.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    pub(super) const fn mapping(&self) -> &Mapping {
        &self.0
    }
}
