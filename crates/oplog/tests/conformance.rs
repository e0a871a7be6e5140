//! One suite for every disk, and what only the real one has: modes, a lock, paths in errors.
#![expect(
    clippy::disallowed_methods,
    reason = "the test looks at what the real disk left in its folder"
)]

use std::os::unix::fs::PermissionsExt as _;

use larder_oplog::{
    Disk, Entry, FakeDisk, Log, MakeSnapshot, Payload, ReadDisk, Rebuild, StdDisk, StdReadDisk,
    Through,
};

use crate::steps::{BOOT, NEXT_BOOT, all, at, entries, open};

fn read(disk: &mut dyn Disk, name: &str) -> Vec<u8> {
    let length = disk.length(name).expect("a length");
    let mut bytes = vec![0; length as usize];
    disk.read_at(name, 0, &mut bytes).expect("bytes");
    bytes
}

fn suite(disk: &mut dyn Disk) {
    assert_eq!(disk.list().expect("a list"), [""; 0]);
    for name in ["b", "a"] {
        disk.create(name).expect("a file");
    }
    assert!(disk.create("a").is_err(), "there is one");
    assert_eq!(disk.list().expect("a list"), ["a", "b"]);

    disk.append("a", b"hello ").expect("room");
    disk.append("a", b"world").expect("room");
    assert_eq!(read(disk, "a"), b"hello world");
    let mut word = [0; 5];
    disk.read_at("a", 6, &mut word).expect("bytes");
    assert_eq!(&word, b"world");
    let short = disk.read_at("a", 7, &mut word).expect_err("the end");
    assert!(short.is_short() && !short.is_full() && !short.is_missing());
    disk.read_at("a", 11, &mut []).expect("nothing to read");

    disk.truncate("a", 5).expect("a cut");
    disk.append("a", b"!").expect("room");
    disk.sync("a").expect("a sync");
    assert_eq!(read(disk, "a"), b"hello!");

    disk.append("b", b"other").expect("room");
    disk.rename("a", "b").expect("a name");
    disk.sync_folder().expect("a sync");
    assert_eq!(disk.list().expect("a list"), ["b"]);
    assert_eq!(read(disk, "b"), b"hello!");
    disk.append("b", b"?").expect("room");
    assert_eq!(read(disk, "b"), b"hello!?");
    disk.create("a").expect("its name is free");
    assert_eq!(read(disk, "a"), b"");

    disk.remove("b").expect("a file");
    let missing = disk.remove("b").expect_err("it is gone");
    assert!(missing.is_missing() && missing.to_string().contains("b;"));
    for outcome in [
        disk.length("b").map(drop),
        disk.append("b", b"x"),
        disk.truncate("b", 0),
        disk.sync("b"),
        disk.rename("b", "c"),
        disk.read_at("b", 0, &mut word),
    ] {
        assert!(outcome.expect_err("it is gone").is_missing());
    }
    sync_away(disk);
    // More files than stay open at once.
    for nth in 0..40 {
        let name = format!("many-{nth:02}");
        disk.create(&name).expect("a file");
        disk.append(&name, &[nth]).expect("room");
        disk.sync(&name).expect("a sync");
    }
    for nth in 0..40 {
        assert_eq!(read(disk, &format!("many-{nth:02}")), [nth]);
    }
}

/// A sync whose slow part is on another thread, while its file goes on, is renamed and removed.
fn sync_away(disk: &mut dyn Disk) {
    disk.create("away").expect("a file");
    disk.append("away", b"before").expect("room");
    let work = disk.begin_sync("away").expect("a sync");
    disk.append("away", b" after").expect("room");
    disk.sync("away").expect("a sync meanwhile");
    let done = std::thread::spawn(|| work.run()).join().expect("no panic");
    disk.finish_sync(done).expect("a sync");
    assert_eq!(read(disk, "away"), b"before after");
    disk.truncate("away", 6).expect("a cut");
    let work = disk.begin_sync("away").expect("a sync");
    disk.remove("away").expect("a file");
    disk.finish_sync(work.run()).expect("nothing to end");
    let missing = disk.begin_sync("away").expect_err("it is gone");
    assert!(missing.is_missing(), "{missing}");
}

#[test]
fn the_fake_disk_conforms() {
    suite(&mut FakeDisk::new());
}

#[test]
fn the_real_disk_conforms() {
    let folder = tempfile::tempdir().expect("a folder");
    suite(&mut StdDisk::open(folder.path()).expect("a disk"));
}

#[test]
fn a_folder_is_for_its_owner_only() {
    let above = tempfile::tempdir().expect("a folder");
    let folder = above.path().join("deep/log");
    let mut disk = StdDisk::open(&folder).expect("a disk");
    disk.create("a").expect("a file");
    let mode = |path: &std::path::Path| {
        let metadata = std::fs::metadata(path).expect("metadata");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("a")), 0o600);
    let second = StdDisk::open(&folder).expect_err("it is locked");
    assert!(
        second.to_string().contains("stop the other process"),
        "{second}"
    );
    assert!(second.to_string().contains("deep/log"), "{second}");
    drop(disk);
    StdDisk::open(&folder).expect("it is free again");
}

#[test]
fn a_log_lives_on_a_real_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = || StdDisk::open(folder.path()).expect("a disk");
    let (mut log, _) = open(disk(), BOOT);
    log.append(&entries(1, 0..30, 500)).expect("room");
    assert_eq!(log.sync().expect("a sync"), Some(at(1, 29)));
    log.append(&entries(2, 30..35, 500)).expect("room");
    let work = log.begin_sync().expect("a sync").expect("it is due");
    log.append(&entries(2, 35..40, 500)).expect("room");
    let done = std::thread::spawn(|| work.run()).join().expect("no panic");
    assert_eq!(log.finish_sync(done).expect("a sync"), Some(at(2, 34)));
    log.truncate_from(35).expect("a truncation");
    log.purge_through(at(1, 12)).expect("a purge");
    log.mark_clean().expect("a clean stop");
    drop(log);
    let (mut log, _) = open(disk(), NEXT_BOOT);
    let wanted = [entries(1, 13..30, 500), entries(2, 30..35, 500)].concat();
    assert_eq!(all(&mut log), wanted);
}

/// The owner appends while another thread takes a snapshot of what is committed.
#[test]
fn a_snapshot_is_made_beside_the_owner_of_a_real_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let disk = StdDisk::open(folder.path()).expect("a disk");
    let shared = disk.share().expect("a second handle");
    let (mut log, _) = open(disk, BOOT);
    let blank = |index| Entry {
        at: at(1, index),
        payload: Payload::Blank.encode(),
    };
    let append = |log: &mut Log<StdDisk>, indexes: std::ops::Range<u64>| {
        for index in indexes {
            log.append(&[blank(index)]).expect("room");
        }
    };
    append(&mut log, 0..300);
    log.sync().expect("a sync");
    let maker = std::thread::spawn(|| MakeSnapshot::begin(shared, 250)?.run());
    append(&mut log, 300..900);
    let made = maker.join().expect("no panic").expect("made");
    assert_eq!(made.at, at(1, 250));
    let read = StdReadDisk::open(folder.path()).expect("a disk");
    let rebuilt = Rebuild::begin(read, Through::Last).and_then(Rebuild::run);
    let (rebuilt, _) = rebuilt.expect("a state");
    assert_eq!(rebuilt.snapshot, Some(at(1, 250)));
    assert_eq!(rebuilt.applied, Some(at(1, 899)));
}

#[test]
fn what_is_only_read_is_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let missing = StdReadDisk::open(&path).expect_err("it is not there");
    assert!(missing.is_missing() && missing.to_string().contains("log"));
    assert!(!path.exists(), "nothing is made");
    std::fs::create_dir(&path).expect("a folder");
    std::fs::write(path.join("a"), b"hello").expect("a file");
    let mut disk = StdReadDisk::open(&path).expect("a disk");
    assert_eq!(disk.list().expect("a list"), ["a"]);
    assert_eq!(disk.length("a").expect("a length"), 5);
    let mut bytes = [0; 3];
    disk.read_at("a", 2, &mut bytes).expect("bytes");
    assert_eq!(&bytes, b"llo");
    assert!(
        disk.read_at("a", 3, &mut bytes)
            .expect_err("short")
            .is_short()
    );
    assert!(disk.length("b").expect_err("none").is_missing());
    assert_eq!(std::fs::read_dir(&path).expect("a folder").count(), 1);
    StdDisk::open(&path).expect("nobody has locked it");
}
