//! Writing, erasing and using again: nothing is written into reused memory.

use super::*;

#[test]
fn a_receipt_names_what_was_written_and_is_signed() {
    let mut rig = Rig::new();
    let receipt = rig.write(extent(4096, 70_000), 1).expect("written");
    let crcs = checksum::block_crcs(&payload(70_000, 1));
    assert_eq!(
        (receipt.extent, receipt.version),
        (extent(4096, 70_000), version(1))
    );
    assert_eq!(receipt.digest, checksum::digest(&crcs, 70_000));
    assert_eq!(receipt.incarnation, LIFE);
    receipt
        .verify(&rig.key)
        .expect("signed with the agent's key");
    rig.assert_noted();
}

#[test]
fn what_memory_cannot_describe_is_refused_until_something_is_erased() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("before the limit");
    rig.segments.limit_records(4);
    for n in 2..5 {
        rig.write(extent(4096 * n, 1000), n).expect("room");
    }
    let refused = rig.begin(extent(4096 * 5, 1000), 5);
    assert_eq!(
        refused.expect_err("full").to_string(),
        "the agent describes as many extents as its memory allows; put larger objects, or give \
         agents a higher memory limit: at most 4"
    );
    assert_eq!(rig.segments.stats().writes, 0, "nothing is held by it");
    assert!(matches!(
        rig.begin_with(&Rig::capability(extent(4096 * 2, 1000), 2, Reach::Write)),
        Ok(WriteStart::Already(..))
    ));
    rig.segments.erase(extent(4096 * 2, 1000), version(2));
    rig.segments.erase(extent(4096 * 3, 1000), version(3));
    rig.write(extent(4096 * 6, 1000), 6).expect("room again");
    assert_eq!(
        reason(rig.begin(extent(4096 * 7, 1000), 7)),
        DataReason::Records,
        "two marks count as a record"
    );
    rig.segments.take_slab(slab(0, 1));
    rig.segments
        .give_slab(slab(0, 2), tenant("a"), memory(), None);
    assert_eq!(rig.segments.stats().records, 0);
}

#[test]
fn a_repeat_of_a_written_version_is_answered_again() {
    let mut rig = Rig::new();
    let receipt = rig.write(extent(0, 70_000), 1).expect("written");
    let again = rig.begin_with(&Rig::capability(extent(0, 70_000), 1, Reach::Write));
    let Ok(WriteStart::Already(second, crcs)) = again else {
        panic!("{again:?}")
    };
    assert_eq!(second, receipt);
    assert_eq!(crcs, checksum::block_crcs(&payload(70_000, 1)));
    assert_eq!(rig.segments.stats().writes, 0);
}

#[test]
fn one_version_is_written_by_one_connection_at_a_time() {
    let mut rig = Rig::new();
    let first = rig.begin(extent(0, 1000), 1).expect("begun");
    assert_eq!(reason(rig.begin(extent(0, 1000), 1)), DataReason::Conflict);
    assert_eq!(
        reason(rig.begin(extent(0, 1000), 2)),
        DataReason::Conflict,
        "not released"
    );
    rig.segments.abort_write(first);
    let second = rig
        .begin(extent(0, 1000), 1)
        .expect("a repeat after the first was cut");
    rig.finish(second, 1).expect("written");
    rig.assert_noted();
}

#[test]
fn wrong_bytes_are_not_written_but_may_be_repeated() {
    let mut rig = Rig::new();
    let right = checksum::block_crcs(&payload(70_000, 1));
    let wrong: [(&[u32], &[u32]); 5] = [
        (&right, &[right[0], right[1] ^ 1]),
        (&right[..1], &right),
        (&right[..1], &right[..1]),
        (&[], &[]),
        (&[right[0], right[1], 0], &[right[0], right[1], 0]),
    ];
    for (source, own) in wrong {
        let ticket = rig.begin(extent(0, 70_000), 1).expect("repeatable");
        let refused = rig.segments.finish_write(ticket, source, own);
        assert_eq!(reason(refused), DataReason::Checksum);
        assert_eq!(
            reason(rig.read(extent(0, 70_000), 1)),
            DataReason::StaleVersion
        );
    }
    let ticket = rig.begin(extent(0, 70_000), 1).expect("repeatable");
    rig.finish(ticket, 1).expect("written");
}

#[test]
fn erased_bytes_are_released_at_once_if_nothing_holds_them() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    rig.segments.erase(extent(0, 1000), version(1));
    assert_eq!(rig.events(), [released(extent(0, 1000), 1)]);
    assert_eq!(
        reason(rig.read(extent(0, 1000), 1)),
        DataReason::StaleVersion
    );
    assert_eq!(
        reason(rig.begin(extent(0, 1000), 1)),
        DataReason::StaleVersion
    );
    rig.segments.erase(extent(0, 1000), version(1));
    assert_eq!(
        rig.events(),
        [released(extent(0, 1000), 1)],
        "a repeat is answered again"
    );
    rig.write(extent(0, 1000), 2).expect("the next one");
    assert_eq!(
        rig.segments.stats().marks,
        0,
        "the newer record covers the mark"
    );
    rig.assert_noted();
}

#[test]
fn a_version_erased_before_it_came_never_gets_in() {
    let mut rig = Rig::new();
    rig.segments.erase(extent(0, 1000), version(3));
    assert_eq!(rig.events(), [released(extent(0, 1000), 3)]);
    for counter in 1..=3 {
        assert_eq!(
            reason(rig.begin(extent(512, 256), counter)),
            DataReason::StaleVersion
        );
    }
    rig.write(extent(512, 256), 4).expect("newer");
    rig.assert_noted();
    assert_eq!(rig.segments.stats().marks, 2, "0..512 and 768..1024");
}

#[test]
fn erasing_one_version_leaves_the_others() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 5).expect("written");
    rig.segments.erase(extent(0, 1000), version(4));
    rig.segments.erase(extent(0, 1000), version(6));
    assert_eq!(rig.events().len(), 2);
    let ticket = rig.read(extent(0, 1000), 5).expect("it stays");
    assert!(rig.segments.end_read(ticket));
    assert_eq!(
        reason(rig.begin(extent(0, 1000), 6)),
        DataReason::StaleVersion
    );
    rig.assert_noted();
}

#[test]
fn a_reader_delays_the_release_and_hears_of_the_change() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    let first = rig.read(extent(0, 1000), 1).expect("readable");
    let second = rig.read(extent(0, 1000), 1).expect("by many at once");
    rig.segments.erase(extent(0, 1000), version(1));
    rig.segments.erase(extent(0, 1000), version(1));
    assert!(rig.events().is_empty());
    assert_eq!(bytes_of(&first), payload(1000, 1), "held bytes stay");
    assert_eq!(reason(rig.begin(extent(0, 1000), 2)), DataReason::Conflict);
    assert!(!rig.segments.end_read(first));
    assert!(rig.events().is_empty(), "the second still sends");
    assert!(!rig.segments.end_read(second));
    assert_eq!(rig.events(), [released(extent(0, 1000), 1)]);
}

#[test]
fn a_view_delays_the_release_and_keeps_its_bytes() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    let view = rig.view(extent(0, 1000), 1).expect("viewable");
    rig.segments.erase(extent(0, 1000), version(1));
    assert!(rig.events().is_empty());
    let mut bytes = vec![0; 1000];
    view.memory
        .copy_out(view.offset_bytes, &mut bytes)
        .expect("fits");
    assert_eq!(bytes, payload(1000, 1));
    rig.segments.close_view(view);
    assert_eq!(rig.events(), [released(extent(0, 1000), 1)]);
}

/// B19: a completion that comes after its write was given up is a counted no-op, and the bytes are
/// not used again before it came.
#[test]
fn b19_a_late_completion_is_counted_and_harmless() {
    let mut rig = Rig::new();
    let late = rig.begin(extent(0, 1000), 1).expect("begun");
    rig.segments.erase(extent(0, 1000), version(1));
    assert!(rig.events().is_empty(), "its bytes may still land");
    assert_eq!(reason(rig.begin(extent(0, 1000), 2)), DataReason::Conflict);
    assert_eq!(rig.segments.stats().late_completions, 0);
    assert_eq!(reason(rig.finish(late, 1)), DataReason::StaleVersion);
    assert_eq!(rig.segments.stats().late_completions, 1);
    assert_eq!(rig.events(), [released(extent(0, 1000), 1)]);
    assert_eq!(
        reason(rig.read(extent(0, 1000), 1)),
        DataReason::StaleVersion
    );
    rig.write(extent(0, 1000), 2)
        .expect("fenced, so it may be used");
    let ticket = rig.read(extent(0, 1000), 2).expect("readable");
    assert_eq!(bytes_of(&ticket), payload(1000, 2));
    assert!(rig.segments.end_read(ticket));
    rig.assert_noted();
}

/// B19, the same when the whole slab was taken, or belongs to a former life of the log.
#[test]
fn b19_a_completion_for_a_slab_that_left_is_counted_and_harmless() {
    let mut rig = Rig::new();
    let late = rig.begin(extent(0, 1000), 1).expect("begun");
    let memory = Arc::clone(&late.memory);
    rig.segments.take_slab(slab(0, 1));
    assert!(rig.events().is_empty(), "its bytes may still land");
    assert_eq!(reason(rig.finish(late, 1)), DataReason::StaleVersion);
    assert_eq!(rig.events(), [Event::SlabReturned { slab: slab(0, 1) }]);
    let mut bytes = [1; 1000];
    memory.copy_out(0, &mut bytes).expect("fits");
    assert_eq!(bytes, [0; 1000], "the pages are gone");
    assert_eq!(rig.segments.stats().late_completions, 1);

    let mut rig = Rig::new();
    let late = rig.begin(extent(0, 1000), 1).expect("begun");
    rig.segments
        .see_epoch(epoch(2, 1), PoolTime(0), NOW)
        .expect("newer");
    rig.segments
        .give_slab(slab(0, 1), tenant("a"), super::memory(), None);
    rig.events();
    assert_eq!(reason(rig.finish(late, 1)), DataReason::StaleVersion);
    assert!(
        rig.events().is_empty(),
        "nobody waits to hear of the former life"
    );
    assert!(
        rig.segments.records(slab(0, 1)).is_empty(),
        "the new life has no record of it"
    );
}

#[test]
fn an_aborted_write_is_released_by_its_erasure() {
    let mut rig = Rig::new();
    let ticket = rig.begin(extent(0, 1000), 1).expect("begun");
    rig.segments.erase(extent(0, 1000), version(1));
    rig.segments.abort_write(ticket);
    assert_eq!(rig.events(), [released(extent(0, 1000), 1)]);
    assert_eq!(
        reason(rig.begin(extent(0, 1000), 1)),
        DataReason::StaleVersion
    );
}

#[test]
fn a_new_term_cuts_the_writes_of_the_old() {
    let mut rig = Rig::new();
    let ticket = rig.begin(extent(0, 1000), 1).expect("begun");
    assert_eq!(
        rig.segments.see_epoch(epoch(1, 2), PoolTime(POOL_NOW), NOW),
        Ok(true)
    );
    assert_eq!(reason(rig.finish(ticket, 1)), DataReason::StaleEpoch);
    assert_eq!(
        reason(rig.read(extent(0, 1000), 1)),
        DataReason::StaleVersion
    );
    let mut newer = Rig::capability(extent(0, 1000), 2, Reach::Write);
    newer.epoch = epoch(1, 2);
    let Ok(WriteStart::Go(ticket)) = rig.begin_with(&newer) else {
        panic!("a newer one may")
    };
    rig.finish(ticket, 2).expect("written");
}

#[test]
fn an_overwritten_record_is_gone_as_a_whole() {
    let mut rig = Rig::new();
    rig.write(extent(0, 2048), 1).expect("written");
    rig.write(extent(512, 512), 2).expect("a part of it");
    assert_eq!(
        reason(rig.read(extent(0, 2048), 1)),
        DataReason::StaleVersion
    );
    assert_eq!(
        reason(rig.begin(extent(0, 256), 1)),
        DataReason::StaleVersion,
        "refused for good"
    );
    let stats = rig.segments.stats();
    assert_eq!(
        (stats.records, stats.marks, stats.written_bytes),
        (1, 2, 512)
    );
    rig.assert_noted();
    rig.segments.erase(extent(0, 2048), version(1));
    assert_eq!(rig.events(), [released(extent(0, 2048), 1)]);
    let ticket = rig.read(extent(512, 512), 2).expect("the newer one stays");
    assert!(rig.segments.end_read(ticket));
}

#[test]
fn an_odd_erasure_covers_every_unit_that_it_touches() {
    let mut rig = Rig::new();
    let odd = [
        extent(100, 200),
        extent(SLAB_BYTES - 1, 5),
        extent(u64::MAX, u64::MAX),
        extent(0, 0),
    ];
    for extent in odd {
        rig.segments.erase(extent, version(3));
        assert_eq!(rig.events(), [released(extent, 3)]);
    }
    assert_eq!(
        reason(rig.begin(extent(256, 256), 3)),
        DataReason::StaleVersion
    );
    assert_eq!(
        reason(rig.begin(extent(SLAB_BYTES - 256, 256), 3)),
        DataReason::StaleVersion
    );
    rig.write(extent(512, 256), 3).expect("beyond it");
    rig.assert_noted();
}
