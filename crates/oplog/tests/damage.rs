//! Any byte of a durable record that changes is found; no bytes make the log panic.

use larder_oplog::{
    BootId, Disk as _, Entry, FakeDisk, Log, LogError, ReadDisk as _, Restart, SyncPolicy, Vote,
};
use proptest::prelude::*;

use crate::steps::{BOOT, NEXT_BOOT, all, at, entries, entry, open, options, try_open};

/// Three segments with marks, a truncation and a purge; all of it durable and marked.
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
    let vote = Vote {
        term: 2,
        voted_for: Some(1),
        committed: true,
    };
    log.save_vote(vote).expect("a vote");
    log.sync().expect("a sync");
    log.sync().expect("a mark");
    log
}

fn wanted() -> Vec<Entry> {
    [entries(1, 4..15, 400), entries(2, 15..23, 300)].concat()
}

fn is_damaged(error: &LogError) -> bool {
    matches!(error, LogError::Damaged { .. })
}

/// The files that say something.
fn names(disk: &FakeDisk) -> Vec<String> {
    let names = disk.names().filter(|name| *name != "reserve");
    names.map(str::to_owned).collect()
}

/// Every byte of every file, once each.
fn each_flip(disk: &FakeDisk, mut check: impl FnMut(FakeDisk, &str, usize)) {
    for name in names(disk) {
        let whole = disk.bytes(&name).expect("a file");
        for offset in 0..whole.len() {
            let mut bytes = whole.to_vec();
            bytes[offset] ^= 1 << (offset % 8);
            let mut disk = disk.clone();
            disk.put(&name, Some(&bytes));
            check(disk, &name, offset);
        }
    }
}

#[test]
fn the_log_of_these_tests_has_what_they_flip() {
    let mut log = log();
    assert_eq!(all(&mut log), wanted());
    assert_eq!(
        log.disk_mut().names().count(),
        5,
        "meta, reserve, three segments"
    );
}

#[test]
fn after_a_kill_every_byte_counts() {
    each_flip(&log().into_disk(), |disk, name, offset| {
        let error = try_open(disk, BOOT).map(drop).expect_err(name);
        assert!(is_damaged(&error), "{name} {offset}: {error}");
    });
}

#[test]
fn after_a_clean_stop_every_byte_counts() {
    let mut log = log();
    log.mark_clean().expect("a clean stop");
    each_flip(&log.into_disk(), |disk, name, offset| {
        let error = try_open(disk, NEXT_BOOT).map(drop).expect_err(name);
        assert!(is_damaged(&error), "{name} {offset}: {error}");
    });
}

/// After a loss of power every byte counts that has a mark behind it: all but the last mark.
#[test]
fn after_a_loss_of_power_every_marked_byte_counts() {
    let disk = log().into_disk();
    let newest = disk.names().last().expect("a segment").to_owned();
    let marked = disk.bytes(&newest).expect("a segment").len() - 32;
    each_flip(&disk, |disk, name, offset| {
        match try_open(disk, NEXT_BOOT) {
            Err(error) => assert!(is_damaged(&error), "{name} {offset}: {error}"),
            Ok((mut log, opened)) => {
                assert!(name == newest && offset >= marked, "{name} {offset}");
                assert_eq!(opened.torn.expect("a torn end").bytes, 32);
                assert_eq!(all(&mut log), wanted());
            }
        }
    });
}

/// Without a mark behind it, a bad record cannot be told from one that was never written. The log
/// ends there then, and never shows other bytes.
#[test]
fn the_blind_spot_is_the_last_batch_and_shows_no_other_bytes() {
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    log.append(&entries(1, 0..4, 60)).expect("room");
    log.sync().expect("a sync");
    let mark = log.size_bytes() as usize;
    log.append(&entries(1, 4..8, 60)).expect("room");
    log.sync().expect("a sync");
    let mut cuts = 0;
    each_flip(&log.into_disk(), |disk, name, offset| {
        match try_open(disk, NEXT_BOOT) {
            Err(error) => {
                assert!(is_damaged(&error), "{name} {offset}: {error}");
                assert!(name == "meta" || offset < mark + 32, "{name} {offset}");
            }
            Ok((mut log, opened)) => {
                let next = log.next_index();
                assert!((4..8).contains(&next) && offset >= mark, "{offset}");
                assert_eq!(all(&mut log), entries(1, 0..next, 60));
                let torn = opened.torn.expect("a torn end");
                // The record after a bad mark is good, and so on.
                let first_whole = if offset < mark + 32 { 4 } else { next + 1 };
                assert_eq!(torn.records_behind, 8 - first_whole);
                cuts += 1;
            }
        }
    });
    assert_eq!(cuts, 32 + 4 * (32 + 60));
}

#[test]
fn what_rots_while_the_log_is_open_is_not_served() {
    let mut log = log();
    let disk = log.disk_mut().clone();
    let mut served = 0;
    each_flip(&disk, |rotten, _, _| {
        *log.disk_mut() = rotten;
        for wanted in wanted() {
            let index = wanted.at.index;
            match log.read(index..index + 1, 0) {
                Ok(read) => {
                    assert_eq!(read, [wanted]);
                    served += 1;
                }
                Err(error) => assert!(is_damaged(&error), "{error}"),
            }
        }
    });
    assert!(served > 0);
}

#[test]
fn a_file_that_is_gone_is_damage() {
    let disk = log().into_disk();
    let names = names(&disk);
    for name in &names[..names.len() - 1] {
        for boot in [BOOT, NEXT_BOOT] {
            let mut disk = disk.clone();
            disk.put(name, None);
            let error = try_open(disk, boot).map(drop).expect_err("a gap");
            assert!(is_damaged(&error), "{name}: {error}");
            assert!(error.to_string().contains("empty it"), "{error}");
        }
    }
}

#[test]
fn a_segment_of_another_log_is_damage() {
    let name = "segment-00000000000000000001.log";
    let (mut other, _) = open(FakeDisk::new(), BOOT);
    other.append(&entries(1, 0..12, 400)).expect("room");
    other.append(&entries(1, 12..24, 400)).expect("room");
    let other = other.into_disk();
    let mut disk = log().into_disk();
    disk.put(name, other.bytes(name));
    let error = try_open(disk, BOOT)
        .map(drop)
        .expect_err("it does not follow");
    assert!(is_damaged(&error), "{error}");
}

#[test]
fn a_newer_format_is_its_own_error() {
    let mut disk = log().into_disk();
    let name = disk.names().last().expect("a segment").to_owned();
    let mut bytes = disk.bytes(&name).expect("a segment").to_vec();
    bytes[8] = 9;
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    disk.put(&name, Some(&bytes));
    let error = try_open(disk, BOOT).map(drop).expect_err("it is newer");
    assert!(
        matches!(error, LogError::Newer { version: 9, .. }),
        "{error}"
    );
}

/// A payload that holds a whole segment of another place, as when a log is stored in a log.
#[test]
fn a_payload_that_looks_like_records_is_only_a_payload() {
    let inner = log().into_disk();
    let name = inner.names().last().expect("a segment");
    let payload = inner.bytes(name).expect("a segment").to_vec();
    let (mut log, _) = open(FakeDisk::new(), BOOT);
    let outer = Entry {
        at: at(1, 0),
        payload,
    };
    log.append(&[outer]).expect("room");
    let mut disk = log.into_disk();
    let name = disk.names().last().expect("a segment").to_owned();
    let length = disk.length(&name).expect("a segment");
    disk.truncate(&name, length - 1).expect("a cut");
    let (log, opened) = open(disk, BOOT);
    assert_eq!(
        (
            log.next_index(),
            opened.torn.expect("a torn end").records_behind
        ),
        (0, 0)
    );
}

fn boots() -> impl Strategy<Value = BootId> {
    prop_oneof![Just(BOOT), Just(NEXT_BOOT)]
}

proptest! {
    /// Random bytes, also behind a good beginning and before a good end.
    #[test]
    fn any_bytes_open_or_are_refused(
        rubbish in prop::collection::vec(any::<u8>(), 0..400),
        which: prop::sample::Index,
        from: prop::sample::Index,
        keep_end: bool,
        is_clean: bool,
        boot in boots(),
    ) {
        let mut log = log();
        if is_clean {
            log.mark_clean().expect("a clean stop");
        }
        let mut disk = log.into_disk();
        let names = names(&disk);
        let name = which.get(&names);
        let whole = disk.bytes(name).expect("a file").to_vec();
        let from = from.index(whole.len() + 1);
        let end = whole.len().min(from + rubbish.len());
        let end: &[u8] = if keep_end { &whole[end..] } else { &[] };
        disk.put(name, Some(&[&whole[..from], &rubbish, end].concat()));
        if let Ok((mut log, opened)) = try_open(disk, boot) {
            prop_assert!(!is_clean || (opened.restart == Restart::Clean && opened.torn.is_none()));
            let read = all(&mut log);
            // A file that only became shorter shows what the log was before, as no other file
            // says how long it was: also before the truncation that it held.
            let before = entries(1, 4..20, 400);
            prop_assert!(wanted().starts_with(&read) || before.starts_with(&read), "other bytes");
        }
    }

    #[test]
    fn any_bytes_as_a_whole_segment_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        boot in boots(),
    ) {
        let (log, _) = Log::open(FakeDisk::new(), options(SyncPolicy::Never), BOOT).expect("a log");
        let mut disk = log.into_disk();
        disk.put("segment-00000000000000000000.log", Some(&bytes));
        prop_assert!(try_open(&mut disk, boot).is_err());
        disk.put("meta", Some(&bytes));
        prop_assert!(try_open(&mut disk, boot).is_err());
    }

    /// Records in any order, each with a good checksum, are a log or damage, never a panic.
    #[test]
    fn a_file_that_lost_a_part_is_not_served(
        cut: (prop::sample::Index, prop::sample::Index),
        boot in boots(),
    ) {
        let (mut log, _) = open(FakeDisk::new(), BOOT);
        for index in 0..8 {
            log.append(&[entry(1, index, 64)]).expect("room");
        }
        let mut disk = log.into_disk();
        let name = "segment-00000000000000000000.log";
        let whole = disk.bytes(name).expect("a segment").to_vec();
        let (one, two) = (cut.0.index(whole.len()), cut.1.index(whole.len()));
        let bytes = [&whole[..one.min(two)], &whole[one.max(two)..]].concat();
        disk.put(name, Some(&bytes));
        if let Ok((mut log, _)) = try_open(disk, boot) {
            let read = all(&mut log);
            prop_assert!(entries(1, 0..8, 64).starts_with(&read));
        }
    }
}
