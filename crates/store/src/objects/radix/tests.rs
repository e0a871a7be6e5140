//! Tests of the tree against a sorted map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Leaves with their keys; a leaf keeps its number.
#[derive(Default)]
struct Store(Vec<Vec<u8>>);

impl Keys for Store {
    fn key(&self, leaf: u32) -> &[u8] {
        &self.0[leaf as usize]
    }
}

#[derive(Default)]
struct Both {
    tree: Radix,
    store: Store,
    map: BTreeMap<Vec<u8>, u32>,
}

impl Both {
    fn insert(&mut self, key: &[u8]) {
        let leaf = u32::try_from(self.store.0.len()).expect("few");
        self.store.0.push(key.to_vec());
        let there = self.tree.insert(key, leaf, &self.store);
        assert_eq!(there, self.map.get(key).copied());
        self.map.entry(key.to_vec()).or_insert(leaf);
    }

    fn remove(&mut self, key: &[u8]) {
        assert_eq!(self.tree.remove(key, &self.store), self.map.remove(key));
    }

    fn probe(&self, key: &[u8]) {
        let held = self.map.get(key).copied();
        assert_eq!(self.tree.get(key, &self.store), held);
        let from: Vec<u32> = self
            .map
            .range(key.to_vec()..)
            .map(|(_, leaf)| *leaf)
            .collect();
        assert!(
            self.tree
                .from(key, true, &self.store)
                .eq(from.iter().copied())
        );
        let above = from.iter().copied().skip(usize::from(held.is_some()));
        assert!(self.tree.from(key, false, &self.store).eq(above));
    }

    fn check_all(&self) {
        assert!(self.tree.iter().eq(self.map.values().copied()));
        self.map.keys().for_each(|key| self.probe(key));
    }

    fn empty(mut self) {
        while let Some(key) = self.map.keys().nth(self.map.len() / 2).cloned() {
            self.remove(&key);
        }
        assert_eq!(self.tree.root, Link::NONE);
        assert_eq!(self.tree.iter().count(), 0);
        while self.tree.trim(1) > 0 {}
        self.insert(b"again");
        self.check_all();
    }
}

/// Few letters, long shared beginnings, keys that are beginnings of others, the longest keys.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let short = prop::collection::vec(prop_oneof![0..3u8, Just(255)], 1..6);
    let wide = any::<[u8; 2]>().prop_map(Vec::from);
    let long = (prop::collection::vec(0..2u8, 0..4), 0..4usize).prop_map(|(tail, cut)| {
        let mut key = vec![7; [4096, 4092, 100, 35][cut] - tail.len()];
        key.extend(tail);
        key
    });
    let longest_branch = (4090..=4096usize, 0..3u8).prop_map(|(len, last)| {
        let mut key = vec![7; len];
        key[len - 1] = last;
        key
    });
    prop_oneof![4 => short, 4 => wide, 2 => long, 1 => longest_branch]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 128,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn does_what_a_sorted_map_does(
        acts in prop::collection::vec((0..10u8, key()), 1..400),
        probes in prop::collection::vec(key(), 1..20),
    ) {
        let mut both = Both::default();
        for (act, key) in acts {
            match act {
                0..=5 => both.insert(&key),
                _ => {
                    let near = both.map.range(key.clone()..).next().map(|(key, _)| key.clone());
                    both.remove(&near.unwrap_or(key));
                }
            }
        }
        both.check_all();
        probes.iter().for_each(|key| both.probe(key));
        both.empty();
    }
}

#[test]
fn a_node_passes_through_all_widths_and_back() {
    let mut both = Both::default();
    both.insert(b"x");
    for byte in 0..=255u8 {
        both.insert(&[b'x', byte, b'a']);
        both.probe(&[b'x', byte]);
        both.probe(&[b'x', byte, b'b']);
    }
    both.check_all();
    for byte in (0..=255u8).rev() {
        both.remove(&[b'x', byte, b'a']);
        both.probe(b"x");
        both.probe(&[b'x', byte / 2, b'a']);
    }
    both.check_all();
    both.empty();
}

#[test]
fn a_chain_of_beginnings_is_as_deep_as_its_keys_are_long() {
    let mut both = Both::default();
    for len in 1..=4096usize {
        both.insert(&vec![1; len]);
    }
    assert!(both.tree.iter().eq(both.map.values().copied()));
    both.probe(&[1; 4096]);
    both.probe(&[1; 2000]);
    both.probe(&[2]);
    for len in 1..=4096usize {
        both.remove(&vec![1; len]);
    }
    assert_eq!(both.tree.root, Link::NONE);
}
