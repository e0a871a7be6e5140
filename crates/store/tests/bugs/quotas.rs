//! The rows about quotas and tenants.

use larder_store::{Reply, Request, Settings, TenantPolicy};
use larder_types::{OnExceed, Reason};

use crate::world::{SESSION, SLAB, World, key, tenant};

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

/// A tenant that refuses rather than evicts, with a limit exactly where its pool begins to evict:
/// what a put answered is what is stored, one removal lets one put in, and refusals end.
#[test]
fn b38_a_limit_at_the_mark_of_eviction_refuses_no_more_than_it_must() {
    const MIB: u64 = 1024 * 1024;
    // Two agents of 10 MiB: nine tenths of them, eight tenths, and all.
    for limit_mib in [18, 16, 20] {
        let mut world = World::evicting(2, 5, &[]);
        let policy = TenantPolicy {
            limit_bytes: Some(limit_mib * MIB),
            on_exceed: OnExceed::Refuse,
            ..TenantPolicy::default()
        };
        world.set_tenant("red", policy);
        let mut refused = 0;
        for number in 0..2 * limit_mib {
            let before = world.keys("red", "").len() as u64;
            match world.put(World::start("red", &format!("k{number:02}"), MIB)) {
                Ok(_) => assert!(before < limit_mib, "over the limit"),
                Err(refusal) => {
                    assert_eq!(refusal.reason, Reason::QuotaBytes);
                    assert_eq!(before, limit_mib, "refused below the limit");
                    refused += 1;
                }
            }
            world.turns(1);
            let red = world.state.tenant(&tenant("red")).expect("known");
            assert_eq!(red.used_bytes(), red.objects().len() as u64 * MIB);
        }
        let left = world.keys("red", "");
        let (stored, gone) = (left.len() as u64, world.evicted.len() as u64);
        assert_eq!(
            stored + gone + refused,
            2 * limit_mib,
            "each is there, was evicted as cold, or was refused"
        );
        world
            .answer(World::remove("red", &left[0]))
            .expect("removed");
        world
            .put(World::start("red", "next", MIB))
            .expect("room for the next");
    }
}

/// An answer of success is about something that is stored, with several writers at once at the
/// limit, and what fails on its way is charged no more.
#[test]
fn b38_writers_at_once_do_not_pass_the_limit_together() {
    let mut world = World::ready(2, 8, &[]);
    let policy = TenantPolicy {
        limit_bytes: Some(4 * SLAB),
        limit_objects: Some(100),
        on_exceed: OnExceed::Refuse,
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    let tickets: Vec<u64> = (0..8)
        .map(|number| world.ask(World::start("red", &format!("k{number}"), SLAB)))
        .collect();
    world.settle();
    let answers: Vec<_> = tickets
        .into_iter()
        .map(|ticket| world.taken(ticket).expect("answered"))
        .collect();
    let granted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(granted, 4, "{answers:?}");
    for refusal in answers.iter().filter_map(|answer| answer.as_ref().err()) {
        assert_eq!(refusal.reason, Reason::QuotaBytes);
    }
    // None of them ends: all that they were charged comes back.
    world
        .answer(Request::SessionClosed { session: SESSION })
        .expect("closed");
    world.settle();
    for number in 0..4 {
        let start = World::start("red", &format!("n{number}"), SLAB);
        world.put(start).expect("refunded");
    }
}

/// Guarantees of half as much again as the pool has, and a node that leaves: who stays within its
/// share is served, who borrows makes room, and nobody's bulk call reaches another's objects.
#[test]
fn b40_overcommitted_tenants_share_what_is_left_and_stay_apart() {
    let mut world = World::evicting(2, 8, &[]);
    for name in ["red", "blue"] {
        let policy = TenantPolicy {
            guaranteed_bytes: 12 * SLAB,
            ..TenantPolicy::default()
        };
        world.set_tenant(name, policy);
    }
    assert!(world.leader.effective(&world.state).is_overcommitted());
    for number in 0..12 {
        let start = World::start("red", &format!("k{number:02}"), SLAB / 2);
        world.put(start).expect("within its share");
    }
    world.disconnect(1, true);
    world.pass(12_000);
    world.settle();
    world.turns(4);
    // Four of eight slabs are blue's, however much of the pool red holds.
    for number in 0..8 {
        let start = World::start("blue", &format!("k{number:02}"), SLAB / 2);
        world.put(start).expect("within its share");
    }
    let blue = world.keys("blue", "");
    assert_eq!(blue.len(), 8);
    world.remove_prefix("red", "", false);
    assert_eq!(world.keys("red", ""), Vec::<String>::new());
    assert_eq!(world.keys("blue", ""), blue, "of the caller's tenant only");
    assert!(
        world.evicted.iter().all(|(of, ..)| *of == tenant("red")),
        "blue lost what it is guaranteed"
    );
}
