//! Long histories: right ones pass, spoiled ones are found, and both fast.

use std::collections::BTreeMap;

use larder_sim::history::{Losses, Recorder, Report};

use super::judged;
use super::register::{MUTATIONS, Made, Shape, make, spoil};

const BUSY: Shape = Shape {
    operations: 400,
    clients: 6,
    keys: 3,
    unknown: 60,
    losses: 0,
    overlap: 4,
};

fn passes(made: &Made, losses: &Losses) -> Report {
    let report = judged(&made.operations, losses);
    assert!(report.is_ok(), "{report}");
    report
}

#[test]
fn histories_of_a_register_that_is_right_pass() {
    for seed in 0..150 {
        passes(&make(seed, BUSY), &Losses::Never);
        let losing = Shape { losses: 30, ..BUSY };
        let made = make(seed, losing);
        passes(&made, &made.losses);
        passes(&made, &Losses::Any);
    }
}

/// Without the losses that a history had, most are found out.
#[test]
fn losses_that_are_not_allowed_are_found() {
    let losing = Shape {
        losses: 20,
        unknown: 20,
        ..BUSY
    };
    let found = (0..100).filter(|seed| {
        let made = make(*seed, losing);
        !judged(&made.operations, &Losses::Never).is_ok()
    });
    let found = found.count();
    assert!(found >= 90, "{found} of 100");
}

#[test]
fn spoiled_histories_are_found() {
    let calmer = Shape {
        clients: 4,
        unknown: 20,
        overlap: 2,
        ..BUSY
    };
    let mut counts = BTreeMap::new();
    for seed in 0..100 {
        for mutation in MUTATIONS {
            let mut made = make(seed, calmer);
            if !spoil(&mut made.operations, mutation, seed) {
                continue;
            }
            let report = judged(&made.operations, &Losses::Never);
            assert_eq!(report.undecided, 0);
            let (spoiled, found) = counts.entry(mutation).or_insert((0_u32, 0_u32));
            *spoiled += 1;
            *found += u32::from(!report.is_ok());
        }
    }
    for mutation in MUTATIONS {
        let (spoiled, found) = counts.get(&mutation).copied().unwrap_or_default();
        println!("{mutation:?}: {found} of {spoiled}");
        // Some spoiled histories have another explanation: an overlap, an unknown write.
        assert!(
            spoiled >= 50 && found * 10 >= spoiled * 6,
            "{mutation:?}: {found} of {spoiled}"
        );
    }
}

/// A store's worth of operations is one step each where they do not overlap, and few where they do.
#[test]
fn a_hundred_thousand_operations_are_judged() {
    for (keys, clients, unknown) in [(1, 1, 0), (1000, 16, 2), (20, 8, 1)] {
        let shape = Shape {
            operations: 100_000,
            clients,
            keys,
            unknown,
            losses: 0,
            overlap: 3,
        };
        let report = passes(&make(9, shape), &Losses::Never);
        println!(
            "{keys} keys: {} configurations at most",
            report.configurations
        );
        assert!(report.operations > 99_000);
    }
}

#[test]
fn what_recorders_took_down_is_one_history() {
    use larder_sim::history::{Call, HistoryError, Outcome, Value};
    let mut first = Recorder::new(1, 3);
    let mut second = Recorder::new(2, 3);
    let put = first.begin("k", Call::Put(Value(5)), 10).expect("room");
    let get = second.begin("k", Call::Get, 11).expect("room");
    second
        .end(get, Outcome::Got(Value(5)), 12)
        .expect("it fits");
    let late = second.begin("k", Call::Remove, 13).expect("room");
    let wrong = second.end(late, Outcome::Present, 14);
    assert!(matches!(wrong, Err(HistoryError::Misfit { .. })));
    first.end(put, Outcome::Done, 20).expect("it fits");
    for now_ns in [30, 31] {
        let _unended = first.begin("k", Call::Get, now_ns).expect("room");
    }
    let full = first.begin("k", Call::Get, 32);
    assert!(matches!(
        full,
        Err(HistoryError::Full { operations_max: 3 })
    ));
    let foreign = second.begin("k", Call::Get, 40).expect("room");
    assert_eq!((first.len(), second.is_empty()), (3, false));
    let other = Recorder::new(3, 1).end(foreign, Outcome::Failed, 41);
    assert!(matches!(other, Err(HistoryError::NotBegun { index: 2 })));
    let history = Recorder::merge([first, second]).expect("they fit");
    assert_eq!(history.operations().len(), 6);
    assert_eq!(history.acknowledged_writes(), 1);
    assert!(judged(history.operations(), &Losses::Never).is_ok());
}
