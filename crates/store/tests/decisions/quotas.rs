//! Quotas: guarantees, borrowing, limits that tenants share, and pools that shrink.

use larder_store::{QuotaPolicy, QuotaReport, Reply, Request, TenantPolicy};
use larder_types::{Borrowing, BoundKind, OnExceed, Pin, QuotaName, Reason};

use crate::world::{SLAB, World, tenant};

const MIB: u64 = 1024 * 1024;

fn quota(name: &str) -> QuotaName {
    QuotaName::new(name).expect("a name")
}

fn guaranteed(bytes: u64) -> TenantPolicy {
    TenantPolicy {
        guaranteed_bytes: bytes,
        ..TenantPolicy::default()
    }
}

fn set_quota(world: &mut World, name: &str, policy: QuotaPolicy) {
    let quota = quota(name);
    let set = Request::QuotaSet { quota, policy };
    assert_eq!(world.answer(set), Ok(Reply::Done));
}

fn report(world: &mut World, name: &str) -> QuotaReport {
    world.leader.quota_report(&world.state, &tenant(name))
}

/// Puts objects of 1 MiB until one is refused; how many went in, and why no more.
fn fill(world: &mut World, name: &str) -> (u64, Reason) {
    for number in 0..100 {
        let start = World::start(name, &format!("k{number}"), MIB);
        match world.put(start) {
            Ok(_) => {}
            Err(refusal) if refusal.reason == Reason::AlreadyExists => {}
            Err(refusal) => {
                let used = world
                    .state
                    .tenant(&tenant(name))
                    .expect("known")
                    .used_bytes();
                return (used / MIB, refusal.reason);
            }
        }
    }
    panic!("never full")
}

#[test]
fn idle_memory_is_borrowed_but_not_what_others_are_guaranteed() {
    let mut world = World::ready(2, 8, &["red"]);
    world.set_tenant("blue", guaranteed(5 * SLAB));
    assert_eq!(
        fill(&mut world, "red"),
        (22, Reason::QuotaBorrow),
        "32 - 10"
    );
    let refusal = world.refusal(World::start("red", "more", MIB));
    assert_eq!(
        refusal.detail,
        "guaranteed 0, charged 23068672, room for 0 more, asked 1048576"
    );
    let red = report(&mut world, "red");
    assert_eq!((red.borrowed_bytes, red.room_bytes()), (22 * MIB, Some(0)));
    let by = red.refused_by(1, 1).expect("closed");
    assert_eq!(
        (by.kind, by.kind.reason()),
        (BoundKind::Memory, Reason::QuotaBorrow)
    );

    assert_eq!(
        fill(&mut world, "blue"),
        (10, Reason::NoSpace),
        "all it is guaranteed"
    );
    let blue = report(&mut world, "blue");
    assert_eq!(
        (blue.share.guaranteed_bytes, blue.borrowed_bytes),
        (10 * MIB, 0)
    );
    // What the one gives back, the other may borrow.
    for number in 0..22 {
        let remove = World::remove("red", &format!("k{number}"));
        assert_eq!(world.answer(remove), Ok(Reply::Done));
    }
    world.settle();
    world
        .put(World::start("blue", "borrowed", MIB))
        .expect("idle");
    assert_eq!(report(&mut world, "blue").borrowed_bytes, MIB);
}

/// Each replica may need a slab of its own, and all of them are asked for at once.
#[test]
fn a_put_of_several_replicas_leaves_what_others_are_guaranteed() {
    let three = |is_strict| {
        let mut start = World::start("red", "wide", 1_000);
        if let Request::PutStart {
            replicas, strict, ..
        } = &mut start
        {
            (*replicas, *strict) = (3, is_strict);
        }
        start
    };
    let mut world = World::ready(3, 2, &["red"]);
    world.set_tenant("blue", guaranteed(5 * SLAB));
    assert_eq!(
        world.reason(three(true)),
        Reason::QuotaBorrow,
        "one is idle"
    );
    let (_, replicas) = world.put(three(false)).expect("one slab is idle");
    assert_eq!(replicas.len(), 1);
    assert_eq!(
        fill(&mut world, "blue"),
        (10, Reason::NoSpace),
        "all it is guaranteed"
    );
}

#[test]
fn repairs_that_begin_together_fit_what_tenants_share() {
    let mut world = World::ready(4, 8, &[]);
    let policy = TenantPolicy {
        cohort: Some(quota("team")),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    for name in ["a", "b", "c", "d", "e", "f"] {
        let mut start = World::start("red", name, MIB);
        if let Request::PutStart { replicas, .. } = &mut start {
            *replicas = 2;
        }
        world.put(start).expect("room");
    }
    let on = |world: &World, agent: usize| {
        let held = world.state.tenant(&tenant("red")).expect("known");
        let objects = held.objects().iter();
        let extents = objects.flat_map(|(_, object)| object.extents().collect::<Vec<_>>());
        let here = extents.filter(|e| Some(e.slab.agent) == world.agents[agent].id);
        here.count() as u64
    };
    let fullest = (0..4).max_by_key(|at| on(&world, *at)).expect("four");
    let lost = on(&world, fullest);
    assert!(lost >= 3, "{lost}");
    let limit = (12 - lost + 1) * MIB;
    let limit_bytes = Some(limit);
    let policy = QuotaPolicy {
        limit_bytes,
        ..QuotaPolicy::default()
    };
    set_quota(&mut world, "team", policy);
    world.disconnect(fullest, true);
    world.pass(12_000);
    world.settle();
    for _ in 0..10 {
        world.turns(1);
        let charged = report(&mut world, "red")
            .cohort
            .expect("named")
            .charged_bytes;
        assert!(charged <= limit, "{charged} of {limit}");
    }
    assert_eq!(world.leader.missing_replicas(), lost - 1);
}

#[test]
fn without_borrowing_the_guarantee_is_the_limit() {
    let mut world = World::ready(1, 8, &[]);
    let policy = TenantPolicy {
        borrowing: Borrowing::Forbidden,
        ..guaranteed(2 * SLAB)
    };
    world.set_tenant("red", policy);
    assert_eq!(fill(&mut world, "red"), (4, Reason::QuotaBorrow));
}

#[test]
fn a_guarantee_is_held_in_whole_slabs() {
    let mut world = World::ready(1, 8, &["red"]);
    world.set_tenant("blue", guaranteed(1));
    assert_eq!(report(&mut world, "blue").share.guaranteed_bytes, SLAB);
    assert_eq!(fill(&mut world, "red"), (14, Reason::QuotaBorrow));
}

#[test]
fn tenants_of_a_quota_are_bounded_together() {
    let mut world = World::ready(1, 16, &["green"]);
    let member = || TenantPolicy {
        cohort: Some(quota("team")),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", member());
    world.set_tenant("blue", member());
    let limit = QuotaPolicy {
        limit_bytes: Some(6 * MIB),
        limit_objects: Some(100),
        ..QuotaPolicy::default()
    };
    assert_eq!(
        report(&mut world, "red").cohort.expect("named").policy,
        None
    );
    set_quota(&mut world, "team", limit.clone());
    for name in ["a", "b", "c", "d"] {
        world.put(World::start("red", name, MIB)).expect("room");
    }
    assert_eq!(fill(&mut world, "blue"), (2, Reason::QuotaBytes));
    let refusal = world.refusal(World::start("red", "more", 1));
    assert_eq!(
        refusal.detail,
        "quota team has limit 6291456, its tenants are charged 6291456, asked 16384"
    );
    let cohort = report(&mut world, "red").cohort.expect("shared");
    assert_eq!((cohort.charged_bytes, cohort.tenants), (6 * MIB, 2));
    assert_eq!(cohort.policy, Some(limit.clone()));
    world
        .put(World::start("green", "k", MIB))
        .expect("not of the team");

    // Objects are counted together, too.
    let few = QuotaPolicy {
        limit_bytes: None,
        limit_objects: Some(7),
        ..limit
    };
    set_quota(&mut world, "team", few);
    world.put(World::start("red", "seventh", 1)).expect("room");
    assert_eq!(
        world.reason(World::start("blue", "eighth", 1)),
        Reason::QuotaObjects
    );

    // A quota that is deleted bounds nothing any more; again is as good.
    for _ in 0..2 {
        let quota = quota("team");
        assert_eq!(
            world.answer(Request::QuotaDelete { quota }),
            Ok(Reply::Done)
        );
    }
    world
        .put(World::start("blue", "eighth", 1))
        .expect("released");
}

#[test]
fn a_quota_guarantees_its_tenants_together_and_each_its_own() {
    let mut world = World::ready(1, 16, &["green"]);
    let member = |bytes| TenantPolicy {
        cohort: Some(quota("team")),
        ..guaranteed(bytes)
    };
    world.set_tenant("red", member(0));
    world.set_tenant("blue", member(2 * SLAB));
    let team = QuotaPolicy {
        guaranteed_bytes: 4 * SLAB,
        borrowing: Borrowing::Forbidden,
        ..QuotaPolicy::default()
    };
    set_quota(&mut world, "team", team);
    assert_eq!(
        fill(&mut world, "red"),
        (4, Reason::QuotaBorrow),
        "what blue is guaranteed is kept for it"
    );
    assert_eq!(
        fill(&mut world, "green"),
        (24, Reason::QuotaBorrow),
        "32 - 8"
    );
    assert_eq!(fill(&mut world, "blue"), (4, Reason::QuotaBorrow));
}

/// Guarantees and limits follow the pool down and up again, the same on every replica.
#[test]
fn b40_quotas_follow_a_pool_that_loses_a_node() {
    let mut world = World::ready(2, 8, &[]);
    world.set_tenant("red", guaranteed(6 * SLAB));
    let blue = TenantPolicy {
        limit_bytes: Some(12 * SLAB),
        ..guaranteed(3 * SLAB)
    };
    world.set_tenant("blue", blue);
    let effective = larder_store::effective(&world.state);
    assert!(!effective.is_overcommitted());
    assert_eq!(effective.requested_bytes, 9 * SLAB);

    world.disconnect(1, true);
    world.pass(12_000);
    world.settle();
    let effective = world.leader.effective(&world.state).clone();
    assert_eq!(
        effective,
        larder_store::effective(&world.state),
        "from the state alone"
    );
    assert!(effective.is_overcommitted());
    assert_eq!(
        (effective.capacity_bytes, effective.requested_bytes),
        (8 * SLAB, 9 * SLAB)
    );
    let share = |name: &str| effective.tenants[&tenant(name)];
    // 6 and 3 ninths of 8 slabs: the one that rounding leaves goes to the larger remainder.
    assert_eq!(share("red").guaranteed_bytes, 5 * SLAB);
    assert_eq!(share("blue").guaranteed_bytes, 3 * SLAB);
    assert_eq!(share("blue").limit_bytes, Some(8 * SLAB));
    let report = report(&mut world, "blue");
    assert!(report.overcommitted);
    assert_eq!(report.share, share("blue"));
    assert_eq!(fill(&mut world, "blue").1, Reason::QuotaBorrow);

    world.agents[1].restart();
    world.settle();
    let effective = world.leader.effective(&world.state).clone();
    assert!(!effective.is_overcommitted());
    assert_eq!(effective.tenants[&tenant("red")].guaranteed_bytes, 6 * SLAB);
}

/// Each of them is guaranteed less than a slab, but together they have the pool.
#[test]
fn a_pool_that_promised_too_much_can_be_filled() {
    let mut world = World::ready(1, 4, &[]);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for name in names {
        world.set_tenant(name, guaranteed(SLAB));
    }
    let filled = names.map(|name| fill(&mut world, name).0);
    assert_eq!(filled.iter().sum::<u64>() * MIB, 4 * SLAB, "{filled:?}");
}

/// A tenant of tiny objects gets no more of the agents' records than of their bytes.
#[test]
fn a_tiny_object_is_charged_for_its_record() {
    let mut world = World::ready(1, 4, &[]);
    let policy = TenantPolicy {
        limit_bytes: Some(64 * 1024),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    for name in ["a", "b", "c", "d"] {
        world.put(World::start("red", name, 1)).expect("room");
    }
    assert_eq!(
        world.reason(World::start("red", "e", 1)),
        Reason::QuotaBytes
    );
}

/// Whatever happens to a put, what it was charged comes back.
#[test]
fn every_way_out_of_a_put_gives_its_charge_back() {
    let mut world = World::ready(1, 8, &["red"]);
    world.set_tenant("blue", guaranteed(7 * SLAB));
    let room = |world: &mut World| report(world, "red").room_bytes();
    let before = room(&mut world);
    assert_eq!(before, Some(SLAB));
    let (version, _) = world.granted(World::start("red", "revoked", MIB));
    assert_eq!(room(&mut world), Some(SLAB - MIB));
    let revoke = Request::PutRevoke {
        session: crate::world::SESSION,
        tenant: tenant("red"),
        key: crate::world::key("revoked"),
        version,
    };
    assert_eq!(world.answer(revoke), Ok(Reply::Done));
    assert_eq!(room(&mut world), before);
    world.granted(World::start("red", "forgotten", MIB));
    world.pass(31_000);
    assert_eq!(room(&mut world), before, "discarded");
    world.granted(World::start("red", "left", MIB));
    let session = crate::world::SESSION;
    assert_eq!(
        world.answer(Request::SessionClosed { session }),
        Ok(Reply::Done)
    );
    assert_eq!(room(&mut world), before, "the session ended");
    world.put(World::start("red", "stored", MIB)).expect("room");
    assert_eq!(
        room(&mut world),
        Some(SLAB - MIB),
        "settled, not charged twice"
    );
    assert_eq!(
        world.answer(World::remove("red", "stored")),
        Ok(Reply::Done)
    );
    assert_eq!(room(&mut world), before);
    world.granted(World::start("red", "pending", MIB));
    world.fail_over(0);
    world.settle();
    assert_eq!(
        room(&mut world),
        before,
        "reservations end with their leader"
    );
}

/// Autoscalers read it: whoever refuses, for whatever bound.
#[test]
fn each_refused_put_is_counted_for_its_tenant() {
    let mut world = World::evicting(1, 8, &["red"]);
    let policy = TenantPolicy {
        limit_bytes: Some(2 * MIB),
        on_exceed: OnExceed::Refuse,
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    assert_eq!(fill(&mut world, "red"), (2, Reason::QuotaBytes));
    let refused = |world: &World| {
        let signals = world.leader.signals(&world.state);
        let mut tenants = signals.tenants.iter();
        let red = tenants.find(|(id, _)| *id == tenant("red"));
        red.expect("known").1.refused_puts
    };
    assert_eq!(refused(&world), 1);
    let mut pinned = World::start("red", "pinned", MIB);
    if let Request::PutStart { attributes, .. } = &mut pinned {
        attributes.pin = Pin::Hard;
    }
    assert!(world.put(pinned).is_err());
    assert_eq!(refused(&world), 2);
}

#[test]
fn no_more_is_guaranteed_than_may_be_held() {
    let mut world = World::ready(1, 8, &["red"]);
    let (guaranteed_bytes, limit_bytes) = (2 * MIB, Some(MIB));
    let tenant = Request::TenantSet {
        tenant: tenant("red"),
        policy: TenantPolicy {
            guaranteed_bytes,
            limit_bytes,
            ..TenantPolicy::default()
        },
    };
    let shared = Request::QuotaSet {
        quota: quota("shared"),
        policy: QuotaPolicy {
            guaranteed_bytes,
            limit_bytes,
            ..QuotaPolicy::default()
        },
    };
    for set in [tenant, shared] {
        assert_eq!(world.reason(set), Reason::BadArgument);
    }
    set_quota(
        &mut world,
        "shared",
        QuotaPolicy {
            guaranteed_bytes: MIB,
            limit_bytes,
            ..QuotaPolicy::default()
        },
    );
}
