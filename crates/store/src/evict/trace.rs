//! Requests shaped like those that inference engines send to a KV cache, and the hit ratio that
//! each policy reaches on them.
//!
//! The shape follows what is published of such traffic: the request traces released with Mooncake
//! (FAST 2025: conversations, tools and agents, with hashed blocks of 512 tokens), the study of a
//! large provider's KV cache (Wang et al., "KVCache Cache in the Wild", USENIX ATC 2025), and the
//! traces of Azure's inference services (Patel et al., "Splitwise", ISCA 2024). They agree on
//! this, and the numbers below are ours within the ranges that they show:
//!
//! * A prompt is a list of blocks, and is worth the leading blocks that are cached: the first miss
//!   ends the match, and the engine writes everything from there on.
//! * Many prompts share a beginning (system prompt, tools, few-shot examples). A few of those are
//!   asked for all the time and most of them rarely: Zipf.
//! * A conversation comes back with all that it had and some more, after a gap that is log-normal:
//!   mostly a minute, sometimes hours; most conversations have few turns.
//! * A good part of all prompts comes once and never again.
//!
//! It is in the library because both the suite and the benchmarks of the store use it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::ghost::Ghost;
use super::nodes::{Lane, Nodes};
use super::{Policy, lru::Lru, s3_fifo::S3Fifo, sieve::Sieve};
use crate::objects::ObjectId;

/// The size of every block in the simulation, in bytes.
const BLOCK_BYTES: u64 = 256 * 1024;
/// Shared beginnings.
const PREFIXES: usize = 512;
/// The mean time between two new conversations or single prompts, in milliseconds.
const ARRIVAL_MS: f64 = 400.0;
/// The share of arrivals that come once, in percent.
const ONE_SHOT_PERCENT: u64 = 45;
/// The chance that a conversation goes on after a turn, in percent: four turns on average.
const GOES_ON_PERCENT: u64 = 75;
/// The longest prompt, in blocks.
const MAX_BLOCKS: usize = 256;

/// A generator of numbers that look random: splitmix64.
#[derive(Clone, Debug)]
struct Lot(u64);

impl Lot {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Above 0 and at most 1.
    fn share(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    const fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// Log-normal of this median and spread, by Box and Muller.
    fn log_normal(&mut self, median: f64, sigma: f64) -> f64 {
        let radius = (-2.0 * self.share().ln()).sqrt();
        let normal = radius * (std::f64::consts::TAU * self.share()).cos();
        median * (sigma * normal).exp()
    }

    /// The same as a count of 1 to `most`.
    fn count(&mut self, median: f64, sigma: f64, most: usize) -> usize {
        whole(self.log_normal(median, sigma)).clamp(1, most as u64) as usize
    }
}

/// The whole part of what is not negative.
#[expect(
    clippy::cast_sign_loss,
    reason = "the cast ends at 0 and at the largest number"
)]
const fn whole(number: f64) -> u64 {
    number as u64
}

/// One block of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// Its key: the same for the same beginning of a prompt.
    pub key: u64,
    /// The blocks that are of use only together: those of one shared beginning, or those that one
    /// conversation has behind it.
    pub group: u32,
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// When it comes, in milliseconds.
    pub at_ms: u64,
    /// Its blocks, from the beginning.
    pub blocks: Vec<Block>,
}

#[derive(Clone, Debug)]
struct Conversation {
    blocks: Vec<Block>,
    group: u32,
    is_one_shot: bool,
}

/// Prompts without end, in the order of time. The same seed gives the same prompts.
#[derive(Clone, Debug)]
pub struct Trace {
    lot: Lot,
    prefixes: Vec<Vec<Block>>,
    /// Sums of the popularity of the prefixes up to each.
    popularity: Vec<f64>,
    /// What comes when; the number keeps equal times apart.
    coming: BTreeMap<(u64, u64), Conversation>,
    next_arrival_ms: f64,
    next_key: u64,
    next_group: u32,
    number: u64,
}

impl Trace {
    /// A trace of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut trace = Self {
            lot: Lot(seed),
            prefixes: Vec::new(),
            popularity: Vec::new(),
            coming: BTreeMap::new(),
            next_arrival_ms: 0.0,
            next_key: 0,
            next_group: 0,
            number: 0,
        };
        let mut sum = 0.0;
        for rank in 1..=PREFIXES {
            let length = trace.lot.count(6.0, 0.9, 64);
            let group = trace.group();
            let blocks = trace.fresh(length, group);
            trace.prefixes.push(blocks);
            sum += 1.0 / rank as f64;
            trace.popularity.push(sum);
        }
        trace
    }

    const fn group(&mut self) -> u32 {
        self.next_group += 1;
        self.next_group
    }

    fn fresh(&mut self, length: usize, group: u32) -> Vec<Block> {
        let from = self.next_key;
        self.next_key += length as u64;
        (from..self.next_key)
            .map(|key| Block { key, group })
            .collect()
    }

    fn arrive(&mut self) {
        let at_ms = whole(self.next_arrival_ms);
        self.next_arrival_ms -= ARRIVAL_MS * self.lot.share().ln();
        let total = self.popularity.last().copied().unwrap_or(0.0);
        let drawn = self.lot.share() * total;
        let rank = self.popularity.partition_point(|sum| *sum < drawn);
        let group = self.group();
        let conversation = Conversation {
            blocks: self.prefixes.get(rank).cloned().unwrap_or_default(),
            group,
            is_one_shot: self.lot.percent(ONE_SHOT_PERCENT),
        };
        self.number += 1;
        self.coming.insert((at_ms, self.number), conversation);
    }
}

impl Iterator for Trace {
    type Item = Prompt;

    fn next(&mut self) -> Option<Prompt> {
        while self
            .coming
            .first_key_value()
            .is_none_or(|((at_ms, _), _)| *at_ms as f64 >= self.next_arrival_ms)
        {
            self.arrive();
        }
        let ((at_ms, _), mut conversation) = self.coming.pop_first()?;
        let median = if conversation.is_one_shot { 10.0 } else { 4.0 };
        let length = self.lot.count(median, 0.9, 64);
        let own = self.fresh(length, conversation.group);
        conversation.blocks.extend(own);
        let blocks = conversation.blocks.clone();
        let goes_on = !conversation.is_one_shot
            && blocks.len() < MAX_BLOCKS
            && self.lot.percent(GOES_ON_PERCENT);
        if goes_on {
            let gap_ms = self.lot.log_normal(60_000.0, 1.5);
            self.number += 1;
            let next = (at_ms + whole(gap_ms), self.number);
            self.coming.insert(next, conversation);
        }
        Some(Prompt { at_ms, blocks })
    }
}

/// What a policy reached with one size of cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HitRatio {
    /// The policy.
    pub policy: &'static str,
    /// The size of the cache as a share of all distinct blocks, per mille.
    pub size_per_mille: u64,
    /// The share of all blocks asked for that a leading match found.
    pub hit_ratio: f64,
    /// The share of the first misses whose key was evicted not long ago.
    pub ghost_ratio: f64,
}

/// Runs each policy over the first `prompts` of a trace, with caches of these shares of its
/// distinct blocks.
#[must_use]
pub fn hit_ratios(seed: u64, prompts: usize, sizes_per_mille: &[u64]) -> Vec<HitRatio> {
    let prompts: Vec<Prompt> = Trace::new(seed).take(prompts).collect();
    let keys = prompts.iter().flat_map(|prompt| &prompt.blocks);
    let distinct = keys.map(|block| block.key).collect::<BTreeSet<_>>().len() as u64;
    let mut found = Vec::new();
    for size_per_mille in sizes_per_mille {
        let blocks = (distinct * size_per_mille / 1000).max(1);
        let runs: [fn(&[Prompt], u64) -> Cache; 3] = [run::<Lru>, run::<Sieve>, run::<S3Fifo>];
        let names = [Lru::NAME, Sieve::NAME, S3Fifo::NAME];
        for (run, policy) in runs.into_iter().zip(names) {
            let seen = run(&prompts, blocks * BLOCK_BYTES);
            found.push(HitRatio {
                policy,
                size_per_mille: *size_per_mille,
                hit_ratio: seen.hits as f64 / seen.asked.max(1) as f64,
                ghost_ratio: seen.ghost_hits as f64 / seen.misses.max(1) as f64,
            });
        }
    }
    found
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Cache {
    asked: u64,
    hits: u64,
    misses: u64,
    ghost_hits: u64,
}

/// Blocks by key, as the leader holds them: places are used again, oldest first.
#[derive(Default)]
struct Table {
    places: BTreeMap<u64, ObjectId>,
    keys: Vec<u64>,
    free: VecDeque<ObjectId>,
}

impl Table {
    fn add(&mut self, key: u64) -> ObjectId {
        let id = self.free.pop_front().unwrap_or_else(|| {
            self.keys.push(0);
            ObjectId(u32::try_from(self.keys.len() - 1).unwrap_or(u32::MAX))
        });
        self.keys[id.0 as usize] = key;
        self.places.insert(key, id);
        id
    }

    fn take(&mut self, id: ObjectId) -> u64 {
        let key = self.keys[id.0 as usize];
        self.places.remove(&key);
        self.free.push_back(id);
        key
    }
}

fn run<P: Policy>(prompts: &[Prompt], size_bytes: u64) -> Cache {
    let (mut seen, mut table) = (Cache::default(), Table::default());
    let (mut policy, mut nodes, mut ghost) = (P::default(), Nodes::default(), Ghost::default());
    let hash = |key: u64| crate::digest::of_key(&key.to_le_bytes());
    for Prompt { at_ms, blocks } in prompts {
        seen.asked += blocks.len() as u64;
        let mut matches = true;
        for Block { key, .. } in blocks {
            if let Some(id) = table.places.get(key) {
                if matches {
                    seen.hits += 1;
                    let entries: Vec<_> = nodes.of(*id).collect();
                    entries
                        .into_iter()
                        .for_each(|e| policy.touch(&mut nodes, e));
                }
                continue;
            }
            if matches {
                seen.misses += 1;
                seen.ghost_hits += u64::from(ghost.contains(hash(*key)));
                matches = false;
            }
            let again = ghost.forget(hash(*key));
            let entry = nodes.add(table.add(*key), Lane::new(0), BLOCK_BYTES, *at_ms);
            policy.insert(&mut nodes, entry, again);
            while policy.bytes() > size_bytes {
                let mut steps = super::MAX_STEPS;
                let Some(gone) = policy.victim(&mut nodes, &mut steps, &mut |_| true) else {
                    break;
                };
                policy.remove(&mut nodes, gone);
                let id = nodes.object(gone);
                nodes.drop_all(id);
                ghost.note(hash(table.take(id)), policy.len());
            }
        }
    }
    seen
}
