//! Tests of the table against a sorted map of whole objects.

use std::collections::BTreeMap;

use larder_types::{AgentId, DataType, Epoch, GroupId, Pin, Registration, SlabRef};
use proptest::prelude::*;

use super::*;

fn extent(segment: u32, offset_units: u64, length_bytes: u64) -> Extent {
    let slab = SlabRef {
        agent: AgentId(segment + 10),
        segment: SegmentId(segment),
        index: 3,
        registration: Registration(u64::from(segment) + 7),
    };
    Extent {
        slab,
        offset_bytes: offset_units * 256,
        length_bytes,
    }
}

/// Some are plain; some have attributes, several replicas, or replicas of several extents.
fn object() -> impl Strategy<Value = Object> {
    let replica = prop::collection::vec((0..4u32, 0..(1u64 << 31)), 1..3);
    let pin = prop_oneof![
        Just(Pin::None),
        Just(Pin::Hard),
        any::<u64>().prop_map(|ttl_ms| Pin::Soft { ttl_ms })
    ];
    let group = prop::option::of(Just(GroupId::new("prefix").expect("a group")));
    let attributes = (pin, group, 0..=9u8).prop_map(|(pin, group, data_type)| Attributes {
        pin,
        group,
        data_type: DataType::new(data_type).expect("in range"),
    });
    let attributes = prop_oneof![3 => Just(Attributes::default()), 1 => attributes];
    let version = (0..3u64, any::<u64>()).prop_map(|(term, counter)| Version {
        epoch: Epoch {
            generation: 1,
            term,
        },
        counter,
    });
    let replicas = prop_oneof![
        3 => prop::collection::vec(replica.clone(), 1..2),
        1 => prop::collection::vec(replica, 1..4),
    ];
    (
        version,
        1..(1u64 << 40),
        any::<u64>(),
        replicas,
        1..4u8,
        attributes,
    )
        .prop_map(
            |(version, size_bytes, digest, replicas, wanted, attributes)| {
                let lie = |places: Vec<(u32, u64)>| {
                    let count = places.len() as u64;
                    let place = |(segment, offset)| extent(segment, offset, size_bytes / count);
                    places.into_iter().map(place).collect()
                };
                Object {
                    version,
                    size_bytes,
                    digest: Digest(digest),
                    replicas: replicas.into_iter().map(lie).collect(),
                    wanted,
                    attributes,
                }
            },
        )
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![
        prop::collection::vec(0..3u8, 1..5),
        (0..2u8).prop_map(|last| [vec![9; 4095], vec![last]].concat()),
    ]
    .prop_map(|bytes| Key::new(bytes).expect("a key"))
}

impl Object {
    fn borrowed(&self) -> NewObject<'_> {
        NewObject {
            version: self.version,
            size_bytes: self.size_bytes,
            digest: self.digest,
            replicas: &self.replicas,
            wanted: self.wanted,
            attributes: &self.attributes,
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Insert(Key, Object),
    Remove(Key),
    Move(Key, Object),
    Lose(u32),
    Sweep(u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        6 => (key(), object()).prop_map(|(key, object)| Act::Insert(key, object)),
        3 => key().prop_map(Act::Remove),
        2 => (key(), object()).prop_map(|(key, object)| Act::Move(key, object)),
        1 => (0..4u32).prop_map(Act::Lose),
        1 => (0..4u32).prop_map(Act::Sweep),
    ];
    prop::collection::vec(act, 1..150)
}

#[derive(Default)]
struct Both {
    table: ObjectTable,
    map: BTreeMap<Key, Object>,
    lost: BTreeSet<SegmentId>,
}

impl Both {
    fn act(&mut self, act: Act) {
        match act {
            Act::Insert(key, object) => {
                if !self.map.contains_key(&key) {
                    let id = self.table.insert(&key, &object.borrowed());
                    assert_eq!(
                        self.table.held_by(id).map(|held| held.key()),
                        Some((&key).into())
                    );
                    self.map.insert(key, object);
                }
            }
            Act::Remove(key) => {
                let held = self.table.held_at(&key).map(|object| object.id());
                assert_eq!(held.is_some(), self.map.remove(&key).is_some());
                if let Some(id) = held {
                    self.table.remove(id);
                    assert!(self.table.held_by(id).is_none());
                }
            }
            Act::Move(key, other) => {
                if let Some(object) = self.map.get_mut(&key) {
                    object.replicas = other.replicas;
                    let id = self.table.held_at(&key).map(|held| held.id());
                    self.table.set_replicas(id.expect("held"), &object.replicas);
                }
            }
            Act::Lose(segment) => {
                self.lost.insert(SegmentId(segment));
                self.table.lose(SegmentId(segment));
            }
            Act::Sweep(segment) => {
                self.lost.remove(&SegmentId(segment));
                self.table.swept(SegmentId(segment));
            }
        }
    }

    /// The object without the replicas that are lost, if one is left.
    fn readable(&self, object: &Object) -> Option<Object> {
        let mut object = object.clone();
        let lost = |extent: &Extent| self.lost.contains(&extent.slab.segment);
        object.replicas.retain(|replica| !replica.iter().any(lost));
        (!object.replicas.is_empty()).then_some(object)
    }

    fn check(&self) {
        assert_eq!(self.table.len(), self.map.len());
        let expected: Vec<(Key, Object)> = self
            .map
            .iter()
            .filter_map(|(key, object)| Some((key.clone(), self.readable(object)?)))
            .collect();
        let listed = self.table.iter().map(|(k, o)| (k.to_key(), o.to_object()));
        assert!(listed.eq(expected.iter().cloned()));
        for after in [None, self.map.keys().nth(self.map.len() / 2)] {
            for prefix in [&[][..], &[1], &[9; 2000], &[2, 0, 1]] {
                let range = self.table.range(prefix, after).map(|(key, _)| key.to_key());
                let in_range = |key: &&Key| {
                    key.as_bytes().starts_with(prefix) && after.is_none_or(|after| *key > after)
                };
                let wanted = expected.iter().map(|(key, _)| key).filter(in_range);
                assert!(range.eq(wanted.cloned()));
            }
        }
        let held = self
            .table
            .held()
            .map(|object| object.held_replicas().collect::<Vec<_>>());
        assert!(held.eq(self.map.values().map(|object| object.replicas.clone())));
        let keys: Vec<&Key> = self.map.keys().collect();
        let mut at = 0;
        self.table.get_all(&keys, |found| {
            assert_eq!(found, self.table.get(keys[at]));
            let readable = self.readable(&self.map[keys[at]]);
            assert_eq!(found.map(|object| object.to_object()), readable);
            let id = found.map(|object| object.id());
            assert_eq!(self.table.id(keys[at]), id);
            let by_id = id.and_then(|id| self.table.by_id(id));
            assert_eq!(by_id.map(|(key, _)| key), id.map(|_| keys[at].into()));
            at += 1;
        });
        assert_eq!(at, keys.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 96,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn holds_what_a_sorted_map_holds(acts in acts()) {
        let mut both = Both::default();
        for act in acts {
            both.act(act);
        }
        both.check();
        // Filled in another order, objects lie elsewhere, and the table is the same.
        let mut other = ObjectTable::default();
        for (key, object) in both.map.iter().rev() {
            other.insert(key, &object.borrowed());
        }
        both.lost.iter().for_each(|segment| other.lose(*segment));
        prop_assert!(other == both.table);
        if let Some(id) = other.first() {
            other.remove(id);
            prop_assert!(other != both.table);
        }
        while let Some(id) = both.table.first() {
            both.table.remove(id);
        }
        while !both.table.trim(1) {}
        prop_assert!(both.table.is_trimmed());
    }
}

#[test]
fn what_many_share_is_forgotten_with_the_last_of_them() {
    let mut table = ObjectTable::default();
    let object = |term| Object {
        version: Version {
            epoch: Epoch {
                generation: 1,
                term,
            },
            counter: 1,
        },
        size_bytes: 1000,
        digest: Digest(5),
        replicas: vec![vec![extent(1, term, 1000)], vec![extent(2, term, 1000)]],
        wanted: 2,
        attributes: Attributes::default(),
    };
    for term in 1..2_000u64 {
        let key = Key::new(term.to_be_bytes()).expect("a key");
        let id = table.insert(&key, &object(term).borrowed());
        if term > 1 {
            assert_eq!(
                table.by_id(id).map(|(_, o)| o.to_object()),
                Some(object(term))
            );
            table.remove(id);
        }
    }
    assert_eq!(table.shared.epochs.count(), 1);
    assert_eq!(table.shared.slabs.count(), 2);
}
