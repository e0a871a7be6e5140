//! What each call does, and what it refuses.

use larder_oplog::{
    ENTRY_BYTES_MAX, Entry, FakeDisk, Log, LogError, Operation, Options, Restart, SETTLE_MS,
    SyncPolicy, Trust, Vote, wipe,
};

use crate::steps::{
    BOOT, INTERVAL, NEXT_BOOT, all, at, entries, entry, indexes, open, options, try_open,
};

fn vote(term: u64, voted_for: Option<u64>, committed: bool) -> Vote {
    Vote {
        term,
        voted_for,
        committed,
    }
}

fn segments(log: &mut Log<FakeDisk>) -> usize {
    let names = log.disk_mut().names();
    names.filter(|name| name.starts_with("segment-")).count()
}

#[test]
fn an_empty_log_has_nothing() {
    let (mut log, opened) = open(FakeDisk::new(), BOOT);
    assert_eq!(
        (opened.restart, opened.trust),
        (Restart::Fresh, Trust::Whole)
    );
    assert_eq!(
        (log.first(), log.last(), log.vote(), log.purged()),
        (None, None, None, None)
    );
    assert_eq!((log.next_index(), log.entries()), (0, 0));
    assert_eq!(log.sync().expect("a sync"), None);
    assert_eq!(log.read(0..9, 100).expect("none"), []);
}

#[test]
fn entries_come_back_in_order_over_segments_and_starts() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    let wanted = [entries(1, 0..20, 700), entries(3, 20..25, 0)].concat();
    for entry in &wanted {
        log.append(std::slice::from_ref(entry)).expect("room");
    }
    assert_eq!(all(&mut log), wanted);
    assert_eq!(
        (log.term_of(4), log.term_of(22), log.term_of(25)),
        (Some(1), Some(3), None)
    );
    let (mut log, opened) = open(log.into_disk(), BOOT);
    assert_eq!((opened.restart, opened.torn), (Restart::Killed, None));
    assert_eq!(all(&mut log), wanted);
    assert_eq!(log.durable(), Some(at(3, 24)));
}

#[test]
fn a_read_has_at_least_one_entry_and_ends_at_its_bound() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..10, 68)).expect("room");
    let mut read = |range, bytes_max| indexes(&log.read(range, bytes_max).expect("entries"));
    assert_eq!(read(2..9, 300), [2, 3, 4]);
    assert_eq!(read(2..9, 299), [2, 3]);
    assert_eq!(read(2..9, 0), [2]);
    assert_eq!(read(8..99, 1_000), [8, 9]);
    assert_eq!(read(4..4, 1_000), [0; 0]);
}

#[test]
fn what_does_not_follow_is_refused() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(2, 0..3, 10)).expect("room");
    for wrong in [
        entries(2, 4..5, 10),
        entries(2, 2..3, 10),
        entries(1, 3..4, 10),
        [entries(2, 3..4, 10), entries(2, 5..6, 10)].concat(),
    ] {
        let error = log.append(&wrong).expect_err("it does not follow");
        assert!(matches!(error, LogError::OutOfOrder { .. }) && !error.is_retryable());
    }
    let large = Entry {
        at: at(2, 3),
        payload: vec![0; ENTRY_BYTES_MAX + 1],
    };
    let error = log.append(&[large]).expect_err("it is too large");
    assert!(
        matches!(error, LogError::TooLarge { index: 3, .. }),
        "{error}"
    );
    assert_eq!(log.next_index(), 3);
    log.append(&entries(2, 3..4, 10)).expect("room");
}

#[test]
fn the_largest_entry_fits() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    let large = entry(1, 0, ENTRY_BYTES_MAX);
    log.append(std::slice::from_ref(&large)).expect("room");
    log.append(&entries(1, 1..2, 1)).expect("room");
    let (mut log, _) = open(log.into_disk(), BOOT);
    assert_eq!(log.read(0..1, 0).expect("entries"), [large]);
}

#[test]
fn a_full_log_refuses_until_it_is_purged() {
    let options = Options {
        bytes_max: 20_000,
        entries_max: 50,
        ..options(INTERVAL)
    };
    let (mut log, _) = Log::open(FakeDisk::new(), options, BOOT).expect("a log");
    log.append(&entries(1, 0..50, 10)).expect("room");
    let error = log.append(&entries(1, 50..51, 10)).expect_err("50 entries");
    assert!(matches!(error, LogError::Full { entries: 50, .. }) && error.is_retryable());
    log.purge_through(at(1, 49)).expect("a purge");
    log.append(&entries(1, 50..51, 10)).expect("room");
    for index in 51.. {
        if let Err(error) = log.append(&entries(1, index..index + 1, 1_000)) {
            assert!(matches!(error, LogError::Full { .. }), "{error}");
            assert!((16..20).contains(&(index - 51)), "{index}");
            break;
        }
    }
    log.purge_through(at(1, 60)).expect("a purge");
    let next = log.next_index();
    log.append(&entries(1, next..next + 1, 1_000))
        .expect("room");
}

#[test]
fn a_full_disk_changes_nothing_and_passes() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..3, 100)).expect("room");
    log.save_vote(vote(1, Some(1), false)).expect("a vote");
    let used = log.disk_mut().used_bytes();
    // Every size of the rest, so that each write of a call once finds no room.
    for room in 0..400 {
        log.disk_mut().set_capacity_bytes(Some(used + room));
        let error = log.append(&entries(1, 3..9, 100)).expect_err("no room");
        assert!(error.is_retryable(), "{error}");

        if room < 32 {
            assert!(log.truncate_from(1).expect_err("no room").is_retryable());
        }
        assert_eq!(all(&mut log), entries(1, 0..3, 100));
        assert_eq!(log.sync().expect("a sync"), Some(at(1, 2)));
    }
    log.disk_mut().set_capacity_bytes(None);
    log.append(&entries(1, 3..9, 100)).expect("room");
    let (mut log, _) = open(log.into_disk(), BOOT);
    assert_eq!(all(&mut log), entries(1, 0..9, 100));
    assert_eq!(log.vote(), Some(vote(1, Some(1), false)));
}

#[test]
fn a_disk_that_is_full_at_a_new_segment_passes_too() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..9, 500)).expect("room");
    for room in [0, 1, 63] {
        let used = log.disk_mut().used_bytes();
        log.disk_mut().set_capacity_bytes(Some(used + room));
        let error = log.append(&entries(1, 9..10, 500)).expect_err("no room");
        assert!(error.is_retryable(), "{error}");
        assert_eq!(segments(&mut log), 1);
    }
    log.disk_mut().set_capacity_bytes(None);
    log.append(&entries(1, 9..10, 500)).expect("room");
    assert_eq!(segments(&mut log), 2);
    assert_eq!(all(&mut log), entries(1, 0..10, 500));
}

#[test]
fn a_full_disk_has_room_left_for_a_vote_and_for_getting_out_of_it() {
    for through in [at(1, 15), at(7, 40)] {
        let (mut log, _) = open(FakeDisk::new(), BOOT);
        for index in 0..16 {
            log.append(&entries(1, index..index + 1, 968))
                .expect("room");
        }
        let used = log.disk_mut().used_bytes();
        log.disk_mut().set_capacity_bytes(Some(used));
        assert!(log.append(&entries(1, 16..17, 968)).is_err());
        if through.term == 1 {
            log.save_vote(vote(2, Some(3), true)).expect("a vote");
        }
        log.purge_through(through).expect("a purge");
        let reserve = log.disk_mut().bytes("reserve").map(<[u8]>::len);
        assert_eq!(reserve, Some(16 << 10), "it is there for the next time");
        log.append(&entries(7, through.index + 1..through.index + 2, 968))
            .expect("room");
    }
}

#[test]
fn a_failed_sync_stops_the_log_and_leaves_a_doubt() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..2, 10)).expect("room");
    log.sync().expect("a sync");
    log.append(&entries(1, 2..4, 10)).expect("room");
    log.disk_mut().fail(Operation::Sync, 0);
    let error = log.sync().expect_err("the disk failed");
    assert!(matches!(error, LogError::Unknown(_)) && !error.is_retryable());
    for outcome in [
        log.append(&entries(1, 4..5, 10)),
        log.sync().map(drop),
        log.read(0..1, 9).map(drop),
        log.save_vote(vote(1, None, false)),
        log.mark_clean(),
    ] {
        assert!(matches!(outcome, Err(LogError::Halted { .. })));
    }
    // The machine stays up and shows bytes that no disk has.
    let (log, opened) = open(log.into_disk(), BOOT);
    assert_eq!(opened.restart, Restart::Killed);
    assert_eq!(opened.trust, Trust::Through(Some(at(1, 1))));
    assert_eq!(log.last(), Some(at(1, 3)));
}

#[test]
fn a_vote_never_goes_back() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    let good = [
        vote(1, None, false),
        vote(1, Some(7), false),
        vote(1, Some(7), true),
        // Another candidate got the quorum of a term in which this replica voted for itself.
        vote(2, Some(8), false),
        vote(2, Some(7), true),
        vote(3, Some(8), false),
        vote(4, Some(2), false),
    ];
    for vote in good {
        log.save_vote(vote).expect("a vote");
        log.save_vote(vote).expect("the same again");
    }
    log.save_vote(vote(4, Some(2), true)).expect("a vote");
    for wrong in [
        vote(3, Some(2), true),
        vote(4, Some(3), true),
        vote(4, None, true),
        vote(4, Some(2), false),
        vote(4, Some(3), false),
    ] {
        let error = log.save_vote(wrong).expect_err("it goes back");
        assert!(
            matches!(error, LogError::VoteBehind { saved: 4, .. }),
            "{error}"
        );
    }
    let mut disk = log.into_disk();
    disk.cut_at_synced();
    let (log, _) = open(disk, NEXT_BOOT);
    assert_eq!(log.vote(), Some(vote(4, Some(2), true)));
}

#[test]
fn a_truncated_end_is_replaced_and_never_comes_back() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..20, 600)).expect("room");
    log.sync().expect("a sync");
    log.truncate_from(30).expect("nothing to do");
    log.truncate_from(5).expect("a truncation");
    assert_eq!(
        (log.last(), log.next_index(), log.entries()),
        (Some(at(1, 4)), 5, 5)
    );
    let mut disk = log.into_disk();
    disk.cut_at_synced();
    let (mut log, _) = open(disk, NEXT_BOOT);
    assert_eq!(all(&mut log), entries(1, 0..5, 600));
    log.append(&entries(2, 5..8, 600)).expect("room");
    log.truncate_from(0).expect("a truncation of all");
    assert_eq!((log.last(), log.next_index()), (None, 0));
    log.append(&entries(3, 0..2, 600)).expect("room");
    let (mut log, _) = open(log.into_disk(), NEXT_BOOT);
    assert_eq!(all(&mut log), entries(3, 0..2, 600));
}

#[test]
fn a_purge_removes_whole_segments_and_hides_the_rest() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    for index in 0..40 {
        log.append(&entries(1, index..index + 1, 968))
            .expect("room");
    }
    let before = segments(&mut log);
    log.purge_through(at(1, 21)).expect("a purge");
    assert_eq!(segments(&mut log), before - 4);
    assert_eq!((log.first(), log.entries()), (Some(at(1, 22)), 18));
    assert_eq!((log.purged(), log.term_of(21)), (Some(at(1, 21)), Some(1)));
    assert_eq!(log.term_of(20), None);
    let error = log.read(21..30, 10).expect_err("it is purged");
    assert!(
        matches!(error, LogError::Purged { first: 22, .. }),
        "{error}"
    );
    let error = log.truncate_from(21).expect_err("it is purged");
    assert!(matches!(error, LogError::Purged { .. }), "{error}");
    log.purge_through(at(1, 3)).expect("it is done already");
    assert!(log.purge_through(at(9, 30)).is_err(), "no such entry");
    let (mut log, _) = open(log.into_disk(), BOOT);
    assert_eq!(all(&mut log), entries(1, 22..40, 968));
}

#[test]
fn a_purge_beyond_the_end_starts_over() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..3, 10)).expect("room");
    log.purge_through(at(4, 99)).expect("a purge");
    assert_eq!(
        (log.last(), log.first(), log.next_index()),
        (Some(at(4, 99)), None, 100)
    );
    assert_eq!(segments(&mut log), 1);
    log.append(&entries(4, 100..103, 10)).expect("room");
    let (mut log, _) = open(log.into_disk(), BOOT);
    assert_eq!(all(&mut log), entries(4, 100..103, 10));
    assert_eq!(log.purged(), Some(at(4, 99)));
}

/// The second segment begins behind entries that it truncates itself, and then the first goes.
#[test]
fn a_log_may_begin_with_a_segment_that_truncates_what_is_gone() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    for index in 0..6 {
        log.append(&entries(1, index..index + 1, 968))
            .expect("room");
    }
    log.truncate_from(2).expect("a truncation");
    log.append(&entries(2, 2..5, 100)).expect("room");
    for through in [1, 2, 3] {
        log.purge_through(at(through.min(2), through))
            .expect("a purge");
        let (mut again, _) = open(log.into_disk(), BOOT);
        assert_eq!(all(&mut again), entries(2, through + 1..5, 100));
        assert_eq!(again.purged(), Some(at(through.min(2), through)));
        assert_eq!(segments(&mut again), 1);
        log = again;
    }
    log.append(&entries(2, 5..20, 968)).expect("room");
    log.purge_through(at(2, 19)).expect("a purge");
    let (log, _) = open(log.into_disk(), BOOT);
    assert_eq!((log.entries(), log.next_index()), (0, 20));
}

#[test]
fn files_that_could_not_be_removed_go_later() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    for index in 0..10 {
        log.append(&entries(1, index..index + 1, 968))
            .expect("room");
    }
    log.disk_mut().fail(Operation::Remove, 1);
    assert!(log.purge_through(at(1, 9)).is_err());
    assert_eq!(log.purged(), Some(at(1, 9)));
    let disk = log.disk_mut().clone();
    log.purge_through(at(1, 9)).expect("the rest");
    assert_eq!(segments(&mut log), 1);

    let (mut log, _) = open(disk, BOOT);
    assert_eq!(segments(&mut log), 1, "or the next start removes them");
}

#[test]
fn what_is_committed_is_found_again() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..5, 10)).expect("room");
    log.note_committed(at(1, 3));
    log.note_committed(at(1, 2));
    assert_eq!(log.committed(), Some(at(1, 3)));
    let (mut log, _) = open(log.into_disk(), BOOT);
    assert_eq!(log.committed(), None, "it was not yet written");
    log.note_committed(at(1, 3));
    log.append(&entries(1, 5..6, 10)).expect("room");
    let (mut log, _) = open(log.into_disk(), BOOT);
    assert_eq!(log.committed(), Some(at(1, 3)));
    log.note_committed(at(1, 5));
    log.mark_clean().expect("a clean stop");
    let (log, opened) = open(log.into_disk(), NEXT_BOOT);
    assert_eq!(
        (log.committed(), opened.restart),
        (Some(at(1, 5)), Restart::Clean)
    );
}

#[test]
fn a_sync_is_due_by_policy() {
    let ms = 20;
    let next = SyncPolicy::next_sync_ms;
    assert_eq!(
        next(SyncPolicy::Interval { ms }, true, false, 100),
        Some(120)
    );
    assert_eq!(next(SyncPolicy::Always, true, false, 100), Some(100));
    assert_eq!(next(SyncPolicy::Never, true, true, 100), None);
    assert_eq!(next(SyncPolicy::Always, false, false, 100), None);
    assert_eq!(
        next(SyncPolicy::Always, false, true, 100),
        Some(100 + SETTLE_MS)
    );

    let (mut log, _) = open(FakeDisk::new(), BOOT);
    assert_eq!(log.next_sync_ms(100), None);
    log.append(&entries(1, 0..2, 10)).expect("room");
    assert!(!log.wants_sync(119, 100) && log.wants_sync(120, 100));
    log.sync().expect("a sync");
    assert_eq!(
        log.next_sync_ms(100),
        Some(100 + SETTLE_MS),
        "a mark is due"
    );
    log.sync().expect("a sync");
    assert_eq!(log.next_sync_ms(100), None, "an idle log is left alone");
    let syncs = log.disk_mut().syncs();
    log.sync().expect("nothing to do");
    assert_eq!(log.disk_mut().syncs(), syncs);
}

#[test]
fn many_appends_share_one_sync() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    let syncs = log.disk_mut().syncs();
    for index in 0..20 {
        log.append(&entries(1, index..index + 1, 10)).expect("room");
    }
    log.sync().expect("a sync");
    assert_eq!(log.disk_mut().syncs(), syncs + 1);
}

#[test]
fn wiping_is_finished_by_the_next_start() {
    for operations in 0..20 {
        let (mut log, _) = open(FakeDisk::new(), BOOT);
        log.append(&entries(1, 0..20, 500)).expect("room");
        log.save_vote(vote(3, Some(1), false)).expect("a vote");
        log.mark_clean().expect("a clean stop");
        let mut disk = log.into_disk();
        disk.stop_after(operations);
        let wiped = wipe(&mut disk);
        disk.crash(operations);
        let (log, opened) = try_open(disk, NEXT_BOOT).expect("a log");
        if wiped.is_ok() || opened.restart == Restart::Fresh {
            assert_eq!((log.next_index(), log.vote()), (0, None));
        } else {
            assert_eq!(
                (log.next_index(), log.vote()),
                (20, Some(vote(3, Some(1), false)))
            );
        }
    }
}

#[test]
fn options_have_a_range() {
    for segment_bytes in [0, 4_095, (1 << 30) + 1] {
        let options = Options {
            segment_bytes,
            ..Options::default()
        };
        let error = Log::open(FakeDisk::new(), options, BOOT).expect_err("out of range");
        assert!(error.to_string().contains("segment_bytes"), "{error}");
    }
}
