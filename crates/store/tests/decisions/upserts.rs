//! Upserts: the old version stays until the new one is complete, and its bytes until nobody holds
//! them.

use larder_store::{PutMode, Reply, Request, Settings, TenantPolicy};
use larder_types::{Attributes, DataType, GroupId, Pin, Reason, SessionId, Version};

use crate::world::{SESSION, SLAB, World, end, key, tenant};

fn located(world: &mut World, text: &str) -> Version {
    match world.answer(World::get("red", text)) {
        Ok(Reply::Located {
            version, replicas, ..
        }) => {
            for extent in replicas.iter().flatten() {
                let agent = world.agent_mut(extent.slab.agent).expect("known");
                assert!(agent.reads(extent, version), "{extent:?} of {version}");
            }
            version
        }
        other => panic!("not located: {other:?}"),
    }
}

#[test]
fn readers_have_the_old_version_until_the_end_and_then_the_new_one() {
    let mut world = World::ready(2, 4, &["red"]);
    let (old, _) = world.put(World::upsert("red", "k", 5_000)).expect("room");
    assert_eq!(
        located(&mut world, "k"),
        old,
        "an upsert of nothing is a put"
    );
    let (new, replicas) = world.granted(World::upsert("red", "k", 9_000));
    assert!(new > old);
    assert_eq!(located(&mut world, "k"), old);
    assert!(world.write(&tenant("red"), new, &replicas));
    assert_eq!(located(&mut world, "k"), old);
    let charge = |world: &World| world.state.used_bytes() + world.leader.reserved_bytes();
    assert_eq!(charge(&world), 2 * 16_384, "both are charged until the end");
    let done = end(SESSION, tenant("red"), key("k"), new, &replicas);
    let ticket = world.ask(done.clone());
    assert_eq!(
        world
            .state
            .object(&tenant("red"), &key("k"))
            .map(|o| o.version()),
        Some(old)
    );
    assert!(world.commit(), "one op switches");
    assert_eq!(
        world
            .state
            .object(&tenant("red"), &key("k"))
            .map(|o| o.version()),
        Some(new)
    );
    world.settle();
    assert_eq!(world.taken(ticket), Some(Ok(Reply::Done)));
    assert_eq!(located(&mut world, "k"), new);
    assert_eq!(charge(&world), 16_384);
    assert_eq!(world.answer(done), Ok(Reply::AlreadyComplete));
    assert_eq!(
        (world.state.objects(), world.state.releasing_bytes()),
        (1, 0)
    );
}

#[test]
fn a_put_that_creates_is_refused_where_an_upsert_is_not() {
    let mut world = World::ready(1, 4, &["red"]);
    let (old, _) = world.put(World::start("red", "k", 1_000)).expect("room");
    assert_eq!(
        world.reason(World::start("red", "k", 1_000)),
        Reason::AlreadyExists
    );
    world.granted(World::upsert("red", "k", 1_000));
    assert_eq!(
        world.reason(World::start("red", "k", 1_000)),
        Reason::AlreadyExists
    );
    let mut other = World::upsert("red", "k", 1_000);
    if let Request::PutStart { session, .. } = &mut other {
        *session = SessionId(2);
    }
    assert_eq!(world.reason(other.clone()), Reason::BeingWritten);
    world.now = world.now.plus_ms(30_000);
    let (second, replicas) = world.granted(other);
    assert!(world.write(&tenant("red"), second, &replicas));
    assert_eq!(located(&mut world, "k"), old);
    let done = end(SessionId(2), tenant("red"), key("k"), second, &replicas);
    assert_eq!(world.answer(done), Ok(Reply::Done));
    assert_eq!(located(&mut world, "k"), second);
}

/// The other way round than at the peer: whatever stops an upsert, the old value is there.
#[test]
fn an_upsert_that_fails_leaves_the_old_value() {
    type Stop = fn(&mut World, Version);
    let stops: [(&str, Stop); 4] = [
        ("revoked", |world, version| {
            let request = Request::PutRevoke {
                session: SESSION,
                tenant: tenant("red"),
                key: key("k"),
                version,
            };
            assert_eq!(world.answer(request), Ok(Reply::Done));
        }),
        ("its session ends", |world, _| {
            let request = Request::SessionClosed { session: SESSION };
            assert_eq!(world.answer(request), Ok(Reply::Done));
        }),
        ("it is too slow", |world, _| world.pass(31_000)),
        ("the leader goes", |world, _| world.fail_over(0)),
    ];
    for (why, stop) in stops {
        let mut world = World::ready(1, 4, &["red"]);
        let (old, _) = world.put(World::start("red", "k", 1_000)).expect("room");
        let (new, replicas) = world.granted(World::upsert("red", "k", 3_000));
        assert!(world.write(&tenant("red"), new, &replicas));
        stop(&mut world, new);
        world.settle();
        assert_eq!(located(&mut world, "k"), old, "{why}");
        let late = end(SESSION, tenant("red"), key("k"), new, &replicas);
        let refusal = world.refusal(late);
        let reasons = [Reason::StaleOwner, Reason::StaleEpoch];
        assert!(reasons.contains(&refusal.reason), "{why}: {refusal}");
        world.turns(1);
        assert_eq!(
            (world.leader.reserved_bytes(), world.leader.discarded_puts()),
            (0, 0)
        );
        assert_eq!(world.state.used_bytes(), 16_384, "{why}");
    }
}

#[test]
fn an_upsert_without_room_leaves_the_old_value() {
    let mut world = World::ready(1, 1, &["red"]);
    let (old, _) = world.put(World::start("red", "k", SLAB)).expect("room");
    assert_eq!(
        world.reason(World::upsert("red", "k", SLAB)),
        Reason::NoSpace
    );
    assert_eq!(located(&mut world, "k"), old);
    let limit = TenantPolicy {
        limit_bytes: Some(SLAB + 1_000),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", limit);
    assert_eq!(
        world.reason(World::upsert("red", "k", 5_000)),
        Reason::QuotaBytes
    );
    assert_eq!(located(&mut world, "k"), old);
}

#[test]
fn an_object_that_goes_while_it_is_replaced_does_not_stop_the_end() {
    // Removed before the end; removed in the entry before it; lost with its agent.
    for case in 0..3 {
        let mut world = World::ready(2, 4, &["red"]);
        let (_, old_at) = world.put(World::start("red", "k", 1_000)).expect("room");
        let holder = old_at[0][0].slab.agent;
        let other = world
            .state
            .agents()
            .find(|(id, _)| *id != holder)
            .expect("two")
            .0;
        let mut start = World::upsert("red", "k", 3_000);
        if let Request::PutStart { preferred, .. } = &mut start {
            preferred.push(other);
        }
        let (new, replicas) = world.granted(start);
        assert_eq!(replicas[0][0].slab.agent, other);
        assert!(world.write(&tenant("red"), new, &replicas));
        let done = end(SESSION, tenant("red"), key("k"), new, &replicas);
        match case {
            0 => assert_eq!(world.answer(World::remove("red", "k")), Ok(Reply::Done)),
            1 => {
                world.ask(World::remove("red", "k"));
            }
            _ => {
                world.ask(Request::Unmount { agent: holder });
            }
        }
        let ticket = world.ask(done);
        world.settle();
        assert_eq!(world.taken(ticket), Some(Ok(Reply::Done)), "case {case}");
        assert_eq!(located(&mut world, "k"), new);
        assert_eq!(world.state.objects(), 1);
    }
}

/// Bytes of an old version stay as long as a reader holds them, and no longer.
#[test]
fn the_bytes_of_a_replaced_version_stay_while_they_are_held() {
    let mut world = World::ready(1, 1, &["red"]);
    let half = SLAB / 2;
    let (old, old_at) = world.put(World::start("red", "k", half)).expect("room");
    world.agents[0].holds = true;
    let (_, _) = world.put(World::upsert("red", "k", half)).expect("room");
    world.quiesce();
    assert!(
        world.agents[0].reads(&old_at[0][0], old),
        "a reader still has it"
    );
    assert_eq!(world.state.releasing_bytes(), half);
    let waiting = world.ask(World::upsert("red", "k", half));
    world.quiesce();
    assert_eq!(world.parked(), 1, "for the space that the reader holds");
    world.agents[0].let_go();
    world.settle();
    match world.taken(waiting) {
        Some(Ok(Reply::PutGranted { replicas, .. })) => assert_eq!(replicas, old_at),
        other => panic!("not granted: {other:?}"),
    }
}

#[test]
fn what_an_upsert_does_not_say_stays() {
    let mut world = World::ready(1, 4, &["red"]);
    let group = |text: &str| Some(GroupId::new(text).expect("a name"));
    let said = Attributes {
        pin: Pin::Hard,
        group: group("one"),
        data_type: DataType::new(3).expect("known"),
    };
    let start = World::start("red", "k", 1_000);
    world.put(World::with(start, said.clone())).expect("room");
    world.put(World::upsert("red", "k", 2_000)).expect("room");
    assert_eq!(world.stat("red", "k").attributes, said);
    let held = |world: &World| world.state.tenant(&tenant("red")).map(|t| t.pinned_bytes());
    assert_eq!(held(&world), Some(16_384));

    let other = Attributes {
        pin: Pin::Soft { ttl_ms: 60_000 },
        group: group("two"),
        data_type: DataType::new(4).expect("known"),
    };
    let start = World::upsert("red", "k", 3_000);
    world.put(World::with(start, other.clone())).expect("room");
    assert_eq!(world.stat("red", "k").attributes, other);
    assert_eq!(held(&world), Some(0));

    // A soft pin keeps the time that it has left; one that is over does not come back.
    world.pass(40_000);
    world.settle();
    world.put(World::upsert("red", "k", 4_000)).expect("room");
    let stat = world.stat("red", "k");
    let left = stat.pin_left_ms;
    assert!((19_000..=20_064).contains(&left), "{stat:?}");
    world.pass(21_000);
    world.settle();
    world.put(World::upsert("red", "k", 5_000)).expect("room");
    assert_eq!(world.stat("red", "k").attributes.pin, Pin::None);
}

#[test]
fn an_upsert_may_honour_leases() {
    let mut world = World::ready(1, 4, &["red"]);
    world.put(World::start("red", "k", 1_000)).expect("room");
    let mut polite = World::upsert("red", "k", 1_000);
    if let Request::PutStart { mode, .. } = &mut polite {
        *mode = PutMode::Upsert { if_unleased: true };
    }
    world.put(polite.clone()).expect("a put grants no lease");
    located(&mut world, "k");
    assert_eq!(world.reason(polite.clone()), Reason::LeaseHeld);
    world
        .put(World::upsert("red", "k", 1_000))
        .expect("unless it is asked to");
    located(&mut world, "k");
    world.pass(10_064);
    world.put(polite).expect("the lease is over");
}

/// In a small bound for pinned bytes, what inherits a pin is judged when it starts.
#[test]
fn a_pin_that_is_inherited_is_bounded() {
    let settings = Settings {
        max_pinned_bytes: 163_840,
        ..Settings::default()
    };
    let mut world = World::with_settings(settings, 1, 1, 8);
    world.settle();
    world.set_tenant("red", TenantPolicy::default());
    world.put(World::start("red", "k", 65_536)).expect("room");
    assert_eq!(
        world.answer(World::pin("red", "k", Pin::Hard)),
        Ok(Reply::Done)
    );
    assert_eq!(
        world.reason(World::upsert("red", "k", 102_400)),
        Reason::QuotaPinnedBytes
    );
    world
        .put(World::upsert("red", "k", 98_304))
        .expect("it fits beside the old one");
    // Pinned between start and end.
    world.put(World::start("red", "l", 16_384)).expect("room");
    let (version, replicas) = world.granted(World::upsert("red", "l", 49_152));
    assert_eq!(
        world.answer(World::pin("red", "l", Pin::Hard)),
        Ok(Reply::Done)
    );
    assert!(world.write(&tenant("red"), version, &replicas));
    let done = end(SESSION, tenant("red"), key("l"), version, &replicas);
    assert_eq!(world.answer(done), Ok(Reply::Done));
    assert_eq!(world.stat("red", "l").attributes.pin, Pin::Hard);
    world.put(World::start("red", "m", 16_384)).expect("room");
    world.granted(World::upsert("red", "m", 49_152));
    assert_eq!(
        world.reason(World::pin("red", "m", Pin::Hard)),
        Reason::QuotaPinnedBytes,
        "with the put that would inherit it"
    );
}
