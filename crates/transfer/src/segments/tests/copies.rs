//! Copies: older versions may come to places where newer ones were, and nobody else's may.

use super::*;

fn begin_copy(rig: &mut Rig, extent: Extent, counter: u64) -> Result<WriteStart, DataError> {
    let signed = rig.sign(&Rig::capability(extent, counter, Reach::Write));
    rig.segments.begin_copy(&tenant("a"), &signed, NOW)
}

fn copy(rig: &mut Rig, extent: Extent, counter: u64) {
    match begin_copy(rig, extent, counter).expect("a place") {
        WriteStart::Go(ticket) => drop(rig.finish(ticket, counter).expect("written")),
        WriteStart::Already(..) => panic!("version {counter} is written already"),
    }
}

#[test]
fn an_older_version_comes_to_where_a_newer_one_was_erased() {
    let mut rig = Rig::new();
    let place = extent(0, 1000);
    rig.write(place, 8).expect("written");
    rig.segments.erase(place, version(8));
    assert_eq!(
        reason(rig.begin(place, 5)),
        DataReason::StaleVersion,
        "a client may not"
    );
    copy(&mut rig, place, 5);
    let ticket = rig.read(place, 5).expect("it is there");
    assert_eq!(bytes_of(&ticket), payload(1000, 5));
    assert!(rig.segments.end_read(ticket));
    rig.assert_noted();
}

#[test]
fn what_was_refused_to_clients_stays_refused_above_a_copy() {
    let mut rig = Rig::new();
    let place = extent(0, 1000);
    rig.segments.erase(place, version(8));
    copy(&mut rig, place, 5);
    for counter in [6, 8] {
        assert_eq!(
            reason(rig.begin(place, counter)),
            DataReason::StaleVersion,
            "{counter} is late"
        );
    }
    rig.read(place, 5)
        .map(|t| rig.segments.end_read(t))
        .expect("untouched");
    rig.segments.erase(place, version(5));
    assert_eq!(reason(rig.begin(place, 8)), DataReason::StaleVersion);
    rig.write(place, 9).expect("the next put");
    rig.assert_noted();
}

#[test]
fn a_copy_takes_the_place_of_what_no_leader_knows_and_of_nothing_that_is_held() {
    let mut rig = Rig::new();
    let place = extent(0, 1000);
    rig.write(place, 8)
        .expect("written by a put that never ended");
    let reading = rig.read(place, 8).expect("somebody reads it");
    assert_eq!(reason(begin_copy(&mut rig, place, 5)), DataReason::Conflict);
    assert!(rig.segments.end_read(reading));
    copy(&mut rig, place, 5);
    assert_eq!(reason(rig.read(place, 8)), DataReason::StaleVersion);
    assert_eq!(reason(rig.begin(place, 8)), DataReason::StaleVersion);
    rig.assert_noted();
}

#[test]
fn a_copy_that_is_there_is_not_made_again() {
    let mut rig = Rig::new();
    copy(&mut rig, extent(0, 1000), 5);
    let again = begin_copy(&mut rig, extent(0, 1000), 5).expect("known");
    assert!(matches!(again, WriteStart::Already(..)));
}

#[test]
fn an_erasure_behind_a_copy_waits_for_it_and_lets_it_end_in_nothing() {
    let mut rig = Rig::new();
    let place = extent(0, 1000);
    let Ok(WriteStart::Go(ticket)) = begin_copy(&mut rig, place, 5) else {
        panic!("no place");
    };
    rig.segments.erase(place, version(5));
    assert_eq!(rig.events(), []);
    assert_eq!(reason(rig.finish(ticket, 5)), DataReason::StaleVersion);
    assert_eq!(rig.events(), [released(place, 5)]);
}

#[test]
fn an_order_of_a_former_epoch_is_refused() {
    let mut rig = Rig::new();
    let Ok(WriteStart::Go(ticket)) = begin_copy(&mut rig, extent(0, 1000), 5) else {
        panic!("no place");
    };
    rig.segments
        .see_epoch(epoch(1, 2), PoolTime(POOL_NOW), NOW)
        .expect("higher");
    assert_eq!(
        reason(begin_copy(&mut rig, extent(4096, 1000), 5)),
        DataReason::StaleEpoch
    );
    assert_eq!(reason(rig.finish(ticket, 5)), DataReason::StaleEpoch);
}
