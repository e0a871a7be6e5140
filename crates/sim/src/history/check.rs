//! Judges whole histories, key by key.

use std::collections::BTreeMap;
use std::fmt;

use super::counterexample::Counterexample;
use super::limits::{Limits, Undecided};
use super::losses::Losses;
use super::operation::{History, Operation};
use super::search::{Search, Verdict};

/// How many violations and undecided keys are kept; the rest is counted.
const KEPT_MAX: usize = 16;

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many operations were judged.
    pub operations: usize,
    /// Of how many keys.
    pub keys: usize,
    /// How many operations ended nobody knows how.
    pub unknown: usize,
    /// How many keys have no explanation.
    pub violated: usize,
    /// The first of them, at most 16.
    pub violations: Vec<Counterexample>,
    /// How many keys were too much for the limits.
    pub undecided: usize,
    /// The first of them, at most 16.
    pub undecided_keys: Vec<Undecided>,
    /// The most configurations that one moment needed.
    pub configurations: usize,
}

impl Report {
    /// Whether every key has an explanation; one that could not be decided has none.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.violated == 0 && self.undecided == 0
    }
}

/// Whether one register per key can have told this history, with the same losses for all keys.
#[must_use]
pub fn check(history: &History, losses: &Losses, limits: Limits) -> Report {
    check_keys(history, |_| losses.clone(), limits)
}

/// The same, with losses that depend on the key.
#[must_use]
pub fn check_keys(history: &History, losses_of: impl Fn(&str) -> Losses, limits: Limits) -> Report {
    let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in history.operations() {
        keys.entry(&operation.key).or_default().push(operation);
    }
    let mut report = Report {
        operations: history.operations().len(),
        keys: keys.len(),
        unknown: history
            .operations()
            .iter()
            .filter(|one| one.is_unknown())
            .count(),
        ..Report::default()
    };
    for (key, operations) in keys {
        let mut search = Search::new(&operations, &losses_of(key), limits);
        let verdict = search.run();
        report.configurations = report.configurations.max(search.most());
        match verdict {
            Verdict::Explained => {}
            Verdict::Violated(counterexample) => {
                report.violated += 1;
                keep(&mut report.violations, *counterexample);
            }
            Verdict::Undecided(why) => {
                report.undecided += 1;
                let key = key.to_owned();
                keep(&mut report.undecided_keys, Undecided { key, why });
            }
        }
    }
    report
}

fn keep<T>(kept: &mut Vec<T>, one: T) {
    if kept.len() < KEPT_MAX {
        kept.push(one);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} operations on {} keys, {} of unknown outcome: {} keys violated, {} undecided",
            self.operations, self.keys, self.unknown, self.violated, self.undecided
        )?;
        for violation in &self.violations {
            write!(f, "{violation}")?;
        }
        for undecided in &self.undecided_keys {
            writeln!(f, "{undecided}")?;
        }
        Ok(())
    }
}
