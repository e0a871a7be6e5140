//! Tests of memory files: seals, ranges and what others can do with a descriptor.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;

use super::mapping::{MapFor, Mapping};
use super::*;
use larder_wire::checksum;

const PAGE: u64 = 4096;
const SLAB: u64 = 64 * PAGE;

fn slab() -> SlabMemory {
    SlabMemory::create("test-slab", SLAB).expect("a slab")
}

fn client_file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let fd = rustix::fs::memfd_create("client", MemfdFlags::ALLOW_SEALING).expect("a memfd");
    rustix::fs::ftruncate(&fd, bytes).expect("a size");
    rustix::fs::fcntl_add_seals(&fd, seals).expect("seals");
    fd
}

fn is_out_of_range<T: std::fmt::Debug>(result: Result<T, MemoryError>) -> bool {
    matches!(result, Err(MemoryError::OutOfRange { .. }))
}

#[test]
fn bytes_go_in_and_out_at_any_offset() {
    let slab = slab();
    let payload: Vec<u8> = (0..70_001_u32).map(|i| (i % 251) as u8).collect();
    slab.copy_in(77, &payload).expect("fits");
    let mut back = vec![0; payload.len()];
    slab.copy_out(77, &mut back).expect("fits");
    assert_eq!(back, payload);
    let crcs = slab.block_crcs(77, payload.len() as u64).expect("fits");
    assert_eq!(crcs, checksum::block_crcs(&payload));
    slab.copy_in(SLAB, &[]).expect("nothing fits at the end");
}

#[test]
fn ranges_that_leave_the_slab_are_refused() {
    let slab = slab();
    let source = SharedBuffer::create(PAGE).expect("a buffer");
    let fd = source.fd().try_clone_to_owned().expect("a descriptor");
    let foreign = ForeignMap::map(fd, PAGE).expect("a mapping");
    let (a, b) = UnixStream::pair().expect("sockets");
    for (offset, length) in [
        (SLAB, 1),
        (SLAB - 1, 2),
        (0, SLAB + 1),
        (u64::MAX, 1),
        (1, u64::MAX),
    ] {
        assert!(
            is_out_of_range(slab.block_crcs(offset, length)),
            "{offset}+{length}"
        );
        assert!(is_out_of_range(slab.copy_from(offset, &foreign, 0, length)));
        let refused = slab
            .recv(a.as_fd(), offset, length)
            .expect_err("out of range");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        let refused = slab
            .send(b.as_fd(), offset, length)
            .expect_err("out of range");
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    assert!(is_out_of_range(slab.copy_in(SLAB - 1, &[1, 2])));
    assert!(is_out_of_range(slab.copy_in(u64::MAX, &[1])));
    assert!(is_out_of_range(slab.copy_out(SLAB - 1, &mut [0; 2])));
    assert!(is_out_of_range(slab.copy_from(0, &foreign, 1, PAGE)));
    assert!(is_out_of_range(slab.copy_from(0, &foreign, u64::MAX, 1)));
}

#[test]
fn a_slab_has_whole_pages() {
    for bytes in [0, 1, PAGE - 1, PAGE + 1] {
        let refused = SlabMemory::create("odd", bytes).expect_err("no whole pages");
        assert!(matches!(refused, MemoryError::Size { .. }), "{refused}");
        assert!(!refused.is_retryable());
    }
    let refused = SlabMemory::create("vast", (i64::MAX as u64 / PAGE) * PAGE);
    assert!(refused.is_err(), "nobody has that much address space");
}

#[test]
fn a_slab_is_sealed_and_private() {
    let slab = slab();
    let fd = slab.read_only_fd().expect("a descriptor");
    let seals = rustix::fs::fcntl_get_seals(&fd).expect("seals");
    assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&fd).expect("a mode").st_mode);
    assert_eq!(mode, Mode::RUSR | Mode::WUSR);
}

#[test]
fn a_view_descriptor_cannot_write() {
    let slab = slab();
    let fd = slab.read_only_fd().expect("a descriptor");
    let refused = Mapping::new(fd.as_fd(), SLAB, MapFor::Writing).expect_err("for reading only");
    let MemoryError::System { source, .. } = refused else {
        panic!("{refused}")
    };
    assert_eq!(source.raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
    assert_eq!(rustix::io::pwrite(&fd, b"x", 0), Err(Errno::BADF));
    assert_eq!(rustix::fs::ftruncate(&fd, 0), Err(Errno::INVAL));
    let reading = Mapping::new(fd.as_fd(), SLAB, MapFor::Reading).expect("a mapping");
    assert!(reading.copy_in(0, b"x").is_err());
}

#[test]
fn another_uid_cannot_open_a_view_descriptor_for_writing() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root to become another uid");
        return;
    }
    let slab = slab();
    let closed = slab.read_only_fd().expect("a descriptor");
    // A file that is open to everybody shows that the mode is what refuses.
    let open = client_file(PAGE, SealFlags::SHRINK);
    rustix::fs::fchmod(&open, Mode::from_raw_mode(0o666)).expect("a mode");
    let outcome = std::thread::spawn(move || {
        let nobody = rustix::process::Uid::from_raw(65_534);
        // Of this thread only: the call of the kernel, not that of the C library.
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let reopen = |fd: &OwnedFd| {
            let path = format!("/proc/thread-self/fd/{}", fd.as_raw_fd());
            rustix::fs::open(path, OFlags::RDWR, Mode::empty()).map(|_| ())
        };
        (reopen(&closed), reopen(&open))
    });
    let (closed, open) = outcome.join().expect("no panic");
    assert_eq!(closed, Err(Errno::ACCESS));
    assert_eq!(open, Ok(()));
}

#[test]
fn freed_pages_read_as_zeros_under_old_views() {
    let slab = slab();
    slab.copy_in(5000, b"of the tenant before").expect("fits");
    let view = ViewMap::map(slab.read_only_fd().expect("a descriptor"), SLAB).expect("a view");
    assert_eq!(view.slice(5000, 20), Some(&b"of the tenant before"[..]));
    slab.punch_out().expect("pages are freed");
    let all = view.slice(0, SLAB).expect("within the slab");
    assert!(all.iter().all(|byte| *byte == 0));
    drop(slab);
    assert_eq!(
        view.slice(5000, 3),
        Some(&[0; 3][..]),
        "the mapping outlives the slab"
    );
}

#[test]
fn a_view_has_an_end() {
    let slab = slab();
    let view = ViewMap::map(slab.read_only_fd().expect("a descriptor"), SLAB).expect("a view");
    assert_eq!(view.bytes(), SLAB);
    assert_eq!(view.slice(SLAB - 1, 2), None);
    assert_eq!(view.slice(u64::MAX, 1), None);
    let longer = ViewMap::map(slab.read_only_fd().expect("a descriptor"), SLAB + 1);
    assert!(matches!(longer, Err(MemoryError::TooShort { .. })));
}

/// B09: what is registered is a memory file that cannot shrink, of the length given, not empty.
#[test]
fn b09_buffers_that_could_end_the_agent_are_refused() {
    let shrinkable = client_file(PAGE, SealFlags::GROW);
    assert!(matches!(
        ForeignMap::map(shrinkable, PAGE),
        Err(MemoryError::NotSealed)
    ));

    let short = client_file(PAGE, SealFlags::SHRINK);
    let refused = ForeignMap::map(short, PAGE + 1);
    assert!(matches!(
        refused,
        Err(MemoryError::TooShort {
            actual_bytes: PAGE,
            ..
        })
    ));

    let overflowing = client_file(PAGE, SealFlags::SHRINK);
    assert!(matches!(
        ForeignMap::map(overflowing, u64::MAX),
        Err(MemoryError::TooShort { .. })
    ));

    let empty = client_file(PAGE, SealFlags::SHRINK);
    assert!(matches!(
        ForeignMap::map(empty, 0),
        Err(MemoryError::Size { .. })
    ));

    let (socket, _peer) = UnixStream::pair().expect("sockets");
    assert!(matches!(
        ForeignMap::map(socket.into(), PAGE),
        Err(MemoryError::NotMemoryFile)
    ));

    let good = client_file(PAGE, SealFlags::SHRINK);
    let kept = good.try_clone().expect("a descriptor");
    ForeignMap::map(good, PAGE).expect("all is well");
    assert_eq!(
        rustix::fs::ftruncate(&kept, 0),
        Err(Errno::PERM),
        "it cannot shrink any more"
    );
}

#[test]
fn the_agent_pulls_from_a_client_and_checks_its_own_copy() {
    let slab = slab();
    let mut buffer = SharedBuffer::create(200_000).expect("a buffer");
    let payload: Vec<u8> = (0..150_000_u32).map(|i| (i % 241) as u8).collect();
    buffer.write_at(13, &payload).expect("fits");
    assert!(is_out_of_range(buffer.write_at(199_999, b"ab")));
    buffer.as_mut()[199_999] = 9;
    assert_eq!(
        rustix::io::pwrite(buffer.fd(), b"x", 0),
        Err(Errno::BADF),
        "it cannot be written"
    );

    let fd = buffer.fd().try_clone_to_owned().expect("a descriptor");
    let foreign = ForeignMap::map(fd, buffer.bytes()).expect("a mapping");
    let crcs = slab.copy_from(4096, &foreign, 13, 150_000).expect("fits");
    assert_eq!(crcs, checksum::block_crcs(&payload));
    let mut copied = vec![0; payload.len()];
    slab.copy_out(4096, &mut copied).expect("fits");
    assert_eq!(copied, payload);
    assert!(
        slab.copy_from(0, &foreign, 0, 0)
            .expect("nothing to copy")
            .is_empty()
    );

    let range = buffer.as_ptr_range();
    let shared = bytes::Bytes::from_owner(buffer);
    let part = shared.slice(13..150_013);
    assert_eq!(part, payload);
    assert!(range.contains(&part.as_ptr()));
    drop((shared, part));
    assert_eq!(
        slab.copy_from(0, &foreign, 13, 150_000)
            .expect("the mapping stays"),
        crcs
    );
}

#[test]
fn sockets_read_and_write_the_slab_in_place() {
    let slab = slab();
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    let waits = slab
        .recv(ours.as_fd(), 0, 10)
        .expect_err("nothing was sent");
    assert_eq!(waits.kind(), io::ErrorKind::WouldBlock);

    theirs.write_all(b"straight in").expect("sent");
    assert_eq!(
        slab.recv(ours.as_fd(), 100, 8).expect("8 bytes are there"),
        8
    );
    assert_eq!(
        slab.recv(ours.as_fd(), 108, 100).expect("3 bytes are left"),
        3
    );
    let mut back = [0; 11];
    slab.copy_out(100, &mut back).expect("fits");
    assert_eq!(&back, b"straight in");

    assert_eq!(slab.send(ours.as_fd(), 100, 11).expect("they fit"), 11);
    let mut heard = [0; 11];
    theirs.read_exact(&mut heard).expect("11 bytes");
    assert_eq!(&heard, b"straight in");
    for refused in [slab.recv(ours.as_fd(), 0, 0), slab.send(ours.as_fd(), 0, 0)] {
        assert_eq!(
            refused.expect_err("nothing").kind(),
            io::ErrorKind::InvalidInput
        );
    }

    while slab.send(ours.as_fd(), 0, SLAB).is_ok() {}
    let full = slab.send(ours.as_fd(), 0, SLAB).expect_err("nobody reads");
    assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
    drop(theirs);
    let ended = slab.send(ours.as_fd(), 0, 1).expect_err("the peer is gone");
    assert_eq!(ended.kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn pages_can_be_taken_ahead_without_a_change() {
    let slab = slab();
    slab.copy_in(4095, b"stays").expect("fits");
    slab.prefault().expect("memory is there");
    memfd::allocate(&slab.read_only_fd().expect("fd"), SLAB).expect_err("not for reading only");
    let mut back = [0; 5];
    slab.copy_out(4095, &mut back).expect("fits");
    assert_eq!(&back, b"stays");
}
