//! Where replicas go: hosts, zones, sizes, load, and large pools of which only a few are asked.

use std::collections::BTreeSet;

use larder_store::{Reply, Request, TaskStatus, TaskWish, TenantPolicy};
use larder_types::{AgentId, Extent, Labels, Reason};

use crate::world::{SLAB, World, key, tenant};

/// Agents with these labels, mounted, and a tenant `red`.
fn labelled(slabs: u32, labels: &[&str]) -> World {
    let agents = u32::try_from(labels.len()).expect("few");
    let mut world = World::new(7, agents, slabs);
    for (agent, labels) in world.agents.iter_mut().zip(labels) {
        agent.labels = labels.parse().expect("labels");
    }
    world.settle();
    world.set_tenant("red", TenantPolicy::default());
    world
}

fn start(text: &str, size_bytes: u64, count: u8, is_strict: bool) -> Request {
    let mut start = World::start("red", text, size_bytes);
    if let Request::PutStart {
        replicas, strict, ..
    } = &mut start
    {
        (*replicas, *strict) = (count, is_strict);
    }
    start
}

fn agents(replicas: &[Vec<Extent>]) -> Vec<AgentId> {
    replicas.iter().map(|r| r[0].slab.agent).collect()
}

fn put(world: &mut World, text: &str, size_bytes: u64, count: u8) -> Vec<AgentId> {
    let (_, replicas) = world
        .put(start(text, size_bytes, count, true))
        .expect("room");
    agents(&replicas)
}

/// The agents of an object as the state has them.
fn holders(world: &World, text: &str) -> BTreeSet<AgentId> {
    let object = world.state.object(&tenant("red"), &key(text));
    let extents = object.expect("it is there").extents();
    extents.map(|extent| extent.slab.agent).collect()
}

fn number(world: &World, agent: usize) -> AgentId {
    world.agents[agent].id.expect("mounted")
}

fn set_labels(world: &mut World, agent: usize, labels: &str) {
    let agent = number(world, agent);
    let labels = labels.parse().expect("labels");
    let request = Request::LabelsSet { agent, labels };
    assert_eq!(world.answer(request), Ok(Reply::Done));
}

fn labels_of(world: &World, agent: usize) -> (String, Labels) {
    let agent = world.state.agent(number(world, agent)).expect("known");
    (agent.host().to_owned(), agent.labels())
}

#[test]
fn replicas_of_one_object_are_on_different_hosts() {
    let mut world = labelled(4, &["host=x", "host=x", "host=y", "host=y"]);
    for at in 0..20 {
        put(&mut world, &format!("k{at}"), 10_000, 2);
    }
    world.check_hosts(format_args!("at the end"));
    // As many agents as replicas, but not as many hosts.
    let refusal = world.refusal(start("s", 1_000, 3, true));
    assert_eq!(refusal.reason, Reason::TooFewHosts);
    assert!(refusal.detail.ends_with("answer 2: x, y"), "{refusal}");
    // Without `strict` there are fewer, and it shows.
    let (_, replicas) = world
        .put(start("s", 1_000, 3, false))
        .expect("two are made");
    assert_eq!(replicas.len(), 2);
    assert_eq!(world.stat("red", "s").wanted, 3);
    world.turns(10);
    assert_eq!(
        (holders(&world, "s").len(), world.leader.missing_replicas()),
        (2, 1)
    );
    world.check_hosts(format_args!("at the end"));
}

#[test]
fn what_has_too_few_hosts_gets_its_replica_when_one_joins_or_is_told_apart() {
    let mut world = labelled(4, &["host=x", "host=x", "host=x"]);
    world.disconnect(2, true);
    world.pass(12_000);
    world.settle();
    for text in ["a", "b"] {
        let (_, replicas) = world
            .put(start(text, 1_000, 2, false))
            .expect("one is made");
        assert_eq!(replicas.len(), 1, "{text}");
    }
    world.turns(20);
    assert_eq!(world.leader.missing_replicas(), 2);
    world.agents[2].labels = "host=y".parse().expect("labels");
    world.agents[2].restart();
    world.settle();
    world.turns(10);
    assert_eq!(world.leader.missing_replicas(), 0);
    world.check_hosts(format_args!("at the end"));
    // And without a new one, when somebody says that two are not the same machine.
    let mut world = labelled(4, &["host=x", "host=x"]);
    world.put(start("a", 1_000, 2, false)).expect("one is made");
    world.turns(20);
    assert_eq!(holders(&world, "a").len(), 1);
    set_labels(&mut world, 1, "host=y");
    world.turns(10);
    assert_eq!(holders(&world, "a").len(), 2);
}

#[test]
fn a_repair_a_drain_and_a_task_keep_hosts_apart() {
    let mut world = labelled(
        4,
        &["host=x", "host=x", "host=y", "host=y", "host=z,zone=z"],
    );
    let preferred = [number(&world, 0), number(&world, 2)];
    let mut first = start("a", 1_000, 2, true);
    if let Request::PutStart { preferred: p, .. } = &mut first {
        p.extend(preferred);
    }
    world.put(first).expect("room");
    assert_eq!(holders(&world, "a"), BTreeSet::from(preferred));
    // A task is refused what would put two on one host.
    let wish = TaskWish::Copy {
        targets: vec![number(&world, 1)],
    };
    let (tenant, key) = (tenant("red"), key("a"));
    let create = Request::TaskCreate { tenant, key, wish };
    let Ok(Reply::TaskCreated(task)) = world.answer(create) else {
        panic!("it is noted")
    };
    world.turns(5);
    let query = Request::TaskQuery {
        tenant: self::tenant("red"),
        task,
    };
    let failed = TaskStatus::Failed(Reason::HostTaken);
    assert_eq!(world.answer(query), Ok(Reply::Task(failed)));
    // A drain moves within the host, or to the third one; the other zone is better.
    let agent = number(&world, 0);
    let drain = Request::Drain { agent, on: true };
    assert_eq!(world.answer(drain), Ok(Reply::Done));
    world.turns(10);
    let now = BTreeSet::from([number(&world, 2), number(&world, 4)]);
    assert_eq!(holders(&world, "a"), now);
    // A repair takes the host that is left, not the one of the replica that is left.
    world.disconnect(4, true);
    world.pass(12_000);
    world.turns(10);
    let now = BTreeSet::from([number(&world, 1), number(&world, 2)]);
    assert_eq!(holders(&world, "a"), now);
}

#[test]
fn what_an_administrator_says_of_an_agent_wins_and_stays() {
    let mut world = labelled(4, &["host=x,zone=a,numa=1", ""]);
    let said = |text: &str| text.parse::<Labels>().expect("labels");
    let own = ("x".to_owned(), said("host=x,zone=a,numa=1"));
    assert_eq!(labels_of(&world, 0), own);
    assert_eq!(
        labels_of(&world, 1),
        ("node-2".to_owned(), Labels::default())
    );
    set_labels(&mut world, 0, "host=y,rack=r");
    let set = ("y".to_owned(), said("host=y,rack=r,zone=a,numa=1"));
    assert_eq!(labels_of(&world, 0), set);
    let before = world.seen["AgentLabels"];
    set_labels(&mut world, 0, "host=y,rack=r");
    assert_eq!(world.seen["AgentLabels"], before, "the same again is no op");
    // It stays when the agent mounts again, with a new process too, and over a fail-over.
    world.agents[0].restart();
    world.settle();
    assert_eq!(labels_of(&world, 0), set);
    world.fail_over(0);
    world.settle();
    assert_eq!(labels_of(&world, 0), set);
    set_labels(&mut world, 0, "");
    assert_eq!(labels_of(&world, 0), own);
    let (agent, labels) = (AgentId(99), Labels::default());
    let unknown = Request::LabelsSet { agent, labels };
    assert_eq!(world.reason(unknown), Reason::AgentUnknown);
}

/// A second change waits for the first: what is set last is what stands.
#[test]
fn labels_that_are_set_at_once_come_one_after_the_other() {
    let mut world = labelled(4, &["host=x"]);
    let agent = number(&world, 0);
    let set = |text: &str| Request::LabelsSet {
        agent,
        labels: text.parse().expect("labels"),
    };
    for text in ["host=a", "host=b", ""] {
        world.ask(set(text));
    }
    world.settle();
    assert_eq!(labels_of(&world, 0).0, "x");
}

#[test]
fn an_overloaded_agent_gets_nothing_new_until_it_is_not() {
    let mut world = labelled(8, &["", "", ""]);
    world.agents[0].load_permille = 950;
    world.pass(500);
    assert_eq!(world.leader.load_permille(number(&world, 0)), Some(950));
    let busy = number(&world, 0);
    for at in 0..20 {
        let agents = put(&mut world, &format!("k{at}"), SLAB / 2, 1);
        assert_ne!(agents, [busy]);
    }
    // Replicas on different agents are worth more than rest.
    assert!(put(&mut world, "three", 1_000, 3).contains(&busy));
    world.agents[0].load_permille = 10;
    world.pass(500);
    let taken = (0..10).any(|at| put(&mut world, &format!("l{at}"), SLAB / 2, 1) == [busy]);
    assert!(taken);
}

/// Whatever few are asked, a put finds the last free slab of a large pool, and the last two hosts.
#[test]
fn in_a_large_pool_no_put_fails_while_there_is_room() {
    for count in [1u8, 2] {
        let mut world = World::ready(24, 1, &["red"]);
        world.without_checks();
        let mut taken = BTreeSet::new();
        for at in 0..24 / count {
            let agents = put(&mut world, &format!("k{at}"), SLAB, count);
            for agent in agents {
                assert!(taken.insert(agent), "{agent} had one slab");
            }
        }
        assert_eq!(taken.len(), 24);
        let refusal = world.refusal(start("more", SLAB, 1, true));
        assert_eq!(refusal.reason, Reason::NoSpace);
    }
}

/// A small tenant is found where it has room, however many agents there are.
#[test]
fn in_a_large_pool_a_small_tenant_stays_together() {
    let mut world = World::ready(40, 2, &["red"]);
    world.without_checks();
    for at in 0..60 {
        put(&mut world, &format!("k{at}"), 20_000, 1);
    }
    let slabs = world
        .state
        .tenant(&tenant("red"))
        .expect("known")
        .slab_count();
    assert_eq!(slabs, 1);
}

#[test]
fn in_a_large_pool_replicas_find_the_only_other_zone_and_rack() {
    let mut labels = vec!["zone=a,rack=1"; 30];
    (labels[11], labels[23]) = ("zone=b,rack=1", "zone=a,rack=2");
    let mut world = labelled(4, &labels);
    world.without_checks();
    let (zone, rack) = (number(&world, 11), number(&world, 23));
    for at in 0..20 {
        let two = put(&mut world, &format!("two-{at}"), 1_000, 2);
        assert!(two.contains(&zone), "{two:?}");
        let three = put(&mut world, &format!("three-{at}"), 1_000, 3);
        assert!(three.contains(&zone) && three.contains(&rack), "{three:?}");
    }
    // Without it they are where they can be.
    world.disconnect(11, true);
    assert_eq!(put(&mut world, "last", 1_000, 3).len(), 3);
}

/// Nine agents are half full and one is new: it does not get all that is put next.
#[test]
fn a_new_agent_is_no_hot_spot_and_fills_up() {
    let mut world = World::new(7, 10, 32);
    world.agents[9].up = false;
    world.settle();
    world.set_tenant("red", TenantPolicy::default());
    world.without_checks();
    for at in 0..9 * 16 {
        put(&mut world, &format!("k{at}"), SLAB, 1);
    }
    world.agents[9].up = true;
    world.settle();
    let new = number(&world, 9);
    let mut gets = |from: usize| {
        let texts = (from..from + 40).map(|at| format!("n{at}"));
        let agents: Vec<_> = texts.map(|text| put(&mut world, &text, SLAB, 1)).collect();
        agents.iter().filter(|agents| **agents == [new]).count()
    };
    // A tenth is 4; the freest would get all of the first 16.
    let (first, second, third) = (gets(0), gets(40), gets(80));
    assert!((4..=12).contains(&first), "{first}");
    let all = first + second + third;
    assert!((16..=32).contains(&all), "{all} of 32 slabs");
}

/// A put that waited for a slab asks for no other one.
#[test]
fn a_put_that_waited_for_its_slab_takes_it() {
    let mut world = World::ready(24, 8, &["red"]);
    world.without_checks();
    for at in 0..100 {
        put(&mut world, &format!("k{at}"), SLAB, 1);
    }
    assert_eq!(world.seen["SlabGive"], 100);
}

/// A number that is not drawn changes nothing: the same lots, the same decisions.
#[test]
fn the_same_lots_lead_to_the_same_places() {
    let places = || {
        let mut world = World::ready(24, 8, &["red"]);
        world.without_checks();
        let puts = (0..30).map(|at| format!("k{at}"));
        puts.map(|text| put(&mut world, &text, SLAB / 2, 2))
            .collect::<Vec<_>>()
    };
    assert_eq!(places(), places());
}

/// Silent agents are not taken, and do not count as hosts.
#[test]
fn silent_agents_get_nothing() {
    let mut world = World::ready(12, 4, &["red"]);
    world.without_checks();
    for agent in 0..10 {
        world.disconnect(agent, true);
    }
    let up = [number(&world, 10), number(&world, 11)];
    for at in 0..10 {
        let agents = put(&mut world, &format!("k{at}"), 1_000, 2);
        assert!(agents.iter().all(|agent| up.contains(agent)));
    }
    let decision = world.ask(start("three", 1_000, 3, true));
    let refusal = world
        .taken(decision)
        .expect("at once")
        .expect_err("refused");
    assert_eq!(refusal.reason, Reason::NoAgents, "they may come back");
    let (_, replicas) = world.put(start("three", 1_000, 3, false)).expect("two");
    assert_eq!(replicas.len(), 2);
}
