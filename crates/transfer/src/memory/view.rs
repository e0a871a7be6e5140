//! A slab as a client sees it: mapped for reading.

use std::os::fd::{AsFd, OwnedFd};

use super::mapping::{MapFor, Mapping};
use super::{MemoryError, memfd};

/// A slab of the local agent, mapped for reading. Shared by all views into it.
///
/// The bytes of an open view do not change: the agent holds them until it is closed. Bytes outside
/// of open views may change at any moment, so ask only for ranges of open views.
#[derive(Debug)]
pub struct ViewMap(Mapping);

impl ViewMap {
    /// Maps the first `bytes` of what the agent passed. The descriptor is closed; the mapping
    /// keeps the file.
    ///
    /// # Errors
    /// As [`super::ForeignMap::map`].
    pub fn map(fd: OwnedFd, bytes: u64) -> Result<Self, MemoryError> {
        memfd::check_passed(fd.as_fd(), bytes)?;
        Mapping::new(fd.as_fd(), bytes, MapFor::Reading).map(Self)
    }

    /// How many bytes are mapped.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// The bytes of an open view; `None` if the range leaves the slab.
    #[must_use]
    pub fn slice(&self, offset: u64, length: u64) -> Option<&[u8]> {
        self.0.slice(offset, length).ok()
    }
}
