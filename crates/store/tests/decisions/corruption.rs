//! Ops that do not fit: each is reported, none panics, and order is checked.

use larder_store::{MountedSegment, Op, RemovalCause, Request, State, TenantPolicy, apply, check};
use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, Digest, Extent, Incarnation, Registration,
    SegmentGeneration, SegmentId, SlabRef, Version,
};

use crate::world::{SLAB, World, key, tenant};

/// A pool with one object, one extent that is being released, and one slab on its way.
struct Pool {
    state: State,
    held: Extent,
    gone: Extent,
    version: Version,
}

fn pool() -> Pool {
    let mut world = World::ready(2, 4, &["red", "blue"]);
    let (version, held) = world.put(World::start("red", "held", 1000)).expect("room");
    let (_, gone) = world.put(World::start("red", "gone", 1000)).expect("room");
    world.ask(World::remove("red", "gone"));
    world.ask(World::start("blue", "k", 1000));
    while world.commit() {}
    assert_eq!(check(&world.state), []);
    Pool {
        state: world.state,
        held: held[0][0],
        gone: gone[0][0],
        version,
    }
}

fn bad_mounts(pool: &Pool) -> Vec<Op> {
    let name = AgentName::new("node-1").expect("a name");
    let stranger = AgentName::new("stranger").expect("a name");
    let mount = |agent, name: &AgentName, segments| Op::AgentMounted {
        agent: AgentId(agent),
        name: name.clone(),
        uid: AgentUid(1),
        incarnation: Incarnation(1),
        segments,
        labels: larder_types::Labels::default(),
    };
    let generation = SegmentGeneration(1);
    let (slabs, slab_bytes) = (2, SLAB);
    let segment = |id| {
        let id = SegmentId(id);
        MountedSegment {
            id,
            ordinal: 0,
            generation,
            slabs,
            slab_bytes,
            numa: 0,
        }
    };
    let many = MountedSegment {
        slabs: 70_000,
        ..segment(50)
    };
    let huge = MountedSegment {
        slab_bytes: u64::MAX,
        ..segment(50)
    };
    let other = SegmentGeneration(9);
    let odd = MountedSegment {
        slab_bytes: SLAB + 1,
        ..segment(50)
    };
    vec![
        mount(9, &stranger, vec![odd]),
        Op::SegmentSwept {
            segment: pool.held.slab.segment,
            objects_max: 1,
        },
        mount(1, &name, vec![]),
        mount(1, &stranger, vec![]),
        mount(9, &name, vec![]),
        mount(9, &stranger, vec![segment(1)]),
        mount(9, &stranger, vec![many]),
        mount(9, &stranger, vec![huge]),
        Op::AgentForgotten { agent: AgentId(1) },
        Op::AgentForgotten { agent: AgentId(77) },
        Op::SegmentLost {
            segment: SegmentId(99),
            generation,
        },
        Op::SegmentLost {
            segment: pool.held.slab.segment,
            generation: other,
        },
    ]
}

fn bad_slabs(pool: &Pool) -> Vec<Op> {
    let held = pool.held.slab;
    let slabs = pool
        .state
        .segments()
        .flat_map(|segment| segment.slabs().values());
    let last = slabs
        .map(|slab| slab.registration().0)
        .max()
        .expect("slabs are given");
    let registration = Registration(last + 1);
    let fresh = SlabRef {
        index: 3,
        registration,
        ..held
    };
    let unknown = SlabRef {
        registration: Registration(9),
        ..held
    };
    let elsewhere = SlabRef {
        segment: SegmentId(99),
        ..held
    };
    let give = |slab, name| Op::SlabGive {
        slab,
        tenant: tenant(name),
    };
    vec![
        give(held, "red"),
        give(
            SlabRef {
                registration: Registration(1),
                ..fresh
            },
            "red",
        ),
        give(fresh, "nobody"),
        give(SlabRef { index: 9, ..fresh }, "red"),
        give(
            SlabRef {
                agent: AgentId(9),
                ..fresh
            },
            "red",
        ),
        Op::SlabReady { slab: held },
        Op::SlabReady { slab: unknown },
        Op::SlabTake { slab: held },
        Op::SlabTake { slab: elsewhere },
        Op::SlabReturned { slab: held },
        Op::SlabReturned { slab: unknown },
    ]
}

fn bad_objects(pool: &Pool) -> Vec<Op> {
    let Pool {
        held,
        gone,
        version,
        ..
    } = *pool;
    let put = |name, text, replicas| Op::PutEnd {
        tenant: tenant(name),
        key: key(text),
        version,
        size_bytes: 1000,
        digest: Digest(1),
        replicas,
        wanted: 1,
        attributes: Attributes::default(),
        replaces: None,
    };
    let shifted = Extent {
        offset_bytes: held.offset_bytes + 1,
        ..held
    };
    let beyond = Extent {
        offset_bytes: SLAB,
        ..held
    };
    let endless = Extent {
        length_bytes: u64::MAX,
        ..held
    };
    let remove = |name, text, version| Op::Remove {
        tenant: tenant(name),
        key: key(text),
        version,
        cause: RemovalCause::Removed,
    };
    let released = |extent, version| Op::Released {
        extents: vec![(extent, version)],
    };
    vec![
        put("red", "held", vec![vec![held]]),
        put("red", "new", vec![]),
        put("red", "new", vec![vec![held]]),
        put("red", "new", vec![vec![gone]]),
        put("red", "new", vec![vec![shifted]]),
        put("red", "new", vec![vec![beyond]]),
        put("red", "new", vec![vec![endless]]),
        put("blue", "new", vec![vec![held]]),
        put("nobody", "new", vec![vec![held]]),
        remove("red", "none", version),
        remove("red", "held", Version::default()),
        remove("nobody", "held", version),
        released(held, version),
        released(gone, Version::default()),
        released(shifted, version),
        Op::TenantDelete {
            tenant: tenant("nobody"),
        },
        Op::TenantPurge {
            tenant: tenant("red"),
            objects_max: 5,
        },
        Op::TenantForgotten {
            tenant: tenant("red"),
        },
        Op::TenantForgotten {
            tenant: tenant("nobody"),
        },
    ]
}

#[test]
fn an_op_that_does_not_fit_is_reported() {
    let pool = pool();
    let ops = [bad_mounts(&pool), bad_slabs(&pool), bad_objects(&pool)];
    for op in ops.into_iter().flatten() {
        let mut state = pool.state.clone();
        let effects = apply(&mut state, &op);
        let corruption = effects
            .corruption
            .unwrap_or_else(|| panic!("accepted: {op:?}"));
        assert_eq!(corruption.op, op.name());
        assert!(
            corruption.to_string().contains("stop this replica"),
            "{corruption}"
        );
    }
}

#[test]
fn a_pool_begins_only_in_a_higher_generation() {
    let mut state = State::new(0);
    let begin = |state: &mut State, generation| apply(state, &Op::PoolBegun { generation });
    assert!(begin(&mut state.clone(), 0).corruption.is_some());
    assert_eq!(begin(&mut state, 1), larder_store::Effects::default());
    assert!(state == State::new(1));
    let pool = pool();
    for generation in [0, 1] {
        let corruption = begin(&mut pool.state.clone(), generation).corruption;
        assert_eq!(corruption.expect("not above").op, "PoolBegun");
    }
    let mut begun = pool.state;
    assert_eq!(begin(&mut begun, 7), larder_store::Effects::default());
    assert!(begun == State::new(7));
    assert_eq!(begun.digest(), State::new(7).digest());
    assert_eq!(check(&begun), []);
}

/// What was decided over the former state must not reach the new one.
#[test]
fn an_op_that_was_proposed_behind_a_new_beginning_is_reported() {
    let mut world = World::ready(1, 2, &["red"]);
    let now = world.now;
    let set = Op::TenantSet {
        tenant: tenant("blue"),
        policy: TenantPolicy::default(),
    };
    let begun = Op::PoolBegun { generation: 2 };
    for (index, op) in [(1_000, &begun), (1_001, &set)] {
        world.leader.proposed(index, std::slice::from_ref(op));
    }
    let effects = world.leader.committed(&mut world.state, 1_000, &begun, now);
    assert!(effects.is_empty(), "{effects:?}");
    assert_eq!(world.leader.check(&world.state), []);
    let effects = world.leader.committed(&mut world.state, 1_001, &set, now);
    assert!(effects.corruption.is_some());
}

#[test]
fn a_tenant_that_is_to_go_is_not_set_again() {
    let mut state = State::new(1);
    let red = tenant("red");
    let set = Op::TenantSet {
        tenant: red.clone(),
        policy: TenantPolicy::default(),
    };
    for op in [
        set.clone(),
        Op::TenantDelete {
            tenant: red.clone(),
        },
    ] {
        assert_eq!(apply(&mut state, &op).corruption, None);
    }
    for op in [set, Op::TenantDelete { tenant: red }] {
        assert!(
            apply(&mut state.clone(), &op).corruption.is_some(),
            "{op:?}"
        );
    }
}

#[test]
fn an_op_at_another_index_than_proposed_is_reported() {
    let mut world = World::ready(1, 2, &["red"]);
    let op = Op::TenantSet {
        tenant: tenant("blue"),
        policy: TenantPolicy::default(),
    };
    let now = world.now;
    world.leader.proposed(1_000, std::slice::from_ref(&op));
    let effects = world.leader.committed(&mut world.state, 1_001, &op, now);
    let corruption = effects.corruption.expect("out of order");
    assert_eq!(
        corruption.detail,
        "committed at 1001, where it was not proposed"
    );
}

#[test]
fn reports_that_nobody_waits_for_change_nothing() {
    let mut world = World::ready(1, 2, &["red"]);
    let (version, at) = world.put(World::start("red", "k", 1000)).expect("room");
    let extent = at[0][0];
    let before = world.state.digest();
    let (slab, agent) = (extent.slab, extent.slab.agent);
    let former = SlabRef {
        registration: Registration(1),
        ..slab
    };
    let detail = String::new();
    for request in [
        Request::SlabReady { slab },
        Request::SlabReady { slab: former },
        Request::SlabReturned { slab },
        Request::SlabFailed { slab, detail },
        Request::Released {
            extents: vec![(extent, version)],
            agent,
        },
        Request::Released {
            extents: vec![(extent, version)],
            agent: AgentId(7),
        },
        Request::AgentGone {
            agent,
            incarnation: Incarnation(99),
        },
    ] {
        assert_eq!(world.answer(request), Ok(larder_store::Reply::Done));
    }
    assert_eq!(world.state.digest(), before);
    let extents = vec![(extent, version); larder_store::MAX_RELEASED + 1];
    let refusal = world.refusal(Request::Released { extents, agent });
    assert_eq!(refusal.reason, larder_types::Reason::BadArgument);
}
