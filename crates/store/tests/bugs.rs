//! Faults that users of such systems reported, each as a test named by its id.

use larder_store::{Discard, Reply, Request, Settings, TenantPolicy};
use larder_types::{Reason, SessionId};

use crate::world::{SESSION, SLAB, World, end, key, tenant};

fn by(session: SessionId, mut start: Request) -> Request {
    if let Request::PutStart { session: own, .. } = &mut start {
        *own = session;
    }
    start
}

/// A writer that dies within a put blocks the key only for a while; its memory comes back when
/// its agent says so, and its late end does no harm.
#[test]
fn b01_a_writer_that_dies_gives_key_and_memory_back() {
    let mut world = World::ready(1, 1, &["red"]);
    let other = SessionId(2);
    let start = World::start("red", "k", SLAB);
    let (first, dead) = world.granted(start.clone());
    assert!(world.write(&tenant("red"), first, &dead));
    assert_eq!(world.reason(by(other, start.clone())), Reason::BeingWritten);
    assert_eq!(
        (world.leader.pending_puts(), world.leader.discarded_puts()),
        (1, 0)
    );

    world.now = world.now.plus_ms(30_000);
    let waiting = world.ask(by(other, start));
    assert_eq!(
        (world.leader.pending_puts(), world.leader.discarded_puts()),
        (0, 1)
    );
    assert_eq!(world.parked(), 1, "the whole pool is in that one extent");
    assert_eq!(world.leader.discarded_bytes(), SLAB);

    world.settle();
    let Some(Ok(Reply::PutGranted {
        version, replicas, ..
    })) = world.taken(waiting)
    else {
        panic!("granted when the agent has erased the first")
    };
    assert_eq!(replicas, dead, "the same memory, after its release");
    assert!(
        !world.write(&tenant("red"), first, &dead),
        "the agent refuses the late write"
    );
    let late = end(SESSION, tenant("red"), key("k"), first, &dead);
    assert_eq!(world.reason(late), Reason::StaleOwner);
    assert!(world.write(&tenant("red"), version, &replicas));
    let done = end(other, tenant("red"), key("k"), version, &replicas);
    assert_eq!(world.answer(done), Ok(Reply::Done));
    assert_eq!(
        (world.leader.pending_puts(), world.leader.discarded_puts()),
        (0, 0)
    );
}

/// The same when its connection is seen to close: at once.
#[test]
fn b01_a_closed_session_frees_its_keys_at_once() {
    let mut world = World::ready(1, 4, &["red"]);
    let start = World::start("red", "k", 1000);
    let (first, extents) = world.granted(start.clone());
    assert_eq!(
        world.answer(Request::SessionClosed { session: SESSION }),
        Ok(Reply::Done)
    );
    assert_eq!(world.leader.reserved_bytes(), 0);
    world.put(by(SessionId(2), start)).expect("the key is free");
    let late = end(SESSION, tenant("red"), key("k"), first, &extents);
    assert_eq!(world.reason(late), Reason::StaleOwner);
}

/// The same with an upsert: meanwhile the key is not even unreadable.
#[test]
fn b01_a_writer_that_dies_in_an_upsert_leaves_the_object() {
    let mut world = World::ready(1, 4, &["red"]);
    let (old, _) = world.put(World::start("red", "k", 1000)).expect("room");
    let start = World::upsert("red", "k", 2000);
    let (first, dead) = world.granted(start.clone());
    assert!(world.write(&tenant("red"), first, &dead));
    let other = SessionId(2);
    assert_eq!(world.reason(by(other, start.clone())), Reason::BeingWritten);
    world.now = world.now.plus_ms(30_000);
    let (second, _) = world.put(by(other, start)).expect("taken over");
    assert!(second > first && first > old);
    let late = end(SESSION, tenant("red"), key("k"), first, &dead);
    let refusal = world.refusal(late);
    assert_eq!(refusal.reason, Reason::StaleOwner);
    assert_eq!(world.stat("red", "k").version, second);
    assert_eq!(
        (world.leader.pending_puts(), world.leader.discarded_puts()),
        (0, 0)
    );
    assert_eq!(world.state.used_bytes(), 16_384);
}

/// Why a put ended without its end is counted, and the zombie hears it.
#[test]
fn b01_each_end_of_a_put_has_its_reason() {
    let mut world = World::ready(1, 4, &["red"]);
    let start = World::start("red", "k", 1000);
    for cause in [
        Discard::Revoked,
        Discard::SessionClosed,
        Discard::TakenOver,
        Discard::Expired,
    ] {
        let (version, extents) = world.granted(start.clone());
        world.agents[0].holds = true;
        assert!(world.write(&tenant("red"), version, &extents));
        match cause {
            Discard::Revoked => {
                world.ask(Request::PutRevoke {
                    session: SESSION,
                    tenant: tenant("red"),
                    key: key("k"),
                    version,
                });
            }
            Discard::SessionClosed => {
                world.ask(Request::SessionClosed { session: SESSION });
            }
            Discard::TakenOver => {
                world.now = world.now.plus_ms(30_000);
                let (next, _) = world.granted(by(SessionId(2), start.clone()));
                let give_up = Request::SessionClosed {
                    session: SessionId(2),
                };
                assert!(next > version);
                world.ask(give_up);
            }
            _ => world.pass(30_500),
        }
        world.quiesce();
        assert_eq!(
            world.discards.get(cause.label()),
            Some(&1),
            "{:?}",
            world.discards
        );
        assert!(world.leader.discarded_puts() > 0, "not yet released");
        let late = world.ask(end(SESSION, tenant("red"), key("k"), version, &extents));
        match world.taken(late) {
            Some(Err(refusal)) => {
                assert_eq!(refusal.reason, Reason::StaleOwner);
                assert!(refusal.detail.contains(cause.label()), "{refusal}");
            }
            other => panic!("not refused: {other:?}"),
        }
        world.agents[0].let_go();
        world.settle();
        assert_eq!(world.leader.discarded_puts(), 0);
        world.discards.clear();
    }
}

/// Of two writers of one key exactly one wins, and an end may be sent as often as one likes.
#[test]
fn b02_two_writers_and_repeated_ends() {
    let mut world = World::ready(2, 4, &["red"]);
    let other = SessionId(2);
    for round in 0..10 {
        let name = format!("k{round}");
        let start = World::start("red", &name, 5000);
        let one = world.ask(start.clone());
        let two = world.ask(by(other, start.clone()));
        world.settle();
        let answers = [
            world.taken(one).expect("one"),
            world.taken(two).expect("two"),
        ];
        let granted: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                Ok(Reply::PutGranted {
                    version, replicas, ..
                }) => Some((version, replicas)),
                _ => None,
            })
            .collect();
        let [(version, replicas)] = granted[..] else {
            panic!("one wins: {answers:?}")
        };
        let winner = if answers[0].is_ok() { SESSION } else { other };
        assert!(world.write(&tenant("red"), *version, replicas));
        let done = end(winner, tenant("red"), key(&name), *version, replicas);
        let [first, second] = [world.ask(done.clone()), world.ask(done.clone())];
        assert_eq!(world.parked(), 1, "the second end waits for the first");
        world.settle();
        assert_eq!(world.taken(first), Some(Ok(Reply::Done)));
        assert_eq!(world.taken(second), Some(Ok(Reply::AlreadyComplete)));
        assert_eq!(world.answer(done), Ok(Reply::AlreadyComplete));
        assert_eq!(world.reason(by(other, start)), Reason::AlreadyExists);
    }
}

/// Two writers that replace one key in turn: each end is one whole version, and the last stays.
#[test]
fn b02_two_upserting_writers() {
    let mut world = World::ready(2, 4, &["red"]);
    let mut last = None;
    for round in 0..20u64 {
        let writer = SessionId(1 + round % 2);
        let start = by(writer, World::upsert("red", "k", 1_000 + round));
        let (version, replicas) = world.granted(start.clone());
        let other = by(SessionId(2 - round % 2), start);
        assert_eq!(world.reason(other), Reason::BeingWritten);
        assert!(world.write(&tenant("red"), version, &replicas));
        let done = end(writer, tenant("red"), key("k"), version, &replicas);
        let [first, second] = [world.ask(done.clone()), world.ask(done)];
        world.settle();
        assert_eq!(world.taken(first), Some(Ok(Reply::Done)));
        assert_eq!(world.taken(second), Some(Ok(Reply::AlreadyComplete)));
        if let Some((session, former, at)) = last.replace((writer, version, replicas)) {
            let late = end(session, tenant("red"), key("k"), former, &at);
            assert_eq!(world.reason(late), Reason::StaleOwner);
        }
        assert_eq!(world.stat("red", "k").version, version);
    }
    assert_eq!(
        (world.state.objects(), world.state.releasing_bytes()),
        (1, 0)
    );
}

/// Silence makes an agent suspect before it is lost, a paused leader loses nobody, and nothing is
/// lost while the process lives.
#[test]
fn b06_a_suspect_state_comes_before_the_loss() {
    let mut world = World::ready(1, 4, &["red"]);
    world.put(World::start("red", "k", 1000)).expect("room");
    // The leader was paused for an hour: the heartbeat that waits is heard before anything else.
    world.now = world.now.plus_ms(3_600_000);
    world.leader.tick(&world.state, world.now);
    let id = world.agents[0].id.expect("mounted");
    assert_eq!(world.leader.health(id), larder_store::Health::Suspect);
    assert_eq!(
        world.reason(World::start("red", "new", 1000)),
        Reason::NoAgents
    );
    let incarnation = world.agents[0].incarnation;
    assert_eq!(
        world.answer(Request::Heartbeat {
            agent: id,
            incarnation,
            load_permille: 0,
        }),
        Ok(Reply::Done)
    );
    assert_eq!(world.leader.health(id), larder_store::Health::Alive);
    world.pass(60_000);
    assert!(world.exists("red", "k"), "nothing was lost");
    world
        .put(World::start("red", "new", 1000))
        .expect("room again");
}

/// Ends of a put with two replicas, sent three times, leave nothing behind.
#[test]
fn b08_repeated_ends_pin_nothing() {
    let mut world = World::ready(2, 4, &["red"]);
    let mut start = World::start("red", "k", 100_000);
    if let Request::PutStart { replicas, .. } = &mut start {
        *replicas = 2;
    }
    let (version, replicas) = world.put(start).expect("room");
    for _ in 0..3 {
        let again = end(SESSION, tenant("red"), key("k"), version, &replicas);
        assert_eq!(world.answer(again), Ok(Reply::AlreadyComplete));
    }
    // Nothing protects it, and neither do ends of an upsert, or what it replaced.
    let held = world.state.tenant(&tenant("red")).expect("known");
    let id = held.objects().id(&key("k")).expect("there");
    assert!(
        !world
            .leader
            .is_protected(&world.state, &tenant("red"), id, world.now)
    );
    let (version, replicas) = world.put(World::upsert("red", "k", 50_000)).expect("room");
    for _ in 0..3 {
        let again = end(SESSION, tenant("red"), key("k"), version, &replicas);
        assert_eq!(world.answer(again), Ok(Reply::AlreadyComplete));
    }
    assert_eq!(world.answer(World::remove("red", "k")), Ok(Reply::Done));
    assert_eq!(
        (world.state.used_bytes(), world.state.releasing_bytes()),
        (0, 0)
    );
    assert!(
        world
            .state
            .segments()
            .all(|s| s.slabs().values().all(|slab| slab.alloc().is_empty()))
    );
}

/// At the limit a put is refused with the figures; nothing that was stored is thrown away for it,
/// and other tenants do not notice.
#[test]
fn b38_over_quota_is_refused_and_nothing_is_evicted() {
    const MIB: u64 = 1024 * 1024;
    let mut world = World::ready(2, 24, &["blue"]);
    let limit = TenantPolicy {
        limit_bytes: Some(16 * MIB),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", limit);
    let mut stored = Vec::new();
    for number in 0..32 {
        let name = format!("k{number:02}");
        match world.put(World::start("red", &name, MIB)) {
            Ok(_) => stored.push(name.clone()),
            Err(refusal) => {
                assert_eq!(refusal.reason, Reason::QuotaBytes);
                let detail = "limit 16777216, used 16777216, reserved 0, asked 1048576";
                assert_eq!(refusal.detail, detail);
            }
        }
        world
            .put(World::start("blue", &name, 1000))
            .expect("another tenant does not notice");
    }
    assert_eq!(stored.len(), 16);
    assert_eq!(
        world.keys("red", ""),
        stored,
        "what was answered with success is there"
    );
    let used = world
        .state
        .tenant(&tenant("red"))
        .expect("known")
        .used_bytes();
    assert_eq!(used, 16 * MIB);
    // One goes, exactly one comes.
    assert_eq!(
        world.answer(World::remove("red", &stored[0])),
        Ok(Reply::Done)
    );
    world
        .put(World::start("red", "new", MIB))
        .expect("room for one");
    assert_eq!(
        world.reason(World::start("red", "more", 1)),
        Reason::QuotaBytes
    );
}

/// A tenant that may evict its own: what is answered with success is stored and charged, the limit
/// holds to the byte, and the coldest of its own make room. With a limit that is the watermark, or
/// the other way round, nothing is refused for ever, and other tenants do not notice.
#[test]
fn b38_over_quota_the_own_coldest_go_and_results_say_what_is_stored() {
    const MIB: u64 = 1024 * 1024;
    for (limit_mib, high) in [(16, 900), (16, 1000), (15, 1000), (14, 875)] {
        let settings = Settings {
            high_watermark: high,
            low_watermark: high - 100,
            ..Settings::default()
        };
        let mut world = World::with_settings(settings, 7, 2, 24);
        world.settle();
        world.set_tenant("blue", TenantPolicy::default());
        let limit = TenantPolicy {
            limit_bytes: Some(limit_mib * MIB),
            ..TenantPolicy::default()
        };
        world.set_tenant("red", limit);
        for number in 0..32 {
            let name = format!("k{number:02}");
            world
                .put(World::start("red", &name, MIB))
                .expect("its own make room");
            world.put(World::start("blue", &name, 1000)).expect("room");
            let red = world.state.tenant(&tenant("red")).expect("known");
            assert!(red.used_bytes() <= limit_mib * MIB);
            assert_eq!(red.used_bytes(), red.objects().len() as u64 * MIB);
            assert!(
                world.exists("red", &name),
                "what was answered with success is there"
            );
        }
        assert!(world.evicted.iter().all(|(of, ..)| *of == tenant("red")));
        let left = world.keys("red", "").len();
        assert_eq!(left + world.evicted.len(), 32, "each went or is there");
        assert!(
            left as u64 >= limit_mib * 6 / 10,
            "not more than it takes: {left}"
        );
        assert_eq!(world.keys("blue", "").len(), 32);
        let before = world.evicted.len();
        let large = World::start("red", "large", 17 * MIB);
        assert_eq!(world.reason(large), Reason::QuotaBytes);
        assert_eq!(
            world.evicted.len(),
            before,
            "nothing makes room for what never fits"
        );
        let wide = replicated(World::start("red", "wide", 2 * MIB), 2);
        world.put(wide).expect("room for two replicas");
        assert!(world.evicted.len() > before);
    }
}

fn replicated(mut start: Request, count: u8) -> Request {
    if let Request::PutStart { replicas, .. } = &mut start {
        *replicas = count;
    }
    start
}

/// No call of one tenant reaches another's keys, and what a lost node held is charged no more.
#[test]
fn b40_tenants_are_isolated_and_books_follow_the_nodes() {
    let mut world = World::ready(2, 8, &["red", "blue"]);
    for number in 0..9 {
        let name = format!("k{number}");
        world.put(World::start("red", &name, 70_000)).expect("room");
        world
            .put(World::start("blue", &name, 70_000))
            .expect("room");
    }
    assert_eq!(world.keys("red", "").len(), 9);
    assert_eq!(world.answer(World::remove("red", "k0")), Ok(Reply::Done));
    assert_eq!(world.reason(World::get("red", "k0")), Reason::NotFound);
    assert!(
        world.exists("blue", "k0"),
        "the other tenant's key of that name stays"
    );

    let of = |world: &World, name: &str| world.state.tenant(&tenant(name)).expect("known").clone();
    let before = of(&world, "blue").used_bytes();
    assert_eq!(
        world.answer(Request::TenantDelete {
            tenant: tenant("red")
        }),
        Ok(Reply::Done)
    );
    world.turns(8);
    assert!(
        world.state.tenant(&tenant("red")).is_none(),
        "purged and forgotten"
    );
    assert_eq!(world.keys("blue", "").len(), 9);
    assert_eq!(of(&world, "blue").used_bytes(), before);

    let object = world.state.object(&tenant("blue"), &key("k1"));
    let holder = object.and_then(|object| object.extents().next());
    let holder = holder.expect("it is there").slab.agent;
    let mut agents = world.agents.iter();
    let lost = agents.position(|agent| agent.id == Some(holder));
    world.disconnect(lost.expect("mounted"), true);
    world.pass(12_000);
    world.settle();
    let readable = world.keys("blue", "").len();
    assert!(readable < 9, "gone at once");
    world.turns(1);
    let blue = of(&world, "blue");
    let left = blue.objects().len() as u64;
    assert_eq!(blue.used_bytes(), left * 73_728);
    assert_eq!(world.state.objects(), left);
    assert_eq!(world.keys("blue", "").len() as u64, left);
    assert_eq!(world.state.capacity_bytes(), 8 * SLAB);
}

/// Gauges come back to where they were, whatever is mounted, unmounted twice or freed late.
#[test]
fn b59_gauges_return_to_zero_and_never_wrap() {
    let mut world = World::ready(1, 4, &["red"]);
    for _ in 0..100 {
        world.put(World::start("red", "k", 70_000)).expect("room");
        let waiting = world.ask(World::start("red", "pending", 70_000));
        assert_eq!(world.state.capacity_bytes(), 4 * SLAB);
        let agent = world.agents[0].id.expect("mounted");
        let [one, two] = [Request::Unmount { agent }, Request::Unmount { agent }];
        world.ask(one);
        world.ask(two);
        world.agents[0].restart();
        while world.commit() {}
        assert_eq!(world.state.capacity_bytes(), 0);
        world.pass(100);
        while world.commit() {}
        assert_eq!((world.state.used_bytes(), world.state.objects()), (0, 0));
        assert_eq!(world.state.releasing_bytes(), 0);
        assert_eq!(world.state.lost_segments().count(), 0);
        assert_eq!(world.leader.reserved_bytes(), 0);
        assert_eq!(
            (world.leader.pending_puts(), world.leader.discarded_puts()),
            (0, 0)
        );
        world.settle();
        assert!(world.taken(waiting).is_some());
        assert_eq!(world.state.agents().count(), 1);
        assert_eq!(world.state.segments().count(), 1);
    }
}
