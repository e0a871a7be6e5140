//! One suite for all policies: random sequences against a naive model, and the hit ratios by which
//! the policy was chosen.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::lru::Lru;
use super::nodes::{EntryId, Lane, Nodes};
use super::sieve::Sieve;
use super::trace::{Trace, hit_ratios};
use super::{MAX_CHANCES, MAX_STEPS, Policy, S3Fifo};
use crate::objects::ObjectId;

/// Two queues of one table of nodes, as two segments of one tenant have them.
struct Subject<P> {
    nodes: Nodes,
    policies: [P; 2],
    /// Places and sizes of each object: the naive model.
    model: BTreeMap<ObjectId, Vec<(usize, u64)>>,
}

impl<P: Policy> Subject<P> {
    fn new() -> Self {
        Self {
            nodes: Nodes::default(),
            policies: [P::default(), P::default()],
            model: BTreeMap::new(),
        }
    }

    fn entries(&self, object: ObjectId) -> Vec<(usize, EntryId)> {
        let lane = |entry| self.nodes.lane(entry).expect("it is there").number();
        self.nodes.of(object).map(|e| (lane(e), e)).collect()
    }

    fn remove(&mut self, object: ObjectId) {
        for (lane, entry) in self.entries(object) {
            self.policies[lane].remove(&mut self.nodes, entry);
        }
        self.nodes.drop_all(object);
        self.model.remove(&object);
    }

    fn insert(&mut self, object: ObjectId, places: &[(usize, u64)], again: bool) {
        self.remove(object);
        for (lane, units) in places {
            let number = Lane::new(u16::try_from(*lane).expect("small"));
            let entry = self.nodes.add(object, number, units * 256, 0);
            self.policies[*lane].insert(&mut self.nodes, entry, again);
        }
        self.model.insert(object, places.to_vec());
    }

    fn touch(&mut self, object: ObjectId) {
        for (lane, entry) in self.entries(object) {
            self.policies[lane].touch(&mut self.nodes, entry);
        }
    }

    /// Evicts one object from a lane, as the leader does: with all its entries.
    fn evict(&mut self, lane: usize, may: impl Fn(ObjectId) -> bool) -> Option<ObjectId> {
        let mut steps = MAX_STEPS;
        let entry =
            self.policies[lane].victim(&mut self.nodes, &mut steps, &mut |object| may(object))?;
        let object = self.nodes.object(entry);
        let held = self.model.get(&object).expect("it was not removed");
        assert!(held.iter().any(|(of, _)| *of == lane), "it lies there");
        self.remove(object);
        Some(object)
    }

    fn check(&self) {
        for (number, policy) in self.policies.iter().enumerate() {
            let here = self
                .model
                .values()
                .flatten()
                .filter(|(of, _)| *of == number);
            let (count, units) = here.fold((0, 0), |(n, sum), (_, units)| (n + 1, sum + units));
            assert_eq!((policy.len(), policy.bytes()), (count, units * 256));
        }
        for (object, places) in &self.model {
            let mut found: Vec<(usize, u64)> = self
                .entries(*object)
                .into_iter()
                .map(|(lane, entry)| (lane, self.nodes.size_bytes(entry) / 256))
                .collect();
            let mut places = places.clone();
            found.sort_unstable();
            places.sort_unstable();
            assert_eq!(found, places);
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Insert(u32, Vec<(usize, u64)>, bool),
    Touch(u32),
    Remove(u32),
    Evict(usize, u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let places = prop_oneof![
        6 => (0..2usize, 1..5_000u64).prop_map(|place| vec![place]),
        2 => (1..5_000u64).prop_map(|units| vec![(0, units), (1, units)]),
        1 => (1..99u64).prop_map(|units| vec![(1, units), (0, units), (1, 7)]),
    ];
    let act = prop_oneof![
        6 => (0..4_000u32, places, any::<bool>()).prop_map(|(o, p, a)| Act::Insert(o * 13, p, a)),
        5 => (0..4_000u32).prop_map(|object| Act::Touch(object * 13)),
        3 => (0..4_000u32).prop_map(|object| Act::Remove(object * 13)),
        3 => (0..2usize, 2..9u32).prop_map(|(lane, odd)| Act::Evict(lane, odd)),
    ];
    prop::collection::vec(act, 1..400)
}

fn run<P: Policy>(acts: &[Act]) {
    let mut subject = Subject::<P>::new();
    for act in acts {
        match act {
            Act::Insert(object, places, again) => {
                subject.insert(ObjectId(*object), places, *again);
            }
            Act::Touch(object) => subject.touch(ObjectId(*object)),
            Act::Remove(object) => subject.remove(ObjectId(*object)),
            Act::Evict(lane, odd) => {
                let may = |object: ObjectId| !object.0.is_multiple_of(*odd);
                let gone = subject.evict(*lane, may);
                assert!(gone.is_none_or(may), "what may not go stays");
            }
        }
        subject.check();
    }
    // Untouched, everything goes, each once, and nothing is left.
    for lane in 0..2 {
        let mut gone = BTreeSet::new();
        while let Some(object) = subject.evict(lane, |_| true) {
            assert!(gone.insert(object), "once");
        }
        assert_eq!(subject.policies[lane].len(), 0);
    }
    subject.check();
    assert!(subject.model.is_empty());
    assert!(
        subject.nodes.memory_bytes() < 16_384,
        "the chunks are given back"
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_policy_agrees_with_a_naive_model(acts in acts()) {
        run::<Lru>(&acts);
        run::<Sieve>(&acts);
        run::<S3Fifo>(&acts);
    }
}

fn one_victim_is_near<P: Policy>() {
    let mut subject = Subject::<P>::new();
    for object in 0..20_000 {
        subject.insert(ObjectId(object), &[(0, 1)], false);
    }
    for _ in 0..3 {
        (0..20_000).for_each(|object| subject.touch(ObjectId(object)));
    }
    let mut steps = MAX_STEPS;
    let found = subject.policies[0].victim(&mut subject.nodes, &mut steps, &mut |_| true);
    assert!(found.is_some(), "{}: all are warm, one goes", P::NAME);
    assert!(MAX_STEPS - steps <= MAX_CHANCES + 1, "{}", P::NAME);
    let mut steps = MAX_STEPS;
    let none = subject.policies[0].victim(&mut subject.nodes, &mut steps, &mut |_| false);
    assert_eq!(
        (none, steps),
        (None, 0),
        "{}: nobody may go, and it ends",
        P::NAME
    );
}

/// One that may go is found among any that may not, wherever it waits, and none is told from one
/// that was not reached.
fn the_only_one_is_found<P: Policy>() {
    for only in [0, 150, 299] {
        let mut subject = Subject::<P>::new();
        for object in 0..300 {
            subject.insert(ObjectId(object), &[(0, 1)], object % 2 == 0);
        }
        (0..300).for_each(|object| subject.touch(ObjectId(object)));
        let found = subject.evict(0, |object| object.0 == only);
        assert_eq!(found, Some(ObjectId(only)), "{}", P::NAME);
        let mut steps = MAX_STEPS;
        let none = subject.policies[0].victim(&mut subject.nodes, &mut steps, &mut |_| false);
        assert_eq!(none, None);
        assert!(steps >= MAX_STEPS - 300 - MAX_CHANCES, "{}", P::NAME);
    }
}

#[test]
fn the_only_one_that_may_go_is_found() {
    the_only_one_is_found::<Lru>();
    the_only_one_is_found::<Sieve>();
    the_only_one_is_found::<S3Fifo>();
}

#[test]
fn one_call_has_an_end_whatever_is_warm_or_protected() {
    one_victim_is_near::<Lru>();
    one_victim_is_near::<Sieve>();
    one_victim_is_near::<S3Fifo>();
}

/// A place that is used again belongs to the new object alone: its age, its heat and its turn.
fn places_are_used_again<P: Policy>() {
    let mut subject = Subject::<P>::new();
    for object in 0..100 {
        subject.insert(ObjectId(object), &[(0, 1)], false);
    }
    subject.remove(ObjectId(0));
    subject.insert(ObjectId(0), &[(0, 9)], false);
    subject.check();
    let order: Vec<u32> = std::iter::from_fn(|| subject.evict(0, |_| true))
        .map(|object| object.0)
        .collect();
    assert_eq!(order.last(), Some(&0), "{}: it is the newest", P::NAME);
    assert_eq!(order.len(), 100);
}

#[test]
fn a_place_that_is_used_again_belongs_to_the_new_object() {
    places_are_used_again::<Lru>();
    places_are_used_again::<Sieve>();
    places_are_used_again::<S3Fifo>();
}

/// 16 bytes a replica and what chunks leave over, also after most are gone.
#[test]
fn memory_follows_what_lives() {
    let mut subject = Subject::<S3Fifo>::new();
    for object in 0..50_000 {
        subject.insert(ObjectId(object), &[(0, 1)], false);
    }
    assert!(subject.nodes.memory_bytes() < 50_000 * 17);
    for object in 0..49_000 {
        subject.remove(ObjectId(object));
    }
    assert!(subject.nodes.memory_bytes() < 3 * 16_384 + 4_096);
}

#[test]
fn the_same_seed_gives_the_same_trace_in_the_order_of_time() {
    let of = |seed| Trace::new(seed).take(2_000).collect::<Vec<_>>();
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    assert!(of(1).is_sorted_by_key(|prompt| prompt.at_ms));
    let shared = |a: &super::trace::Prompt, b: &super::trace::Prompt| a.blocks[0] == b.blocks[0];
    assert!(of(1).windows(2).any(|pair| shared(&pair[0], &pair[1])));
}

/// The comparison that the choice rests on; `docs/benchmarks.md` has its table. Where space is
/// short the chosen policy keeps what is shared; where it is ample all do.
#[test]
fn the_chosen_policy_hits_more_often_than_lru_where_space_is_short() {
    let found = hit_ratios(7, 12_000, &[5, 20, 50, 100, 250]);
    let mut sums = [0.0; 3];
    for row in found.chunks(3) {
        let [lru, sieve, s3_fifo] = row else {
            panic!("three policies")
        };
        assert_eq!((lru.policy, s3_fifo.policy), (Lru::NAME, S3Fifo::NAME));
        assert!(s3_fifo.hit_ratio >= 0.99 * lru.hit_ratio, "{row:?}");
        assert!(s3_fifo.hit_ratio >= 0.95 * sieve.hit_ratio, "{row:?}");
        assert!(
            lru.ghost_ratio > 0.0 && s3_fifo.ghost_ratio > 0.0,
            "{row:?}"
        );
        let ratios = row.iter().map(|one| one.hit_ratio);
        sums.iter_mut()
            .zip(ratios)
            .for_each(|(sum, ratio)| *sum += ratio);
        let scarce = lru.size_per_mille <= 20;
        assert!(
            !scarce || s3_fifo.hit_ratio > 1.03 * lru.hit_ratio,
            "{row:?}"
        );
    }
    assert!(sums[2] > sums[0] && sums[2] > sums[1], "{sums:?}");
    let first = found.first().map(|one| one.hit_ratio);
    let last = found.last().map(|one| one.hit_ratio);
    assert!(last > first, "a larger cache hits more often");
}
