//! Tenants: access, limits that change, deletion with everything they hold.

use larder_store::{Reply, Request, TenantPolicy};
use larder_types::{Access, Reason, SessionId};

use crate::world::{SESSION, World, end, key, tenant};

fn with_access(access: Access) -> TenantPolicy {
    TenantPolicy {
        access,
        ..TenantPolicy::default()
    }
}

fn exists() -> Request {
    Request::Exists {
        tenant: tenant("red"),
        key: key("k"),
        lease: false,
    }
}

fn list() -> Request {
    Request::List {
        tenant: tenant("red"),
        prefix: vec![],
        after: None,
        limit: 10,
    }
}

#[test]
fn access_is_checked_by_every_call() {
    let mut world = World::ready(1, 4, &["red"]);
    let (version, at) = world.put(World::start("red", "k", 10)).expect("room");
    let ends = end(SESSION, tenant("red"), key("k"), version, &at);
    world.set_tenant("red", with_access(Access::ReadOnly));
    for request in [
        World::start("red", "new", 10),
        World::remove("red", "k"),
        ends.clone(),
    ] {
        assert_eq!(
            world.reason(request.clone()),
            Reason::AccessDenied,
            "{request:?}"
        );
    }
    for request in [World::get("red", "k"), exists(), list()] {
        assert!(world.answer(request).is_ok());
    }
    world.set_tenant("red", with_access(Access::WriteOnly));
    for request in [World::get("red", "k"), exists(), list()] {
        assert_eq!(
            world.reason(request.clone()),
            Reason::AccessDenied,
            "{request:?}"
        );
    }
    assert!(
        world
            .answer(Request::Usage {
                tenant: tenant("red")
            })
            .is_ok()
    );
    assert_eq!(world.answer(World::remove("red", "k")), Ok(Reply::Done));
}

#[test]
fn a_listing_has_a_limit() {
    let mut world = World::ready(1, 4, &["red"]);
    for limit in [0, 1001] {
        let (tenant, prefix) = (tenant("red"), vec![]);
        let request = Request::List {
            tenant,
            prefix,
            after: None,
            limit,
        };
        assert_eq!(world.reason(request), Reason::BadArgument);
    }
}

/// Puts 5,000 objects: more than one turn touches.
fn fill(world: &mut World) {
    for first in (0..5_000).step_by(500) {
        let name = |n: usize| format!("k{n:05}");
        let mut start = |n: usize| (n, world.ask(World::start("red", &name(n), 1)));
        let tickets: Vec<_> = (first..first + 500).map(&mut start).collect();
        world.settle();
        for (n, ticket) in tickets {
            let answer = world.taken(ticket);
            let Some(Ok(Reply::PutGranted {
                version, replicas, ..
            })) = answer
            else {
                panic!("there is room")
            };
            assert!(world.write(&tenant("red"), version, &replicas));
            world.ask(end(
                SESSION,
                tenant("red"),
                key(&name(n)),
                version,
                &replicas,
            ));
        }
        world.commit_all_unchecked();
    }
}

#[test]
fn a_deleted_tenant_is_gone_at_once_and_purged_in_steps() {
    let mut world = World::ready(1, 4, &["red"]);
    fill(&mut world);
    let (version, at) = world.granted(World::start("red", "pending", 10));
    assert_eq!(world.state.objects(), 5_000);

    let delete = Request::TenantDelete {
        tenant: tenant("red"),
    };
    let first = world.ask(delete.clone());
    let again = world.ask(delete.clone());
    let start = world.ask(World::start("red", "late", 10));
    assert_eq!(world.leader.pending_puts(), 0, "pending puts are given up");
    world.quiesce();
    assert_eq!(world.taken(first), Some(Ok(Reply::Done)));
    assert_eq!(world.taken(again), Some(Ok(Reply::Done)));
    assert!(matches!(world.taken(start), Some(Err(r)) if r.reason == Reason::TenantUnknown));
    let late = end(SESSION, tenant("red"), key("pending"), version, &at);
    for request in [World::get("red", "k00001"), exists(), list(), late] {
        assert_eq!(world.reason(request), Reason::TenantUnknown);
    }
    assert_eq!(world.state.objects(), 5_000, "nothing is removed yet");
    let set = Request::TenantSet {
        tenant: tenant("red"),
        policy: TenantPolicy::default(),
    };
    assert_eq!(world.reason(set.clone()), Reason::TenantHasObjects);

    let left: Vec<u64> = (0..2)
        .map(|_| {
            world.pass(100);
            world.commit_all_unchecked();
            world.state.objects()
        })
        .collect();
    assert_eq!(left, [4_488, 3_976], "512 a turn");
    world.turns(10);
    assert!(world.state.tenant(&tenant("red")).is_none());
    assert_eq!(
        (world.state.used_bytes(), world.state.releasing_bytes()),
        (0, 0)
    );
    assert!(
        world
            .state
            .segments()
            .all(|segment| segment.slabs().is_empty())
    );
    assert_eq!(world.answer(delete), Ok(Reply::Done), "again");
    assert_eq!(world.answer(set), Ok(Reply::Done), "a new one of that name");
    assert!(world.keys("red", "").is_empty());
}

#[test]
fn agents_close_the_sessions_of_a_deleted_tenant() {
    let mut world = World::ready(2, 4, &["red"]);
    world.put(World::start("red", "k", 10)).expect("room");
    world.ask(Request::TenantDelete {
        tenant: tenant("red"),
    });
    assert!(world.commit());
    let gone = larder_store::Command::TenantGone {
        tenant: tenant("red"),
    };
    assert!(world.agents.iter().all(|agent| agent.inbox.contains(&gone)));
    let agent = world.agents[0].id.expect("mounted");
    assert!(
        world
            .leader
            .outstanding(&world.state, agent)
            .contains(&gone),
        "told again"
    );
}

#[test]
fn a_lower_limit_takes_nothing_away() {
    let mut world = World::ready(1, 4, &["red"]);
    world.put(World::start("red", "k", 10_000)).expect("room");
    let policy = TenantPolicy {
        limit_bytes: Some(1),
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    assert!(world.exists("red", "k"));
    assert_eq!(
        world.reason(World::start("red", "new", 1)),
        Reason::QuotaBytes
    );
}

#[test]
fn tenants_are_bounded() {
    let settings = larder_store::Settings {
        max_tenants: 2,
        ..Default::default()
    };
    let mut world = World::with_settings(settings, 1, 0, 0);
    for name in ["a", "b", "b"] {
        world.set_tenant(name, TenantPolicy::default());
    }
    let more = Request::TenantSet {
        tenant: tenant("c"),
        policy: TenantPolicy::default(),
    };
    assert_eq!(world.reason(more), Reason::Overloaded);
    assert_eq!(
        world.answer(Request::SessionClosed {
            session: SessionId(5)
        }),
        Ok(Reply::Done)
    );
}
