//! The roster: who is drawn how often, and from where.

use larder_types::{AgentName, AgentUid, Incarnation, Labels, SegmentGeneration, SegmentId};

use super::*;
use crate::op::{MountedSegment, Op};

const SLAB_BYTES: u64 = 1 << 21;

/// A state with agents of so many slabs and these labels, and its roster.
fn roster(agents: &[(u32, &str)]) -> (State, Roster) {
    let mut state = State::new(1);
    for (number, (slabs, labels)) in (1..).zip(agents) {
        let segment = MountedSegment {
            id: SegmentId(number),
            ordinal: 0,
            generation: SegmentGeneration(1),
            slabs: *slabs,
            slab_bytes: SLAB_BYTES,
            numa: 0,
        };
        let labels: Labels = labels.parse().expect("labels");
        let mounted = Op::AgentMounted {
            agent: AgentId(number),
            name: AgentName::new(&format!("n{number}")).expect("a name"),
            uid: AgentUid(1),
            incarnation: Incarnation(1),
            segments: vec![segment],
            labels,
        };
        assert_eq!(crate::apply(&mut state, &mounted).corruption, None);
    }
    let mut roster = Roster::default();
    roster.refresh(&state);
    (state, roster)
}

fn drawn(times: u32, mut draw: impl FnMut() -> Option<AgentId>) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        *counts.entry(draw().expect("somebody").0).or_insert(0) += 1;
    }
    counts
}

#[test]
fn agents_are_drawn_in_proportion_to_their_capacity() {
    let (_, roster) = roster(&[(1, ""), (2, ""), (5, "")]);
    let mut lots = Lots::new(7);
    let counts = drawn(8_000, || roster.draw(&mut lots));
    for (agent, expected) in [(1, 1_000u32), (2, 2_000), (3, 5_000)] {
        assert!(counts[&agent].abs_diff(expected) < 150, "{counts:?}");
    }
}

#[test]
fn draws_from_outside_leave_zones_and_racks_out() {
    let (_, roster) = roster(&[
        (1, "zone=b,rack=1"),
        (1, "zone=a,rack=1"),
        (1, "zone=a,rack=2"),
        (1, ""),
        (1, "zone=b,rack=1"),
    ]);
    assert_eq!(
        (roster.count(Level::Zone), roster.count(Level::Rack)),
        (3, 4)
    );
    let group = |level, agent| roster.group_of(level, AgentId(agent)).expect("known");
    assert_eq!(group(Level::Zone, 1), group(Level::Zone, 5));
    assert_ne!(
        group(Level::Rack, 1),
        group(Level::Rack, 2),
        "of another zone"
    );
    let mut lots = Lots::new(7);
    let mut outside = |level, agents: &[u32]| {
        let without = agents.iter().map(|agent| group(level, *agent)).collect();
        let counts = drawn(200, || roster.draw_outside(level, &without, &mut lots));
        counts.into_keys().collect::<Vec<u32>>()
    };
    assert_eq!(outside(Level::Zone, &[2]), [1, 4, 5]);
    assert_eq!(outside(Level::Zone, &[1, 4]), [2, 3]);
    assert_eq!(outside(Level::Rack, &[2, 1]), [3, 4]);
    let all = (0..3).collect();
    assert_eq!(roster.draw_outside(Level::Zone, &all, &mut lots), None);
}

#[test]
fn it_follows_the_state_when_something_changed() {
    let (mut state, mut roster) = roster(&[(1, "host=h"), (1, "host=h"), (3, "")]);
    assert_eq!((roster.len(), roster.hosts()), (3, 2));
    let lost = Op::SegmentLost {
        segment: SegmentId(1),
        generation: SegmentGeneration(1),
    };
    assert_eq!(crate::apply(&mut state, &lost).corruption, None);
    let labels = "host=n3".parse().expect("labels");
    let op = Op::AgentLabels {
        agent: AgentId(2),
        labels,
    };
    assert_eq!(crate::apply(&mut state, &op).corruption, None);
    roster.outdate();
    roster.refresh(&state);
    // The third agent says nothing, so its host is the one of its name.
    assert_eq!((roster.len(), roster.hosts()), (2, 1));
    let beside: Vec<_> = roster.beside(AgentId(2), 4).collect();
    assert_eq!(beside, [AgentId(2), AgentId(3)]);
    assert_eq!(roster.beside(AgentId(1), 4).count(), 0);
    let mut around: Vec<_> = roster.all_from(&mut Lots::new(1)).collect();
    around.sort_unstable();
    assert_eq!(around, [AgentId(2), AgentId(3)]);
}
