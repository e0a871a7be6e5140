//! Memory files: made, sealed, checked and opened again for reading.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::process::Resource;

use super::MemoryError;

/// The file system of memory files with ordinary pages.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// Makes an empty memory file that only this uid may open again.
fn create(name: &str) -> Result<OwnedFd, MemoryError> {
    use rustix::fs::MemfdFlags;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know NOEXEC_SEAL; later ones may be set to insist on it.
    let made = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags),
        other => other,
    };
    let fd = made.map_err(|errno| create_error(errno, 0))?;
    // Memory files are born open to everybody who can name them through /proc.
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)
        .map_err(|errno| system("restrict a memory file to its owner", errno))?;
    Ok(fd)
}

/// A memory file of exactly `bytes`, sealed with `seals`.
pub(super) fn create_sized(
    name: &str,
    bytes: u64,
    seals: SealFlags,
) -> Result<OwnedFd, MemoryError> {
    let fd = create(name)?;
    rustix::fs::ftruncate(&fd, bytes).map_err(|errno| create_error(errno, bytes))?;
    rustix::fs::fcntl_add_seals(&fd, seals).map_err(|errno| system("seal a memory file", errno))?;
    Ok(fd)
}

/// A memory file that grows as it is written to; never passed to another process.
pub(crate) fn create_growing(name: &str) -> Result<fs::File, MemoryError> {
    create(name).map(fs::File::from)
}

/// The same file behind a descriptor that cannot write: what clients get of a slab.
pub(super) fn reopen_read_only(fd: BorrowedFd<'_>) -> Result<OwnedFd, MemoryError> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
        match errno {
            Errno::MFILE | Errno::NFILE => create_error(errno, 0),
            _ => system("open a memory file again for reading", errno),
        }
    })
}

/// Checks what another process passed: a memory file of ordinary pages, at least `bytes` long,
/// that cannot become shorter.
///
/// The seal is looked at before the size: only then is the size a promise. Huge pages are refused
/// because reading a hole of theirs can end the reader when the machine has none left.
pub(super) fn check_passed(fd: BorrowedFd<'_>, bytes: u64) -> Result<(), MemoryError> {
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|_| MemoryError::NotMemoryFile)?;
    let system_kind = rustix::fs::fstatfs(fd)
        .map_err(|errno| system("tell the file system of a memory file", errno))?
        .f_type;
    if u64::try_from(system_kind) != Ok(TMPFS_MAGIC) {
        return Err(MemoryError::NotMemoryFile);
    }
    if !seals.contains(SealFlags::SHRINK) {
        return Err(MemoryError::NotSealed);
    }
    let size = rustix::fs::fstat(fd)
        .map_err(|errno| system("tell the size of a memory file", errno))?
        .st_size;
    let actual_bytes = u64::try_from(size).unwrap_or(0);
    if actual_bytes < bytes {
        return Err(MemoryError::TooShort {
            bytes,
            actual_bytes,
        });
    }
    Ok(())
}

pub(super) fn system(action: &'static str, errno: Errno) -> MemoryError {
    MemoryError::System {
        action,
        source: errno.into(),
    }
}

fn create_error(errno: Errno, bytes: u64) -> MemoryError {
    let source = io::Error::from(errno);
    match errno {
        Errno::MFILE | Errno::NFILE => {
            let limit = rustix::process::getrlimit(Resource::Nofile)
                .current
                .unwrap_or(u64::MAX);
            // Counting needs a descriptor itself; where none is left, as many are open as may be.
            let in_use = fs::read_dir("/proc/self/fd").map_or(limit, |open| open.count() as u64);
            MemoryError::OpenFiles {
                in_use,
                limit,
                needed: in_use.saturating_add(1),
                source,
            }
        }
        Errno::NOMEM | Errno::NOSPC => MemoryError::NoMemory { bytes, source },
        _ => MemoryError::System {
            action: "make a memory file",
            source,
        },
    }
}

/// Why a mapping failed: the kernel says "no memory" also when there are too many mappings.
pub(super) fn map_error(errno: Errno, bytes: u64) -> MemoryError {
    let source = io::Error::from(errno);
    if errno != Errno::NOMEM {
        return MemoryError::System {
            action: "map a memory file",
            source,
        };
    }
    let limit = fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX);
    let in_use =
        fs::read_to_string("/proc/self/maps").map_or(0, |text| text.lines().count() as u64);
    if in_use >= limit {
        MemoryError::Mappings {
            in_use,
            limit,
            needed: in_use.saturating_add(1),
            source,
        }
    } else {
        MemoryError::NoMemory { bytes, source }
    }
}

/// Frees all pages of the file, also under mappings that others still have; they read zeros.
pub(super) fn punch_out(fd: &impl AsFd, bytes: u64) -> Result<(), MemoryError> {
    use rustix::fs::FallocateFlags;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(fd, flags, 0, bytes)
        .map_err(|errno| system("free the pages of a memory file", errno))
}

/// Takes pages for the whole file, so that no later access can fail for want of memory.
pub(super) fn allocate(fd: &impl AsFd, bytes: u64) -> Result<(), MemoryError> {
    rustix::fs::fallocate(fd, rustix::fs::FallocateFlags::empty(), 0, bytes)
        .map_err(|errno| create_error(errno, bytes))
}
