//! Many seeds, on all processors.

use std::fmt;
use std::num::NonZero;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;

use super::coverage::Coverage;
use crate::history::Kept;

/// How many findings of a summary are kept with their seeds.
const FAILURES_MAX: usize = 16;

/// What one seed came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// The hash of its trace; the same seed gives the same.
    pub trace: u64,
    /// How many operations clients asked for.
    pub operations: u64,
    /// How often the pool was made again from what its agents hold.
    pub rebuilds: u64,
    /// Which faults there were.
    pub faults: Coverage,
    /// What was wrong, in sentences; empty if nothing.
    pub findings: Vec<String>,
    /// The last lines of the trace.
    pub lines: Vec<String>,
    /// What clients asked and were told.
    pub kept: Kept,
}

/// What many seeds came to.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// How many seeds ran.
    pub seeds: u64,
    /// How many operations of all of them.
    pub operations: u64,
    /// The fewest operations of one.
    pub operations_min: u64,
    /// The fewest faults of one.
    pub faults_min: u64,
    /// The faults of all.
    pub faults: Coverage,
    /// How often pools were made again from what their agents hold.
    pub rebuilds: u64,
    /// How many failed.
    pub failed: u64,
    /// The first of them, at most 16: the seed and its first finding.
    pub failures: Vec<(u64, String)>,
}

impl Summary {
    /// Adds a seed.
    pub fn add(&mut self, outcome: &Outcome) {
        let faults = outcome.faults.total();
        let is_first = self.seeds == 0;
        self.operations_min = if is_first {
            outcome.operations
        } else {
            self.operations_min.min(outcome.operations)
        };
        self.faults_min = if is_first {
            faults
        } else {
            self.faults_min.min(faults)
        };
        self.seeds += 1;
        self.operations += outcome.operations;
        self.faults.add(&outcome.faults);
        self.rebuilds += outcome.rebuilds;
        if let Some(finding) = outcome.findings.first() {
            self.failed += 1;
            if self.failures.len() < FAILURES_MAX {
                self.failures.push((outcome.seed, finding.clone()));
            }
        }
    }
}

/// Runs a world from each seed, as many at once as there are processors, and shows each outcome
/// that failed.
pub fn run_seeds(
    seeds: impl IntoIterator<Item = u64, IntoIter: Send>,
    world: impl Fn(u64) -> Outcome + Sync,
    mut failed: impl FnMut(&Outcome),
) -> Summary {
    let mut summary = Summary::default();
    let at_once = thread::available_parallelism().map_or(1, NonZero::get);
    let seeds = Mutex::new(seeds.into_iter());
    let next = || seeds.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (sender, outcomes) = mpsc::sync_channel(at_once);
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (sender, next, world) = (sender.clone(), &next, &world);
            scope.spawn(move || {
                while let Some(seed) = next()
                    && sender.send(world(seed)).is_ok()
                {}
            });
        }
        drop(sender);
        for outcome in outcomes {
            summary.add(&outcome);
            if !outcome.findings.is_empty() {
                failed(&outcome);
            }
        }
    });
    summary.failures.sort();
    summary
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} seeds, {} operations (at least {} each), {} faults (at least {} each), {} failed",
            self.seeds,
            self.operations,
            self.operations_min,
            self.faults.total(),
            self.faults_min,
            self.failed
        )?;
        writeln!(f, "faults: {}; {} rebuilds", self.faults, self.rebuilds)?;
        for (seed, finding) in &self.failures {
            writeln!(
                f,
                "seed {seed}: {}",
                finding.lines().next().unwrap_or_default()
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        writeln!(
            f,
            "seed {}: trace {:016x}, {} operations, faults: {}",
            self.seed, self.trace, self.operations, self.faults
        )?;
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}
