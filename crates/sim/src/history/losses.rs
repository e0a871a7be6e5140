//! When a cache may lose what it holds.

use serde::{Deserialize, Serialize};

/// A piece of time, both ends included, in nanoseconds of the history's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Interval {
    /// Its first moment.
    pub from_ns: u64,
    /// Its last moment.
    pub to_ns: u64,
}

/// When a key that holds something may come to hold nothing without being asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Losses {
    /// Never: what was acknowledged stays until it is removed.
    #[default]
    Never,
    /// Only then, say between the death of an agent and the moment when all know of it.
    During(Vec<Interval>),
    /// At any time, as under eviction.
    Any,
}

impl Losses {
    /// The intervals in order, joined where they touch. Empty for the other two.
    pub(super) fn intervals(&self) -> Vec<Interval> {
        let Self::During(intervals) = self else {
            return Vec::new();
        };
        let mut sorted: Vec<Interval> = intervals.clone();
        sorted.retain(|one| one.from_ns <= one.to_ns);
        sorted.sort_unstable();
        let mut joined: Vec<Interval> = Vec::new();
        for one in sorted {
            match joined.last_mut() {
                Some(last) if one.from_ns <= last.to_ns => last.to_ns = last.to_ns.max(one.to_ns),
                _ => joined.push(one),
            }
        }
        joined
    }
}
