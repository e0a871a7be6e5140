//! One mapping of a memory file, and every access through raw addresses.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use super::MemoryError;
use super::memfd::{map_error, system};

/// What a mapping is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapFor {
    /// Reading only; a write through it would be a fault.
    Reading,
    /// Reading and writing.
    Writing,
}

/// A mapped memory file; unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
    access: MapFor,
    /// Somebody else's memory is left as it is at the end.
    is_owned: bool,
}

// SAFETY: the mapping belongs to no thread; the address stays valid until the drop, which needs
// the only owner. Accesses are copies of plain bytes, for which every value is valid.
unsafe impl Send for Mapping {}
// SAFETY: as above; that no two threads touch one range at once, one of them writing, is kept by
// the tickets of `segments`, see the module's text.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` of `fd`. The caller has made sure that the file has them and
    /// cannot shrink.
    pub(super) fn new(fd: BorrowedFd<'_>, bytes: u64, access: MapFor) -> Result<Self, MemoryError> {
        let length = usize::try_from(bytes)
            .ok()
            .filter(|length| *length > 0 && isize::try_from(*length).is_ok())
            .ok_or(MemoryError::Size {
                bytes,
                unit_bytes: 1,
            })?;
        let protection = match access {
            MapFor::Reading => ProtFlags::READ,
            MapFor::Writing => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: the kernel chooses the address, so nothing that exists is mapped over.
        let start = unsafe {
            rustix::mm::mmap(ptr::null_mut(), length, protection, MapFlags::SHARED, fd, 0)
        };
        let start = start.map_err(|errno| map_error(errno, bytes))?;
        let start = NonNull::new(start.cast())
            .ok_or_else(|| system("map a memory file anywhere but at 0", Errno::NOMEM))?;
        Ok(Self {
            start,
            length,
            access,
            is_owned: true,
        })
    }

    /// Memory that this process has anyhow.
    ///
    /// # Errors
    /// [`MemoryError::Size`] if it has no bytes or leaves the address space.
    ///
    /// # Safety
    /// The range is readable and writable until the drop, and everybody else who touches it
    /// meanwhile keeps to what is said in `OwnMemory::lent`.
    pub(super) unsafe fn lent(start: NonNull<u8>, length: usize) -> Result<Self, MemoryError> {
        let is_sound = length > 0
            && isize::try_from(length).is_ok()
            && start.addr().get().checked_add(length).is_some();
        if !is_sound {
            return Err(MemoryError::Size {
                bytes: length as u64,
                unit_bytes: 1,
            });
        }
        Ok(Self {
            start,
            length,
            access: MapFor::Writing,
            is_owned: false,
        })
    }

    /// Where it lies.
    pub(super) fn address(&self) -> u64 {
        self.start.addr().get() as u64
    }

    /// Its length, in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.length as u64
    }

    /// Whether a range lies within the mapping.
    pub(super) fn check(&self, offset: u64, length: u64) -> Result<(), MemoryError> {
        self.range(offset, length).map(|_| ())
    }

    /// The address and length of a range, if all of it lies within the mapping.
    fn range(&self, offset: u64, length: u64) -> Result<(NonNull<u8>, usize), MemoryError> {
        let refusal = MemoryError::OutOfRange {
            offset_bytes: offset,
            length_bytes: length,
            size_bytes: self.bytes(),
        };
        let inside = offset
            .checked_add(length)
            .is_some_and(|end| end <= self.bytes());
        let (Ok(offset), Ok(length)) = (usize::try_from(offset), usize::try_from(length)) else {
            return Err(refusal);
        };
        if !inside {
            return Err(refusal);
        }
        // SAFETY: `offset` is at most the length of the mapping, which is below isize::MAX.
        Ok((unsafe { self.start.add(offset) }, length))
    }

    fn writable(&self, offset: u64, length: u64) -> Result<(NonNull<u8>, usize), MemoryError> {
        if self.access == MapFor::Reading {
            return Err(system("write through a mapping for reading", Errno::ACCESS));
        }
        self.range(offset, length)
    }

    /// Copies `source` to `offset`.
    pub(super) fn copy_in(&self, offset: u64, source: &[u8]) -> Result<(), MemoryError> {
        let (to, length) = self.writable(offset, source.len() as u64)?;
        // SAFETY: `range` checked the target; `source` is a live slice of that length. They do
        // not overlap: no exclusive or shared slice of ours ever covers a range being written.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), to.as_ptr(), length) };
        Ok(())
    }

    /// Copies from `offset` to all of `out`.
    pub(super) fn copy_out(&self, offset: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let (from, length) = self.range(offset, out.len() as u64)?;
        // SAFETY: `range` checked the source; `out` is ours alone and of that length.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), out.as_mut_ptr(), length) };
        Ok(())
    }

    /// Copies `length` bytes from another mapping, whose owner may be changing them: they are
    /// never looked at in place, so what is checked afterwards is what was copied.
    pub(super) fn copy_from(
        &self,
        offset: u64,
        source: &Self,
        source_offset: u64,
        length: u64,
    ) -> Result<(), MemoryError> {
        let (from, _) = source.range(source_offset, length)?;
        let (to, length) = self.writable(offset, length)?;
        // SAFETY: both ranges were checked and lie in different mappings, so their addresses do
        // not overlap. A writer on the other side can spoil the copy, not this process.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), length) };
        Ok(())
    }

    /// The bytes in place.
    ///
    /// Callers keep the slice only while nobody writes the range: for the bearer of a write
    /// ticket between its copies, for a view while its hold lasts, for a buffer of our own while
    /// it is borrowed.
    pub(super) fn slice(&self, offset: u64, length: u64) -> Result<&[u8], MemoryError> {
        let (from, length) = self.range(offset, length)?;
        // SAFETY: the range is mapped, readable and initialised (pages start as zeros), and is not
        // written while the slice lives, see above.
        Ok(unsafe { std::slice::from_raw_parts(from.as_ptr(), length) })
    }

    /// All bytes for writing in place.
    pub(super) fn slice_mut(&mut self) -> Result<&mut [u8], MemoryError> {
        let (start, length) = self.writable(0, self.bytes())?;
        // SAFETY: the range is mapped and writable, and the exclusive borrow of the mapping keeps
        // every other access of this process away.
        Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) })
    }

    /// Receives once, without waiting, straight into the range. 0 = the peer has ended.
    pub(super) fn recv(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        let (to, length) = self.writable(offset, length).map_err(invalid)?;
        nonempty(length)?;
        loop {
            // SAFETY: the kernel writes at most `length` bytes to a range that was checked.
            let count = unsafe {
                libc::recv(
                    socket.as_raw_fd(),
                    to.as_ptr().cast(),
                    length,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if let Some(done) = outcome(count) {
                return done;
            }
        }
    }

    /// Sends once, without waiting, straight from the range.
    pub(super) fn send(
        &self,
        socket: BorrowedFd<'_>,
        offset: u64,
        length: u64,
    ) -> io::Result<usize> {
        let (from, length) = self.range(offset, length).map_err(invalid)?;
        nonempty(length)?;
        loop {
            // SAFETY: the kernel reads at most `length` bytes of a range that was checked.
            let count = unsafe {
                libc::send(
                    socket.as_raw_fd(),
                    from.as_ptr().cast(),
                    length,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            };
            if let Some(done) = outcome(count) {
                return done;
            }
        }
    }

    /// Gives every page its memory now, without changing a byte. False: this kernel cannot.
    pub(super) fn populate(&self) -> Result<bool, MemoryError> {
        // SAFETY: the range is the mapping itself; this advice changes no content.
        let done = unsafe {
            rustix::mm::madvise(
                self.start.as_ptr().cast(),
                self.length,
                Advice::LinuxPopulateWrite,
            )
        };
        match done {
            Ok(()) => Ok(true),
            // Kernels before 5.14.
            Err(Errno::INVAL) => Ok(false),
            Err(Errno::NOMEM | Errno::FAULT) => Err(MemoryError::NoMemory {
                bytes: self.bytes(),
                source: Errno::NOMEM.into(),
            }),
            Err(errno) => Err(system("give pages to a memory file", errno)),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.is_owned {
            return;
        }
        // SAFETY: exactly what was mapped; nothing borrows from it any more. An error would mean
        // that the range is not mapped, and there is nothing to do about that here.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// What a call on a socket came to; `None` = a signal came first, try again.
fn outcome(count: isize) -> Option<io::Result<usize>> {
    if let Ok(count) = usize::try_from(count) {
        return Some(Ok(count));
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        None
    } else {
        Some(Err(error))
    }
}

fn invalid(error: MemoryError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// A receive of nothing would read as the end of the peer.
fn nonempty(length: usize) -> io::Result<()> {
    if length > 0 {
        return Ok(());
    }
    Err(invalid(MemoryError::Size {
        bytes: 0,
        unit_bytes: 1,
    }))
}
