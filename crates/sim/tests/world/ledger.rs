//! The ledger: a real log keeps its promises, and mistakes are found.

use std::collections::BTreeSet;

use larder_sim::world::{
    Class, LedgerOptions, Mistake, Outcome, Summary, parse_kept, run_ledger, run_seeds,
};

const KEPT: &str = include_str!("../seeds/ledger.txt");

fn run(seed: u64, mistake: Option<Mistake>) -> Outcome {
    let options = LedgerOptions {
        mistake,
        ..LedgerOptions::default()
    };
    run_ledger(seed, &options)
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let traces: BTreeSet<u64> = (0..12)
        .map(|seed| {
            let (one, same) = (run(seed, None), run(seed, None));
            assert_eq!(
                (one.trace, &one.kept),
                (same.trace, &same.kept),
                "seed {seed}"
            );
            one.trace
        })
        .collect();
    assert_eq!(traces.len(), 12);
}

#[test]
fn nothing_acknowledged_is_lost() {
    let kept = parse_kept(KEPT).expect("a number and a reason each");
    let seeds = kept.iter().map(|kept| kept.seed).chain(0..60);
    let summary = run_seeds(
        seeds,
        |seed| run(seed, None),
        |outcome| println!("{outcome}"),
    );
    println!("{summary}");
    assert_eq!(summary.failed, 0, "{summary}");
    assert!(
        summary.operations_min >= 200 && summary.faults_min >= 3,
        "{summary}"
    );
    for class in [
        Class::Kill,
        Class::PowerOne,
        Class::DiskFull,
        Class::OneWay,
        Class::Pause,
    ] {
        assert!(summary.faults.of(class) >= 10, "{summary}");
    }
}

/// Each by the history alone, within a few seeds.
#[test]
fn mistakes_are_found() {
    for mistake in Mistake::ALL {
        let mut summary = Summary::default();
        for seed in 0..200 {
            summary.add(&run(seed, Some(mistake)));
            if summary.failed > 0 {
                break;
            }
        }
        println!(
            "{mistake:?} after {} seeds: {:?}",
            summary.seeds, summary.failures
        );
        assert_eq!(summary.failed, 1, "{mistake:?}");
    }
}
