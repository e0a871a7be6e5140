//! Agents: mounting, falling silent, coming back, leaving.

use larder_store::{Command, Health, Reply, Request, SegmentOffer};
use larder_types::{AgentId, AgentUid, Epoch, Incarnation, Reason};

use crate::world::{SLAB, World, tenant};

fn offers(request: &mut Request) -> &mut Vec<SegmentOffer> {
    match request {
        Request::Mount { segments, .. } => segments,
        other => panic!("not a mount: {other:?}"),
    }
}

#[test]
fn offers_out_of_range_are_refused() {
    let mut world = World::new(1, 1, 4);
    let good = world.agents[0].mount();
    let spoil: [fn(&mut Vec<SegmentOffer>); 7] = [
        |offers| offers[0].slabs = 0,
        |offers| offers[0].slabs = 16_385,
        |offers| offers[0].slab_bytes = 3 * SLAB,
        |offers| offers[0].slab_bytes = SLAB / 2,
        |offers| offers.push(offers[0]),
        |offers| {
            *offers = (0..65)
                .map(|ordinal| SegmentOffer {
                    ordinal,
                    ..offers[0]
                })
                .collect()
        },
        |offers| {
            let most = SegmentOffer {
                slabs: 16_384,
                slab_bytes: 1 << 63,
                ..offers[0]
            };
            *offers = vec![most];
        },
    ];
    for spoil in spoil {
        let mut request = good.clone();
        spoil(offers(&mut request));
        assert_eq!(world.reason(request), Reason::BadArgument);
    }
    world.settle();
    assert_eq!(world.state.capacity_bytes(), 4 * SLAB);
}

#[test]
fn an_agent_that_saw_a_higher_epoch_is_not_taken() {
    let mut world = World::new(1, 1, 4);
    let mut request = world.agents[0].mount();
    if let Request::Mount { highest_epoch, .. } = &mut request {
        *highest_epoch = Epoch {
            generation: 1,
            term: 2,
        };
    }
    let refusal = world.refusal(request);
    assert_eq!(refusal.reason, Reason::StaleEpoch);
    assert_eq!(refusal.detail, "the agent saw epoch 1.2, this is 1.1");
}

#[test]
fn the_same_process_mounts_again_and_hears_what_it_missed() {
    let mut world = World::ready(1, 4, &["red"]);
    let (version, replicas) = world.put(World::start("red", "gone", 1000)).expect("room");
    world.put(World::start("red", "kept", 1000)).expect("room");
    let before = world.state.digest();
    world.disconnect(0, false);
    world.ask(World::remove("red", "gone"));
    while world.commit() {}
    let waiting = world.ask(World::start("red", "new", 1000));
    assert!(matches!(world.taken(waiting), Some(Err(r)) if r.reason == Reason::NoAgents));
    let id = world.agents[0].id.expect("mounted before");
    assert_eq!(world.leader.health(id), Health::Suspect);
    let erase = Command::Erase {
        extent: replicas[0][0],
        version,
    };
    assert_eq!(world.leader.outstanding(&world.state, id), [erase]);
    world.settle();
    assert_eq!(world.leader.health(id), Health::Alive);
    assert!(world.exists("red", "kept"));
    assert_eq!(world.state.releasing_bytes(), 0);
    assert_ne!(world.state.digest(), before);
    world.put(World::start("red", "gone", 1000)).expect("room");
}

#[test]
fn a_slab_that_failed_is_not_given_again_while_its_return_is_on_the_way() {
    let mut world = World::ready(1, 4, &["red"]);
    let id = world.agents[0].id.expect("mounted");
    world.ask(World::start("red", "first", 1000));
    assert!(world.commit());
    assert!(matches!(
        world.leader.outstanding(&world.state, id)[..],
        [Command::SlabGive { .. }]
    ));
    world.agents[0].obey(true);
    let failed = world.agents[0].outbox.pop_back().expect("it said so");
    world.ask(failed);
    // It mounts again before the log has it: the slab would outlive its return at the agent.
    assert_eq!(world.leader.outstanding(&world.state, id), []);
    world.drop_parked();
    world.settle();
    assert_eq!(world.leader.outstanding(&world.state, id), []);
    assert!(
        world
            .state
            .segments()
            .all(|segment| segment.free_slabs() == 4)
    );
}

#[test]
fn a_new_life_loses_the_old_bytes_before_it_mounts() {
    let mut world = World::ready(2, 4, &["red"]);
    let mut start = World::start("red", "two", 1000);
    if let Request::PutStart { replicas, .. } = &mut start {
        *replicas = 2;
    }
    world.put(start).expect("room");
    let (_, at) = world.put(World::start("red", "one", 1000)).expect("room");
    let holder = at[0][0].slab.agent;
    let index = world
        .agents
        .iter()
        .position(|a| a.id == Some(holder))
        .expect("known");
    let mut pending = World::start("red", "pending", 1000);
    if let Request::PutStart { preferred, .. } = &mut pending {
        *preferred = vec![holder];
    }
    world.granted(pending);
    assert_eq!(world.leader.reserved_bytes(), 16_384);
    world.agents[index].restart();
    world.settle();
    assert_eq!(
        world.agents[index].id,
        Some(holder),
        "the number stays with the name"
    );
    assert_eq!(world.reason(World::get("red", "one")), Reason::NotFound);
    world.turns(1);
    assert_eq!(world.objects_lost, 1);
    assert_eq!(world.reason(World::get("red", "one")), Reason::NotFound);
    match world.answer(World::get("red", "two")) {
        Ok(Reply::Located { replicas, .. }) => {
            assert_eq!(replicas.len(), 1);
            assert_ne!(replicas[0][0].slab.agent, holder);
        }
        other => panic!("one replica is left: {other:?}"),
    }
    let used = world
        .state
        .tenant(&tenant("red"))
        .expect("known")
        .used_bytes();
    assert_eq!(
        (used, world.leader.reserved_bytes()),
        (16_384, 0),
        "charges follow"
    );
}

#[test]
fn a_namesake_waits_until_the_first_was_silent_for_long() {
    let mut world = World::ready(1, 4, &["red"]);
    world.put(World::start("red", "k", 1000)).expect("room");
    let mut namesake = world.agents[0].mount();
    if let Request::Mount { uid, .. } = &mut namesake {
        *uid = AgentUid(999);
    }
    let refusal = world.refusal(namesake.clone());
    assert_eq!(refusal.reason, Reason::BadArgument);
    assert!(
        refusal.detail.contains("another uid was heard 0 ms ago"),
        "{}",
        refusal.detail
    );
    world.disconnect(0, true);
    assert_eq!(
        world.reason(namesake.clone()),
        Reason::BadArgument,
        "it may come back"
    );
    assert!(world.exists("red", "k"));
    world.pass(10_000);
    assert!(matches!(world.answer(namesake), Ok(Reply::Mounted { .. })));
    assert!(!world.exists("red", "k"));
}

#[test]
fn silence_makes_suspect_and_then_lost() {
    let mut world = World::ready(2, 4, &["red"]);
    let id = world.agents[0].id.expect("mounted");
    world.agents[0].up = false;
    world.pass(2_500);
    assert_eq!(world.leader.health(id), Health::Alive);
    world.pass(1_000);
    assert_eq!(world.leader.health(id), Health::Suspect);
    for number in 0..4 {
        let (_, at) = world
            .put(World::start("red", &format!("k{number}"), SLAB))
            .expect("room");
        assert_ne!(at[0][0].slab.agent, id, "nothing new goes there");
    }
    assert_eq!(world.state.capacity_bytes(), 8 * SLAB);
    world.pass(7_000);
    world.settle();
    assert_eq!(world.leader.health(id), Health::Lost);
    assert_eq!(world.state.capacity_bytes(), 4 * SLAB);
}

#[test]
fn a_heartbeat_of_another_life_or_of_nobody_is_refused() {
    let mut world = World::ready(1, 4, &[]);
    let agent = world.agents[0].id.expect("mounted");
    let beat = |incarnation| Request::Heartbeat {
        agent,
        incarnation: Incarnation(incarnation),
        load_permille: 0,
    };
    assert_eq!(world.answer(beat(1)), Ok(Reply::Done));
    assert_eq!(world.reason(beat(2)), Reason::SessionUnknown);
    world.agents[0].up = false;
    assert_eq!(world.answer(Request::Unmount { agent }), Ok(Reply::Done));
    assert_eq!(world.state.capacity_bytes(), 0);
    assert_eq!(world.reason(beat(1)), Reason::SessionUnknown);
    assert_eq!(
        world.answer(Request::Unmount { agent }),
        Ok(Reply::Done),
        "again"
    );
}

#[test]
fn waiters_of_a_silent_agent_look_elsewhere() {
    let mut world = World::ready(2, 1, &["red"]);
    let first = world.agents[0].id.expect("mounted");
    let mut start = World::start("red", "k", 1000);
    if let Request::PutStart { preferred, .. } = &mut start {
        *preferred = vec![first];
    }
    let ticket = world.ask(start);
    assert!(world.commit());
    assert_eq!(
        world.parked(),
        1,
        "a slab of the preferred agent is on its way"
    );
    world.agents[0].up = false;
    let incarnation = world.agents[0].incarnation;
    world.ask(Request::AgentGone {
        agent: first,
        incarnation,
    });
    world.quiesce();
    match world.taken(ticket) {
        Some(Ok(Reply::PutGranted { replicas, .. })) => {
            assert_ne!(replicas[0][0].slab.agent, first);
        }
        other => panic!("granted on the other agent: {other:?}"),
    }
}

#[test]
fn names_are_bounded_and_lost_ones_forgotten() {
    let settings = larder_store::Settings {
        max_agents: 2,
        ..Default::default()
    };
    let mut world = World::with_settings(settings, 1, 3, 2);
    world.quiesce();
    let mounted = world.agents.iter().filter(|agent| agent.connected).count();
    assert_eq!((mounted, world.state.agents().count()), (2, 2));
    let request = world.agents[2].mount();
    assert_eq!(world.leader_refuses(request), Reason::Overloaded);
    let agent = world.agents[0].id.expect("mounted");
    world.agents[0].up = false;
    world.ask(Request::Unmount { agent });
    world.settle();
    assert!(world.agents[2].connected);
    assert_eq!(world.state.agents().count(), 2);
    assert!(world.state.agent(agent).is_none());
    // It was forgotten, and comes from no other log for that.
    let (leader, state) = (&world.leader, &world.state);
    let forgotten = &world.agents[0].name;
    assert!(!leader.is_of_another_log(state, forgotten, agent));
    let next = AgentId(world.agents[2].id.expect("mounted").0 + 1);
    assert!(
        leader.is_of_another_log(state, forgotten, next),
        "given to nobody"
    );
    let other = world.agents[1].id.expect("mounted");
    assert!(
        leader.is_of_another_log(state, forgotten, other),
        "another one has it"
    );
    assert!(!leader.is_of_another_log(state, &world.agents[1].name, other));
}
