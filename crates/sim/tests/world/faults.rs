//! The schedules of faults.

use std::collections::BTreeSet;

use larder_sim::seed::Seed;
use larder_sim::world::{Class, Coverage, Fault, FaultShape, Node, draw_faults};

fn nodes(from: u32, count: u32) -> Vec<Node> {
    (from..from + count).map(Node).collect()
}

fn shape() -> FaultShape {
    FaultShape {
        classes: Class::ALL.to_vec(),
        masters: nodes(1, 3),
        agents: nodes(10, 3),
        clients: nodes(100, 4),
        from_ns: 1_000_000,
        until_ns: 6_000_000_000,
        count_min: 3,
        count_max: 8,
        length_max_ns: 900_000_000,
        rejoin_ns: 500_000_000,
    }
}

#[test]
fn every_seed_has_faults_and_all_classes_come() {
    let mut coverage = Coverage::default();
    for seed in 0..400 {
        let faults = draw_faults(Seed(seed), &shape());
        assert_eq!(faults, draw_faults(Seed(seed), &shape()));
        let classes: BTreeSet<Class> = faults.iter().map(|fault| fault.class).collect();
        assert!(
            (3..=8).contains(&faults.len()) && classes.len() >= 3,
            "{seed}: {faults:?}"
        );
        assert!(faults.is_sorted_by_key(|fault| fault.from_ns));
        for fault in &faults {
            check(fault);
            coverage.count(fault.class);
        }
    }
    for class in Class::ALL {
        assert!(coverage.of(class) >= 40, "{coverage}");
        assert!(coverage.to_string().contains(class.name()));
    }
    let mut twice = coverage.clone();
    twice.add(&coverage);
    assert_eq!(twice.total(), 2 * coverage.total());
}

fn check(fault: &Fault) {
    let shape = shape();
    assert!(fault.from_ns >= shape.from_ns && fault.until_ns <= shape.until_ns);
    assert!(fault.from_ns < fault.until_ns, "{fault}");
    let cuts = fault.cuts().len();
    match fault.class {
        Class::Partition => assert_eq!(cuts, 2),
        Class::OneWay => assert_eq!(cuts, 1),
        Class::PowerAll | Class::WipeAll => assert_eq!(fault.nodes, shape.masters),
        Class::AgentKill => assert!(shape.agents.contains(&fault.nodes[0])),
        Class::PowerOne | Class::Kill => assert!(shape.masters.contains(&fault.nodes[0])),
        Class::Loss | Class::Delay | Class::Repeat | Class::Reorder => {
            assert!(
                fault
                    .storm()
                    .is_some_and(|storm| storm.around == fault.nodes)
            );
        }
        _ => {}
    }
    assert!(fault.nodes.iter().all(|node| !fault.others.contains(node)));
}

/// What is promised is to survive one failure at a time.
#[test]
fn power_is_lost_on_one_machine_at_a_time() {
    let only = FaultShape {
        classes: vec![Class::PowerOne, Class::PowerAll],
        count_min: 8,
        ..shape()
    };
    for seed in 0..200 {
        let faults = draw_faults(Seed(seed), &only);
        for pair in faults.windows(2) {
            assert!(
                pair[0].until_ns + only.rejoin_ns <= pair[1].from_ns,
                "{seed}: {faults:?}"
            );
        }
    }
}

#[test]
fn what_is_not_there_is_not_hit() {
    let alone = FaultShape {
        agents: Vec::new(),
        clients: Vec::new(),
        ..shape()
    };
    for seed in 0..100 {
        let faults = draw_faults(Seed(seed), &alone);
        let is_of_agents =
            |fault: &Fault| matches!(fault.class, Class::AgentKill | Class::AgentPause);
        assert!(!faults.iter().any(is_of_agents));
        let hit = faults
            .iter()
            .flat_map(|fault| fault.nodes.iter().chain(&fault.others));
        assert!(hit.into_iter().all(|node| alone.masters.contains(node)));
    }
    let none = FaultShape {
        classes: vec![Class::AgentKill],
        ..alone
    };
    assert_eq!(draw_faults(Seed(1), &none), []);
}
