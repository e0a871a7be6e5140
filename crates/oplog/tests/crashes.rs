//! What a log says of itself after a kill, a loss of power and a clean stop.

use larder_oplog::{
    BootId, FakeDisk, Log, LogError, Operation, Restart, SEGMENT_HEADER_BYTES, SyncPolicy, Trust,
    Vote,
};

use crate::steps::{BOOT, NEXT_BOOT, all, at, entries, open, options, try_open};

const FIRST: &str = "segment-00000000000000000000.log";
const SECOND: &str = "segment-00000000000000000001.log";

/// A log with two synced batches and an unsynced one.
fn three_batches(policy: SyncPolicy) -> FakeDisk {
    let (mut log, _) = Log::open(FakeDisk::new(), options(policy), BOOT).expect("a log");
    for from in [0, 3] {
        log.append(&entries(1, from..from + 3, 50)).expect("room");
        log.sync().expect("a sync");
    }
    log.append(&entries(1, 6..9, 50)).expect("room");
    log.into_disk()
}

#[test]
fn a_killed_process_loses_nothing() {
    let (mut log, opened) = open(three_batches(SyncPolicy::Never), BOOT);
    assert_eq!(
        (opened.restart, opened.trust),
        (Restart::Killed, Trust::Whole)
    );
    assert_eq!((all(&mut log), opened.torn), (entries(1, 0..9, 50), None));
    // What was read back is durable now, whatever happens to the machine.
    let mut disk = log.into_disk();
    disk.cut_at_synced();
    let (mut log, _) = open(disk, NEXT_BOOT);
    assert_eq!(all(&mut log), entries(1, 0..9, 50));
}

#[test]
fn a_write_that_a_kill_cut_short_is_cut_off() {
    let disk = three_batches(SyncPolicy::Never);
    let whole = disk.bytes(FIRST).expect("a segment").to_vec();
    let record = 32 + 50;
    for missing in 1..record {
        let mut disk = disk.clone();
        disk.put(FIRST, Some(&whole[..whole.len() - missing]));
        let (mut log, opened) = open(disk, BOOT);
        let torn = opened.torn.expect("a torn end");
        assert_eq!(
            (torn.bytes, torn.segment.as_str()),
            ((record - missing) as u64, FIRST)
        );
        assert_eq!(
            (all(&mut log), opened.trust),
            (entries(1, 0..8, 50), Trust::Whole)
        );
        log.append(&entries(2, 8..9, 50)).expect("room");
        assert_eq!(all(&mut log).len(), 9);
    }
}

#[test]
fn after_a_loss_of_power_what_was_synced_is_there_and_what_is_marked_is_trusted() {
    for seed in 0..200 {
        let mut disk = three_batches(SyncPolicy::Interval { ms: 20 });
        disk.crash(seed);
        let (mut log, opened) = open(disk, NEXT_BOOT);
        assert_eq!(opened.restart, Restart::PowerLost);
        let next = log.next_index();
        assert!((6..=9).contains(&next), "{next}");
        assert_eq!(all(&mut log), entries(1, 0..next, 50));
        // The mark of the second sync stands at the head of the third batch, if that is there.
        let marked = [
            Trust::Through(Some(at(1, 2))),
            Trust::Through(Some(at(1, 5))),
        ];
        assert!(marked.contains(&opened.trust), "{opened:?}");
    }
}

#[test]
fn an_idle_log_trusts_all_of_itself() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..3, 50)).expect("room");
    log.sync().expect("a sync");
    log.sync().expect("a mark");
    let mut disk = log.into_disk();
    disk.crash(1);
    let (_, opened) = open(disk, NEXT_BOOT);
    assert_eq!(opened.trust, Trust::Through(Some(at(1, 2))));
}

#[test]
fn with_always_nothing_acknowledged_is_missing() {
    let mut disk = three_batches(SyncPolicy::Always);
    disk.cut_at_synced();
    let (log, opened) = open(disk, NEXT_BOOT);
    assert_eq!((opened.trust, log.last()), (Trust::Whole, Some(at(1, 5))));
}

#[test]
fn what_the_policy_was_counts_and_not_what_it_is() {
    for (was, is, trust) in [
        (SyncPolicy::Always, SyncPolicy::Never, Trust::Whole),
        (
            SyncPolicy::Never,
            SyncPolicy::Always,
            Trust::Through(Some(at(1, 2))),
        ),
    ] {
        let mut disk = three_batches(was);
        disk.cut_at_synced();
        let (_, opened) = Log::open(disk, options(is), NEXT_BOOT).expect("a log");
        assert_eq!(opened.trust, trust);
    }
}

#[test]
fn a_doubt_stays_until_it_is_settled() {
    let mut disk = three_batches(SyncPolicy::Never);
    disk.cut_at_synced();
    let (mut log, opened) = open(disk, NEXT_BOOT);
    let doubt = Trust::Through(Some(at(1, 2)));
    assert_eq!(opened.trust, doubt);
    log.append(&entries(2, 6..9, 50)).expect("room");
    let (mut log, opened) = open(log.into_disk(), NEXT_BOOT);
    assert_eq!((opened.restart, opened.trust), (Restart::Killed, doubt));
    log.mark_clean().expect("a clean stop");
    let (mut log, opened) = open(log.into_disk(), BOOT);
    assert_eq!((opened.restart, opened.trust), (Restart::Clean, doubt));
    assert!(!log.is_tail_lost());
    log.settle_doubt().expect("room");
    let (mut log, opened) = open(log.into_disk(), BOOT);
    assert_eq!(opened.trust, Trust::Whole);
    assert!(log.is_tail_lost(), "until somebody is asked for it");
    log.tail_is_sought().expect("room");
    let (log, _) = open(log.into_disk(), BOOT);
    assert!(!log.is_tail_lost());
}

#[test]
fn after_a_clean_stop_another_boot_loses_and_doubts_nothing() {
    let (mut log, _) = open(three_batches(SyncPolicy::Never), BOOT);
    log.mark_clean().expect("a clean stop");
    let mut disk = log.into_disk();
    disk.crash(3);
    let (mut log, opened) = open(disk, NEXT_BOOT);
    assert_eq!(
        (opened.restart, opened.trust),
        (Restart::Clean, Trust::Whole)
    );
    assert_eq!(all(&mut log), entries(1, 0..9, 50));
    // The mark holds for one start.
    let mut disk = log.into_disk();
    disk.crash(4);
    let (_, opened) = open(disk, BOOT);
    assert_eq!(opened.restart, Restart::PowerLost);
}

#[test]
fn a_clean_stop_knows_where_the_log_ended() {
    let (mut log, _) = open(three_batches(SyncPolicy::Never), BOOT);
    log.mark_clean().expect("a clean stop");
    let disk = log.into_disk();
    let whole = disk.bytes(FIRST).expect("a segment").to_vec();
    // The last record is a mark of 32 bytes, the one before an entry of 82.
    for missing in [1, 32, 32 + 82] {
        let mut disk = disk.clone();
        disk.put(FIRST, Some(&whole[..whole.len() - missing]));
        let error = try_open(disk, NEXT_BOOT).expect_err("damage");
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
    }
}

/// A log whose first segment is full.
fn full_segment() -> FakeDisk {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..9, 500)).expect("room");
    log.into_disk()
}

#[test]
fn a_segment_that_was_never_begun_is_removed() {
    for operations in 0..5 {
        for seed in 0..20 {
            let mut disk = full_segment();
            let (mut log, _) = open(&mut disk, BOOT);
            log.disk_mut().stop_after(operations);
            assert!(log.append(&entries(1, 9..10, 500)).is_err());
            disk.crash(seed);
            let (mut log, _) = open(disk, NEXT_BOOT);
            assert_eq!(all(&mut log), entries(1, 0..9, 500));
            log.append(&entries(1, 9..10, 500)).expect("room");
            assert_eq!(all(&mut log), entries(1, 0..10, 500));
        }
    }
}

#[test]
fn a_killed_process_leaves_no_wrong_header() {
    let mut disk = full_segment();
    disk.put(SECOND, Some(&[0; 10]));
    open(&mut disk, BOOT);
    assert!(disk.bytes(SECOND).is_none(), "it was cut short");
    disk.put(SECOND, Some(&[0; SEGMENT_HEADER_BYTES as usize]));
    let error = try_open(disk, BOOT).expect_err("damage");
    assert!(matches!(error, LogError::Damaged { .. }), "{error}");
}

#[test]
fn a_first_start_that_was_cut_short_is_begun_again() {
    for operations in 0..14 {
        for seed in 0..10 {
            let mut disk = FakeDisk::new();
            disk.stop_after(operations);
            let failed = try_open(&mut disk, BOOT).is_err();
            disk.crash(seed);
            let (log, opened) = open(disk, NEXT_BOOT);
            assert_eq!(log.next_index(), 0);
            assert!(failed || opened.restart == Restart::PowerLost);
        }
    }
}

#[test]
fn any_start_that_is_cut_short_can_be_repeated() {
    for operations in 0..30 {
        for seed in 0..10 {
            let mut disk = three_batches(SyncPolicy::Never);
            disk.crash(seed);
            disk.stop_after(operations);
            let first = try_open(&mut disk, NEXT_BOOT).map(|(log, _)| log.last());
            disk.crash(seed + 1);
            let (mut log, opened) = open(disk, BootId([3; 16]));
            assert_ne!(opened.trust, Trust::Whole, "the doubt is not lost");
            let next = log.next_index();
            assert!((6..=9).contains(&next));
            assert_eq!(all(&mut log), entries(1, 0..next, 50));
            if let Ok(last) = first {
                assert_eq!(last, log.last());
            }
        }
    }
}

#[test]
fn a_vote_is_the_old_or_the_new_one() {
    let vote = |term| Vote {
        term,
        voted_for: Some(term),
        committed: false,
    };
    for operations in 0..8 {
        for seed in 0..20 {
            let (mut log, _) = open(FakeDisk::new(), BOOT);
            log.save_vote(vote(1)).expect("a vote");
            log.disk_mut().stop_after(operations);
            let saved = log.save_vote(vote(2)).is_ok();
            let mut disk = log.into_disk();
            disk.crash(seed);
            let (log, _) = open(disk, NEXT_BOOT);
            let found = log.vote().expect("a vote");
            assert!(found == vote(2) || (!saved && found == vote(1)));
        }
    }
}

#[test]
fn what_a_failed_sync_lost_is_not_served_as_durable() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..3, 50)).expect("room");
    log.sync().expect("a sync");
    log.append(&entries(1, 3..6, 50)).expect("room");
    log.disk_mut().fail(Operation::Sync, 0);
    assert!(log.sync().is_err());
    let mut disk = log.into_disk();
    disk.crash(5);
    let (mut log, opened) = open(disk, NEXT_BOOT);
    assert_eq!(opened.trust, Trust::Through(Some(at(1, 2))));
    assert_eq!(all(&mut log), entries(1, 0..3, 50));
}
