//! What goes when space runs out, what stays, and what is counted of it.

use larder_store::{Op, Reply, Request, Settings, TenantPolicy};
use larder_types::{Attributes, GroupId, Pin, Reason};

use crate::world::{SLAB, World, tenant};

const BLOCK: u64 = SLAB / 16;

fn with(mut start: Request, pin: Pin, group: Option<&str>) -> Request {
    if let Request::PutStart { attributes, .. } = &mut start {
        *attributes = Attributes {
            pin,
            group: group.map(|name| GroupId::new(name).expect("a name")),
            ..Attributes::default()
        };
    }
    start
}

fn replicated(mut start: Request, count: u8) -> Request {
    if let Request::PutStart { replicas, .. } = &mut start {
        *replicas = count;
    }
    start
}

/// Puts so many blocks of a tenant under names that sort by number.
fn fill(world: &mut World, name: &str, from: usize, count: usize) {
    for number in from..from + count {
        let start = World::start(name, &format!("k{number:03}"), BLOCK);
        world.put(start).expect("room");
    }
}

fn used(world: &World, name: &str) -> u64 {
    world
        .state
        .tenant(&tenant(name))
        .expect("known")
        .used_bytes()
}

/// Over the high mark the coldest go until the low one; what was read stays.
#[test]
fn a_segment_over_its_mark_is_drained_to_the_low_one() {
    let mut world = World::evicting(1, 4, &["red"]);
    fill(&mut world, "red", 0, 57);
    world.turns(3);
    assert!(world.evicted.is_empty(), "57 of 64 are below nine tenths");
    for number in 0..8 {
        let get = World::get("red", &format!("k{number:03}"));
        assert!(world.answer(get).is_ok());
    }
    // Probing keeps nothing.
    for number in 8..16 {
        assert!(world.exists("red", &format!("k{number:03}")));
    }
    fill(&mut world, "red", 57, 2);
    world.turns(3);
    assert_eq!(used(&world, "red"), 51 * BLOCK, "down to eight tenths");
    let gone = world.evicted.clone();
    let gone: Vec<String> = gone.iter().map(|(_, key, _)| key.to_string()).collect();
    let oldest: Vec<String> = (8..16).map(|number| format!("k{number:03}")).collect();
    assert_eq!(gone, oldest, "the oldest that nobody read");
    world.turns(10);
    assert_eq!(world.evicted.len(), 8, "and no more");
}

/// Eviction goes on between ticks; what was guaranteed a moment ago counts there too.
#[test]
fn a_guarantee_counts_from_the_op_that_gives_it() {
    let mut world = World::evicting(1, 4, &["red"]);
    fill(&mut world, "red", 0, 59);
    let policy = TenantPolicy {
        guaranteed_bytes: 4 * SLAB,
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    let ops = world.leader.evict(&world.state, world.now);
    assert_eq!(ops, [], "nobody else holds anything to evict");
    world.set_tenant("red", TenantPolicy::default());
    assert!(!world.leader.evict(&world.state, world.now).is_empty());
}

/// A put that finds its pool full gets a hole that is long enough.
#[test]
fn a_large_put_gets_neighbours_evicted() {
    let settings = Settings {
        high_watermark: 1000,
        low_watermark: 1000,
        ..Settings::default()
    };
    let mut world = World::with_settings(settings, 7, 1, 2);
    world.settle();
    world.set_tenant("red", TenantPolicy::default());
    fill(&mut world, "red", 0, 32);
    let kept = World::get("red", "k000");
    assert!(world.answer(kept.clone()).is_ok());
    world
        .put(World::start("red", "large", 5 * BLOCK))
        .expect("room is made");
    assert!(world.evicted.len() <= 6, "{:?}", world.evicted);
    assert!(world.answer(kept).is_ok(), "what was read is warm");
    world
        .put(World::start("red", "slab", SLAB))
        .expect("a whole slab");
}

/// On a full node the one that holds most loses a slab to one that holds little, and a small one
/// loses nothing to it.
#[test]
fn whoever_holds_most_loses_a_slab() {
    let mut world = World::evicting(1, 4, &["red", "blue", "green"]);
    world.put(World::start("green", "g", BLOCK)).expect("room");
    fill(&mut world, "red", 0, 48);
    for number in 0..14 {
        let start = World::start("blue", &format!("b{number}"), BLOCK);
        world.put(start).expect("a slab of red's");
    }
    assert_eq!(used(&world, "blue"), 14 * BLOCK);
    assert!(world.exists("green", "g"));
    assert!(world.evicted.iter().all(|(of, ..)| *of == tenant("red")));
    world.turns(300);
    assert_eq!(world.parked(), 0);
}

/// A replica beyond the first goes before any object does.
#[test]
fn replicas_beyond_the_first_go_first() {
    let mut world = World::evicting(2, 2, &["red"]);
    for number in 0..16 {
        let start = World::start("red", &format!("twice{number}"), BLOCK);
        world.put(replicated(start, 2)).expect("room");
    }
    fill(&mut world, "red", 0, 27);
    world.turns(5);
    assert!(world.seen.contains_key("ReplicaDropped"));
    assert!(world.evicted.is_empty(), "{:?}", world.evicted);
    for number in 0..16 {
        let get = World::get("red", &format!("twice{number}"));
        let Ok(Reply::Located {
            replicas, version, ..
        }) = world.answer(get)
        else {
            panic!("no object is lost")
        };
        for extent in replicas.iter().flatten() {
            let agent = world.agent_mut(extent.slab.agent).expect("known");
            assert!(agent.reads(extent, version));
        }
    }
}

/// A small tenant stays where it has room, but not so long that it is evicted there while others
/// have room.
#[test]
fn a_small_tenant_leaves_a_full_segment_before_it_is_evicted() {
    for agents in [3, 8] {
        let mut world = World::evicting(agents, 1, &["red"]);
        // Half of the pool.
        let small = SLAB / 128;
        let count = u64::from(agents) * 64;
        for number in 0..count {
            let start = World::start("red", &format!("k{number:03}"), small);
            world.put(start).expect("room");
            world.turns(1);
        }
        assert_eq!(used(&world, "red"), count * small, "{agents} agents");
        assert!(world.evicted.is_empty());
    }
}

/// A group goes as one, and stays as one if a member has to.
#[test]
fn groups_go_as_one() {
    let mut world = World::evicting(1, 4, &["red"]);
    for number in 0..5 {
        for (group, pin) in [("a", Pin::None), ("b", Pin::Hard)] {
            let name = format!("{group}{number}");
            let pin = if number == 4 { pin } else { Pin::None };
            let start = with(World::start("red", &name, BLOCK), pin, Some(group));
            world.put(start).expect("room");
        }
    }
    fill(&mut world, "red", 0, 48);
    world.turns(3);
    let left = world.keys("red", "");
    assert!(left.iter().all(|key| !key.starts_with('a')), "all of it");
    let count = left.iter().filter(|key| key.starts_with('b')).count();
    assert_eq!(count, 5, "a pinned member keeps the others");
    assert_eq!(world.evicted.len(), 7, "five of the group and two more");
}

/// Hard pins stay; soft ones go when nothing else is left; the refusal says why.
#[test]
fn pins_hold_as_long_as_they_say() {
    let mut world = World::evicting(1, 2, &["red"]);
    let policy = TenantPolicy {
        limit_pinned_bytes: Some(4 * SLAB),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    for number in 0..28 {
        let pin = match number {
            0..14 => Pin::Hard,
            14..21 => Pin::Soft { ttl_ms: 1_000_000 },
            _ => Pin::None,
        };
        let start = World::start("red", &format!("k{number:03}"), BLOCK);
        world.put(with(start, pin, None)).expect("room");
    }
    let put = |world: &mut World, number: usize| {
        let start = World::start("red", &format!("p{number:03}"), BLOCK);
        world.put(with(start, Pin::Hard, None))
    };
    for number in 0..7 {
        put(&mut world, number).expect("room is made");
    }
    world.turns(3);
    let gone = world.evicted.iter().map(|(_, key, _)| key.to_string());
    let gone: Vec<String> = gone.collect();
    assert!(gone.iter().all(|key| key.as_str() >= "k014"), "{gone:?}");
    assert!(
        (21..28).all(|number| gone.contains(&format!("k{number:03}"))),
        "the unpinned first: {gone:?}"
    );
    for number in 7..18 {
        put(&mut world, number).expect("room is made");
    }
    let refusal = put(&mut world, 18).expect_err("only hard pins are left");
    assert_eq!(refusal.reason, Reason::NoSpace);
    assert!(refusal.detail.contains("are pinned"), "{refusal}");
    assert_eq!(world.leader.signals(&world.state).all.refused_puts, 1);
}

/// A new leader learns what there is in steps, and evicts then.
#[test]
fn a_new_leader_learns_what_it_may_evict() {
    let mut world = World::evicting(1, 4, &["red"]);
    fill(&mut world, "red", 0, 57);
    world.fail_over(99);
    assert!(world.leader.learns_objects());
    world.settle();
    world.turns(2);
    assert!(!world.leader.learns_objects());
    fill(&mut world, "red", 57, 2);
    world.turns(3);
    assert_eq!(used(&world, "red"), 51 * BLOCK);
}

/// What lay on a lost segment is forgotten in steps; what has another replica is known as such.
#[test]
fn a_lost_segment_leaves_no_trace() {
    let mut world = World::evicting(2, 2, &["red"]);
    for number in 0..8 {
        let start = World::start("red", &format!("twice{number}"), BLOCK);
        world.put(replicated(start, 2)).expect("room");
    }
    fill(&mut world, "red", 0, 8);
    world.disconnect(0, true);
    world.pass(12_000);
    world.quiesce();
    world.turns(5);
    assert_eq!(world.leader.check(&world.state), []);
    assert_eq!(world.state.segments().count(), 1);
    let on_one = world.state.objects();
    fill(&mut world, "red", 100, 20);
    world.turns(5);
    assert!(!world.seen.contains_key("ReplicaDropped"));
    assert!(
        world.state.objects() < on_one + 20,
        "objects go, as none has a second replica"
    );
}

/// Hits, misses, ghosts and ages are counted per tenant, and go with it.
#[test]
fn signals_say_whether_a_larger_pool_would_hit() {
    let mut world = World::evicting(1, 4, &["red", "blue"]);
    fill(&mut world, "red", 0, 20);
    world.pass(60_000);
    fill(&mut world, "red", 20, 40);
    world.turns(3);
    let gone = world.evicted.len() as u64;
    assert!(gone > 0);
    assert!(world.answer(World::get("red", "k050")).is_ok());
    assert_eq!(world.reason(World::get("red", "k000")), Reason::NotFound);
    assert!(!world.exists("red", "never"));
    world.pass(6_000);
    let signals = world.leader.signals(&world.state);
    assert_eq!(signals.tenants.len(), 2);
    let (_, red) = &signals.tenants[1];
    assert_eq!((red.hits, red.misses, red.ghost_hits), (1, 2, 1));
    let ratio = red.hit_ratios[2].expect("some");
    assert!((ratio - 1.0 / 3.0).abs() < 0.01);
    assert_eq!(red.evicted.iter().map(|one| one.objects).sum::<u64>(), gone);
    assert_eq!(
        red.evicted.iter().map(|one| one.bytes).sum::<u64>(),
        gone * BLOCK
    );
    let age_ms = red.eviction_age_p50_ms.expect("some");
    assert!((56_000..80_000).contains(&age_ms), "{age_ms}");
    assert!((700..=900).contains(&signals.pressure_per_mille));
    assert_eq!(signals.all.hits, 1);
    world
        .answer(Request::TenantDelete {
            tenant: tenant("red"),
        })
        .expect("deleted");
    let signals = world.leader.signals(&world.state);
    assert_eq!(signals.tenants.len(), 1, "nothing is shown of who is gone");
}

/// Reads cost a constant, and a turn has an end, while everything is warm and eviction runs.
#[test]
fn each_read_and_each_turn_looks_at_a_bounded_number_of_entries() {
    const OBJECTS: u64 = 9_000;
    let settings = Settings {
        high_watermark: 300,
        low_watermark: 10,
        ..Settings::default()
    };
    let mut world = World::with_settings(settings, 7, 1, 4);
    world.settle();
    world.set_tenant("red", TenantPolicy::default());
    world.without_checks();
    for number in 0..OBJECTS {
        let start = World::start("red", &format!("k{number:05}"), 300);
        world.put(start).expect("room");
    }
    let mut at = 0;
    for turn in 0..30u64 {
        for read in 0..200 {
            at = (at + 7) % OBJECTS;
            let before = world.leader.eviction_steps();
            world.ask(World::get("red", &format!("k{at:05}")));
            assert!(world.leader.eviction_steps() - before <= 1, "{turn} {read}");
        }
        world.now = world.now.plus_ms(100);
        let before = world.leader.eviction_steps();
        let ops = world.leader.tick(&world.state, world.now);
        assert!(world.leader.eviction_steps() - before <= 4096);
        let evictions = ops.iter().filter(|op| matches!(op, Op::Remove { .. }));
        assert!(evictions.count() <= 4096);
        world.propose(ops);
        world.quiesce();
    }
    assert!(world.evicted.len() > 1_000, "{}", world.evicted.len());
}

/// A pool whose every object is read refuses and says so; when the leases are over it does not.
#[test]
fn a_pool_that_is_all_read_says_so() {
    let mut world = World::evicting(1, 1, &["red"]);
    fill(&mut world, "red", 0, 14);
    for number in 0..14 {
        let get = World::get("red", &format!("k{number:03}"));
        assert!(world.answer(get).is_ok());
    }
    let large = World::start("red", "large", 4 * BLOCK);
    let refusal = world.refusal(large.clone());
    assert_eq!(refusal.reason, Reason::NoSpace);
    let all = "readers hold leases on all 14 objects that could go";
    assert!(refusal.detail.contains(all), "{refusal}");
    assert!(world.evicted.is_empty());
    world.pass(11_000);
    world.put(large).expect("the leases are over");
}
