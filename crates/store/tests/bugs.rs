//! Faults that users of such systems reported, each as a test named by its id.

mod quotas;

use larder_store::{Command, Discard, Reply, Request, TaskWish, Tenant};
use larder_types::{AgentId, CopyId, Pin, Reason, SessionId};

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

/// Nor does anything else that is said more than once: an object that was pinned three times,
/// copied by an agent that repeats itself and ended again goes like any other after one unpin.
#[test]
fn b08_what_was_said_often_is_evicted_like_the_rest() {
    let mut world = World::evicting(2, 4, &["red"]);
    let (version, replicas) = world.put(World::start("red", "k", 100_000)).expect("room");
    let again = end(SESSION, tenant("red"), key("k"), version, &replicas);
    let target = AgentId(3 - replicas[0][0].slab.agent.0);
    let created = world.answer(Request::TaskCreate {
        tenant: tenant("red"),
        key: key("k"),
        wish: TaskWish::Copy {
            targets: vec![target],
        },
    });
    assert!(matches!(created, Ok(Reply::TaskCreated(_))), "{created:?}");
    let order = loop {
        let agent = world.agent_mut(target).expect("mounted");
        let order = agent.inbox.iter().find_map(|command| match command {
            Command::Copy(order) => Some(order.clone()),
            _ => None,
        });
        match order {
            Some(order) => break order,
            None => {
                world.settle();
                world.pass(100);
            }
        }
    };
    world.turns(10);
    for copy in [order.copy, order.copy, CopyId(version)] {
        // Its agent says it again, and of a copy that never was.
        world.ask(Request::Copied {
            agent: target,
            copy,
            digest: order.digest,
        });
    }
    world.settle();
    let object = world.state.object(&tenant("red"), &key("k"));
    let copies = object.map(|object| object.replicas().len());
    assert_eq!(copies, Some(2), "added once");
    for _ in 0..3 {
        assert_eq!(world.answer(again.clone()), Ok(Reply::AlreadyComplete));
        let pin = World::pin("red", "k", Pin::Hard);
        assert_eq!(world.answer(pin), Ok(Reply::Done));
    }
    let pinned = |world: &World| {
        let red = world.state.tenant(&tenant("red"));
        red.map(Tenant::pinned_bytes)
    };
    assert_eq!(pinned(&world), Some(2 * 102_400), "counted once");
    let unpin = World::pin("red", "k", Pin::None);
    assert_eq!(world.answer(unpin), Ok(Reply::Done));
    assert_eq!(pinned(&world), Some(0));

    // More than the pool holds.
    for number in 0..100 {
        let name = format!("other{number:03}");
        world
            .put(World::start("red", &name, SLAB / 8))
            .expect("the coldest make room");
    }
    let gone = (tenant("red"), key("k"), version);
    assert!(world.evicted.contains(&gone), "{:?}", world.evicted);
    assert!(!world.exists("red", "k"));
    world.remove_prefix("red", "", false);
    assert_eq!(
        (world.state.used_bytes(), world.state.releasing_bytes()),
        (0, 0)
    );
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
