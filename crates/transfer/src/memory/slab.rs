//! A slab's memory: the agent's own memory file, mapped for writing by the agent alone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use larder_types::layout::BLOCK_BYTES;
use larder_wire::checksum;
use rustix::fs::SealFlags;

use super::foreign::ForeignMap;
use super::mapping::{MapFor, Mapping};
use super::{MemoryError, memfd};

/// One slab's bytes. Sealed against shrinking, growing and further seals, mode 0600. Offsets and
/// lengths are in bytes; a range that leaves the slab is an error, never a fault.
#[derive(Debug)]
pub struct SlabMemory {
    fd: OwnedFd,
    mapping: Mapping,
}

impl SlabMemory {
    /// Makes a slab of `bytes`, a multiple of the page size; all of it reads as zeros. Pages are
    /// taken on first touch, or by [`Self::prefault`].
    ///
    /// # Errors
    /// [`MemoryError`]; it names the limit that was reached and the figure that is needed.
    pub fn create(name: &str, bytes: u64) -> Result<Self, MemoryError> {
        let unit_bytes = rustix::param::page_size() as u64;
        if bytes == 0 || !bytes.is_multiple_of(unit_bytes) {
            return Err(MemoryError::Size { bytes, unit_bytes });
        }
        // A seal against writing is not possible while the agent itself maps it for writing.
        // What keeps clients from writing is that they only get descriptors for reading.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        let fd = memfd::create_sized(name, bytes, seals)?;
        let mapping = Mapping::new(fd.as_fd(), bytes, MapFor::Writing)?;
        Ok(Self { fd, mapping })
    }

    /// Its size, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    /// Takes memory for every page now. Slow (about a second for some GiB): not for the thread
    /// that serves.
    ///
    /// # Errors
    /// [`MemoryError::NoMemory`].
    pub fn prefault(&self) -> Result<(), MemoryError> {
        if self.mapping.populate()? {
            return Ok(());
        }
        memfd::allocate(&self.fd, self.bytes())
    }

    /// Copies `source` to `offset`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn copy_in(&self, offset: u64, source: &[u8]) -> Result<(), MemoryError> {
        self.mapping.copy_in(offset, source)
    }

    /// Fills `out` with the bytes from `offset`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn copy_out(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.mapping.copy_out(offset, out)
    }

    /// CRC-32C of each 64 KiB of the range, counted from its start, over the bytes in place.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn block_crcs(&self, offset: u64, length: u64) -> Result<Vec<u32>, MemoryError> {
        self.mapping.slice(offset, length).map(checksum::block_crcs)
    }

    /// One receive that does not wait, straight into the range. 0 = the peer has ended.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there, `InvalidInput` for an empty or outlying range, or what
    /// the socket said.
    pub fn recv(&self, socket: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<usize> {
        self.mapping.recv(socket, offset, length)
    }

    /// One send that does not wait, straight from the range. How many bytes went out.
    ///
    /// # Errors
    /// `WouldBlock` when nothing fits, `InvalidInput` for an empty or outlying range, or what the
    /// socket said.
    pub fn send(&self, socket: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<usize> {
        self.mapping.send(socket, offset, length)
    }

    /// Copies from a client's memory file and returns the CRC-32C of each 64 KiB of *our* copy:
    /// the client can change its own at any moment.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] for either side; nothing is copied then.
    pub fn copy_from(
        &self,
        offset: u64,
        source: &ForeignMap,
        source_offset: u64,
        length: u64,
    ) -> Result<Vec<u32>, MemoryError> {
        self.mapping.check(offset, length)?;
        source.mapping().check(source_offset, length)?;
        let mut crcs = Vec::with_capacity(
            usize::try_from(larder_types::layout::blocks(length)).unwrap_or_default(),
        );
        let mut done = 0;
        // Block by block, so that the checksum finds the bytes in the nearest cache.
        while done < length {
            let step = BLOCK_BYTES.min(length - done);
            self.mapping
                .copy_from(offset + done, source.mapping(), source_offset + done, step)?;
            crcs.push(checksum::block_crc(
                self.mapping.slice(offset + done, step)?,
            ));
            done += step;
        }
        Ok(crcs)
    }

    /// The same memory behind a new descriptor that can only read: for views.
    ///
    /// # Errors
    /// [`MemoryError::OpenFiles`] or [`MemoryError::System`].
    pub fn read_only_fd(&self) -> Result<OwnedFd, MemoryError> {
        memfd::reopen_read_only(self.fd.as_fd())
    }

    /// Frees all pages. Mappings that still exist, here or at clients, read zeros from then on.
    ///
    /// # Errors
    /// [`MemoryError::System`].
    pub fn punch_out(&self) -> Result<(), MemoryError> {
        memfd::punch_out(&self.fd, self.bytes())
    }
}
