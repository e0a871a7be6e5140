//! The pool: real masters, agents and clients keep what they promise, and mistakes are found.

use std::collections::BTreeSet;

use larder_master::sim::Mistake;
use larder_sim::world::{
    Class, Outcome, PoolMistake, PoolOptions, Summary, parse_kept, run_pool, run_seeds,
};

const KEPT: &str = include_str!("../seeds/pool.txt");

fn run(seed: u64, mistake: Option<PoolMistake>) -> Outcome {
    let options = PoolOptions {
        mistake,
        ..PoolOptions::default()
    };
    run_pool(seed, &options)
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let traces: BTreeSet<u64> = (0..6)
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
    assert_eq!(traces.len(), 6);
}

#[test]
fn nothing_acknowledged_is_lost() {
    let kept = parse_kept(KEPT).expect("a number and a reason each");
    let seeds = kept.iter().map(|kept| kept.seed).chain(0..400);
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
    for class in Class::ALL {
        let is_played = !matches!(class, Class::DiskSlow | Class::Upgrade);
        assert!(!is_played || summary.faults.of(class) > 0, "{summary}");
    }
}

/// How many seeds it takes at most until some check, made for no mistake, finds this one.
const FOUND_WITHIN: u64 = 300;

#[test]
fn mistakes_are_found() {
    let of_masters = Mistake::ALL.into_iter().map(PoolMistake::Master);
    let others = [
        PoolMistake::WallClock,
        PoolMistake::RemovesAgain,
        PoolMistake::EpochForgotten,
    ];
    let mut missed = Vec::new();
    for mistake in of_masters.chain(others) {
        let mut summary = Summary::default();
        for seed in 0..FOUND_WITHIN {
            summary.add(&run(seed, Some(mistake)));
            if summary.failed > 0 {
                break;
            }
        }
        println!(
            "{mistake:?} after {} seeds: {:?}",
            summary.seeds, summary.failures
        );
        if summary.failed == 0 {
            missed.push(mistake);
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
