//! The choice: what always holds, what is preferred, and how lots fall.

use std::collections::BTreeSet;

use larder_types::SegmentId;
use proptest::prelude::*;

use super::*;

const FREE: Option<Room> = Some(Room::Free((SegmentId(1), 0)));
const COMING: Option<Room> = Some(Room::Coming((SegmentId(1), 0)));

/// An agent on a host of its own with a capacity of 1,000.
fn candidate(agent: u32, room: Option<Room>, free: u64) -> Candidate<'static> {
    const HOSTS: [&str; 24] = [
        "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r",
        "s", "t", "u", "v", "w", "x",
    ];
    let agent = AgentId(agent);
    Candidate {
        agent,
        site: Site {
            zone: None,
            rack: None,
            host: HOSTS[agent.0 as usize],
            numa: None,
            agent,
        },
        room,
        own_bytes: free,
        hole_bytes: free,
        unused_bytes: 0,
        capacity_bytes: 1_000,
        in_flight_bytes: 0,
        overloaded: false,
        crowded: false,
        weight: 1_000,
    }
}

fn at(
    agent: u32,
    (zone, rack, host): (&'static str, &'static str, &'static str),
) -> Candidate<'static> {
    let mut candidate = candidate(agent, FREE, 500);
    (candidate.site.zone, candidate.site.rack) = (Some(zone), Some(rack));
    candidate.site.host = host;
    candidate
}

const ANY: Wish<'static> = Wish {
    count: 1,
    preferred: &[],
    near: None,
    compact: false,
    taken: &[],
    seed: 0,
};

/// Who is chosen.
fn chosen(candidates: &[Candidate<'static>], wish: &Wish<'_>) -> Vec<u32> {
    let mut candidates = candidates.to_vec();
    let count = choose(&mut candidates, wish);
    candidates[..count].iter().map(|c| c.agent.0).collect()
}

/// Who is chosen by any of many lots.
fn ever_chosen(candidates: &[Candidate<'static>], wish: Wish<'_>) -> BTreeSet<Vec<u32>> {
    let lots = 0..200;
    lots.map(|seed| chosen(candidates, &Wish { seed, ..wish }))
        .collect()
}

fn only(agents: &[u32]) -> BTreeSet<Vec<u32>> {
    BTreeSet::from([agents.to_vec()])
}

#[test]
fn the_preferred_come_first_in_their_order_if_they_have_room() {
    let agents = [
        candidate(1, FREE, 10),
        candidate(2, FREE, 900),
        candidate(3, FREE, 20),
        candidate(4, None, 999),
    ];
    let preferred = [AgentId(9), AgentId(4), AgentId(3), AgentId(1)];
    let wish = Wish {
        count: 2,
        preferred: &preferred,
        compact: true,
        ..ANY
    };
    assert_eq!(ever_chosen(&agents, wish), only(&[3, 1]));
}

#[test]
fn a_small_tenant_stays_where_it_is() {
    let agents = [candidate(1, FREE, 900), candidate(2, COMING, 10)];
    let wish = Wish {
        compact: true,
        ..ANY
    };
    assert_eq!(ever_chosen(&agents, wish), only(&[2]));
}

#[test]
fn beside_a_preferred_agent_its_numa_node_is_next() {
    let beside = |agent, numa, room| {
        let mut candidate = candidate(agent, room, 500);
        (candidate.site.host, candidate.site.numa) = ("x", Some(numa));
        candidate
    };
    let agents = [
        beside(1, 0, None),
        beside(2, 1, FREE),
        beside(3, 0, FREE),
        candidate(4, FREE, 900),
    ];
    let preferred = [AgentId(1)];
    let wish = Wish {
        preferred: &preferred,
        near: Some(agents[0].site),
        ..ANY
    };
    assert_eq!(ever_chosen(&agents, wish), only(&[3]));
    assert_eq!(ever_chosen(&agents[..2], wish), only(&[2]));
}

#[test]
fn other_zones_come_before_other_racks_and_those_before_other_hosts() {
    let agents = [
        at(1, ("z1", "r1", "h1")),
        at(2, ("z1", "r1", "h2")),
        at(3, ("z1", "r2", "h3")),
        at(4, ("z2", "r1", "h4")),
        at(5, ("z2", "r1", "h4")),
    ];
    let wish = Wish {
        count: 3,
        taken: &[],
        ..ANY
    };
    for agents in ever_chosen(&agents, wish) {
        let zones: BTreeSet<bool> = agents[..2].iter().map(|agent| *agent > 3).collect();
        assert_eq!(zones.len(), 2, "{agents:?}");
    }
    let taken = [agents[0].site];
    let after = |agents: &[Candidate<'static>]| {
        ever_chosen(
            agents,
            Wish {
                taken: &taken,
                ..ANY
            },
        )
    };
    assert_eq!(after(&agents[1..4]), only(&[4]));
    assert_eq!(after(&agents[1..3]), only(&[3]));
    assert_eq!(after(&agents[1..2]), only(&[2]));
    assert_eq!(after(&agents[..1]), only(&[]));
}

#[test]
fn an_overloaded_agent_gets_something_only_if_nobody_else_can_take_it() {
    let mut agents = [candidate(1, FREE, 900), candidate(2, FREE, 10)];
    agents[0].overloaded = true;
    assert_eq!(ever_chosen(&agents, ANY), only(&[2]));
    agents[1].room = None;
    assert_eq!(ever_chosen(&agents, ANY), only(&[1]));
}

#[test]
fn of_two_as_free_the_one_with_less_on_its_way_is_taken() {
    let mut agents = [candidate(1, FREE, 500), candidate(2, FREE, 500)];
    agents[0].in_flight_bytes = 1;
    let times = (0..1_000).filter(|seed| {
        let seed = *seed;
        chosen(&agents, &Wish { seed, ..ANY }) == [2]
    });
    // Three of four pairs of draws have it.
    assert!((700..800).contains(&times.count()));
}

/// Of 20 agents one is empty and the others are three quarters full.
#[test]
fn a_new_empty_agent_gets_at_most_twice_its_share() {
    let mut agents: Vec<_> = (1..20).map(|agent| candidate(agent, FREE, 250)).collect();
    agents.push(candidate(20, FREE, 1_000));
    let draws = 20_000;
    let times = |agent| {
        let chosen = |seed| chosen(&agents, &Wish { seed, ..ANY }) == [agent];
        (0..draws).filter(|seed| chosen(*seed)).count()
    };
    // A twentieth is 1,000; twice that, less the pairs that are both it: 1,950.
    assert!((1_800..=2_000).contains(&times(20)), "{}", times(20));
    assert!((800..=1_100).contains(&times(7)), "{}", times(7));
}

/// Each put takes 1 of the free bytes of whom it is given to.
#[test]
fn agents_of_different_sizes_fill_evenly() {
    let mut agents: Vec<_> = (1..=9).map(|agent| candidate(agent, FREE, 0)).collect();
    for agent in &mut agents {
        let size = 1_000 * u64::from(agent.agent.0.pow(2));
        (agent.own_bytes, agent.capacity_bytes, agent.weight) = (size, size, size);
    }
    let all: u64 = agents.iter().map(|agent| agent.capacity_bytes).sum();
    for seed in 0..all / 2 {
        let agent = chosen(&agents, &Wish { seed, ..ANY })[0];
        let found = agents.iter_mut().find(|a| a.agent.0 == agent);
        found.expect("chosen").own_bytes -= 1;
    }
    for agent in agents {
        let free = agent.free_permille();
        assert!((480..=520).contains(&free), "{free} of {agent:?}");
    }
}

prop_compose! {
    fn any_candidate()(
        host in 0..8usize,
        zone in prop::option::of(0..3usize),
        rack in prop::option::of(0..2usize),
        has_room in any::<bool>(),
        free in 0..1_000u64,
        weight in 0..3u64,
        overloaded in any::<bool>(),
    ) -> Candidate<'static> {
        const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut candidate = candidate(0, has_room.then_some(Room::Free((SegmentId(1), 0))), free);
        candidate.site.host = NAMES[host];
        candidate.site.zone = zone.map(|zone| NAMES[zone]);
        candidate.site.rack = rack.map(|rack| NAMES[rack]);
        (candidate.weight, candidate.overloaded) = (weight, overloaded);
        candidate
    }
}

proptest! {
    /// As many as were asked for whenever so many hosts have room, each with room, no two on a
    /// host, and none on a host that is taken.
    #[test]
    fn hosts_are_never_shared_and_never_left_unused(
        mut candidates in prop::collection::vec(any_candidate(), 0..20),
        count in 1..4usize,
        taken in prop::collection::vec(any_candidate(), 0..3),
        compact in any::<bool>(),
        seed in any::<u64>(),
    ) {
        for (at, candidate) in candidates.iter_mut().enumerate() {
            candidate.agent = AgentId(u32::try_from(at).expect("few"));
            candidate.site.agent = candidate.agent;
        }
        let before: BTreeSet<AgentId> = candidates.iter().map(|c| c.agent).collect();
        let taken: Vec<Site<'_>> = taken.into_iter().map(|c| c.site).collect();
        let wish = Wish { count, compact, taken: &taken, seed, ..ANY };
        let chosen = choose(&mut candidates, &wish);
        let with_room = candidates.iter().filter(|c| c.room.is_some());
        let left = with_room.filter(|c| !c.site.is_host_taken(&taken));
        prop_assert_eq!(chosen, hosts(left.map(|c| c.site)).min(count));
        let (chosen, _) = candidates.split_at(chosen);
        prop_assert!(chosen.iter().all(|c| c.room.is_some()));
        prop_assert_eq!(hosts(chosen.iter().map(|c| c.site)), chosen.len());
        prop_assert!(chosen.iter().all(|c| !c.site.is_host_taken(&taken)));
        let after: BTreeSet<AgentId> = candidates.iter().map(|c| c.agent).collect();
        prop_assert_eq!(before, after);
    }
}
