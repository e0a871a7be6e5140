//! Slabs, tenants, epochs and sessions: how they come and go.

use super::*;

/// B09: a slab is registered once, with its own memory, in a segment that is mounted; the exact
/// duplicate is answered again.
#[test]
fn b09_a_slab_is_given_once() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    rig.segments
        .give_slab(slab(0, 1), tenant("a"), memory(), None);
    assert_eq!(rig.events(), [Event::SlabReady { slab: slab(0, 1) }]);
    let ticket = rig
        .read(extent(0, 1000), 1)
        .expect("the first memory stays");
    assert!(rig.segments.end_read(ticket));

    rig.segments
        .give_slab(slab(0, 1), tenant("b"), memory(), None);
    assert!(
        matches!(&rig.events()[..], [Event::SlabFailed { .. }]),
        "it is another tenant's"
    );
    assert!(rig.segments.has_slab(slab(0, 1)));

    let shared = memory();
    rig.segments
        .give_slab(slab(1, 2), tenant("a"), Arc::clone(&shared), None);
    assert_eq!(rig.events(), [Event::SlabReady { slab: slab(1, 2) }]);
    rig.segments
        .give_slab(slab(2, 3), tenant("b"), shared, None);
    assert!(
        matches!(&rig.events()[..], [Event::SlabFailed { .. }]),
        "memory overlaps"
    );

    let mut strange = slab(0, 9);
    strange.segment = SegmentId(6);
    rig.segments.give_slab(strange, tenant("a"), memory(), None);
    rig.segments
        .give_slab(slab(16_384, 9), tenant("a"), memory(), None);
    let failed = rig.events();
    assert!(
        failed
            .iter()
            .all(|event| matches!(event, Event::SlabFailed { .. })),
        "{failed:?}"
    );
    assert_eq!((failed.len(), rig.segments.stats().slabs), (2, 2));
}

#[test]
fn a_slab_is_returned_when_the_last_hold_ends_and_its_pages_are_gone() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    let view = rig.view(extent(0, 1000), 1).expect("viewable");
    let read = rig.read(extent(0, 1000), 1).expect("readable");
    let fd = view.memory.read_only_fd().expect("a descriptor");
    let mapped = crate::memory::ViewMap::map(fd, SLAB_BYTES).expect("a mapping");

    rig.segments.take_slab(slab(0, 1));
    rig.segments.take_slab(slab(0, 1));
    assert!(!rig.segments.has_slab(slab(0, 1)));
    assert!(rig.events().is_empty());
    assert_eq!(
        reason(rig.read(extent(0, 1000), 1)),
        DataReason::StaleRegistration
    );
    assert_eq!(
        reason(rig.begin(extent(4096, 1000), 2)),
        DataReason::StaleRegistration
    );
    assert_eq!(rig.segments.stats().leaving_slabs, 1);

    assert!(
        !rig.segments.end_read(read),
        "the record went with the slab"
    );
    assert!(rig.events().is_empty());
    assert_eq!(
        mapped.slice(0, 1000),
        Some(&payload(1000, 1)[..]),
        "the view is held"
    );
    rig.segments.close_view(view);
    assert_eq!(rig.events(), [Event::SlabReturned { slab: slab(0, 1) }]);
    assert_eq!(mapped.slice(0, 1000), Some(&[0; 1000][..]));
    rig.segments.take_slab(slab(0, 1));
    assert_eq!(
        rig.events(),
        [Event::SlabReturned { slab: slab(0, 1) }],
        "a repeat"
    );
    let stats = rig.segments.stats();
    assert_eq!(
        (stats.slab_bytes, stats.view_bytes, stats.leaving_slabs),
        (0, 0, 0)
    );
}

#[test]
fn an_erasure_in_a_leaving_slab_is_released_with_its_hold() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    let read = rig.read(extent(0, 1000), 1).expect("readable");
    rig.segments.take_slab(slab(0, 1));
    rig.segments.erase(extent(0, 1000), version(1));
    rig.segments.erase(extent(4096, 1000), version(2));
    assert_eq!(rig.events(), [released(extent(4096, 1000), 2)]);
    rig.segments.end_read(read);
    let returned = Event::SlabReturned { slab: slab(0, 1) };
    assert_eq!(rig.events(), [released(extent(0, 1000), 1), returned]);
}

#[test]
fn a_taken_life_of_a_slab_never_comes_back() {
    let mut rig = Rig::new();
    rig.segments.take_slab(slab(0, 1));
    rig.events();
    rig.segments
        .give_slab(slab(0, 1), tenant("a"), memory(), None);
    assert!(rig.events().is_empty());
    assert!(!rig.segments.has_slab(slab(0, 1)));
    assert_eq!(rig.segments.stats().stale_commands, 1);
    // Taken while its memory was still being made.
    rig.segments.take_slab(slab(0, 4));
    assert_eq!(rig.events(), [Event::SlabReturned { slab: slab(0, 4) }]);
    rig.segments
        .give_slab(slab(0, 4), tenant("b"), memory(), None);
    assert!(!rig.segments.has_slab(slab(0, 4)));
    rig.segments
        .give_slab(slab(0, 5), tenant("b"), memory(), None);
    assert_eq!(rig.events(), [Event::SlabReady { slab: slab(0, 5) }]);
    rig.segments
        .give_slab(slab(0, 4), tenant("a"), memory(), None);
    assert!(rig.segments.has_slab(slab(0, 5)));
}

#[test]
fn a_newer_life_of_a_slab_ends_the_older() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    rig.segments
        .give_slab(slab(0, 2), tenant("b"), memory(), None);
    let events = rig.events();
    assert!(
        events.contains(&Event::SlabReady { slab: slab(0, 2) }),
        "{events:?}"
    );
    assert!(
        events.contains(&Event::SlabReturned { slab: slab(0, 1) }),
        "{events:?}"
    );
    assert_eq!(
        reason(rig.read(extent(0, 1000), 1)),
        DataReason::StaleRegistration
    );
    assert!(rig.segments.records(slab(0, 2)).is_empty());
}

#[test]
fn what_was_erased_before_the_slab_came_stays_out() {
    let mut rig = Rig::new();
    let early = Extent {
        slab: slab(1, 2),
        offset_bytes: 0,
        length_bytes: 1000,
    };
    rig.segments.erase(early, version(4));
    rig.segments.erase(early, version(3));
    assert_eq!(rig.events(), [released(early, 3), released(early, 4)]);
    rig.segments
        .give_slab(slab(1, 2), tenant("a"), memory(), None);
    for counter in [3, 4] {
        assert_eq!(reason(rig.begin(early, counter)), DataReason::StaleVersion);
    }
    let ticket = rig.begin(early, 5).expect("newer");
    rig.finish(ticket, 5).expect("written");
}

/// A leader's time starts at 0, and what it allows holds at once, however long the one before led.
#[test]
fn each_leader_has_a_time_of_its_own() {
    let mut segments = Segments::new(LIFE, Epoch::default());
    for term in 1..=20 {
        let now = LocalMs(NOW.0 + 1_000 * term);
        let seen = segments.see_epoch(epoch(1, term), PoolTime(3), now);
        assert_eq!(seen, Ok(true));
        assert_eq!(segments.pool_time(LocalMs(now.0 + 4)), PoolTime(7));
    }
}

/// An agent whose clock is fast, or leapt, does not refuse for ever what its leader allows.
#[test]
fn a_fast_clock_is_put_right() {
    let mut segments = Segments::new(LIFE, Epoch::default());
    for beat in 0..10 {
        let now = LocalMs(NOW.0 + 5_000 * beat);
        let said = PoolTime(1_000 * beat);
        let seen = segments.see_epoch(epoch(1, 1), said, now);
        assert_eq!(seen, Ok(beat == 0));
        assert_eq!(segments.pool_time(now), said);
    }
}

#[test]
fn a_lower_epoch_is_refused_and_time_never_runs_backwards() {
    let mut rig = Rig::new();
    let segments = &mut rig.segments;
    assert_eq!(
        segments.see_epoch(epoch(1, 1), PoolTime(POOL_NOW), NOW),
        Ok(false)
    );
    assert_eq!(
        segments.see_epoch(epoch(1, 3), PoolTime(POOL_NOW), NOW),
        Ok(true)
    );
    let refused = segments
        .see_epoch(epoch(1, 2), PoolTime(99_999), NOW)
        .expect_err("lower");
    assert_eq!(
        refused,
        StaleEpoch {
            said: epoch(1, 2),
            highest: epoch(1, 3)
        }
    );
    assert_eq!(segments.highest_epoch(), epoch(1, 3));
    assert_eq!(
        segments.pool_time(LocalMs(NOW.0 + 30)),
        PoolTime(POOL_NOW + 30)
    );
    let late = LocalMs(NOW.0 + 100);
    segments
        .see_epoch(epoch(1, 3), PoolTime(POOL_NOW + 10), late)
        .expect("the same");
    assert_eq!(
        segments.pool_time(late),
        PoolTime(POOL_NOW + 100),
        "the word was underway"
    );
    segments
        .see_epoch(epoch(1, 3), PoolTime(POOL_NOW + 500), late)
        .expect("the same");
    assert_eq!(segments.pool_time(late), PoolTime(POOL_NOW + 500));
    assert_eq!(
        segments.pool_time(NOW),
        PoolTime(POOL_NOW + 500),
        "a clock that jumped back"
    );
    segments
        .see_epoch(epoch(2, 1), PoolTime(7), late)
        .expect("newer");
    assert_eq!(
        segments.pool_time(late),
        PoolTime(7),
        "a new generation has its own time"
    );
}

#[test]
fn a_new_generation_drops_everything_of_the_old() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    rig.write(extent(4096, 1000), 2).expect("written");
    let view = rig.view(extent(0, 1000), 1).expect("viewable");
    let bytes = Arc::clone(&view.memory);
    rig.segments.erase(extent(0, 1000), version(1));
    rig.segments.erase(extent(4096, 1000), version(2));
    rig.segments
        .give_slab(slab(1, 2), tenant("a"), memory(), None);
    assert_eq!(
        rig.segments.see_epoch(epoch(2, 1), PoolTime(0), NOW),
        Ok(true)
    );
    assert!(
        rig.events().is_empty(),
        "events of the old life of the log are dropped"
    );
    let stats = rig.segments.stats();
    assert_eq!(
        (stats.slabs, stats.leaving_slabs, stats.slabs_returned),
        (0, 1, 1)
    );
    assert_eq!(stats.waiting_releases, 0);

    // The same numbers may come again; they are other slabs.
    rig.segments
        .give_slab(slab(0, 1), tenant("b"), memory(), None);
    rig.segments.take_slab(slab(0, 1));
    assert_eq!(rig.events(), [Event::SlabReturned { slab: slab(0, 1) }]);
    assert_eq!(
        reason(rig.read(extent(4096, 1000), 2)),
        DataReason::StaleRegistration
    );
    rig.segments.close_view(view);
    assert!(rig.events().is_empty());
    let mut left = [1; 1000];
    bytes.copy_out(0, &mut left).expect("fits");
    assert_eq!(left, [0; 1000], "freed when the hold ended");
    assert_eq!(rig.segments.stats().slab_bytes, 0);
}

#[test]
fn a_mount_under_other_numbers_drops_the_slabs_of_the_former() {
    let mut rig = Rig::new();
    rig.segments
        .give_slab(slab(1, 2), tenant("a"), memory(), None);
    let (key, root) = (rig.key.clone(), rig.root.clone());
    rig.segments
        .mounted(AgentId(3), vec![SegmentId(5)], key.clone(), verifier(&root));
    assert_eq!(rig.segments.stats().slabs, 2, "the same numbers: they stay");
    rig.segments
        .mounted(AgentId(3), vec![SegmentId(6)], key, verifier(&root));
    assert_eq!(
        (rig.segments.stats().slabs, rig.segments.stats().slab_bytes),
        (0, 0)
    );
}

#[test]
fn a_rotated_key_opens_and_the_one_before_the_last_does_not() {
    let mut rig = Rig::new();
    let old = rig.sign(&Rig::capability(extent(0, 1000), 1, Reach::Write));
    for id in [2, 3] {
        rig.key = AgentKey::new([id; 32], u32::from(id));
        let verifier = verifier(&rig.root);
        rig.segments
            .mounted(AgentId(3), vec![SegmentId(5)], rig.key.clone(), verifier);
        let receipt = rig
            .write(extent(u64::from(id) * 4096, 1000), 1)
            .expect("written");
        receipt
            .verify(&rig.key)
            .expect("signed with the newest key");
    }
    assert_eq!(
        reason(rig.segments.begin_write(&tenant("a"), &old, NOW)),
        DataReason::Forged,
        "two rotations later"
    );
}

fn token(rig: &Rig, generation: u64, deadline: u64) -> larder_wire::SessionToken {
    let claims = SessionClaims {
        principal: Principal::Tenant(tenant("a")),
        session: SessionId(1),
        epoch: epoch(generation, 1),
        deadline: PoolTime(deadline),
    };
    SessionSigner::new(&rig.root)
        .expect("a key")
        .sign(&claims)
        .expect("signed")
}

#[test]
fn a_session_token_holds_until_its_deadline() {
    let rig = Rig::new();
    let good = token(&rig, 1, POOL_NOW + 10);
    let claims = rig.segments.verify_session(&good, NOW).expect("genuine");
    assert_eq!(claims.principal, Principal::Tenant(tenant("a")));
    let late = LocalMs(NOW.0 + 11);
    assert_eq!(
        rig.segments.verify_session(&good, late),
        Err(TokenError::Expired)
    );
    let former = token(&rig, 0, POOL_NOW + 10);
    assert_eq!(
        rig.segments.verify_session(&former, NOW),
        Err(TokenError::Expired)
    );
    let stranger = SessionSigner::new(&RootKey::new([1; 32]))
        .expect("a key")
        .sign(&claims);
    let stranger = stranger.expect("signed");
    assert_eq!(
        rig.segments.verify_session(&stranger, NOW),
        Err(TokenError::Forged)
    );
    let unmounted = Segments::new(LIFE, Epoch::default());
    assert_eq!(
        unmounted.verify_session(&good, NOW),
        Err(TokenError::Forged)
    );
}

#[test]
fn a_deleted_tenant_reaches_nothing_until_it_gets_a_slab_again() {
    let mut rig = Rig::new();
    rig.write(extent(0, 1000), 1).expect("written");
    rig.segments.tenant_gone(&tenant("a"));
    rig.segments.tenant_gone(&tenant("a"));
    assert!(rig.segments.is_gone(&tenant("a")));
    let good = token(&rig, 1, POOL_NOW + 10);
    assert_eq!(
        rig.segments.verify_session(&good, NOW),
        Err(TokenError::Expired)
    );
    assert_eq!(
        reason(rig.read(extent(0, 1000), 1)),
        DataReason::ForeignTenant
    );
    rig.segments
        .give_slab(slab(3, 8), tenant("a"), memory(), None);
    assert!(!rig.segments.is_gone(&tenant("a")));
    assert!(rig.segments.verify_session(&good, NOW).is_ok());
}

#[test]
fn the_handle_shares_one_agent() {
    let handle = SegmentsHandle::new(Rig::new().segments);
    let other = handle.clone();
    handle.with(|segments| segments.take_slab(slab(0, 1)));
    assert_eq!(other.with(|segments| segments.take_events().len()), 1);
}
