//! Memory of this process that an engine moves bytes to and from.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use rustix::fs::SealFlags;

use super::mapping::{MapFor, Mapping};
use super::{MemoryError, memfd};

/// Memory that is registered with an engine: a memory file, or a range that the process has anyhow.
///
/// Bytes are only ever copied, in and out and by the kernel: peers write into it at any moment, so
/// there is no way to look at them in place here.
#[derive(Debug)]
pub struct OwnMemory(Mapping);

impl OwnMemory {
    /// Makes `bytes` of memory, at least 1; all of it reads as zeros.
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
        let file = memfd::create_sized("larder-engine", bytes, seals)?;
        Mapping::new(file.as_fd(), bytes, MapFor::Writing).map(Self)
    }

    /// Takes a range that the process has anyhow, for example an engine's pool of blocks.
    ///
    /// # Errors
    /// [`MemoryError::Size`] if it has no bytes or leaves the address space.
    ///
    /// # Safety
    /// The range is readable and writable until the drop. Whoever else touches it meanwhile does
    /// not rely on its bytes staying as they are, other than by waiting for the transfers and
    /// peers that it allowed to change them.
    pub unsafe fn lent(start: NonNull<u8>, bytes: usize) -> Result<Self, MemoryError> {
        // SAFETY: the caller keeps what is asked of it.
        unsafe { Mapping::lent(start, bytes) }.map(Self)
    }

    /// Where it lies, as peers name its bytes.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.address()
    }

    /// Its size, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    /// Copies `source` to `offset`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn copy_in(&self, offset: u64, source: &[u8]) -> Result<(), MemoryError> {
        self.0.copy_in(offset, source)
    }

    /// Fills `out` with the bytes from `offset`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn copy_out(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.0.copy_out(offset, out)
    }

    /// Receives once, without waiting, straight into the range. 0 = the peer has ended.
    pub(crate) fn recv(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        self.0.recv(socket, offset, length)
    }

    /// Sends once, without waiting, straight from the range.
    pub(crate) fn send(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        self.0.send(socket, offset, length)
    }
}
