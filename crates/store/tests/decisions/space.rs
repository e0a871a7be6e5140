//! Space: where replicas go, slabs that come and go, and what a full pool answers.

use std::collections::BTreeSet;

use larder_store::{Reply, Request, SlabPhase, TenantPolicy};
use larder_types::{AgentId, Reason, Registration};

use crate::world::{SLAB, World, key, tenant};

fn near(mut start: Request, agent: AgentId) -> Request {
    if let Request::PutStart { preferred, .. } = &mut start {
        *preferred = vec![agent];
    }
    start
}

fn registrations(world: &World) -> BTreeSet<Registration> {
    let slabs = world
        .state
        .segments()
        .flat_map(|segment| segment.slabs().values());
    slabs.map(|slab| slab.registration()).collect()
}

#[test]
fn replicas_lie_on_different_agents() {
    let mut world = World::ready(3, 4, &["red"]);
    for number in 0..6 {
        let mut start = World::start("red", &format!("k{number}"), 300_000);
        if let Request::PutStart { replicas, .. } = &mut start {
            *replicas = 3;
        }
        let (_, replicas) = world.put(start).expect("room");
        let agents: BTreeSet<AgentId> = replicas.iter().flatten().map(|e| e.slab.agent).collect();
        assert_eq!(agents.len(), 3);
    }
}

#[test]
fn the_preferred_agent_is_taken_while_it_has_room() {
    let mut world = World::ready(2, 1, &["red"]);
    let second = world.agents[1].id.expect("mounted");
    let put = |world: &mut World, name: &str| {
        let (_, replicas) = world
            .put(near(World::start("red", name, SLAB / 2), second))
            .expect("room");
        replicas[0][0].slab.agent
    };
    assert_eq!(
        [put(&mut world, "a"), put(&mut world, "b")],
        [second, second]
    );
    assert_ne!(put(&mut world, "c"), second, "it is full");
}

#[test]
fn a_large_tenant_is_spread_and_a_small_one_is_not() {
    let mut world = World::ready(4, 8, &["red", "blue"]);
    let mut agents = BTreeSet::new();
    for number in 0..8 {
        let (_, at) = world
            .put(World::start("red", &format!("k{number}"), 1000))
            .expect("room");
        agents.insert(at[0][0].slab.agent);
    }
    assert_eq!(agents.len(), 1, "a few bytes take one slab");
    for number in 0..16 {
        let (_, at) = world
            .put(World::start("blue", &format!("k{number}"), SLAB))
            .expect("room");
        agents.insert(at[0][0].slab.agent);
    }
    assert_eq!(agents.len(), 4);
}

#[test]
fn a_full_pool_refuses_with_the_figures() {
    let mut world = World::ready(1, 2, &["red"]);
    for name in ["a", "b"] {
        world
            .put(World::start("red", name, SLAB / 4 * 3))
            .expect("room");
    }
    let refusal = world.refusal(World::start("red", "c", SLAB / 4 * 3));
    assert_eq!(refusal.reason, Reason::NoSpace);
    assert!(
        refusal.detail.contains("asked 1572864"),
        "{}",
        refusal.detail
    );
    // Enough is free, but the answer has no room for the two holes in which it is.
    let mut start = World::start("red", "c", SLAB / 2);
    if let Request::PutStart { extents_max, .. } = &mut start {
        *extents_max = 1;
    }
    let refusal = world.refusal(start);
    assert_eq!(refusal.reason, Reason::Fragmented);
    assert!(
        refusal.detail.contains("1048576 bytes free"),
        "{}",
        refusal.detail
    );
    world
        .put(World::start("red", "c", SLAB / 4))
        .expect("a hole of that size");
}

#[test]
fn a_put_waits_for_what_is_being_released() {
    let mut world = World::ready(1, 1, &["red"]);
    world.put(World::start("red", "a", SLAB)).expect("room");
    assert_eq!(
        world.reason(World::start("red", "b", SLAB)),
        Reason::NoSpace
    );
    world.ask(World::remove("red", "a"));
    assert!(world.commit());
    assert_eq!(world.state.releasing_bytes(), SLAB);
    let waiting = world.ask(World::start("red", "b", SLAB));
    assert_eq!(world.parked(), 1);
    world.quiesce();
    assert!(matches!(
        world.taken(waiting),
        Some(Ok(Reply::PutGranted { .. }))
    ));
}

#[test]
fn an_empty_slab_goes_to_another_tenant_under_another_registration() {
    let mut world = World::ready(1, 1, &["red", "blue"]);
    world.put(World::start("red", "a", 1000)).expect("room");
    let before = registrations(&world);
    assert_eq!(
        world.reason(World::start("blue", "b", 1000)),
        Reason::NoSpace,
        "it is in use"
    );
    assert_eq!(world.answer(World::remove("red", "a")), Ok(Reply::Done));
    world
        .put(World::start("blue", "b", 1000))
        .expect("the empty slab is taken");
    let after = registrations(&world);
    assert_eq!((before.len(), after.len()), (1, 1));
    assert!(after.first() > before.first());
}

#[test]
fn a_slab_that_was_not_used_yet_is_not_taken_for_another_tenant() {
    let mut world = World::ready(1, 1, &["red", "blue"]);
    world.ask(World::start("red", "a", 1000));
    world.drop_parked();
    world.quiesce();
    assert_eq!(
        registrations(&world).len(),
        1,
        "made, and nobody waits for it any more"
    );
    assert_eq!(
        world.leader_refuses(World::start("blue", "b", 1000)),
        Reason::NoSpace
    );
    world.pass(11_000);
    world
        .put(World::start("blue", "b", 1000))
        .expect("it went back");
}

#[test]
fn an_empty_slab_goes_back_when_it_is_idle() {
    let mut world = World::ready(1, 2, &["red"]);
    world.put(World::start("red", "a", 1000)).expect("room");
    assert_eq!(world.answer(World::remove("red", "a")), Ok(Reply::Done));
    world.pass(9_000);
    world.settle();
    assert_eq!(registrations(&world).len(), 1, "not yet");
    world.pass(2_000);
    world.settle();
    assert!(registrations(&world).is_empty());
    let (_, at) = world.put(World::start("red", "a", 1000)).expect("room");
    assert!(world.exists("red", "a"));
    world.pass(20_000);
    world.settle();
    assert!(
        world
            .state
            .slab(at[0][0].slab)
            .is_some_and(|s| s.phase() == SlabPhase::Ready)
    );
}

#[test]
fn one_slab_is_given_for_many_that_wait() {
    let mut world = World::ready(1, 4, &["red"]);
    let tickets: Vec<u64> = (0..50)
        .map(|n| world.ask(World::start("red", &format!("k{n}"), 20_000)))
        .collect();
    assert_eq!((world.leader.in_flight_ops(), world.parked()), (1, 50));
    world.settle();
    for ticket in tickets {
        assert!(matches!(
            world.taken(ticket),
            Some(Ok(Reply::PutGranted { .. }))
        ));
    }
    assert_eq!(registrations(&world).len(), 1);
}

#[test]
fn an_agent_that_cannot_make_a_slab_is_left_alone_for_a_while() {
    let mut world = World::ready(1, 4, &["red"]);
    let ticket = world.ask(World::start("red", "a", 1000));
    assert!(world.commit());
    world.agents[0].obey(true);
    world.settle();
    let refusal = world.taken(ticket).expect("answered").expect_err("no slab");
    assert_eq!(refusal.reason, Reason::NoSpace);
    assert!(
        refusal.detail.contains("1 segments failed to give a slab"),
        "{}",
        refusal.detail
    );
    world.pass(11_000);
    world
        .put(World::start("red", "a", 1000))
        .expect("asked again");
}

#[test]
fn usage_tells_what_is_charged_and_held() {
    let mut world = World::ready(2, 4, &[]);
    let policy = TenantPolicy {
        limit_objects: Some(2),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy.clone());
    world.put(World::start("red", "a", 1000)).expect("room");
    world.granted(World::start("red", "b", 65_537));
    let usage = world.answer(Request::Usage {
        tenant: tenant("red"),
    });
    let Ok(Reply::Usage(usage)) = usage else {
        panic!("no usage: {usage:?}")
    };
    assert_eq!(
        (usage.used_bytes, usage.used_objects),
        (16_384, 1),
        "a record is charged as 16 KiB, however small"
    );
    assert_eq!((usage.reserved_bytes, usage.reserved_objects), (69_632, 1));
    assert_eq!((usage.slab_bytes, usage.policy), (SLAB, policy));
    assert_eq!(usage.quota.room_bytes(), Some(0), "two objects are there");
    let refusal = world.refusal(World::start("red", "c", 1));
    assert_eq!(refusal.reason, Reason::QuotaObjects);
    assert_eq!(refusal.detail, "limit 2, used 1, reserved 1, asked 1");
    let gone = Request::Remove {
        tenant: tenant("red"),
        key: key("a"),
        if_unleased: true,
    };
    assert_eq!(world.answer(gone), Ok(Reply::Done));
    world.granted(World::start("red", "c", 1));
}
