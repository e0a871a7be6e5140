//! Pins and leases: what protects an object from eviction, and for how long.

use larder_store::{Protection, Reply, Request, Settings, TenantPolicy};
use larder_types::{Attributes, GroupId, Pin, PoolTime, Reason};

use crate::world::{World, key, tenant};

fn protection(world: &World, text: &str, now: PoolTime) -> Protection {
    let tenant = tenant("red");
    let held = world.state.tenant(&tenant).expect("known");
    let id = held.objects().id(&key(text)).expect("there");
    let protection = world.leader.protection(&world.state, &tenant, id, now);
    let is_protected = world.leader.is_protected(&world.state, &tenant, id, now);
    assert_eq!(is_protected, protection != Protection::None);
    protection
}

fn pinned(world: &World) -> u64 {
    world
        .state
        .tenant(&tenant("red"))
        .map_or(0, |t| t.pinned_bytes())
}

fn probe(text: &str) -> Request {
    Request::Exists {
        tenant: tenant("red"),
        key: key(text),
        lease: true,
    }
}

#[test]
fn what_is_pinned_would_not_be_evicted() {
    let mut world = World::ready(1, 4, &["red"]);
    for (name, pin) in [
        ("plain", Pin::None),
        ("soft", Pin::Soft { ttl_ms: 60_000 }),
        ("hard", Pin::Hard),
    ] {
        let said = Attributes {
            pin,
            ..Attributes::default()
        };
        let start = World::start("red", name, 1_000);
        world.put(World::with(start, said)).expect("room");
    }
    let now = world.now;
    let all =
        |world: &World, now| ["plain", "soft", "hard"].map(|name| protection(world, name, now));
    use Protection::{HardPin, Lease, SoftPin};
    assert_eq!(all(&world, now), [Protection::None, SoftPin, HardPin]);
    assert_eq!(
        all(&world, now.plus_ms(61_000)),
        [Protection::None, Protection::None, HardPin]
    );
    world.answer(World::get("red", "plain")).expect("there");
    world.answer(World::get("red", "soft")).expect("there");
    assert_eq!(all(&world, now.plus_ms(5_000)), [Lease, Lease, HardPin]);
    assert_eq!(
        all(&world, now.plus_ms(11_000)),
        [Protection::None, SoftPin, HardPin]
    );

    // Hard pins are durable; a soft one counts anew with a new leader.
    world.pass(50_000);
    world.fail_over(0);
    world.settle();
    let now = world.now;
    assert_eq!(all(&world, now), [Protection::None, SoftPin, HardPin]);
    assert_eq!(protection(&world, "soft", now.plus_ms(40_000)), SoftPin);
    assert_eq!(
        world.answer(World::pin("red", "hard", Pin::None)),
        Ok(Reply::Done)
    );
    // A lease of the former leader may be on it.
    let later = now.plus_ms(10_064);
    assert_eq!(protection(&world, "hard", now), Lease);
    assert_eq!(protection(&world, "hard", later), Protection::None);
    assert_eq!(pinned(&world), 0);
}

#[test]
fn pins_are_set_changed_and_taken_away() {
    let mut world = World::ready(2, 4, &["red"]);
    let mut start = World::start("red", "k", 1_000);
    if let Request::PutStart { replicas, .. } = &mut start {
        *replicas = 2;
    }
    world.put(start).expect("room");
    for (pin, bytes) in [(Pin::Hard, 32_768), (Pin::Hard, 32_768), (Pin::None, 0)] {
        assert_eq!(world.answer(World::pin("red", "k", pin)), Ok(Reply::Done));
        assert_eq!(pinned(&world), bytes);
    }
    let soft = |ttl_ms| World::pin("red", "k", Pin::Soft { ttl_ms });
    assert_eq!(world.answer(soft(0)), Ok(Reply::Done));
    let half_an_hour = 30 * 60_000;
    assert_eq!(
        world.stat("red", "k").attributes.pin,
        Pin::Soft {
            ttl_ms: half_an_hour
        }
    );
    assert_eq!(
        world.reason(soft(24 * 60 * 60_000 + 1)),
        Reason::BadArgument
    );
    assert_eq!(
        world.reason(World::pin("red", "none", Pin::Hard)),
        Reason::NotFound
    );
    world.granted(World::start("red", "new", 1_000));
    assert_eq!(
        world.reason(World::pin("red", "new", Pin::Hard)),
        Reason::NotReady
    );
    assert_eq!(
        world.reason(World::pin("blue", "k", Pin::Hard)),
        Reason::TenantUnknown
    );
    // A pin waits for what is proposed before it.
    let remove = world.ask(World::remove("red", "k"));
    let pin = world.ask(World::pin("red", "k", Pin::Hard));
    assert_eq!(world.parked(), 1);
    world.settle();
    assert_eq!(world.taken(remove), Some(Ok(Reply::Done)));
    assert!(matches!(world.taken(pin), Some(Err(r)) if r.reason == Reason::NotFound));
}

#[test]
fn pinned_bytes_are_bounded_per_tenant_and_come_back() {
    let settings = Settings {
        max_pinned_bytes: 65_536,
        ..Settings::default()
    };
    let mut world = World::with_settings(settings, 1, 2, 4);
    world.settle();
    ["red", "blue"]
        .iter()
        .for_each(|name| world.set_tenant(name, TenantPolicy::default()));
    let hard = |name: &str, text: &str, bytes| {
        let said = Attributes {
            pin: Pin::Hard,
            ..Attributes::default()
        };
        World::with(World::start(name, text, bytes), said)
    };
    world.put(hard("red", "a", 32_768)).expect("room");
    // Pending ones count.
    world.granted(hard("red", "b", 32_768));
    let refusal = world.refusal(hard("red", "c", 1));
    assert_eq!(refusal.reason, Reason::QuotaPinnedBytes);
    let detail = "limit 65536, pinned 32768, being pinned 32768, asked 16384";
    assert_eq!(refusal.detail, detail);
    world.put(hard("blue", "c", 65_536)).expect("its own bound");
    // Two pins in one turn do not slip through together.
    world
        .answer(Request::SessionClosed {
            session: crate::world::SESSION,
        })
        .expect("done");
    world.settle();
    for text in ["d", "e"] {
        world.put(World::start("red", text, 32_768)).expect("room");
    }
    let [one, two] = ["d", "e"].map(|text| world.ask(World::pin("red", text, Pin::Hard)));
    world.settle();
    assert_eq!(world.taken(one), Some(Ok(Reply::Done)));
    assert!(matches!(world.taken(two), Some(Err(r)) if r.reason == Reason::QuotaPinnedBytes));
    assert_eq!(world.answer(World::remove("red", "a")), Ok(Reply::Done));
    assert_eq!(
        world.answer(World::pin("red", "e", Pin::Hard)),
        Ok(Reply::Done)
    );
    assert_eq!(pinned(&world), 65_536);
    // With the agent goes what was pinned on it.
    let agents: Vec<_> = world.state.agents().map(|(id, _)| id).collect();
    for agent in agents {
        world.ask(Request::Unmount { agent });
    }
    // What was lost is swept in turns.
    world.turns(4);
    assert_eq!(pinned(&world), 0);
}

/// Who may pin all of its limit hears of the limit: raising what may be pinned would not help.
#[test]
fn a_limit_that_is_all_pinned_is_told_as_the_limit() {
    let mut world = World::ready(2, 4, &[]);
    let policy = TenantPolicy {
        limit_bytes: Some(65_536),
        limit_pinned_bytes: Some(65_536),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy.clone());
    let said = Attributes {
        pin: Pin::Hard,
        ..Attributes::default()
    };
    let hard = |text: &str| World::with(World::start("red", text, 32_768), said.clone());
    for text in ["a", "b"] {
        world.put(hard(text)).expect("room");
    }
    assert_eq!(world.reason(hard("c")), Reason::QuotaBytes);
    let less = TenantPolicy {
        limit_pinned_bytes: Some(65_535),
        ..policy
    };
    world.set_tenant("red", less);
    assert_eq!(world.reason(hard("c")), Reason::QuotaPinnedBytes);
}

#[test]
fn a_lease_refuses_a_polite_removal_only() {
    let mut world = World::ready(1, 4, &["red"]);
    let polite = |text: &str| {
        let mut request = World::remove("red", text);
        if let Request::Remove { if_unleased, .. } = &mut request {
            *if_unleased = true;
        }
        request
    };
    for name in ["a", "b", "c", "d"] {
        world.put(World::start("red", name, 1_000)).expect("room");
    }
    assert_eq!(
        world.answer(polite("a")),
        Ok(Reply::Done),
        "right after its put"
    );
    world.answer(World::get("red", "b")).expect("there");
    assert_eq!(world.reason(polite("b")), Reason::LeaseHeld);
    assert!(world.exists("red", "c"));
    assert_eq!(
        world.answer(polite("c")),
        Ok(Reply::Done),
        "a plain probe grants none"
    );
    assert_eq!(world.answer(probe("d")), Ok(Reply::Exists(true)));
    assert_eq!(world.reason(polite("d")), Reason::LeaseHeld);
    // Probes go on and on: once is enough.
    for _ in 0..11 {
        world.pass(1_000);
        assert_eq!(world.answer(probe("d")), Ok(Reply::Exists(true)));
    }
    assert_eq!(world.answer(polite("d")), Ok(Reply::Done));
    assert_eq!(
        world.answer(World::remove("red", "b")),
        Ok(Reply::Done),
        "without the word"
    );
    assert_eq!(world.answer(probe("d")), Ok(Reply::Exists(false)));
}

#[test]
fn a_new_leader_waits_out_leases_that_it_cannot_know() {
    let mut world = World::ready(1, 4, &["red"]);
    world.put(World::start("red", "old", 1_000)).expect("room");
    world.answer(World::get("red", "old")).expect("there");
    world.fail_over(0);
    world.settle();
    world.put(World::start("red", "new", 1_000)).expect("room");
    let polite = |text: &str| Request::Remove {
        tenant: tenant("red"),
        key: key(text),
        if_unleased: true,
    };
    assert_eq!(
        protection(&world, "old", world.now),
        Protection::None,
        "eviction goes on"
    );
    assert_eq!(world.reason(polite("old")), Reason::LeaseHeld);
    assert!(
        world
            .refusal(polite("old"))
            .detail
            .contains("former leader")
    );
    assert_eq!(world.answer(polite("new")), Ok(Reply::Done));
    world.pass(10_000);
    assert_eq!(world.answer(polite("old")), Ok(Reply::Done));
}

#[test]
fn a_group_is_leased_as_one() {
    let mut world = World::ready(1, 4, &["red"]);
    for name in ["a", "b", "alone"] {
        let group = (name != "alone").then(|| GroupId::new("g").expect("a name"));
        let said = Attributes {
            group,
            ..Attributes::default()
        };
        let start = World::start("red", name, 1_000);
        world.put(World::with(start, said)).expect("room");
    }
    world.answer(World::get("red", "a")).expect("there");
    let now = world.now;
    assert_eq!(protection(&world, "b", now), Protection::Lease);
    assert_eq!(protection(&world, "alone", now), Protection::None);
    assert!(world.stat("red", "b").leased);
    assert_eq!(
        protection(&world, "b", now.plus_ms(10_064)),
        Protection::None
    );
}

/// A place that an object leaves brings no lease to the next one there.
#[test]
fn a_lease_ends_with_its_object() {
    let mut world = World::ready(1, 4, &["red"]);
    world.put(World::start("red", "a", 1_000)).expect("room");
    world.answer(World::get("red", "a")).expect("there");
    assert_eq!(world.answer(World::remove("red", "a")), Ok(Reply::Done));
    world.put(World::start("red", "b", 1_000)).expect("room");
    assert_eq!(protection(&world, "b", world.now), Protection::None);
    world.answer(World::get("red", "b")).expect("there");
    world.put(World::upsert("red", "b", 1_000)).expect("room");
    assert_eq!(protection(&world, "b", world.now), Protection::None);
}
