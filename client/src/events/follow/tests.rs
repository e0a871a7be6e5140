//! A subscriber against a model of a master that goes on changing while it is asked.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::Epoch;
use proptest::prelude::*;

use super::*;

/// The most events that the model keeps.
const KEPT: usize = 24;

/// A master: keys with versions, and the last events.
#[derive(Debug, Default)]
struct Model {
    generation: u64,
    keys: BTreeMap<Key, Version>,
    events: Vec<CacheEvent>,
    puts: u64,
}

/// What happens between two questions.
#[derive(Clone, Copy, Debug)]
enum Act {
    Put(u8),
    Remove(u8),
    StartOver,
}

fn key(number: u8) -> Key {
    Key::new([b'k', number]).expect("a key")
}

impl Model {
    fn epoch(&self) -> Epoch {
        Epoch {
            generation: self.generation,
            term: 1,
        }
    }

    fn next(&self) -> Sequence {
        Sequence {
            epoch: self.epoch(),
            counter: self.events.len() as u64,
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Put(number) => {
                self.puts += 1;
                let version = Version {
                    epoch: self.epoch(),
                    counter: self.puts,
                };
                let replaces = self.keys.insert(key(number), version);
                let change = CacheChange::Stored {
                    size_bytes: u64::from(number),
                    replaces,
                };
                self.say(key(number), version, change);
            }
            Act::Remove(number) => {
                if let Some(version) = self.keys.remove(&key(number)) {
                    self.say(key(number), version, CacheChange::Evicted);
                }
            }
            Act::StartOver => {
                let generation = self.generation + 1;
                *self = Self {
                    generation,
                    ..Self::default()
                };
            }
        }
    }

    fn say(&mut self, key: Key, version: Version, change: CacheChange) {
        self.events.push(CacheEvent {
            key,
            version,
            change,
        });
    }

    fn answer(&self, ask: Ask, page: usize) -> Told {
        match ask {
            Ask::Page { after } => {
                let behind = self.keys.keys().filter(|key| Some(*key) > after.as_ref());
                let entries: Vec<(Key, u64)> =
                    behind.clone().take(page).map(|k| (k.clone(), 1)).collect();
                let more = behind.count() > entries.len();
                Told::Page(Listed { entries, more })
            }
            Ask::Events { from, .. } => Told::Events(self.events_from(from, page)),
        }
    }

    fn events_from(&self, from: Option<Sequence>, page: usize) -> EventPage {
        let next = self.next();
        let from = from.unwrap_or(next);
        let first = self.events.len().saturating_sub(KEPT) as u64;
        if from.epoch != next.epoch || !(first..=next.counter).contains(&from.counter) {
            return EventPage::Gap { next };
        }
        let left = &self.events[usize::try_from(from.counter).expect("small")..];
        let entries = left[..left.len().min(page)].to_vec();
        let reached = Sequence {
            epoch: next.epoch,
            counter: from.counter + entries.len() as u64,
        };
        EventPage::Events {
            entries,
            next: reached,
            more: reached < next,
        }
    }
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        12 => (0_u8..40).prop_map(Act::Put),
        9 => (0_u8..40).prop_map(Act::Remove),
        1 => Just(Act::StartOver),
    ];
    prop::collection::vec(act, 0..12)
}

/// What a subscriber makes of what it hears.
#[derive(Debug, Default)]
struct Subscriber {
    keys: BTreeSet<Key>,
    synced: bool,
    resets: usize,
}

impl Subscriber {
    fn hear(&mut self, update: Update) {
        match update {
            Update::Reset => {
                self.keys.clear();
                self.synced = false;
                self.resets += 1;
            }
            Update::Synced => self.synced = true,
            Update::Present { key, .. } | Update::Stored { key, .. } => {
                self.keys.insert(key);
            }
            Update::Gone { key, .. } => {
                self.keys.remove(&key);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever happens between its questions, a subscriber that is synced and has read all
    /// events knows exactly the keys that are there; so it does whenever it is told so.
    #[test]
    fn a_late_subscriber_knows_what_is_there(
        before in prop::collection::vec(acts(), 0..6),
        between in prop::collection::vec(acts(), 0..60),
        page in 1_usize..10,
    ) {
        let mut model = Model::default();
        for act in before.into_iter().flatten() {
            model.act(act);
        }
        let mut follow = Follow::new();
        let mut subscriber = Subscriber::default();
        // The questions behind the last act come to an end: pages, events, at most two resets.
        let quiet = std::iter::repeat_n(Vec::new(), 200);
        for acts in between.into_iter().chain(quiet) {
            for act in acts {
                model.act(act);
            }
            let told = model.answer(follow.ask(), page);
            let has_all = matches!(
                &told,
                Told::Events(EventPage::Events { more: false, .. })
            );
            let mut updates = VecDeque::new();
            follow.told(told, &mut updates);
            updates.into_iter().for_each(|update| subscriber.hear(update));
            if subscriber.synced && has_all {
                prop_assert!(subscriber.keys.iter().eq(model.keys.keys()), "{:?}", subscriber);
            }
        }
        prop_assert!(subscriber.synced && subscriber.resets > 0);
        prop_assert!(subscriber.keys.iter().eq(model.keys.keys()));
    }
}

#[test]
fn a_gap_leads_to_a_new_snapshot() {
    let mut model = Model::default();
    model.act(Act::Put(1));
    let mut follow = Follow::new();
    let mut updates = VecDeque::new();
    let mut step = |model: &Model, follow: &mut Follow| {
        let told = model.answer(follow.ask(), 100);
        follow.told(told, &mut updates);
        updates.drain(..).collect::<Vec<Update>>()
    };
    let present = |number| Update::Present {
        key: key(number),
        size_bytes: 1,
    };
    assert_eq!(step(&model, &mut follow), [Update::Reset]);
    assert_eq!(step(&model, &mut follow), [present(1)]);
    assert_eq!(step(&model, &mut follow), [Update::Synced]);
    assert_eq!(step(&model, &mut follow), []);
    model.act(Act::StartOver);
    model.act(Act::Put(2));
    assert_eq!(step(&model, &mut follow), []);
    assert_eq!(step(&model, &mut follow), [Update::Reset]);
    assert_eq!(step(&model, &mut follow), [present(2)]);
    assert_eq!(step(&model, &mut follow), [Update::Synced]);
}
