//! The return codes that clients of the peer know, as far as they are the store's answers. What
//! the drop-in makes of them (a put of an existing key is 0 there) is its own matter.

use larder_store::{
    MAX_TASKS, PutMode, Reply, Request, SegmentOffer, TaskStatus, TaskWish, TenantPolicy,
};
use larder_types::{Access, AgentId, Attributes, Borrowing, OnExceed, Pin, TaskId};

use crate::world::{SLAB, World, key, tenant};

const OK: i32 = 0;

/// The number that a client hears.
fn code(world: &mut World, request: Request) -> i32 {
    let answer = match &request {
        Request::PutStart { .. } => world.put(request).map(|_| Reply::Done),
        _ => world.answer(request),
    };
    answer.map_or_else(|refusal| refusal.reason.code().number(), |_| OK)
}

fn put(text: &str) -> Request {
    World::start("red", text, 1_000)
}

fn with_mode(mut start: Request, if_unleased: bool) -> Request {
    if let Request::PutStart { mode, .. } = &mut start {
        *mode = PutMode::Upsert { if_unleased };
    }
    start
}

fn with_replicas(mut start: Request, count: u8) -> Request {
    if let Request::PutStart { replicas, .. } = &mut start {
        *replicas = count;
    }
    start
}

fn remove(text: &str, force: bool) -> Request {
    Request::Remove {
        tenant: tenant("red"),
        key: key(text),
        if_unleased: !force,
    }
}

fn probe(text: &str) -> Request {
    Request::Exists {
        tenant: tenant("red"),
        key: key(text),
        lease: true,
    }
}

fn size(text: &str) -> Request {
    Request::Stat {
        tenant: tenant("red"),
        key: key(text),
    }
}

#[test]
fn the_table_of_return_codes() {
    let soft = |ttl_ms| Attributes {
        pin: Pin::Soft { ttl_ms },
        ..Attributes::default()
    };
    let too_long = 24 * 60 * 60_000 + 1;
    let table = [
        ("put new", put("k"), OK),
        ("put existing", put("k"), -705),
        ("put an empty value", World::start("red", "e", 0), -600),
        ("put without replicas", with_replicas(put("r"), 0), -600),
        ("put with too many", with_replicas(put("r"), 4), -600),
        (
            "put, pinned for too long",
            World::with(put("s"), soft(too_long)),
            -600,
        ),
        (
            "put larger than an agent",
            World::start("red", "l", 64 * SLAB + 1),
            -600,
        ),
        (
            "put by an unknown tenant",
            World::start("blue", "k", 1),
            -1701,
        ),
        ("get a missing key", World::get("red", "none"), -704),
        ("its size", size("none"), -704),
        ("remove it", remove("none", false), -704),
        ("remove it by force", remove("none", true), -704),
        ("unpin it", World::pin("red", "none", Pin::None), -704),
        ("remove right after a put", remove("k", false), OK),
        ("put again", put("k"), OK),
        ("get", World::get("red", "k"), OK),
        ("remove after a get", remove("k", false), -706),
        ("upsert under a lease", with_mode(put("k"), false), OK),
        (
            "of another size",
            with_mode(World::start("red", "k", 2_000), false),
            OK,
        ),
        ("probe", probe("k"), OK),
        ("remove after a probe", remove("k", false), -706),
        (
            "a polite upsert under a lease",
            with_mode(put("k"), true),
            -706,
        ),
        ("the next of a batch", remove("none", false), -704),
        ("remove by force", remove("k", true), OK),
        ("get what was removed", World::get("red", "k"), -704),
    ];
    let mut world = World::ready(1, 4, &["red"]);
    for (what, request, number) in table {
        assert_eq!(
            code(&mut world, request.clone()),
            number,
            "{what}: {request:?}"
        );
    }
}

#[test]
fn a_pending_put_has_codes_of_its_own() {
    let mut world = World::ready(1, 4, &["red"]);
    let (version, _) = world.granted(put("k"));
    for (request, number) in [
        (World::get("red", "k"), -703),
        (size("k"), -703),
        (remove("k", true), -703),
        (put("k"), -705),
        (with_mode(put("k"), false), -705),
        (probe("k"), OK),
    ] {
        assert_eq!(code(&mut world, request.clone()), number, "{request:?}");
    }
    let end = |session, version| Request::PutEnd {
        session: larder_types::SessionId(session),
        tenant: tenant("red"),
        key: key("k"),
        version,
        written: vec![],
    };
    assert_eq!(code(&mut world, end(1, version)), -700, "without receipts");
    assert_eq!(code(&mut world, end(2, version)), -601, "of another client");
    let older = larder_types::Version::default();
    assert_eq!(code(&mut world, end(1, older)), -300, "of another epoch");
}

#[test]
fn removing_all_skips_what_is_leased_unless_forced() {
    let mut world = World::ready(1, 4, &["red"]);
    for name in ["a", "b", "c"] {
        world.put(put(name)).expect("room");
    }
    world.answer(World::get("red", "b")).expect("there");
    assert_eq!(world.remove_prefix("red", "", true), (2, 1));
    assert_eq!(world.remove_prefix("red", "", false), (1, 0));
}

#[test]
fn tasks_have_the_codes_of_the_table() {
    let mut world = World::ready(3, 4, &["red", "blue"]);
    let (_, replicas) = world.put(put("a")).expect("room");
    let holder = replicas[0][0].slab.agent;
    let mut others = (1..=3).map(AgentId).filter(|agent| *agent != holder);
    let (other, third) = (others.next().expect("two"), others.next().expect("two"));
    let create = |text: &str, wish: TaskWish| Request::TaskCreate {
        tenant: tenant("red"),
        key: key(text),
        wish,
    };
    let copy = |targets: &[AgentId]| TaskWish::Copy {
        targets: targets.to_vec(),
    };
    let query = |name: &str, task: TaskId| Request::TaskQuery {
        tenant: tenant(name),
        task,
    };
    let table = [
        ("of a missing key", create("none", copy(&[other])), -704),
        (
            "to an unknown agent",
            create("a", copy(&[AgentId(9)])),
            -600,
        ),
        ("to nowhere", create("a", copy(&[])), -600),
        ("twice to one", create("a", copy(&[other, other])), -600),
        ("an unknown task", query("red", TaskId(7)), -1400),
        ("its end", Request::TaskCancel { task: TaskId(7) }, -1400),
    ];
    for (what, request, number) in table {
        assert_eq!(code(&mut world, request), number, "{what}");
    }
    // A move from where no replica is, and what others hear of it.
    let wish = TaskWish::Move {
        source: other,
        target: third,
    };
    let Ok(Reply::TaskCreated(task)) = world.answer(create("a", wish)) else {
        panic!("not noted")
    };
    assert_eq!(code(&mut world, query("blue", task)), -1400, "of another");
    world.turns(5);
    let stands = world.answer(query("red", task));
    let Ok(Reply::Task(TaskStatus::Failed(reason))) = stands else {
        panic!("not failed: {stands:?}")
    };
    assert_eq!(reason.code().number(), -710, "{reason:?}");

    let drain = Request::Drain {
        agent: other,
        on: true,
    };
    assert_eq!(code(&mut world, drain), OK);
    let late = create("a", copy(&[other]));
    assert_eq!(code(&mut world, late), -1010, "to one that leaves");

    // As many as there may be.
    world.without_checks();
    let more = create("a", copy(&[holder]));
    for _ in 0..MAX_TASKS {
        world.ask(more.clone());
        while world.commit() {}
    }
    while world.acknowledge() {}
    assert_eq!(code(&mut world, more), -1401, "one more");
}

#[test]
fn agents_have_the_codes_of_the_table() {
    let mut world = World::ready(1, 4, &[]);
    let offer = |change: fn(&mut SegmentOffer)| {
        let mut mount = world.agents[0].mount();
        if let Request::Mount { segments, .. } = &mut mount {
            segments.iter_mut().for_each(change);
        }
        mount
    };
    let empty = offer(|segment| segment.slabs = 0);
    let odd = offer(|segment| segment.slab_bytes = 1000);
    let mut later = offer(|_| {});
    if let Request::Mount { highest_epoch, .. } = &mut later {
        highest_epoch.generation = 9;
    }
    let incarnation = world.agents[0].incarnation;
    let beat = Request::Heartbeat {
        agent: AgentId(9),
        incarnation,
        load_permille: 0,
    };
    for (what, request, number) in [
        ("an empty segment", empty, -600),
        ("slabs of no right size", odd, -600),
        ("of a later leader", later, -300),
        ("a heartbeat of nobody", beat, -103),
    ] {
        assert_eq!(code(&mut world, request), number, "{what}");
    }
}

fn strictly(start: Request, count: u8) -> Request {
    let mut start = with_replicas(start, count);
    if let Request::PutStart { strict, .. } = &mut start {
        *strict = true;
    }
    start
}

#[test]
fn space_and_quotas_have_the_codes_of_the_table() {
    let mut nobody = World::ready(0, 0, &["red"]);
    assert_eq!(code(&mut nobody, put("k")), -200, "without an agent");
    let mut world = World::ready(2, 2, &[]);
    let policy = TenantPolicy::default();
    world.set_tenant("red", policy.clone());
    let strict = strictly(put("wide"), 3);
    assert_eq!(code(&mut world, strict), -200, "more than there are agents");

    quotas_have_the_codes_of_the_table(&mut world, &policy);
    world.set_tenant("red", policy.clone());
    for at in 0..4 {
        let whole = World::start("red", &format!("w{at}"), SLAB);
        assert_eq!(code(&mut world, whole), OK);
    }
    assert_eq!(code(&mut world, put("k")), -200, "the pool is full");

    let set = Request::TenantSet {
        tenant: tenant("red"),
        policy,
    };
    let delete = Request::TenantDelete {
        tenant: tenant("red"),
    };
    assert_eq!(code(&mut world, delete), OK);
    assert_eq!(code(&mut world, set.clone()), -1702, "while it empties");
    assert_eq!(code(&mut world, put("k")), -1701, "it is deleted");
    world.turns(5);
    assert_eq!(code(&mut world, set), OK);
}

fn quotas_have_the_codes_of_the_table(world: &mut World, policy: &TenantPolicy) {
    let small = |change: fn(&mut TenantPolicy)| {
        let mut policy = TenantPolicy {
            on_exceed: OnExceed::Refuse,
            ..policy.clone()
        };
        change(&mut policy);
        policy
    };
    let hard = Attributes {
        pin: Pin::Hard,
        ..Attributes::default()
    };
    let pinned = World::with(put("p"), hard);
    for (what, policy, start, number) in [
        (
            "bytes",
            small(|policy| policy.limit_bytes = Some(1)),
            put("k"),
            -1700,
        ),
        (
            "objects",
            small(|policy| policy.limit_objects = Some(0)),
            put("k"),
            -1700,
        ),
        (
            "pinned bytes",
            small(|policy| policy.limit_pinned_bytes = Some(1)),
            pinned,
            -1700,
        ),
        (
            "nothing to borrow",
            small(|policy| policy.borrowing = Borrowing::Forbidden),
            put("k"),
            -1700,
        ),
        (
            "read only",
            small(|policy| policy.access = Access::ReadOnly),
            put("k"),
            -601,
        ),
    ] {
        world.set_tenant("red", policy);
        assert_eq!(code(world, start), number, "{what}");
    }
}
