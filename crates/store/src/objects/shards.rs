//! A hash index beside the tree: one line of memory for most look-ups, where the tree takes a
//! line for each level.
//!
//! Extendible hashing (Fagin et al., TODS 1979) over small tables with linear probing: a full
//! shard is split in two, so that no step touches more than one shard. The tree stays the
//! authority: an entry that finds no place near its own is left out and counted, and a look-up
//! that misses in such a shard asks the tree. Keys that were chosen to collide thus cost as much
//! as if there were no hash index, and no more.

/// Slots of a full-grown shard: 32 KiB, split in about 20 us.
const SHARD: usize = 4096;
/// Slots of the first shard of a small table.
const SMALLEST: usize = 16;
/// The most slots that one look-up reads: eight lines, one after the other.
const WINDOW: usize = 64;
/// Nothing.
const EMPTY: u64 = u64::MAX;
/// The most bits that choose a shard; 12 more choose the slot.
const MAX_DEPTH: u32 = 20;

/// What a look-up found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Is(u32),
    Nothing,
    /// Only the tree knows.
    Unknown,
}

#[derive(Clone, Debug)]
struct Shard {
    /// How many bits of the hash its entries have in common.
    depth: u32,
    used: usize,
    /// Entries that were left out.
    left_out: u32,
    /// Hash and leaf; a power of two of them.
    slots: Vec<u64>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Shards {
    /// The shard of each value of the first `depth` bits of a hash.
    directory: Vec<u32>,
    depth: u32,
    shards: Vec<Shard>,
    len: usize,
}

/// A hash of a key that is the same everywhere; not hard to find collisions of.
pub(super) fn hash_of(key: &[u8]) -> u32 {
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let fold = |hash: u64, word: u64| {
        let product = u128::from(hash ^ word) * u128::from(SPREAD);
        (product as u64) ^ ((product >> 64) as u64)
    };
    let mut hash = SPREAD.rotate_left(17) ^ key.len() as u64;
    let (words, rest) = key.as_chunks::<8>();
    for word in words {
        hash = fold(hash.wrapping_add(SPREAD), u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    hash = fold(hash.wrapping_add(SPREAD), u64::from_le_bytes(last));
    (hash ^ hash >> 32) as u32
}

const fn entry(hash: u32, leaf: u32) -> u64 {
    (hash as u64) << 32 | leaf as u64
}

const fn hash_in(entry: u64) -> u32 {
    (entry >> 32) as u32
}

impl Shard {
    fn new(depth: u32, slots: usize) -> Self {
        Self {
            depth,
            used: 0,
            left_out: 0,
            slots: vec![EMPTY; slots],
        }
    }

    /// The slots that an entry of this hash may be in, in order.
    fn window(&self, hash: u32) -> impl Iterator<Item = usize> + use<> {
        let mask = self.slots.len() - 1;
        let home = hash as usize & mask;
        (0..WINDOW.min(self.slots.len())).map(move |step| (home + step) & mask)
    }

    fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Found {
        for slot in self.window(hash) {
            let held = self.slots[slot];
            if held == EMPTY {
                break;
            }
            if hash_in(held) == hash && is(held as u32) {
                return Found::Is(held as u32);
            }
        }
        if self.left_out == 0 {
            Found::Nothing
        } else {
            Found::Unknown
        }
    }

    /// Puts an entry into the first free slot of its window; whether there is one.
    fn put(&mut self, new: u64) -> bool {
        let free = self
            .window(hash_in(new))
            .find(|slot| self.slots[*slot] == EMPTY);
        if let Some(slot) = free {
            self.slots[slot] = new;
            self.used += 1;
        }
        free.is_some()
    }

    /// Takes an entry out and moves those behind it up, so that no look-up stops too early.
    fn remove(&mut self, old: u64) -> bool {
        let mask = self.slots.len() - 1;
        let found = self
            .window(hash_in(old))
            .find(|slot| self.slots[*slot] == old);
        let Some(mut hole) = found else {
            return false;
        };
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let held = self.slots[next];
            if held == EMPTY || next == hole {
                break;
            }
            let home = hash_in(held) as usize & mask;
            // It may move up if its home is not behind the hole.
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.slots[hole] = held;
                hole = next;
            }
        }
        self.slots[hole] = EMPTY;
        self.used -= 1;
        true
    }

    fn is_full(&self) -> bool {
        self.used * 4 >= self.slots.len() * 3
    }
}

impl Shards {
    fn shard_of(&self, hash: u32) -> Option<usize> {
        // A shift by 32 is none: one shard has depth 0.
        let at = hash.checked_shr(32 - self.depth).unwrap_or(0);
        self.directory.get(at as usize).map(|shard| *shard as usize)
    }

    /// The leaf of this hash that `is` picks.
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Found {
        self.shard_of(hash)
            .and_then(|at| self.shards.get(at))
            .map_or(Found::Nothing, |shard| shard.find(hash, is))
    }

    pub(super) fn insert(&mut self, hash: u32, leaf: u32) {
        if self.directory.is_empty() {
            *self = Self {
                directory: vec![0],
                shards: vec![Shard::new(0, SMALLEST)],
                ..Self::default()
            };
        }
        self.len += 1;
        let Some(mut at) = self.shard_of(hash) else {
            return;
        };
        // Once where hashes are spread; a few times, and in vain, where they are not.
        while self.shards[at].is_full() || !self.shards[at].put(entry(hash, leaf)) {
            if !self.widen(at) {
                self.shards[at].left_out += 1;
                return;
            }
            at = self.shard_of(hash).unwrap_or(at);
        }
    }

    pub(super) fn remove(&mut self, hash: u32, leaf: u32) {
        let Some(at) = self.shard_of(hash) else {
            return;
        };
        self.len = self.len.saturating_sub(1);
        let shard = &mut self.shards[at];
        if !shard.remove(entry(hash, leaf)) {
            shard.left_out = shard.left_out.saturating_sub(1);
        }
    }

    /// Frees up to `shards_max` shards of an index without entries; how many.
    pub(super) fn trim(&mut self, shards_max: usize) -> usize {
        let kept = self.shards.len().saturating_sub(shards_max);
        let freed = self.shards.len() - kept;
        self.shards.truncate(kept);
        // Without a directory nothing is looked up; it begins anew with the next entry.
        self.directory = Vec::new();
        self.depth = 0;
        freed
    }

    pub(super) const fn is_unused(&self) -> bool {
        self.shards.is_empty()
    }

    /// Makes room in a full shard; whether it could.
    fn widen(&mut self, at: usize) -> bool {
        let shard = &self.shards[at];
        let (depth, slots) = (shard.depth, shard.slots.len());
        if slots < SHARD {
            self.refill(at, Shard::new(depth, slots * 4));
            return true;
        }
        // Hashes that are spread fill shards evenly: a shard that is much deeper than the number
        // of entries explains holds keys that were chosen.
        let fair = (self.len / SHARD).checked_ilog2().unwrap_or(0) + 3;
        if depth >= fair.min(MAX_DEPTH) {
            return false;
        }
        if depth == self.depth {
            self.directory = self.directory.iter().flat_map(|s| [*s, *s]).collect();
            self.depth += 1;
        }
        self.split(at);
        true
    }

    /// Puts the entries of a shard into another that takes its place.
    fn refill(&mut self, at: usize, mut new: Shard) {
        let old = &self.shards[at];
        for held in old.slots.iter().filter(|held| **held != EMPTY) {
            new.left_out += u32::from(!new.put(*held));
        }
        new.left_out += old.left_out;
        self.shards[at] = new;
    }

    /// Splits a shard in two.
    fn split(&mut self, at: usize) {
        let old = &self.shards[at];
        let depth = old.depth;
        let mut halves = [Shard::new(depth + 1, SHARD), Shard::new(depth + 1, SHARD)];
        for held in old.slots.iter().filter(|held| **held != EMPTY) {
            let half = &mut halves[hash_in(*held) as usize >> (31 - depth) & 1];
            half.left_out += u32::from(!half.put(*held));
        }
        // Which half those belong to that were left out is not known.
        halves
            .iter_mut()
            .for_each(|half| half.left_out += old.left_out);
        let [lower, upper] = halves;
        let number = u32::try_from(self.shards.len()).unwrap_or(u32::MAX);
        let bit = self.depth - 1 - depth;
        for (bits, shard) in self.directory.iter_mut().enumerate() {
            if *shard as usize == at && bits >> bit & 1 == 1 {
                *shard = number;
            }
        }
        self.shards[at] = lower;
        self.shards.push(upper);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Both {
        shards: Shards,
        /// The hash of each leaf.
        map: BTreeMap<u32, u32>,
    }

    impl Both {
        fn insert(&mut self, leaf: u32, hash: u32) {
            self.map.insert(leaf, hash);
            self.shards.insert(hash, leaf);
        }

        fn remove(&mut self, leaf: u32) {
            if let Some(hash) = self.map.remove(&leaf) {
                self.shards.remove(hash, leaf);
            }
        }

        /// No look-up is wrong; how many are not answered.
        fn check(&self) -> usize {
            let mut unknown = 0;
            for (leaf, hash) in &self.map {
                match self.shards.find(*hash, |found| found == *leaf) {
                    Found::Is(found) => assert_eq!(found, *leaf),
                    Found::Nothing => panic!("{leaf} of hash {hash:x} is not found"),
                    Found::Unknown => unknown += 1,
                }
                assert!(!matches!(self.shards.find(*hash, |_| false), Found::Is(_)));
            }
            unknown
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 64,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn finds_every_leaf_or_says_that_it_may_be_elsewhere(
            acts in prop::collection::vec((0..3u8, 0..200u32, 0..6u32), 1..600),
            spreads in any::<bool>(),
        ) {
            let mut both = Both::default();
            for (act, leaf, hash) in acts {
                // Few hashes, near each other or far apart, so that windows overflow.
                let hash = if spreads { hash.wrapping_mul(0x3334_5557) } else { hash };
                if act == 0 {
                    both.remove(leaf);
                } else if !both.map.contains_key(&leaf) {
                    both.insert(leaf, hash);
                }
            }
            both.check();
            while let Some((leaf, _)) = both.map.first_key_value() {
                let leaf = *leaf;
                both.remove(leaf);
            }
            prop_assert_eq!(both.shards.shards.iter().map(|s| s.used).sum::<usize>(), 0);
        }
    }

    #[test]
    fn spread_hashes_are_all_indexed_and_shards_are_half_full() {
        let mut both = Both::default();
        for leaf in 0..100_000u32 {
            both.insert(leaf, hash_of(&leaf.to_le_bytes()));
        }
        assert_eq!(both.check(), 0);
        let slots: usize = both.shards.shards.iter().map(|s| s.slots.len()).sum();
        assert!(slots < 3 * 100_000, "{slots} slots");
        for leaf in (0..100_000).step_by(2) {
            both.remove(leaf);
        }
        assert_eq!(both.check(), 0);
    }

    #[test]
    fn chosen_hashes_cost_no_memory() {
        let mut both = Both::default();
        for leaf in 0..20_000u32 {
            both.insert(leaf, 0x1234_0000 | (leaf % 3));
        }
        both.check();
        assert!(
            both.shards.shards.len() < 20,
            "{}",
            both.shards.shards.len()
        );
        for leaf in 0..20_000 {
            both.remove(leaf);
        }
        assert_eq!(both.shards.find(0x1234_0000, |_| true), Found::Nothing);
    }
}
