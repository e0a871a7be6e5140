//! Whether a leader is certainly still the leader.
//!
//! A follower that took an append votes for nobody else for `lease_ms` after that. So a leader
//! whose appends a quorum took leads alone until `lease_ms` after the *start* of the earliest of
//! them: what it answers before that is not stale. The stamps are our own: openraft's metrics say
//! when they were published last, which after a pause of the process is a lie.

use std::collections::{BTreeMap, BTreeSet};

/// The rounds that other masters took. Pure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rounds {
    /// By replica: the term, and when the last append that it took in that term was begun.
    taken: BTreeMap<u64, (u64, u64)>,
    /// Rounds begun before this say nothing: since then a vote was let through, and whoever got
    /// it may lead.
    not_before_ms: u64,
}

impl Rounds {
    /// A replica took an append of this term that was begun then.
    pub(super) fn take(&mut self, replica: u64, term: u64, begun_ms: u64) {
        let last = self.taken.entry(replica).or_default();
        *last = (*last).max((term, begun_ms));
    }

    /// A vote is about to be given to somebody else: no round begun until now counts any more.
    pub(super) fn revoke(&mut self, now_ms: u64) {
        self.not_before_ms = now_ms.saturating_add(1);
    }

    /// When the last round of this term that a replica took was begun.
    pub(super) fn taken_ms(&self, replica: u64, term: u64) -> Option<u64> {
        let taken = self.taken.get(&replica);
        taken.filter(|taken| taken.0 == term).map(|taken| taken.1)
    }

    /// The latest time at or after which a quorum of each set of voters took a round of this
    /// term; the leader itself has always just taken one. `None`: there is none.
    pub(super) fn quorum_ms(
        &self,
        term: u64,
        leader: u64,
        configs: &[BTreeSet<u64>],
        now_ms: u64,
    ) -> Option<u64> {
        let of_config = |voters: &BTreeSet<u64>| {
            let taken = |voter: &u64| {
                if *voter == leader {
                    return Some(now_ms);
                }
                let (taken_term, begun_ms) = *self.taken.get(voter)?;
                let counts = taken_term == term && begun_ms >= self.not_before_ms;
                counts.then_some(begun_ms)
            };
            let mut begun: Vec<u64> = voters.iter().filter_map(taken).collect();
            begun.sort_unstable_by(|a, b| b.cmp(a));
            // The one that completes the quorum, counted from the latest.
            begun.get(voters.len() / 2).copied()
        };
        // An empty membership has no quorum.
        let mut all = configs.iter().map(of_config);
        let first = all.next()??;
        all.try_fold(first, |earliest, one| Some(earliest.min(one?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_certain(rounds: &Rounds, configs: &[BTreeSet<u64>], now_ms: u64) -> bool {
        let begun_ms = rounds.quorum_ms(5, 1, configs, now_ms);
        begun_ms.is_some_and(|begun_ms| now_ms < begun_ms + 100)
    }

    fn voters(ids: &[u64]) -> BTreeSet<u64> {
        ids.iter().copied().collect()
    }

    #[test]
    fn a_quorum_is_as_old_as_the_round_that_completes_it() {
        let mut rounds = Rounds::default();
        let three = [voters(&[1, 2, 3])];
        assert_eq!(rounds.quorum_ms(5, 1, &three, 100), None);
        assert_eq!(rounds.quorum_ms(5, 1, &[voters(&[1])], 100), Some(100));
        rounds.take(2, 5, 60);
        assert_eq!(rounds.quorum_ms(5, 1, &three, 100), Some(60));
        rounds.take(3, 5, 80);
        assert_eq!(rounds.quorum_ms(5, 1, &three, 100), Some(80));
        // Five need two others.
        let five = [voters(&[1, 2, 3, 4, 5])];
        assert_eq!(rounds.quorum_ms(5, 1, &five, 100), Some(60));
        // While voters change, both sets must agree.
        let joint = [voters(&[1, 2, 3]), voters(&[1, 4, 5])];
        assert_eq!(rounds.quorum_ms(5, 1, &joint, 100), None);
        rounds.take(4, 5, 70);
        assert_eq!(rounds.quorum_ms(5, 1, &joint, 100), Some(70));
    }

    #[test]
    fn rounds_of_another_term_and_those_before_a_vote_do_not_count() {
        let mut rounds = Rounds::default();
        let three = [voters(&[1, 2, 3])];
        rounds.take(2, 4, 60);
        assert!(!is_certain(&rounds, &three, 61));
        rounds.take(2, 5, 62);
        assert!(is_certain(&rounds, &three, 161));
        assert!(!is_certain(&rounds, &three, 162));
        // An answer that comes late does not make the lease older.
        rounds.take(2, 5, 50);
        assert!(is_certain(&rounds, &three, 161));
        rounds.revoke(70);
        assert!(!is_certain(&rounds, &three, 71));
        rounds.take(2, 5, 70);
        assert!(!is_certain(&rounds, &three, 72));
        rounds.take(2, 5, 71);
        assert!(is_certain(&rounds, &three, 72));
    }
}
