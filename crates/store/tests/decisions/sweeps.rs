//! A lost segment: its replicas are gone for readers at once, and from the books in steps.

use larder_store::{Reply, Request, Settings, TenantPolicy, check};
use larder_types::{AgentId, Reason};

use crate::world::{SLAB, World, tenant};

const OBJECTS: u64 = 10;

fn replicated(text: &str, count: u8, first: Option<AgentId>) -> Request {
    let mut start = World::start("red", text, 1000);
    if let Request::PutStart {
        replicas,
        preferred,
        ..
    } = &mut start
    {
        *replicas = count;
        preferred.extend(first);
    }
    start
}

/// Three objects are swept a turn.
fn world(agents: u32) -> World {
    let settings = Settings {
        max_touched_objects: 6,
        ..Settings::default()
    };
    let mut world = World::with_settings(settings, 3, agents, 4);
    world.settle();
    world.set_tenant("red", TenantPolicy::default());
    world
}

/// Ten objects on the first agent alone, and one that is on both.
fn filled() -> World {
    let mut world = world(2);
    let first = world.agents[0].id;
    for n in 0..OBJECTS {
        let start = replicated(&format!("one{n}"), 1, first);
        world.put(start).expect("room");
    }
    world.put(replicated("two", 2, first)).expect("room");
    let (_, at) = world.put(replicated("gone", 1, first)).expect("room");
    assert_eq!(Some(at[0][0].slab.agent), first);
    world
}

/// The first agent's process starts again; everything is committed, and no time passes.
fn restart(world: &mut World) {
    world.disconnect(0, true);
    world.agents[0].restart();
    world.quiesce();
}

fn charged(world: &World) -> (u64, u64) {
    (world.state.used_bytes(), world.state.objects())
}

#[test]
fn readers_see_the_loss_at_once_and_the_books_follow_in_steps() {
    let mut world = filled();
    restart(&mut world);
    assert_eq!(world.keys("red", ""), ["two"]);
    assert_eq!(world.reason(World::get("red", "one3")), Reason::NotFound);
    assert_eq!(world.reason(World::remove("red", "one3")), Reason::NotFound);
    assert!(!world.exists("red", "one3"));
    let Ok(Reply::Located { replicas, .. }) = world.answer(World::get("red", "two")) else {
        panic!("one replica is left")
    };
    assert_eq!(replicas.len(), 1);
    assert_eq!(world.state.capacity_bytes(), 8 * SLAB, "mounted again");
    assert_eq!(charged(&world), (13 * 16_384, 12), "swept by nobody yet");

    // Two objects with one replica each, and the replica of the third.
    let mut left = Vec::new();
    for _ in 0..5 {
        world.pass(100);
        world.quiesce();
        assert_eq!(check(&world.state), []);
        left.push(world.state.objects());
    }
    assert_eq!(left, [9, 6, 3, 1, 1]);
    world.turns(2);
    // The agent that returned gets its replica of the third again.
    assert_eq!(charged(&world), (2 * 16_384, 1));
    assert_eq!(
        (world.objects_lost, world.state.lost_segments().count()),
        (11, 0)
    );
}

#[test]
fn a_lost_key_is_put_again_before_it_is_swept() {
    let mut world = filled();
    restart(&mut world);
    let (new, _) = world.put(World::start("red", "one7", 5000)).expect("room");
    assert_eq!(
        world.state.lost_segments().count(),
        1,
        "nothing is swept yet"
    );
    assert_eq!(charged(&world), (13 * 16_384, 12));
    world.turns(8);
    assert_eq!(world.keys("red", ""), ["one7", "two"]);
    let Ok(Reply::Located { version, .. }) = world.answer(World::get("red", "one7")) else {
        panic!("it is there")
    };
    assert_eq!(version, new);
    assert_eq!((world.objects_lost, charged(&world)), (11, (3 * 16_384, 2)));
}

#[test]
fn the_next_leader_goes_on_with_a_sweep() {
    let mut world = filled();
    restart(&mut world);
    world.pass(100);
    world.quiesce();
    assert_eq!(world.state.objects(), 9);
    world.fail_over(0);
    world.settle();
    assert_eq!(world.keys("red", ""), ["two"]);
    world.turns(8);
    assert_eq!((charged(&world), world.objects_lost), ((2 * 16_384, 1), 11));
}

#[test]
fn what_was_being_released_on_a_lost_segment_is_swept_too() {
    let mut world = filled();
    world.disconnect(0, true);
    assert_eq!(world.answer(World::remove("red", "gone")), Ok(Reply::Done));
    assert_eq!(world.answer(World::remove("red", "two")), Ok(Reply::Done));
    world.agents[0].restart();
    world.quiesce();
    assert_eq!(
        world.state.releasing_bytes(),
        2048,
        "the other agent's came back"
    );
    world.turns(8);
    assert_eq!(world.state.releasing_bytes(), 0);
    assert_eq!(charged(&world), (0, 0));
    assert_eq!(
        world
            .state
            .tenant(&tenant("red"))
            .expect("known")
            .slab_count(),
        1
    );
}

#[test]
fn a_tenant_goes_only_when_its_lost_slabs_are_swept() {
    let mut world = filled();
    restart(&mut world);
    let delete = Request::TenantDelete {
        tenant: tenant("red"),
    };
    assert_eq!(world.answer(delete), Ok(Reply::Done));
    for _ in 0..40 {
        world.turns(1);
        if world.state.tenant(&tenant("red")).is_none() {
            break;
        }
    }
    assert!(world.state.tenant(&tenant("red")).is_none());
    assert_eq!(
        (charged(&world), world.state.lost_segments().count()),
        ((0, 0), 0)
    );
}
