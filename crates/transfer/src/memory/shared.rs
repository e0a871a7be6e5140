//! A client's own memory file, from which the local agent pulls.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::SealFlags;

use super::mapping::{MapFor, Mapping};
use super::{MemoryError, memfd};

/// Memory of this process that an agent can read: a memory file sealed against shrinking and
/// growing, mapped for writing here.
///
/// Writing needs the only reference, so that one behind [`bytes::Bytes::from_owner`] stays as it
/// is. The descriptor that goes to the agent cannot write.
#[derive(Debug)]
pub struct SharedBuffer {
    fd: OwnedFd,
    mapping: Mapping,
}

impl SharedBuffer {
    /// Makes a buffer of `bytes`, at least 1; all of it reads as zeros.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub fn create(bytes: u64) -> Result<Self, MemoryError> {
        if bytes == 0 {
            return Err(MemoryError::Size {
                bytes,
                unit_bytes: 1,
            });
        }
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let writable = memfd::create_sized("larder-buffer", bytes, seals)?;
        let mapping = Mapping::new(writable.as_fd(), bytes, MapFor::Writing)?;
        let fd = memfd::reopen_read_only(writable.as_fd())?;
        Ok(Self { fd, mapping })
    }

    /// The descriptor to pass to the agent; for reading only.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its size, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    /// Copies `source` to `offset` (in bytes).
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn write_at(&mut self, offset: u64, source: &[u8]) -> Result<(), MemoryError> {
        self.mapping.copy_in(offset, source)
    }

    /// Where it lies: tells whether a payload is a part of it.
    #[must_use]
    pub fn as_ptr_range(&self) -> Range<*const u8> {
        self.as_ref().as_ptr_range()
    }
}

impl AsRef<[u8]> for SharedBuffer {
    fn as_ref(&self) -> &[u8] {
        // The whole range always lies within the mapping.
        self.mapping
            .slice(0, self.mapping.bytes())
            .unwrap_or_default()
    }
}

impl AsMut<[u8]> for SharedBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // As above, and the mapping is for writing.
        self.mapping.slice_mut().unwrap_or_default()
    }
}
