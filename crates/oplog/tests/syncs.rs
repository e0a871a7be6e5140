//! Syncs on another thread: what is durable after them, and what a loss of power in between does.

use larder_oplog::{FakeDisk, LogError, Operation, Restart, Trust};

use crate::steps::{BOOT, NEXT_BOOT, all, at, entries, indexes, open};

#[test]
fn appends_go_on_while_it_syncs_and_are_not_durable_by_it() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    assert!(
        log.begin_sync().expect("running").is_none(),
        "nothing is due"
    );
    log.append(&entries(1, 0..3, 10)).expect("room");
    let work = log.begin_sync().expect("running").expect("it is due");
    assert!(log.is_syncing());
    assert!(
        log.begin_sync().expect("running").is_none(),
        "one at a time"
    );
    log.append(&entries(1, 3..5, 10)).expect("room");
    assert_eq!(log.durable(), None, "not before it is finished");
    assert_eq!(log.next_sync_ms(100), Some(120), "more is due");
    assert_eq!(log.finish_sync(work.run()).expect("a sync"), Some(at(1, 2)));
    assert!(!log.is_syncing());
    let mut disk = log.into_disk();
    disk.cut_at_synced();
    let (mut log, opened) = open(disk, NEXT_BOOT);
    assert_eq!(opened.restart, Restart::PowerLost);
    assert_eq!(indexes(&all(&mut log)), [0, 1, 2]);
}

/// Under steady load something is always unsynced; the marks say how far it is not.
#[test]
fn marks_are_written_while_more_is_unsynced() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..2, 10)).expect("room");
    let work = log.begin_sync().expect("running").expect("it is due");
    log.append(&entries(1, 2..4, 10)).expect("room");
    log.finish_sync(work.run()).expect("a sync");
    // Its batch begins with the mark, and comes to disk with the next sync.
    log.append(&entries(1, 4..5, 10)).expect("room");
    let work = log.begin_sync().expect("running").expect("it is due");
    log.append(&entries(1, 5..6, 10)).expect("room");
    log.finish_sync(work.run()).expect("a sync");
    let mut disk = log.into_disk();
    disk.cut_at_synced();
    let (mut log, opened) = open(disk, NEXT_BOOT);
    assert_eq!(opened.trust, Trust::Through(Some(at(1, 1))));
    assert_eq!(indexes(&all(&mut log)), [0, 1, 2, 3, 4]);
}

#[test]
fn what_shortens_the_log_meanwhile_counts() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..6, 10)).expect("room");
    let work = log.begin_sync().expect("running").expect("it is due");
    log.truncate_from(2).expect("a truncation");
    assert_eq!(log.durable(), Some(at(1, 1)));
    log.append(&entries(2, 2..9, 10)).expect("room");
    let durable = log.finish_sync(work.run()).expect("a sync");
    assert_eq!(durable, Some(at(1, 1)), "the others came later");
    // A purge beyond the end, with the file of the sync removed.
    let work = log.begin_sync().expect("running").expect("it is due");
    log.purge_through(at(3, 40)).expect("a purge");
    log.append(&entries(3, 41..42, 10)).expect("room");
    let durable = log.finish_sync(work.run()).expect("a sync");
    assert_eq!(durable, Some(at(3, 40)));
}

#[test]
fn a_new_segment_meanwhile_is_begun_behind_a_durable_one() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..2, 10)).expect("room");
    let work = log.begin_sync().expect("running").expect("it is due");
    log.append(&entries(1, 2..12, 900)).expect("room");
    log.append(&entries(1, 12..13, 900)).expect("a new segment");
    assert_eq!(log.durable(), Some(at(1, 11)));
    assert_eq!(
        log.finish_sync(work.run()).expect("a sync"),
        Some(at(1, 11))
    );
    let work = log.begin_sync().expect("running").expect("it is due");
    assert_eq!(
        log.finish_sync(work.run()).expect("a sync"),
        Some(at(1, 12))
    );
}

#[test]
fn one_that_fails_stops_the_log() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..2, 10)).expect("room");
    let work = log.begin_sync().expect("running").expect("it is due");
    log.disk_mut().fail(Operation::Sync, 0);
    let failed = log.finish_sync(work.run()).expect_err("the disk failed");
    assert!(matches!(failed, LogError::Unknown(_)), "{failed}");
    let halted = log
        .append(&entries(1, 2..3, 10))
        .expect_err("it has stopped");
    assert!(matches!(halted, LogError::Halted { .. }), "{halted}");
    let (_, opened) = open(log.into_disk(), BOOT);
    assert_eq!(opened.trust, Trust::Through(None));
}
