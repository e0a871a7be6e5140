//! Replicas that move: repair, drain, tasks.

use std::collections::BTreeSet;

use larder_store::{
    Blocked, Command, DrainStatus, Reply, Request, Settings, TaskStatus, TaskWish, TenantPolicy,
    Why,
};
use larder_types::{AgentId, Extent, Reason, TaskId};

use crate::world::{SLAB, World, key, tenant};

fn agents_of(world: &World, text: &str) -> BTreeSet<AgentId> {
    let object = world.state.object(&tenant("red"), &key(text));
    let extents = object.expect("it is there").extents();
    extents.map(|extent| extent.slab.agent).collect()
}

/// Every replica of every object can be read.
fn all_read(world: &World) {
    for (_, tenant) in world.state.tenants() {
        for (key, object) in tenant.objects().iter() {
            for extent in object.extents() {
                let mut agents = world.agents.iter();
                let agent = agents.find(|agent| agent.id == Some(extent.slab.agent));
                let reads = agent.is_some_and(|agent| agent.reads(&extent, object.version()));
                assert!(reads, "{key}: {extent:?}");
            }
        }
    }
}

fn put(world: &mut World, text: &str, size_bytes: u64, replicas: u8) -> Vec<Vec<Extent>> {
    let mut start = World::start("red", text, size_bytes);
    if let Request::PutStart {
        replicas: asked, ..
    } = &mut start
    {
        *asked = replicas;
    }
    world.put(start).expect("room").1
}

fn drain(world: &mut World, agent: AgentId, on: bool) {
    let answer = world.answer(Request::Drain { agent, on });
    assert_eq!(answer, Ok(Reply::Done));
}

fn status(world: &World, agent: AgentId) -> DrainStatus {
    let status = world.leader.drain_status(&world.state, agent);
    status.expect("a known agent")
}

fn number(world: &World, agent: usize) -> AgentId {
    world.agents[agent].id.expect("mounted")
}

fn lose(world: &mut World, agent: usize) {
    world.disconnect(agent, true);
    world.pass(12_000);
    world.settle();
}

fn task(world: &mut World, text: &str, wish: TaskWish) -> TaskId {
    let (tenant, key) = (tenant("red"), key(text));
    match world.answer(Request::TaskCreate { tenant, key, wish }) {
        Ok(Reply::TaskCreated(task)) => task,
        other => panic!("not noted: {other:?}"),
    }
}

fn stands(world: &mut World, task: TaskId) -> TaskStatus {
    let tenant = tenant("red");
    match world.answer(Request::TaskQuery { tenant, task }) {
        Ok(Reply::Task(status)) => status,
        other => panic!("not known: {other:?}"),
    }
}

#[test]
fn a_lost_replica_is_made_again_elsewhere() {
    let mut world = World::ready(3, 4, &["red"]);
    let first = put(&mut world, "a", 300_000, 2);
    let lost = first[0][0].slab.agent;
    let at = (0..3).find(|at| number(&world, *at) == lost).expect("one");
    lose(&mut world, at);
    assert_eq!(agents_of(&world, "a").len(), 1);
    world.turns(10);
    let now = agents_of(&world, "a");
    assert!(now.len() == 2 && !now.contains(&lost), "{now:?}");
    assert_eq!(world.leader.move_counts(Why::Endangered).done, 1);
    assert_eq!(world.leader.missing_replicas(), 0);
    all_read(&world);
}

#[test]
fn what_cannot_be_repaired_is_counted_and_repaired_when_an_agent_comes() {
    let mut world = World::ready(2, 4, &["red"]);
    put(&mut world, "a", 300_000, 2);
    lose(&mut world, 1);
    world.turns(10);
    assert_eq!(agents_of(&world, "a").len(), 1);
    assert_eq!(world.leader.missing_replicas(), 1);
    world.agents[1].restart();
    world.settle();
    world.turns(10);
    assert_eq!(agents_of(&world, "a").len(), 2);
    assert_eq!(world.leader.missing_replicas(), 0);
    all_read(&world);
}

/// Its own replicas of before are noted on it until they are swept, and there is nobody else.
#[test]
fn an_agent_that_returns_empty_gets_its_replicas_again() {
    for objects in [20, 1_500] {
        let mut world = World::ready(2, 8, &["red"]);
        world.without_checks();
        for number in 0..objects {
            assert_eq!(put(&mut world, &format!("k{number}"), 1_000, 2).len(), 2);
        }
        world.disconnect(0, true);
        world.agents[0].restart();
        world.settle();
        world.turns(120);
        assert_eq!(world.leader.missing_replicas(), 0);
        for number in 0..objects {
            assert_eq!(
                agents_of(&world, &format!("k{number}")).len(),
                2,
                "k{number}"
            );
        }
        // And what is lost with the other one is there.
        lose(&mut world, 1);
        world.turns(20);
        assert_eq!(world.leader.missing_replicas(), objects);
        all_read(&world);
    }
}

#[test]
fn a_new_leader_finds_what_is_missing() {
    let mut world = World::ready(3, 4, &["red"]);
    for at in 0..20 {
        put(&mut world, &format!("k{at}"), 20_000, 2);
    }
    world.disconnect(0, true);
    world.pass(12_000);
    world.commit_all_unchecked();
    world.fail_over(0);
    world.settle();
    world.turns(40);
    for at in 0..20 {
        assert_eq!(agents_of(&world, &format!("k{at}")).len(), 2, "k{at}");
    }
    all_read(&world);
}

#[test]
fn a_repair_breaks_no_limit() {
    let mut world = World::ready(3, 4, &["red"]);
    put(&mut world, "a", 256_000, 2);
    let limit_bytes = Some(256_000);
    let policy = TenantPolicy {
        limit_bytes,
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    let lost = *agents_of(&world, "a").first().expect("two");
    let at = (0..3).find(|at| number(&world, *at) == lost).expect("one");
    lose(&mut world, at);
    world.turns(10);
    assert_eq!(agents_of(&world, "a").len(), 1);
    assert_eq!(world.leader.missing_replicas(), 1);
}

#[test]
fn a_drained_agent_leaves_without_loss() {
    let mut world = World::ready(3, 4, &["red"]);
    for at in 0..12u8 {
        put(&mut world, &format!("k{at}"), 400_000, 1 + at % 2);
    }
    let leaving = number(&world, 0);
    drain(&mut world, leaving, true);
    assert!(!status(&world, leaving).drained);
    world.turns(60);
    let after = status(&world, leaving);
    assert!(after.drained && after.blocked.is_none(), "{after:?}");
    assert_eq!((after.bytes_left, after.slabs_left), (0, 0));
    let unmounted = world.answer(Request::Unmount { agent: leaving });
    assert_eq!(unmounted, Ok(Reply::Done));
    assert_eq!(world.objects_lost, 0);
    for at in 0..12u8 {
        let agents = agents_of(&world, &format!("k{at}"));
        assert_eq!(agents.len(), usize::from(1 + at % 2));
        assert!(!agents.contains(&leaving));
    }
    all_read(&world);
}

#[test]
fn a_draining_agent_gets_nothing_new_until_it_is_wanted_again() {
    let mut world = World::ready(2, 4, &["red"]);
    let leaving = number(&world, 0);
    let near = |text: &str| {
        let mut start = World::start("red", text, 1_000);
        if let Request::PutStart { preferred, .. } = &mut start {
            preferred.push(leaving);
        }
        start
    };
    let other = number(&world, 1);
    drain(&mut world, leaving, true);
    drain(&mut world, other, true);
    let refusal = world.refusal(near("nowhere"));
    assert_eq!(refusal.reason, Reason::NoAgents);
    let detail = "0 of them take objects; 2 are being drained";
    assert!(refusal.detail.contains(detail), "{refusal}");
    drain(&mut world, other, false);
    world.put(near("a")).expect("room");
    assert!(!agents_of(&world, "a").contains(&leaving));
    drain(&mut world, leaving, false);
    world.put(near("b")).expect("room");
    assert!(agents_of(&world, "b").contains(&leaving));
}

#[test]
fn a_put_that_began_before_the_drain_is_moved_when_it_ends() {
    let mut world = World::ready(2, 4, &["red"]);
    let (version, replicas) = world.granted(World::start("red", "a", 1_000));
    let leaving = replicas[0][0].slab.agent;
    drain(&mut world, leaving, true);
    world.turns(5);
    let (tenant, key) = (tenant("red"), key("a"));
    assert!(world.write(&tenant, version, &replicas));
    let end = crate::world::end(crate::world::SESSION, tenant, key, version, &replicas);
    assert_eq!(world.answer(end), Ok(Reply::Done));
    world.turns(10);
    assert!(status(&world, leaving).drained);
    assert!(!agents_of(&world, "a").contains(&leaving));
    all_read(&world);
}

#[test]
fn surplus_replicas_are_dropped_and_not_moved() {
    let mut world = World::ready(3, 4, &["red"]);
    let first = put(&mut world, "a", 300_000, 1)[0][0].slab.agent;
    let other = (0..3).map(|at| number(&world, at)).find(|id| *id != first);
    let targets = vec![other.expect("three agents")];
    let task = task(&mut world, "a", TaskWish::Copy { targets });
    world.turns(5);
    assert_eq!(stands(&mut world, task), TaskStatus::Success);
    assert_eq!(agents_of(&world, "a").len(), 2);
    drain(&mut world, first, true);
    world.turns(5);
    assert!(status(&world, first).drained);
    assert_eq!(world.leader.move_counts(Why::Drain).done, 0);
    assert_eq!(agents_of(&world, "a").len(), 1);
}

#[test]
fn without_room_elsewhere_a_drain_waits_and_says_so() {
    let settings = Settings {
        evict: false,
        ..Settings::default()
    };
    let mut world = World::with_settings(settings, 7, 2, 1);
    world.settle();
    world.set_tenant("red", TenantPolicy::default());
    for text in ["a", "b"] {
        put(&mut world, text, SLAB, 1);
    }
    let leaving = number(&world, 0);
    drain(&mut world, leaving, true);
    world.turns(5);
    let now = status(&world, leaving);
    assert_eq!((now.drained, now.blocked), (false, Some(Blocked::NoSpace)));
    all_read(&world);
    let kept = ["a", "b"].into_iter().find(|text| {
        let agents = agents_of(&world, text);
        !agents.contains(&leaving)
    });
    let removed = world.answer(World::remove("red", kept.expect("one is elsewhere")));
    assert_eq!(removed, Ok(Reply::Done));
    // It is tried again after 10 s, and then after twice as long.
    for _ in 0..4 {
        world.pass(10_000);
        world.settle();
    }
    world.turns(5);
    assert!(status(&world, leaving).drained);
    assert_eq!(world.objects_lost, 0);
    all_read(&world);
}

/// A move needs no more of the tenant's quota than there is, a second replica would.
#[test]
fn a_last_replica_leaves_a_draining_agent_whatever_its_tenant_may_have() {
    let mut world = World::ready(3, 4, &["red"]);
    put(&mut world, "a", 256_000, 2);
    let limit_bytes = Some(256_000);
    let policy = TenantPolicy {
        limit_bytes,
        ..TenantPolicy::default()
    };
    world.set_tenant("red", policy);
    let lost = *agents_of(&world, "a").first().expect("two");
    let at = (0..3).find(|at| number(&world, *at) == lost).expect("one");
    lose(&mut world, at);
    let leaving = *agents_of(&world, "a").first().expect("one");
    drain(&mut world, leaving, true);
    world.turns(20);
    let now = status(&world, leaving);
    assert_eq!((now.drained, now.blocked), (true, None));
    assert_eq!(agents_of(&world, "a").len(), 1);
    all_read(&world);
}

#[test]
fn a_drain_ends_where_too_few_hosts_are_left_for_all_replicas() {
    let mut world = World::ready(2, 4, &["red"]);
    put(&mut world, "a", 256_000, 2);
    put(&mut world, "b", 256_000, 1);
    let leaving = number(&world, 0);
    drain(&mut world, leaving, true);
    world.turns(20);
    let now = status(&world, leaving);
    assert_eq!((now.drained, now.blocked), (true, None));
    all_read(&world);
    // It comes back, and with it the replica.
    drain(&mut world, leaving, false);
    world.turns(20);
    assert_eq!(agents_of(&world, "a").len(), 2);
    // A host that is silent may answer again: nothing is given up for that.
    let mut world = World::ready(3, 4, &["red"]);
    put(&mut world, "a", 256_000, 2);
    let holders = agents_of(&world, "a");
    let is_holder = |at: &usize| holders.contains(&number(&world, *at));
    let silent = (0..3).find(|at| !is_holder(at)).expect("one of three");
    world.disconnect(silent, false);
    drain(&mut world, *holders.first().expect("two"), true);
    for _ in 0..3 {
        world.pass(100);
    }
    assert_eq!(agents_of(&world, "a").len(), 2);
}

#[test]
fn a_drain_is_kept_over_a_fail_over_and_a_restart_of_its_agent() {
    let mut world = World::ready(3, 4, &["red"]);
    for at in 0..6 {
        put(&mut world, &format!("k{at}"), 300_000, 1);
    }
    let leaving = number(&world, 0);
    drain(&mut world, leaving, true);
    world.fail_over(9);
    world.settle();
    world.turns(60);
    assert!(status(&world, leaving).drained);
    world.disconnect(0, true);
    world.agents[0].restart();
    world.settle();
    assert!(status(&world, leaving).draining);
    all_read(&world);
}

#[test]
fn a_move_task_moves_one_replica() {
    let mut world = World::ready(3, 4, &["red"]);
    let source = put(&mut world, "a", 300_000, 1)[0][0].slab.agent;
    let others = (0..3).map(|at| number(&world, at));
    let target = others.into_iter().find(|id| *id != source).expect("three");
    let wish = TaskWish::Move { source, target };
    let first = task(&mut world, "a", wish.clone());
    assert_eq!(stands(&mut world, first), TaskStatus::Pending);
    world.turns(10);
    assert_eq!(stands(&mut world, first), TaskStatus::Success);
    assert_eq!(agents_of(&world, "a"), BTreeSet::from([target]));
    let again = task(&mut world, "a", wish);
    world.turns(2);
    assert_eq!(stands(&mut world, again), TaskStatus::Success);
    all_read(&world);
}

#[test]
fn tasks_that_cannot_be_are_refused_with_their_reason() {
    let mut world = World::ready(2, 4, &["red", "blue"]);
    put(&mut world, "a", 1_000, 1);
    let create = |text: &str, targets: Vec<u32>| Request::TaskCreate {
        tenant: tenant("red"),
        key: key(text),
        wish: TaskWish::Copy {
            targets: targets.into_iter().map(AgentId).collect(),
        },
    };
    assert_eq!(world.reason(create("b", vec![1])), Reason::NotFound);
    assert_eq!(world.reason(create("a", vec![9])), Reason::AgentUnknown);
    assert_eq!(world.reason(create("a", vec![])), Reason::BadArgument);
    assert_eq!(world.reason(create("a", vec![1, 1])), Reason::BadArgument);
    let task_of_red = task(
        &mut world,
        "a",
        TaskWish::Copy {
            targets: vec![AgentId(1)],
        },
    );
    let query = |name: &str, task| Request::TaskQuery {
        tenant: tenant(name),
        task,
    };
    assert_eq!(
        world.reason(query("blue", task_of_red)),
        Reason::TaskUnknown
    );
    assert_eq!(world.reason(query("red", TaskId(7))), Reason::TaskUnknown);
    drain(&mut world, AgentId(2), true);
    assert_eq!(world.reason(create("a", vec![2])), Reason::AgentDraining);
}

#[test]
fn a_canceled_task_is_over_and_another_is_not_touched() {
    let mut world = World::ready(3, 4, &["red"]);
    let source = put(&mut world, "a", 300_000, 1)[0][0].slab.agent;
    let others: Vec<_> = (0..3).map(|at| number(&world, at)).collect();
    let mut others = others.into_iter().filter(|id| *id != source);
    let mut copy = || TaskWish::Copy {
        targets: vec![others.next().expect("two")],
    };
    let (first, second) = (task(&mut world, "a", copy()), task(&mut world, "a", copy()));
    let listed = |world: &World, after| -> Vec<TaskId> {
        world.state.tasks_after(after).map(|(id, _)| id).collect()
    };
    assert_eq!(listed(&world, TaskId(0)), [first, second]);
    assert_eq!(listed(&world, first), [second]);
    let cancel = |task| Request::TaskCancel { task };
    assert_eq!(world.answer(cancel(first)), Ok(Reply::Done));
    let canceled = TaskStatus::Failed(Reason::TaskCanceled);
    assert_eq!(stands(&mut world, first), canceled);
    assert_eq!(world.answer(cancel(first)), Ok(Reply::Done), "over already");
    world.turns(10);
    assert_eq!(stands(&mut world, second), TaskStatus::Success);
    assert_eq!(world.answer(cancel(second)), Ok(Reply::Done));
    assert_eq!(stands(&mut world, second), TaskStatus::Success);
    assert_eq!(world.reason(cancel(TaskId(7))), Reason::TaskUnknown);
    world.fail_over(9);
    world.settle();
    world.turns(10);
    assert_eq!(stands(&mut world, first), canceled);
    assert_eq!(agents_of(&world, "a").len(), 2);
    all_read(&world);
}

#[test]
fn a_drain_says_how_much_is_left() {
    let mut world = World::ready(1, 8, &["red"]);
    for at in 0..3 {
        put(&mut world, &format!("k{at}"), 300_000, 1);
    }
    let only = number(&world, 0);
    let left = status(&world, only);
    assert_eq!((left.objects_left, left.extents_left), (Some(3), 3));
    assert!(left.bytes_left >= 900_000 && !left.drained);
}

#[test]
fn a_task_ends_with_its_object() {
    let mut world = World::ready(2, 4, &["red"]);
    let source = put(&mut world, "a", 1_000, 1)[0][0].slab.agent;
    let others = (0..2).map(|at| number(&world, at));
    let target = others.into_iter().find(|id| *id != source).expect("two");
    let gone = task(&mut world, "a", TaskWish::Move { source, target });
    assert_eq!(world.answer(World::remove("red", "a")), Ok(Reply::Done));
    world.turns(3);
    let failed = TaskStatus::Failed(Reason::NotFound);
    assert_eq!(stands(&mut world, gone), failed);
    assert_eq!(world.state.open_tasks(), 0);
}

#[test]
fn b28_one_bad_item_leaves_the_rest_of_a_batch_of_tasks_alone() {
    let mut world = World::ready(2, 8, &["red"]);
    let mut tasks = Vec::new();
    for at in 0..100 {
        let source = put(&mut world, &format!("k{at}"), 1_000, 1)[0][0]
            .slab
            .agent;
        let target = AgentId(3 - source.0);
        let wish = TaskWish::Move { source, target };
        tasks.push(task(&mut world, &format!("k{at}"), wish));
    }
    assert_eq!(world.answer(World::remove("red", "k50")), Ok(Reply::Done));
    world.turns(40);
    let outcomes: Vec<TaskStatus> = tasks
        .into_iter()
        .map(|task| stands(&mut world, task))
        .collect();
    let done = outcomes.iter().filter(|s| **s == TaskStatus::Success);
    assert_eq!(done.count(), 99);
    assert_eq!(outcomes[50], TaskStatus::Failed(Reason::NotFound));
    assert_eq!((world.state.open_tasks(), world.leader.copies()), (0, 0));
    all_read(&world);
}

#[test]
fn copies_keep_to_their_number_and_bytes_a_second() {
    let settings = Settings {
        max_moves: 2,
        move_bytes_per_s: 400_000,
        ..Settings::default()
    };
    let mut world = World::with_settings(settings, 7, 2, 4);
    world.settle();
    world.set_tenant("red", TenantPolicy::default());
    for at in 0..10 {
        put(&mut world, &format!("k{at}"), 400_000, 1);
    }
    let first = agents_of(&world, "k0").pop_first().expect("one");
    drain(&mut world, first, true);
    let before = status(&world, first).bytes_left;
    for _ in 0..10 {
        world.pass(100);
        assert!(world.leader.copies() <= 2);
        world.settle();
    }
    // One second: what was saved up before, and what it brought.
    let moved = status(&world, first).moved_bytes;
    assert!((1..=3 * 400_000).contains(&moved), "{moved} of {before}");
    world.turns(200);
    assert!(status(&world, first).drained);
    all_read(&world);
}

#[test]
fn a_copy_whose_object_goes_is_erased_after_its_agent_has_answered() {
    let mut world = World::ready(2, 4, &["red"]);
    let source = put(&mut world, "a", 300_000, 1)[0][0].slab.agent;
    let target = AgentId(3 - source.0);
    task(&mut world, "a", TaskWish::Move { source, target });
    let at = (0..2)
        .find(|at| number(&world, *at) == target)
        .expect("one");
    // The slab for it comes first.
    while !world.agents[at]
        .inbox
        .iter()
        .any(|command| matches!(command, Command::Copy(_)))
    {
        world.settle();
        world.pass(100);
    }
    let ticket = world.ask(World::remove("red", "a"));
    while world.commit() || world.acknowledge() {}
    assert_eq!(world.taken(ticket), Some(Ok(Reply::Done)));
    assert_eq!(world.leader.copies(), 1, "it is not answered yet");
    world.turns(3);
    assert_eq!(world.leader.copies(), 0);
    assert_eq!(world.leader.discarded_puts(), 0);
    world.pass(15_000);
    world.settle();
    assert!(world.state.segments().all(|s| s.slabs().is_empty()));
}

/// Slabs of one tenant, and of those the ones that hold something.
fn slabs_of(world: &World, name: &str) -> usize {
    world
        .state
        .tenant(&tenant(name))
        .expect("known")
        .slab_count()
}

fn half_empty(slabs: u32) -> World {
    let settings = Settings {
        evict: false,
        ..Settings::default()
    };
    let mut world = World::with_settings(settings, 7, 1, slabs);
    world.settle();
    for name in ["red", "blue"] {
        world.set_tenant(name, TenantPolicy::default());
    }
    for at in 0..24 {
        put(&mut world, &format!("k{at}"), 500_000, 1);
    }
    assert_eq!(slabs_of(&world, "red"), 6);
    for at in (0..24).filter(|at| at % 4 != 0) {
        assert_eq!(
            world.answer(World::remove("red", &format!("k{at}"))),
            Ok(Reply::Done)
        );
    }
    world
}

#[test]
fn half_empty_slabs_are_emptied_when_slabs_are_short() {
    let mut world = half_empty(6);
    for _ in 0..12 {
        world.pass(5_000);
        world.turns(5);
    }
    // One free slab of six is no shortage any more.
    assert_eq!(slabs_of(&world, "red"), 5);
    assert_eq!(world.leader.move_counts(Why::Compact).done, 1);
    let whole = World::start("blue", "large", SLAB);
    world.put(whole).expect("a slab came back");
    for _ in 0..12 {
        world.pass(5_000);
        world.turns(5);
    }
    assert_eq!(slabs_of(&world, "red"), 4, "blue took the first");
    all_read(&world);
    assert_eq!(world.keys("red", "").len(), 6);
}

#[test]
fn nothing_is_compacted_while_slabs_are_free() {
    let mut world = half_empty(64);
    for _ in 0..6 {
        world.pass(5_000);
        world.turns(5);
    }
    assert_eq!(world.leader.move_counts(Why::Compact).done, 0);
}
