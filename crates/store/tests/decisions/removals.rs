//! Removals of many objects, a page at a time, and pages of what is known.

use larder_store::{MAX_LISTED, Reply, Request};
use larder_types::{Reason, SessionId};

use crate::world::{World, key, tenant};

fn filled(names: &[&str]) -> World {
    let mut world = World::ready(1, 8, &["red", "blue"]);
    for name in names {
        world.put(World::start("red", name, 1_000)).expect("room");
    }
    world.put(World::start("blue", "a0", 1_000)).expect("room");
    world
}

fn page(limit: usize, after: Option<&str>) -> Request {
    Request::RemovePrefix {
        tenant: tenant("red"),
        prefix: b"a".to_vec(),
        after: after.map(key),
        limit,
        if_unleased: false,
    }
}

#[test]
fn b40_all_of_a_prefix_goes_page_by_page_and_nothing_else() {
    let names: Vec<String> = (0..20).map(|n| format!("a{n:02}")).collect();
    let mut all: Vec<&str> = names.iter().map(String::as_str).collect();
    all.push("b");
    let mut world = filled(&all);
    let first = world.answer(page(7, None));
    let last = Some(key("a06"));
    let some = Reply::RemovedSome {
        removed: 7,
        skipped: 0,
        last,
    };
    assert_eq!(first, Ok(some));
    assert_eq!(world.remove_prefix("red", "a", false), (13, 0));
    assert_eq!(world.remove_prefix("red", "a", false), (0, 0));
    assert_eq!(world.keys("red", ""), ["b"]);
    assert_eq!(world.keys("blue", ""), ["a0"], "of another tenant");
    assert_eq!(world.remove_prefix("red", "", false), (1, 0));
    assert_eq!(world.keys("blue", ""), ["a0"]);
    assert_eq!(world.state.releasing_bytes(), 0);
}

#[test]
fn protected_objects_are_left_when_asked() {
    let mut world = filled(&["a", "aa", "ab"]);
    world.answer(World::get("red", "aa")).expect("there");
    assert_eq!(world.remove_prefix("red", "a", true), (2, 1));
    assert_eq!(world.keys("red", ""), ["aa"]);
    assert_eq!(world.remove_prefix("red", "a", false), (1, 0));
}

#[test]
fn what_others_have_proposed_comes_first() {
    let mut world = filled(&["a", "aa", "ab"]);
    let remove = world.ask(World::remove("red", "aa"));
    let some = world.ask(page(10, None));
    let next = world.ask(page(10, Some("a")));
    assert_eq!(
        world.parked(),
        1,
        "the first key of the second page is taken"
    );
    world.settle();
    assert_eq!(world.taken(remove), Some(Ok(Reply::Done)));
    let cut = Reply::RemovedSome {
        removed: 1,
        skipped: 0,
        last: Some(key("a")),
    };
    assert_eq!(world.taken(some), Some(Ok(cut)));
    let rest = Reply::RemovedSome {
        removed: 1,
        skipped: 0,
        last: None,
    };
    assert_eq!(world.taken(next), Some(Ok(rest)));
    assert!(world.keys("red", "a").is_empty());
}

#[test]
fn a_pending_put_outlives_the_removal_of_its_prefix() {
    let mut world = filled(&["a"]);
    let (version, replicas) = world.granted(World::upsert("red", "a", 2_000));
    assert_eq!(world.remove_prefix("red", "a", false), (1, 0));
    assert!(world.write(&tenant("red"), version, &replicas));
    let session: SessionId = crate::world::SESSION;
    let done = crate::world::end(session, tenant("red"), key("a"), version, &replicas);
    assert_eq!(world.answer(done), Ok(Reply::Done));
    assert_eq!(world.keys("red", ""), ["a"]);
}

#[test]
fn pages_have_bounds() {
    let mut world = filled(&["a"]);
    for limit in [0, MAX_LISTED + 1] {
        assert_eq!(world.reason(page(limit, None)), Reason::BadArgument);
        let list = Request::ListStats {
            tenant: tenant("red"),
            prefix: vec![],
            after: None,
            limit,
        };
        assert_eq!(world.reason(list), Reason::BadArgument);
    }
}

#[test]
fn a_list_tells_what_is_known_of_each_object() {
    let mut world = filled(&["a", "b", "c"]);
    let list = |after: &str| Request::ListStats {
        tenant: tenant("red"),
        prefix: vec![],
        after: Some(key(after)),
        limit: 1,
    };
    let stat = world.stat("red", "b");
    assert_eq!(
        (stat.size_bytes, stat.wanted, stat.agents.len()),
        (1_000, 1, 1)
    );
    let entries = vec![(key("b"), stat)];
    assert_eq!(
        world.answer(list("a")),
        Ok(Reply::ListedStats {
            entries,
            more: true
        })
    );
    match world.answer(list("b")) {
        Ok(Reply::ListedStats { more, .. }) => assert!(!more),
        other => panic!("not listed: {other:?}"),
    }
    let stat = |text: &str| Request::Stat {
        tenant: tenant("red"),
        key: key(text),
    };
    assert_eq!(world.reason(stat("none")), Reason::NotFound);
    world.granted(World::start("red", "new", 1));
    assert_eq!(world.reason(stat("new")), Reason::NotReady);
    assert!(!world.stat("red", "a").leased, "a stat grants no lease");
}
