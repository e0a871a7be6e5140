//! Objects in several pieces: larger than a slab, or than any hole.

use std::collections::BTreeSet;

use larder_store::{PutMode, Reply, Request, Settings, TaskWish, TenantPolicy};
use larder_types::layout::{BLOCK_BYTES, charged_bytes};
use larder_types::{AgentId, Digest, Extent, Reason};

use crate::world::{SESSION, SLAB, World, digest_of, end, key, receipts, tenant};

const MIB: u64 = 1024 * 1024;

fn length(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| extent.length_bytes).sum()
}

fn copies(mut start: Request, count: u8) -> Request {
    if let Request::PutStart { replicas, .. } = &mut start {
        *replicas = count;
    }
    start
}

fn slabs(extents: &[Extent]) -> BTreeSet<u16> {
    extents.iter().map(|extent| extent.slab.index).collect()
}

/// All that is stored can be read, whole.
fn all_read(world: &World) {
    for (_, tenant) in world.state.tenants() {
        for (key, object) in tenant.objects().iter() {
            for replica in object.replicas() {
                assert_eq!(length(&replica), object.size_bytes(), "{key}");
                for extent in replica {
                    let mut agents = world.agents.iter();
                    let agent = agents.find(|agent| agent.id == Some(extent.slab.agent));
                    let reads = agent.is_some_and(|agent| agent.reads(&extent, object.version()));
                    assert!(reads, "{key}: {extent:?}");
                }
            }
        }
    }
}

fn all_is_free(world: &mut World) {
    world.settle();
    let left = (world.state.used_bytes(), world.state.releasing_bytes());
    assert_eq!((left, world.leader.reserved_bytes()), ((0, 0), 0));
}

/// One agent of so many slabs in which every other object of this size was removed.
fn holed(slabs: u32, object_bytes: u64) -> World {
    let mut world = World::ready(1, slabs, &["red"]);
    let count = u64::from(slabs) * SLAB / object_bytes;
    for number in 0..count {
        let start = World::start("red", &format!("k{number}"), object_bytes);
        world.put(start).expect("room");
    }
    for number in (0..count).filter(|number| number % 5 > 1) {
        let answer = world.answer(World::remove("red", &format!("k{number}")));
        assert_eq!(answer, Ok(Reply::Done));
    }
    world.settle();
    world
}

#[test]
fn what_is_larger_than_a_slab_gets_whole_slabs_and_a_rest() {
    let mut world = World::ready(2, 8, &["red"]);
    let size = 3 * SLAB + 700_000;
    let start = copies(World::start("red", "a", size), 2);
    let (_, replicas) = world.put(start).expect("room");
    for extents in &replicas {
        let lengths: Vec<u64> = extents.iter().map(|e| e.length_bytes).collect();
        assert_eq!(lengths, [SLAB, SLAB, SLAB, 700_000]);
        assert_eq!(slabs(extents).len(), 4);
        let agents: BTreeSet<AgentId> = extents.iter().map(|e| e.slab.agent).collect();
        assert_eq!(agents.len(), 1, "a replica lies on one agent");
    }
    let charged = charged_bytes(size).expect("small") * 2;
    assert_eq!(world.state.used_bytes(), charged);
    all_read(&world);
    // The rest of the next one fits beside that of the first.
    let (_, more) = world
        .put(World::start("red", "b", SLAB + 700_000))
        .expect("room");
    assert_eq!(more[0].len(), 2);
    assert!(slabs(&more[0]).intersection(&slabs(&replicas[0])).count() == 1);
    for name in ["a", "b"] {
        assert_eq!(world.answer(World::remove("red", name)), Ok(Reply::Done));
    }
    all_is_free(&mut world);
}

#[test]
fn all_slabs_that_are_lacking_are_given_at_once() {
    let mut world = World::ready(1, 8, &["red"]);
    let given = |world: &World| world.seen.get("SlabGive").copied().unwrap_or(0);
    let ticket = world.ask(World::start("red", "a", 5 * SLAB));
    world.commit();
    assert_eq!(given(&world), 5, "before any is ready");
    world.settle();
    assert!(matches!(
        world.taken(ticket),
        Some(Ok(Reply::PutGranted { .. }))
    ));
    assert_eq!(given(&world), 5);
}

#[test]
fn small_holes_take_a_large_object() {
    let mut world = holed(4, 2 * BLOCK_BYTES);
    let object = |world: &World| world.state.used_bytes();
    let before = object(&world);
    // Three of five are free; the longest hole has three of them.
    let (version, replicas) = world
        .put(World::start("red", "big", 4 * MIB))
        .expect("room");
    assert!(replicas[0].len() > 4, "{}", replicas[0].len());
    assert_eq!(object(&world), before + 4 * MIB);
    assert_eq!(world.stat("red", "big").digest, digest_of(version));
    all_read(&world);
    assert_eq!(world.answer(World::remove("red", "big")), Ok(Reply::Done));
    world.settle();
    assert_eq!(object(&world), before);
    // A whole hole is taken where there is one.
    let (_, replicas) = world
        .put(World::start("red", "c", 6 * BLOCK_BYTES))
        .expect("room");
    assert_eq!(replicas[0].len(), 1);
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing_reserved() {
    let mut world = World::ready(2, 4, &["red"]);
    let large = world.refusal(World::start("red", "a", 4 * SLAB + 1));
    assert_eq!(large.reason, Reason::TooLarge);
    assert!(large.detail.contains("one agent"), "{}", large.detail);
    world.put(World::start("red", "b", SLAB / 2)).expect("room");
    let both = copies(World::start("red", "a", 4 * SLAB), 2);
    assert_eq!(world.reason(both), Reason::NoSpace);
    assert_eq!(world.leader.reserved_bytes(), 0);
    world
        .put(World::start("red", "a", 4 * SLAB))
        .expect("room on one");
    let settings = Settings {
        max_object_bytes: 1000,
        ..Settings::default()
    };
    let mut bounded = World::with_settings(settings, 7, 1, 4);
    bounded.settle();
    bounded.set_tenant("red", TenantPolicy::default());
    let refusal = bounded.refusal(World::start("red", "a", 1001));
    assert_eq!(refusal.reason, Reason::TooLarge);
    assert!(
        refusal.detail.contains("at most 1000"),
        "{}",
        refusal.detail
    );
}

#[test]
fn an_end_needs_what_the_pieces_come_to() {
    let mut world = World::ready(2, 4, &["red"]);
    let start = copies(World::start("red", "a", 2 * SLAB + 100_000), 2);
    let (version, replicas) = world.granted(start);
    assert!(world.write(&tenant("red"), version, &replicas));
    let ends = |written| Request::PutEnd {
        session: SESSION,
        tenant: tenant("red"),
        key: key("a"),
        version,
        written,
    };
    let whole = digest_of(version);
    let good: Vec<_> = replicas.iter().flat_map(|r| receipts(whole, r)).collect();
    let mut short = good.clone();
    short.pop();
    assert_eq!(world.reason(ends(short)), Reason::BadReceipt);
    let mut twice = good.clone();
    twice[1] = twice[0];
    assert_eq!(world.reason(ends(twice)), Reason::BadReceipt);
    let mut other = good.clone();
    other[4].digest = Digest(other[4].digest.0 ^ 1);
    assert_eq!(world.reason(ends(other)), Reason::BadReceipt);
    assert_eq!(world.answer(ends(good)), Ok(Reply::Done));
    assert_eq!(world.stat("red", "a").digest, whole);
}

#[test]
fn a_replaced_object_in_pieces_stays_until_the_end() {
    let mut world = World::ready(1, 8, &["red"]);
    let (old, at) = world.put(World::start("red", "a", 2 * SLAB)).expect("room");
    let (new, replicas) = world.granted(World::upsert("red", "a", 3 * SLAB + 1));
    assert_eq!(world.stat("red", "a").version, old);
    assert!(at[0].iter().all(|e| world.agents[0].reads(e, old)));
    assert!(world.write(&tenant("red"), new, &replicas));
    let ended = end(SESSION, tenant("red"), key("a"), new, &replicas);
    assert_eq!(world.answer(ended), Ok(Reply::Done));
    world.settle();
    assert_eq!(world.stat("red", "a").version, new);
    assert!(!at[0].iter().any(|e| world.agents[0].reads(e, old)));
    all_read(&world);
    // One that is given up leaves the object and takes nothing.
    let used = world.state.used_bytes();
    let (version, _) = world.granted(World::upsert("red", "a", 2 * SLAB));
    let revoked = world.answer(Request::PutRevoke {
        session: SESSION,
        tenant: tenant("red"),
        key: key("a"),
        version,
    });
    assert_eq!(revoked, Ok(Reply::Done));
    assert_eq!(
        (world.state.used_bytes(), world.leader.reserved_bytes()),
        (used, 0)
    );
    assert_eq!(world.answer(World::remove("red", "a")), Ok(Reply::Done));
    all_is_free(&mut world);
}

#[test]
fn cold_objects_go_for_one_that_needs_many_slabs() {
    let mut world = World::evicting(1, 8, &["red"]);
    for number in 0..24 {
        let start = World::start("red", &format!("k{number}"), SLAB / 4);
        world.put(start).expect("room");
        world.turns(1);
    }
    world
        .put(World::start("red", "big", 5 * SLAB + 5))
        .expect("room is made");
    all_read(&world);
    assert!(!world.evicted.is_empty());
}

#[test]
fn a_lost_extent_is_a_lost_replica_and_is_made_again() {
    let mut world = World::ready(3, 8, &["red"]);
    let start = copies(World::start("red", "a", 3 * SLAB), 2);
    let (_, replicas) = world.put(start).expect("room");
    let lost = replicas[0][0].slab.agent;
    let at = world.agents.iter().position(|agent| agent.id == Some(lost));
    world.disconnect(at.expect("known"), true);
    world.pass(12_000);
    world.settle();
    world.turns(10);
    let stat = world.stat("red", "a");
    assert!(
        stat.agents.len() == 2 && !stat.agents.contains(&lost),
        "{stat:?}"
    );
    all_read(&world);
}

#[test]
fn a_copy_may_be_cut_otherwise_than_its_source() {
    let mut world = holed(4, 2 * BLOCK_BYTES);
    let (_, replicas) = world
        .put(World::start("red", "big", 4 * MIB))
        .expect("room");
    let source = replicas[0][0].slab.agent;
    // Another agent comes, with whole slabs.
    world
        .agents
        .push(crate::world::agent::SimAgent::new(2, 4, SLAB));
    world.settle();
    let target = world.agents[1].id.expect("mounted");
    let wish = TaskWish::Move { source, target };
    let (tenant, key) = (tenant("red"), key("big"));
    let noted = world.answer(Request::TaskCreate { tenant, key, wish });
    assert!(matches!(noted, Ok(Reply::TaskCreated(_))), "{noted:?}");
    world.turns(10);
    assert_eq!(world.stat("red", "big").agents, [target]);
    let object = world
        .state
        .object(&crate::world::tenant("red"), &crate::world::key("big"));
    assert_eq!(object.expect("there").extents().count(), 2);
    all_read(&world);
}

#[test]
fn an_agent_with_pieces_is_drained() {
    let mut world = World::ready(2, 8, &["red"]);
    let mut start = World::start("red", "a", 3 * SLAB + 5);
    let (from, to) = (world.agents[0].id.expect("mounted"), world.agents[1].id);
    if let Request::PutStart {
        preferred, mode, ..
    } = &mut start
    {
        preferred.push(from);
        *mode = PutMode::Create;
    }
    world.put(start).expect("room");
    let drain = Request::Drain {
        agent: from,
        on: true,
    };
    assert_eq!(world.answer(drain), Ok(Reply::Done));
    world.turns(10);
    assert_eq!(world.stat("red", "a").agents, [to.expect("mounted")]);
    all_read(&world);
    assert_eq!(world.answer(World::remove("red", "a")), Ok(Reply::Done));
    all_is_free(&mut world);
}
