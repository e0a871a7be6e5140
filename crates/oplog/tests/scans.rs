//! A log that is only read: beside its owner, with a torn end, and damaged.

use larder_oplog::{FakeDisk, Found, Log, LogError, LogScan, ReadDisk, Trust, Vote};

use crate::steps::{BOOT, at, entries, indexes, open};

/// Three segments with a truncation and a purge.
fn log() -> Log<FakeDisk> {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    for index in 0..20 {
        log.append(&entries(1, index..index + 1, 400))
            .expect("room");
        log.sync().expect("a sync");
    }
    log.truncate_from(15).expect("a truncation");
    log.note_committed(at(1, 14));
    log.append(&entries(2, 15..23, 300)).expect("room");
    log.purge_through(at(1, 3)).expect("a purge");
    log.save_vote(Vote {
        term: 2,
        voted_for: Some(1),
        committed: true,
    })
    .expect("a vote");
    log
}

fn scanned<D: ReadDisk>(disk: D) -> LogScan<D> {
    LogScan::open(disk).expect("a log")
}

fn all<D: ReadDisk>(scan: &mut LogScan<D>) -> Vec<u64> {
    let range = scan.first_index()..scan.next_index();
    indexes(&scan.read(range, usize::MAX).expect("entries"))
}

#[test]
fn it_has_what_the_owner_has_and_changes_nothing() {
    let log = log();
    let (vote, last, first) = (log.vote(), log.last(), log.first());
    let mut disk = log.into_disk();
    let before: Vec<(String, Vec<u8>)> = files(&mut disk);
    let mut scan = scanned(&mut disk);
    assert!(scan.found().is_none(), "{:?}", scan.found());
    assert_eq!(
        (scan.vote(), scan.last(), scan.first()),
        (vote, last, first)
    );
    assert_eq!(
        (scan.purged(), scan.committed()),
        (Some(at(1, 3)), Some(at(1, 14)))
    );
    assert_eq!((scan.trust(), scan.is_clean()), (Trust::Whole, false));
    assert_eq!(scan.entries(), 19);
    assert_eq!((scan.term_of(14), scan.term_of(15)), (Some(1), Some(2)));
    assert_eq!(all(&mut scan), (4..23).collect::<Vec<u64>>());
    let read = scan.read(20..40, usize::MAX).expect("entries");
    assert_eq!(read, entries(2, 20..23, 300));
    assert!(matches!(
        scan.read(3..5, 1),
        Err(LogError::Purged { first: 4, .. })
    ));
    let in_files: Vec<_> = scan.segments().iter().map(|one| one.file.clone()).collect();
    assert!(in_files.contains(&scan.file_of(22).expect("it is there")));
    assert_eq!(scan.file_of(23), None);
    drop(scan);
    assert_eq!(files(&mut disk), before);
}

fn files(disk: &mut FakeDisk) -> Vec<(String, Vec<u8>)> {
    let names: Vec<String> = disk.names().map(str::to_owned).collect();
    let bytes = |name: String| {
        let bytes = disk.bytes(&name).expect("a file").to_vec();
        (name, bytes)
    };
    names.into_iter().map(bytes).collect()
}

/// Whatever part of the last writes is there, what is before it is read.
#[test]
fn an_end_that_is_being_written_is_left_out() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..3, 50)).expect("room");
    let disk = log.into_disk();
    let name = "segment-00000000000000000000.log";
    let whole = disk.bytes(name).expect("a file").to_vec();
    let mut torn = 0;
    for length in 64..=whole.len() {
        let mut disk = disk.clone();
        disk.put(name, Some(&whole[..length]));
        let mut scan = scanned(disk);
        let read = all(&mut scan);
        assert_eq!(read.len(), (length - 64) / 82);
        match scan.found() {
            None => assert_eq!((length - 64) % 82, 0, "{length}"),
            Some(Found::Torn(found)) => {
                torn += 1;
                assert_eq!(found.offset + found.bytes, length as u64);
                assert!(!scan.found().expect("torn").is_damage());
            }
            Some(other) => panic!("{other}"),
        }
    }
    assert_eq!(torn, 3 * 81);
}

#[test]
fn a_segment_that_is_about_to_be_begun_is_left_out() {
    let mut disk = log().into_disk();
    let next = format!("segment-{:020}.log", 3);
    assert!(disk.bytes(&next).is_none(), "there are three");
    for length in [0, 10, 64] {
        disk.put(&next, Some(&vec![0; length]));
        let mut scan = scanned(&mut disk);
        assert_eq!(all(&mut scan), (4..23).collect::<Vec<u64>>());
        assert!(matches!(scan.found(), Some(Found::Torn(_))));
    }
}

#[test]
fn damage_is_named_and_what_is_before_it_is_there() {
    let disk = log().into_disk();
    let second = format!("segment-{:020}.log", 1);
    let mut bytes = disk.bytes(&second).expect("a file").to_vec();
    bytes[200] ^= 1;
    let mut damaged = disk.clone();
    damaged.put(&second, Some(&bytes));
    let mut scan = scanned(damaged);
    let found = scan.found().expect("damage");
    assert!(
        found.is_damage() && found.to_string().contains(&second),
        "{found}"
    );
    let before = all(&mut scan);
    assert_eq!(before.first(), Some(&4));
    assert!(before.len() < 19);

    let mut gone = disk.clone();
    gone.put(&second, None);
    let scan = scanned(gone);
    let found = scan.found().expect("a gap");
    assert!(
        matches!(found, Found::MissingSegment { file } if *file == second),
        "{found}"
    );

    let mut first_gone = disk;
    first_gone.put("segment-00000000000000000000.log", None);
    let scan = scanned(first_gone);
    assert!(matches!(scan.found(), Some(Found::MissingSegment { .. })));
    assert_eq!(scan.entries(), 0);
}

#[test]
fn a_folder_without_a_log_says_so() {
    let none = LogScan::open(FakeDisk::new()).expect_err("nothing there");
    assert!(matches!(none, LogError::NoLog), "{none}");
    let mut disk = log().into_disk();
    disk.put("meta", Some(b"LARDRMET"));
    assert!(matches!(LogScan::open(disk), Err(LogError::Damaged { .. })));
}

#[test]
fn a_clean_end_that_is_missed_is_damage() {
    let mut log = log();
    log.mark_clean().expect("a clean stop");
    let mut disk = log.into_disk();
    let scan = scanned(&mut disk);
    assert!(scan.found().is_none() && scan.is_clean());
    let name = disk.names().filter(|name| name.ends_with(".log")).last();
    let name = name.expect("a segment").to_owned();
    let bytes = disk.bytes(&name).expect("a file");
    let shorter = bytes[..bytes.len() - 1].to_vec();
    disk.put(&name, Some(&shorter));
    assert!(scanned(disk).found().expect("damage").is_damage());
}
