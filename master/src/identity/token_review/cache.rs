//! Whose tokens are, as the API server said, for a while. Pure: told the time.
//!
//! Tokens that were denied stand in a table of their own, so that no number of bad ones drives out
//! a good one. A token itself is not kept: its SHA-256 names it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

/// The most proven tokens: as many connections as a master has, twice, because kubelet renews each
/// token about every 50 minutes. At most 600 bytes each, and usually 150: 5 MiB at the very worst.
const PROVEN_MAX: usize = 8_192;
/// The most denied tokens: 64 bytes each.
const DENIED_MAX: usize = 1_024;
/// How long a review counts at most: so long a deleted pod's token stays good.
const PROVEN_FOR: Duration = Duration::from_secs(600);
/// How long a denial counts: whoever repeats a bad token costs nobody a review.
const DENIED_FOR: Duration = Duration::from_secs(10);

/// SHA-256 over audience and token.
pub(super) type TokenHash = [u8; 32];

/// The ServiceAccount that a token was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    /// `namespace/name`.
    pub(super) name: String,
    /// The node of the pod that the token is bound to.
    pub(super) node: Option<String>,
}

/// What the API server said.
#[derive(Debug)]
pub(super) struct Cache {
    proven: Table<Account>,
    denied: Table<()>,
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            proven: Table::new(PROVEN_MAX),
            denied: Table::new(DENIED_MAX),
        }
    }

    /// What is known of a token: whose it is, or `Some(None)` if it was denied.
    pub(super) fn get(&self, hash: &TokenHash, now: Instant) -> Option<Option<Account>> {
        if let Some(account) = self.proven.get(hash, now) {
            return Some(Some(account.clone()));
        }
        self.denied.get(hash, now).map(|()| None)
    }

    /// A token was proven; it says itself that it is valid for so long.
    pub(super) fn prove(
        &mut self,
        hash: TokenHash,
        account: Account,
        valid_for: Option<Duration>,
        now: Instant,
    ) {
        let time = valid_for.map_or(PROVEN_FOR, |time| time.min(PROVEN_FOR));
        self.proven.put(hash, account, now + time, now);
    }

    /// A token was denied.
    pub(super) fn deny(&mut self, hash: TokenHash, now: Instant) {
        self.denied.put(hash, (), now + DENIED_FOR, now);
    }
}

/// Values by hash, each until its time; when full, the one that ends first goes.
#[derive(Debug)]
struct Table<T> {
    values: HashMap<TokenHash, (Instant, T)>,
    /// The same, by their ends.
    ends: BTreeSet<(Instant, TokenHash)>,
    max: usize,
}

impl<T> Table<T> {
    fn new(max: usize) -> Self {
        Self {
            values: HashMap::new(),
            ends: BTreeSet::new(),
            max,
        }
    }

    fn get(&self, hash: &TokenHash, now: Instant) -> Option<&T> {
        let (end, value) = self.values.get(hash)?;
        (now < *end).then_some(value)
    }

    fn put(&mut self, hash: TokenHash, value: T, end: Instant, now: Instant) {
        if let Some((old, _)) = self.values.remove(&hash) {
            self.ends.remove(&(old, hash));
        }
        while let Some((first, oldest)) = self.ends.first().copied()
            && (first <= now || self.values.len() >= self.max)
        {
            self.ends.remove(&(first, oldest));
            self.values.remove(&oldest);
        }
        self.values.insert(hash, (end, value));
        self.ends.insert((end, hash));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(number: u32) -> TokenHash {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_le_bytes());
        hash
    }

    fn account() -> Account {
        Account {
            name: "apps/a".to_owned(),
            node: None,
        }
    }

    #[test]
    fn any_number_of_bad_tokens_leaves_the_good_ones() {
        let (mut cache, now) = (Cache::new(), Instant::now());
        cache.prove(hash(0), account(), None, now);
        for number in 1..10_000 {
            cache.deny(hash(number), now);
        }
        assert_eq!(cache.get(&hash(0), now), Some(Some(account())));
        assert_eq!(cache.get(&hash(9_999), now), Some(None));
        assert_eq!(cache.denied.values.len(), DENIED_MAX);
        assert_eq!(cache.get(&hash(9_999), now + DENIED_FOR), None);
    }

    #[test]
    fn nothing_is_known_longer_than_its_token_or_its_time() {
        let (mut cache, now) = (Cache::new(), Instant::now());
        let second = Duration::from_secs(1);
        cache.prove(hash(0), account(), Some(second), now);
        cache.prove(hash(1), account(), Some(PROVEN_FOR * 9), now);
        cache.prove(hash(2), account(), Some(Duration::ZERO), now);
        assert_eq!(cache.get(&hash(0), now + second), None);
        assert!(cache.get(&hash(1), now + PROVEN_FOR - second).is_some());
        assert_eq!(cache.get(&hash(1), now + PROVEN_FOR), None);
        assert_eq!(cache.get(&hash(2), now), None);
    }

    proptest! {
        #[test]
        fn a_table_stays_within_its_bound_and_its_two_halves_agree(
            puts in proptest::collection::vec((0_u32..20, 0_u64..50, 0_u64..5), 1..200),
        ) {
            let mut table = Table::new(8);
            let mut now = Instant::now();
            for (number, life_s, later_s) in puts {
                now += Duration::from_secs(later_s);
                let end = now + Duration::from_secs(life_s);
                table.put(hash(number), number, end, now);
                prop_assert!(table.values.len() <= 8);
                prop_assert_eq!(table.values.len(), table.ends.len());
                for (end, hash) in &table.ends {
                    prop_assert_eq!(table.values[hash].0, *end);
                }
                let known = table.get(&hash(number), now);
                prop_assert_eq!(known, (life_s > 0).then_some(&number));
            }
        }
    }
}
