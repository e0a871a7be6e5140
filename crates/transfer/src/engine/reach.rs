//! What a rail cannot reach although it works: learnt from slices that fail for one location while
//! others get through. Pure.
//!
//! That a NIC registers memory does not prove that it can reach it: some fabrics carry data between
//! a GPU and the NICs under its own switch only.

use std::collections::BTreeMap;

use super::health::{Health, Leave};
use crate::topology::Location;

/// The most pairs that are remembered. Each has failed lately, so more than this means that nothing
/// works, which the rails' own health tells.
const PAIRS_MAX: usize = 4_096;

/// Pairs of a rail and a location whose slices failed.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    failed: BTreeMap<(usize, Location), Health>,
}

impl Reach {
    /// Whether a slice from or to `location` may go over the rail.
    #[must_use]
    pub fn may(&self, rail: usize, location: &Location, now_ms: u64) -> bool {
        // A look-up of a borrowed pair would need a key of its own; there is nearly never any.
        self.failed.is_empty() || {
            let health = self.failed.get(&(rail, location.clone()));
            health.is_none_or(|health| !matches!(health.leave(now_ms), Leave::Never { .. }))
        }
    }

    /// A slice goes that way.
    pub fn sent(&mut self, rail: usize, location: &Location, now_ms: u64) {
        if let Some(health) = self.failed.get_mut(&(rail, location.clone())) {
            health.sent(now_ms);
        }
    }

    /// One got through.
    pub fn succeeded(&mut self, rail: usize, location: &Location) {
        if !self.failed.is_empty() {
            self.failed.remove(&(rail, location.clone()));
        }
    }

    /// One failed, and the rail was not at fault for others.
    pub fn failed(&mut self, rail: usize, location: &Location, now_ms: u64, seed: u64) {
        let key = (rail, location.clone());
        if self.failed.len() >= PAIRS_MAX && !self.failed.contains_key(&key) {
            return;
        }
        self.failed.entry(key).or_default().failed(now_ms, seed);
    }

    /// Pairs that are out now.
    pub fn out(&self) -> impl Iterator<Item = (usize, &Location)> {
        let out = self.failed.iter().filter(|(_, health)| health.is_out());
        out.map(|((rail, location), _)| (*rail, location))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_that_fails_is_left_out_and_tried_again() {
        let mut reach = Reach::default();
        let (gpu, other) = (Location::Cuda(0), Location::Cuda(1));
        for _ in 0..3 {
            assert!(reach.may(1, &gpu, 0));
            reach.failed(1, &gpu, 0, 0);
        }
        assert!(!reach.may(1, &gpu, 0));
        assert!(
            reach.may(1, &other, 0) && reach.may(0, &gpu, 0),
            "only these two"
        );
        assert_eq!(reach.out().collect::<Vec<_>>(), [(1, &gpu)]);
        // Much later one slice tries again.
        assert!(reach.may(1, &gpu, 60_000));
        reach.sent(1, &gpu, 60_000);
        assert!(!reach.may(1, &gpu, 60_000));
        reach.succeeded(1, &gpu);
        assert!(reach.may(1, &gpu, 60_000));
        assert_eq!(reach.out().count(), 0);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut reach = Reach::default();
        for rail in 0..2 * PAIRS_MAX {
            reach.failed(rail, &Location::Any, 0, 0);
        }
        assert_eq!(reach.failed.len(), PAIRS_MAX);
    }
}
