//! What the clients of the load did and found.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_client::ClientError;

use crate::chaos::ledger::Verdict;

/// Findings that are kept as text, of each kind; all are counted.
const NAMED: usize = 16;

/// What the clients of the load did and found.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Acknowledged puts and upserts.
    pub puts: u64,
    /// Gets of one key each.
    pub gets: u64,
    /// Gets that failed within their deadline of 2 s.
    pub gets_failed: u64,
    /// The longest call that got something, in ms.
    pub longest_get_ms: f64,
    /// The longest batch of writes that got something, in ms.
    pub longest_write_ms: f64,
    /// When batches of writes began and ended, in ns.
    pub writes: Vec<(u64, u64)>,
    /// Acknowledged puts that are not there.
    pub lost: u64,
    /// Acknowledged writes that went back, where the sync policy allows that.
    pub undone: u64,
    /// Of these, writes that went back to an object that nobody can read.
    pub stranded: u64,
    /// Reads of bytes that the key may not hold.
    pub wrong: u64,
    /// Failed operations by operation and reason.
    pub errors: BTreeMap<String, u64>,
    /// What was found of the first losses and wrong reads.
    pub findings: Vec<String>,
}

impl Tally {
    /// Counts a judged read.
    pub fn verdict(&mut self, key: &str, verdict: &Verdict) {
        match verdict {
            Verdict::Right => return,
            Verdict::Undone => {
                self.undone += 1;
                return;
            }
            Verdict::Stranded => self.stranded += 1,
            Verdict::Lost => self.lost += 1,
            Verdict::Wrong => self.wrong += 1,
        }
        self.finding(format!("{verdict:?}: {key}"));
    }

    /// Keeps a sentence about a finding, if there is room.
    pub fn finding(&mut self, text: String) {
        if self.findings.len() < NAMED {
            self.findings.push(text);
        }
    }

    /// Counts a failed operation.
    pub fn error(&mut self, operation: &str, error: &ClientError) {
        let name = format!("{operation}.{}", error.label());
        *self.errors.entry(name).or_default() += 1;
    }

    /// The longest batch of writes of which a part lies in this time, in ms.
    #[must_use]
    pub fn longest_write_in(&self, from_ns: u64, to_ns: u64) -> f64 {
        let within = |(began, ended): &&(u64, u64)| *began <= to_ns && *ended >= from_ns;
        let writes = self.writes.iter().filter(within);
        let longest = writes.map(|(began, ended)| ended.saturating_sub(*began));
        Duration::from_nanos(longest.max().unwrap_or_default()).as_secs_f64() * 1e3
    }

    /// The longest batch of writes that ended before this moment, in ms.
    #[must_use]
    pub fn longest_write_before(&self, at_ns: u64) -> f64 {
        let before = self.writes.iter().filter(|(_, ended)| *ended <= at_ns);
        let longest = before.map(|(began, ended)| ended.saturating_sub(*began));
        Duration::from_nanos(longest.max().unwrap_or_default()).as_secs_f64() * 1e3
    }

    /// Adds what another one counted.
    pub fn add(&mut self, other: &Self) {
        self.puts += other.puts;
        self.gets += other.gets;
        self.gets_failed += other.gets_failed;
        self.longest_get_ms = self.longest_get_ms.max(other.longest_get_ms);
        self.longest_write_ms = self.longest_write_ms.max(other.longest_write_ms);
        self.writes.extend_from_slice(&other.writes);
        self.lost += other.lost;
        self.undone += other.undone;
        self.stranded += other.stranded;
        self.wrong += other.wrong;
        for (name, count) in &other.errors {
            *self.errors.entry(name.clone()).or_default() += count;
        }
        for text in &other.findings {
            self.finding(text.clone());
        }
    }
}
