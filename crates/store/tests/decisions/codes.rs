//! The return codes that clients of the peer know, as far as they are the store's answers. What
//! the drop-in makes of them (a put of an existing key is 0 there) is its own matter.

use larder_store::{PutMode, Reply, Request};
use larder_types::{Attributes, Pin};

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
