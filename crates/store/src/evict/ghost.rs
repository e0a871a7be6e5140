//! What was evicted not long ago, by fingerprint: would a larger pool have hit?
//!
//! Two halves of the same bound. When the newer one is full, the older one is dropped, so nothing
//! is swept and nothing moves. A half remembers as many keys as half of the objects that live: the
//! two answer for a pool half as large again to twice as large. Two bytes a fingerprint, eight in
//! a bucket: one of 4,096 keys that were never here is taken for an evicted one.

/// Fingerprints per bucket.
const WAYS: usize = 8;
/// The fewest keys of a half.
const FEWEST: u32 = 64;
/// The most keys of a half: 11 MiB.
const MOST: u32 = 1 << 22;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ghost {
    newer: Half,
    older: Half,
}

#[derive(Clone, Debug, Default)]
struct Half {
    buckets: Vec<[u16; WAYS]>,
    noted: u32,
    most: u32,
}

impl Half {
    fn of(live: u32) -> Self {
        let most = (live / 2).clamp(FEWEST, MOST);
        // A third more places than keys, so that few buckets overflow.
        let buckets = (most as usize * 4 / 3).div_ceil(WAYS);
        Self {
            buckets: vec![[0; WAYS]; buckets],
            noted: 0,
            most,
        }
    }

    fn place(&self, hash: u64) -> Option<(usize, u16)> {
        let count = self.buckets.len() as u64;
        let bucket = ((hash >> 32) * count) >> 32;
        let print = (hash & 0xffff) as u16;
        // Zero is an empty place.
        (count > 0).then_some((bucket as usize, print.max(1)))
    }

    fn find(&self, hash: u64) -> Option<(usize, usize)> {
        let (bucket, print) = self.place(hash)?;
        let way = self.buckets[bucket]
            .iter()
            .position(|held| *held == print)?;
        Some((bucket, way))
    }

    fn note(&mut self, hash: u64) {
        let Some((bucket, print)) = self.place(hash) else {
            return;
        };
        let ways = &mut self.buckets[bucket];
        // A full bucket forgets any: the hash has bits enough for a lot.
        let way = ways.iter().position(|held| *held == 0);
        ways[way.unwrap_or((hash >> 16) as usize % WAYS)] = print;
        self.noted += 1;
    }

    fn forget(&mut self, hash: u64) -> bool {
        let found = self.find(hash);
        if let Some((bucket, way)) = found {
            self.buckets[bucket][way] = 0;
        }
        found.is_some()
    }
}

impl Ghost {
    /// A key of this hash was evicted while `live` objects stayed.
    pub(crate) fn note(&mut self, hash: u64, live: u32) {
        if self.newer.noted >= self.newer.most {
            self.older = std::mem::replace(&mut self.newer, Half::of(live));
        }
        self.newer.note(hash);
    }

    /// Whether a key of this hash was evicted not long ago.
    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.newer.find(hash).is_some() || self.older.find(hash).is_some()
    }

    /// The key is back; whether it was known.
    pub(crate) fn forget(&mut self, hash: u64) -> bool {
        // Both, without a short cut.
        self.newer.forget(hash) | self.older.forget(hash)
    }

    /// The memory that it takes, in bytes.
    #[cfg(test)]
    pub(crate) fn memory_bytes(&self) -> usize {
        let buckets = self.newer.buckets.capacity() + self.older.buckets.capacity();
        buckets * size_of::<[u16; WAYS]>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> u64 {
        crate::digest::of_key(&number.to_le_bytes())
    }

    #[test]
    fn it_remembers_the_latest_and_stays_bounded() {
        let mut ghost = Ghost::default();
        for number in 0..100_000 {
            ghost.note(hash(number), 2_000);
        }
        let kept = |ghost: &Ghost, from: u64, to: u64| {
            (from..to).filter(|n| ghost.contains(hash(*n))).count()
        };
        assert!(
            kept(&ghost, 99_100, 100_000) > 800,
            "most of the latest are known"
        );
        assert!(kept(&ghost, 0, 90_000) < 200, "the oldest are not");
        assert!(kept(&ghost, 200_000, 300_000) < 200, "nor what never was");
        assert!(ghost.memory_bytes() < 2_000 * 4);
        assert!(ghost.forget(hash(99_999)));
        assert!(!ghost.forget(hash(99_999)));
    }
}
