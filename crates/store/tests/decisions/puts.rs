//! Puts: their arguments, their ends, their revocation, and what happens at a fail-over.

use larder_store::{Reply, Request, Written};
use larder_types::{Digest, Reason, SessionId};

use crate::world::{SESSION, SLAB, World, digest_of, end, key, tenant};

fn copies(mut start: Request, count: u8) -> Request {
    if let Request::PutStart { replicas, .. } = &mut start {
        *replicas = count;
    }
    start
}

fn revoke(session: SessionId, name: &str, text: &str, version: larder_types::Version) -> Request {
    Request::PutRevoke {
        session,
        tenant: tenant(name),
        key: key(text),
        version,
    }
}

#[test]
fn arguments_are_checked_before_anything_is_reserved() {
    let mut world = World::ready(2, 4, &["red"]);
    let start = |size| World::start("red", "k", size);
    for (request, reason) in [
        (start(0), Reason::EmptyValue),
        (copies(start(1), 0), Reason::BadReplicaCount),
        (copies(start(1), 4), Reason::BadReplicaCount),
        (copies(start(1), 3), Reason::TooFewAgents),
        (start(4 * SLAB + 1), Reason::TooLarge),
        (start(u64::MAX), Reason::TooLarge),
        (copies(start(u64::MAX / 2), 3), Reason::TooLarge),
        (World::start("blue", "k", 1), Reason::TenantUnknown),
    ] {
        assert_eq!(world.reason(request.clone()), reason, "{request:?}");
    }
    assert_eq!(world.leader.reserved_bytes(), 0);
    let mut empty = World::new(1, 0, 4);
    empty.set_tenant("red", larder_store::TenantPolicy::default());
    assert_eq!(empty.reason(start(1)), Reason::NoAgents);
}

#[test]
fn an_end_needs_the_receipts_of_exactly_its_extents() {
    let mut world = World::ready(2, 4, &["red"]);
    let (version, replicas) = world.granted(copies(World::start("red", "k", 1000), 2));
    let digest = digest_of(version);
    let [one, two] = [replicas[0][0], replicas[1][0]];
    let mut elsewhere = two;
    elsewhere.offset_bytes += 256;
    let receipt = |extent| Written { extent, digest };
    let ends = |written| Request::PutEnd {
        session: SESSION,
        tenant: tenant("red"),
        key: key("k"),
        version,
        written,
    };
    for written in [
        vec![],
        vec![receipt(one)],
        vec![receipt(one), receipt(one)],
        vec![receipt(one), receipt(elsewhere)],
        vec![
            receipt(one),
            Written {
                extent: two,
                digest: Digest(digest.0 ^ 1),
            },
        ],
        vec![receipt(one), receipt(two), receipt(two)],
    ] {
        assert_eq!(
            world.reason(ends(written.clone())),
            Reason::BadReceipt,
            "{written:?}"
        );
    }
    let mut good = ends(vec![receipt(two), receipt(one)]);
    if let Request::PutEnd { session, .. } = &mut good {
        *session = SessionId(9);
    }
    assert_eq!(
        world.reason(good.clone()),
        Reason::StaleOwner,
        "of another session"
    );
    if let Request::PutEnd { session, .. } = &mut good {
        *session = SESSION;
    }
    assert_eq!(world.answer(good), Ok(Reply::Done), "in any order");
    let located = world.answer(World::get("red", "k"));
    let size_bytes = 1000;
    assert_eq!(
        located,
        Ok(Reply::Located {
            version,
            size_bytes,
            digest,
            replicas,
            lease_ms: 10_000,
        })
    );
}

#[test]
fn a_pending_put_is_not_readable_and_not_removable() {
    let mut world = World::ready(1, 4, &["red"]);
    world.granted(World::start("red", "k", 1000));
    assert_eq!(world.reason(World::get("red", "k")), Reason::NotReady);
    assert_eq!(world.reason(World::remove("red", "k")), Reason::NotReady);
    assert!(!world.exists("red", "k"));
    assert!(world.keys("red", "").is_empty());
}

#[test]
fn a_revocation_answers_when_the_agents_have_erased() {
    let mut world = World::ready(1, 4, &["red"]);
    let (version, replicas) = world.granted(World::start("red", "k", 1000));
    assert!(world.write(&tenant("red"), version, &replicas));
    assert_eq!(
        world.reason(revoke(SessionId(9), "red", "k", version)),
        Reason::StaleOwner
    );
    let ticket = world.ask(revoke(SESSION, "red", "k", version));
    while world.acknowledge() || world.commit() {}
    assert_eq!(world.taken(ticket), None, "the agent has not answered yet");
    assert_eq!(
        (world.leader.pending_puts(), world.leader.discarded_puts()),
        (0, 1)
    );
    assert_eq!(world.leader.reserved_bytes(), 0, "the charge fell at once");
    world.settle();
    assert_eq!(world.taken(ticket), Some(Ok(Reply::Done)));
    assert!(!world.agents[0].reads(&replicas[0][0], version));
    assert_eq!(
        world.answer(revoke(SESSION, "red", "k", version)),
        Ok(Reply::Done),
        "again"
    );
    let (version, _) = world
        .put(World::start("red", "k", 1000))
        .expect("the key is free");
    assert_eq!(
        world.reason(revoke(SESSION, "red", "k", version)),
        Reason::NotWriting
    );
}

#[test]
fn a_revocation_does_not_wait_for_an_agent_that_is_lost() {
    let mut world = World::ready(1, 4, &["red"]);
    let (version, _) = world.granted(World::start("red", "k", 1000));
    world.disconnect(0, true);
    let ticket = world.ask(revoke(SESSION, "red", "k", version));
    world.settle();
    assert_eq!(world.taken(ticket), Some(Ok(Reply::Done)));
    assert_eq!(world.state.capacity_bytes(), 0);
}

#[test]
fn a_second_op_on_a_key_waits_for_the_first() {
    let mut world = World::ready(1, 4, &["red"]);
    world.put(World::start("red", "k", 1000)).expect("room");
    let remove = world.ask(World::remove("red", "k"));
    let again = world.ask(World::remove("red", "k"));
    let start = world.ask(World::start("red", "k", 2000));
    assert_eq!(world.parked(), 2);
    // A read sees what is committed.
    let read = world.ask(Request::Exists {
        tenant: tenant("red"),
        key: key("k"),
        lease: false,
    });
    assert!(world.acknowledge());
    assert_eq!(world.taken(read), Some(Ok(Reply::Exists(true))));
    world.settle();
    assert_eq!(world.taken(remove), Some(Ok(Reply::Done)));
    assert!(matches!(world.taken(again), Some(Err(r)) if r.reason == Reason::NotFound));
    assert!(matches!(
        world.taken(start),
        Some(Ok(Reply::PutGranted { .. }))
    ));
}

#[test]
fn a_put_of_a_former_epoch_ends_only_if_it_was_complete() {
    let mut world = World::ready(2, 4, &["red"]);
    let (done, done_at) = world.put(World::start("red", "done", 1000)).expect("room");
    let (lost, lost_at) = world.granted(World::start("red", "lost", 1000));
    let (kept, kept_at) = world.granted(World::start("red", "kept", 1000));
    for (version, replicas) in [(lost, &lost_at), (kept, &kept_at)] {
        assert!(world.write(&tenant("red"), version, replicas));
    }
    let ends = |text: &str, version, at: &[_]| end(SESSION, tenant("red"), key(text), version, at);
    // The leader goes while this end is in the log, and before the other one is asked.
    let unanswered = world.ask(ends("kept", kept, &kept_at));
    world.fail_over(1);
    assert!(matches!(world.taken(unanswered), Some(Err(r)) if r.reason == Reason::NotLeader));
    assert_eq!(
        world.reason(World::start("red", "k", 1)),
        Reason::Starting,
        "none has mounted yet, but two will"
    );
    world.settle();
    assert_eq!(
        world.answer(ends("done", done, &done_at)),
        Ok(Reply::AlreadyComplete)
    );
    assert_eq!(
        world.answer(ends("kept", kept, &kept_at)),
        Ok(Reply::AlreadyComplete)
    );
    assert_eq!(
        world.reason(ends("lost", lost, &lost_at)),
        Reason::StaleEpoch
    );
    assert!(
        !world.write(&tenant("red"), lost, &lost_at),
        "its agent is of the new epoch"
    );
    let (new, _) = world
        .put(World::start("red", "lost", 1000))
        .expect("the key is free");
    assert!(new > lost);
}

#[test]
fn what_is_pending_is_bounded() {
    let settings = larder_store::Settings {
        max_pending_puts: 3,
        ..Default::default()
    };
    let mut world = World::with_settings(settings, 1, 1, 4);
    world.settle();
    world.set_tenant("red", larder_store::TenantPolicy::default());
    for number in 0..3 {
        world.granted(World::start("red", &format!("k{number}"), 1000));
    }
    assert_eq!(
        world.reason(World::start("red", "more", 1000)),
        Reason::Overloaded
    );
    // Discarded ones count until their agent has erased them.
    world.ask(Request::SessionClosed { session: SESSION });
    let more = world.ask(World::start("red", "more", 1000));
    assert!(matches!(world.taken(more), Some(Err(r)) if r.reason == Reason::Overloaded));
    world.settle();
    world.granted(World::start("red", "more", 1000));
}

#[test]
fn what_is_in_flight_is_bounded() {
    let settings = larder_store::Settings {
        max_in_flight_ops: 2,
        ..Default::default()
    };
    let mut world = World::with_settings(settings, 1, 1, 4);
    world.settle();
    world.set_tenant("red", larder_store::TenantPolicy::default());
    let names: Vec<String> = (0..3).map(|number| format!("k{number}")).collect();
    for name in &names {
        world.put(World::start("red", name, 1000)).expect("room");
    }
    let tickets: Vec<u64> = names
        .iter()
        .map(|name| world.ask(World::remove("red", name)))
        .collect();
    assert_eq!(world.leader.in_flight_ops(), 2);
    assert!(matches!(world.taken(tickets[2]), Some(Err(r)) if r.reason == Reason::Overloaded));
    world.settle();
    assert_eq!(
        world.answer(World::remove("red", &names[2])),
        Ok(Reply::Done)
    );
}

#[test]
fn fewer_replicas_than_wanted_are_a_success_unless_the_put_is_strict() {
    let lenient = |mut start: Request| {
        if let Request::PutStart { strict, .. } = &mut start {
            *strict = false;
        }
        start
    };
    let mut world = World::ready(2, 2, &["red"]);
    let ask = |text: &str, size| copies(World::start("red", text, size), 3);
    assert_eq!(world.reason(ask("k", 1_000)), Reason::TooFewAgents);
    match world.answer(lenient(ask("k", 1_000))) {
        Ok(Reply::PutGranted {
            replicas, wanted, ..
        }) => assert_eq!((replicas.len(), wanted), (2, 3)),
        other => panic!("not granted: {other:?}"),
    }
    let (version, _) = world.put(lenient(ask("l", 1_000))).expect("room");
    let stat = world.stat("red", "l");
    assert_eq!(
        (stat.version, stat.agents.len(), stat.wanted),
        (version, 2, 3)
    );
    // One agent is full: the other one has to do.
    let near = world.agents[0].id.expect("mounted");
    let mut fill = World::start("red", "fill", SLAB);
    if let Request::PutStart { preferred, .. } = &mut fill {
        preferred.push(near);
    }
    world.put(fill).expect("room");
    let two = |text: &str| copies(World::start("red", text, SLAB), 2);
    assert_eq!(world.reason(two("m")), Reason::NoSpace);
    world.put(lenient(two("m"))).expect("room on one");
    assert_eq!(world.stat("red", "m").agents.len(), 1);
    assert_eq!(
        world.reason(lenient(two("n"))),
        Reason::NoSpace,
        "room on none"
    );
    assert_eq!(
        world.reason(lenient(copies(World::start("red", "o", 2 * SLAB + 1), 2))),
        Reason::TooLarge
    );
}

#[test]
fn preferred_agents_are_taken_in_order_and_an_ignored_one_is_reported() {
    let mut world = World::ready(3, 2, &["red"]);
    let ids: Vec<_> = world
        .agents
        .iter()
        .map(|agent| agent.id.expect("mounted"))
        .collect();
    let unknown = larder_types::AgentId(0);
    for (count, wish, taken, ignored) in [
        (1, vec![ids[2]], Some(vec![ids[2]]), false),
        (2, vec![ids[1], ids[0]], Some(vec![ids[1], ids[0]]), false),
        (1, vec![ids[1], ids[0]], Some(vec![ids[1]]), false),
        (2, vec![unknown, ids[0]], None, true),
        (1, vec![], None, false),
    ] {
        let mut start = copies(
            World::start("red", &format!("k{count}{wish:?}"), 1_000),
            count,
        );
        if let Request::PutStart { preferred, .. } = &mut start {
            preferred.clone_from(&wish);
        }
        match world.answer(start) {
            Ok(Reply::PutGranted {
                replicas,
                preference_ignored,
                ..
            }) => {
                let agents: Vec<_> = replicas.iter().map(|r| r[0].slab.agent).collect();
                assert!(
                    taken.is_none_or(|taken| taken == agents),
                    "{wish:?}: {agents:?}"
                );
                assert_eq!(preference_ignored, ignored, "{wish:?}");
            }
            other => panic!("not granted: {other:?}"),
        }
    }
}
