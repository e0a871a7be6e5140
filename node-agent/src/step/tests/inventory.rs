//! A pool that lost its log: slabs are kept, and what they hold is told page by page.

use larder_transfer::{InventoryCursor, InventoryPage, Segments, SlabMemory};
use larder_wire::agent::{HeldRecord, HeldSlab, Inventory, Kept};

use super::*;

const NEXT: Epoch = Epoch {
    generation: SAVED.generation + 1,
    term: 1,
};

fn kept() -> Kept {
    Kept {
        agent: AgentId(5),
        segments: vec![SegmentId(10), SegmentId(11)],
    }
}

fn asking() -> Mounted {
    Mounted {
        wants_inventory: true,
        ..mounted(Vec::new())
    }
}

/// A page with one record; `next` says whether one follows.
fn page(unit: u64, next: Option<InventoryCursor>) -> InventoryPage {
    let slab = slab(10, 0, 1);
    InventoryPage {
        slabs: vec![HeldSlab {
            slab,
            tenant: tenant(),
        }],
        records: vec![HeldRecord {
            extent: extent(slab, unit),
            version: version(SAVED, unit),
            written: None,
        }],
        next,
    }
}

/// Where a page ended of an agent that has more slabs than fit one.
fn some_cursor() -> InventoryCursor {
    let mut segments = Segments::new(Incarnation(9), SAVED);
    let keys = larder_wire::RootKey::new([1; 32]);
    let name = AgentName::new("small-0").expect("a name");
    let key = keys.agent_key(&name, Incarnation(9), 1);
    let signer = larder_wire::SessionSigner::new(&keys).expect("a key");
    let verifier = larder_wire::SessionVerifier::new(signer.verify_key().expect("a key"));
    segments.mounted(AgentId(5), vec![SegmentId(10)], key, verifier);
    for index in 0..1025 {
        let memory = SlabMemory::create("test", 4096).expect("memory");
        segments.give_slab(slab(10, index, 1), tenant(), memory.into(), None);
    }
    segments
        .inventory_page(None)
        .next
        .expect("one slab is left")
}

/// The walks that the data side is to begin or go on with, and from where.
fn lists(actions: &[Action]) -> Vec<(WalkId, Option<InventoryCursor>)> {
    let lists = orders(actions).into_iter().filter_map(|order| match order {
        DataOrder::List { walk, from } => Some((*walk, *from)),
        _ => None,
    });
    lists.collect()
}

fn pages(actions: &[Action]) -> Vec<&Inventory> {
    let pages = sent(actions).into_iter().filter_map(|sent| match sent {
        Outbound::Inventory(page) => Some(page.as_ref()),
        _ => None,
    });
    pages.collect()
}

fn mounts(actions: &[Action]) -> Vec<&Mount> {
    let mounts = sent(actions).into_iter().filter_map(|sent| match sent {
        Outbound::Mount(mount) => Some(mount),
        _ => None,
    });
    mounts.collect()
}

impl Bench {
    /// An agent that holds one slab, and whose master is gone.
    fn orphaned() -> Self {
        let mut bench = Self::new();
        let link = bench.mount();
        bench.command(link, SAVED, vec![give(slab(10, 0, 1))]);
        bench.tell(Event::SlabMade(MakeId(1), Ok(())));
        let ready = Outcome::SlabReady {
            slab: slab(10, 0, 1),
        };
        bench.tell(Event::Happened(vec![ready]));
        assert_eq!(bench.state.status().slabs.held, 1);
        bench.tell(Event::Closed(link));
        bench
    }

    /// Mounts at a master that says this in a new generation.
    fn mount_next(&mut self, with: Mounted) -> (LinkId, Vec<Action>) {
        let link = self.open();
        assert_eq!(saves(&self.mount_answer(link, NEXT, with)), [NEXT]);
        (link, self.tell(Event::EpochSaved(NEXT)))
    }

    fn taken(&mut self, link: LinkId, epoch: Epoch) -> Vec<Action> {
        self.tell(Event::Arrived(link, Inbound::Taken(Ok(reply(epoch, ())))))
    }
}

#[test]
fn numbers_are_offered_again_from_the_first_mount_on() {
    let mut bench = Bench::new();
    let (link, _) = bench.connecting();
    let actions = bench.tell(Event::Opened(link, SAVED));
    assert_eq!(mounts(&actions)[0].kept, None, "a new process has none");
    bench.mount_answer(link, SAVED, mounted(Vec::new()));
    bench.tell(Event::Closed(link));
    let (link, _) = bench.connecting();
    let actions = bench.tell(Event::Opened(link, SAVED));
    assert_eq!(mounts(&actions)[0].kept, Some(kept()));
    bench.mount_answer(link, SAVED, mounted(Vec::new()));
    // A master that forgot it gets segments of a new life, under no numbers.
    let actions = bench.beat(link, SAVED, false);
    assert_eq!(mounts(&actions)[0].kept, None);
}

#[test]
fn slabs_are_kept_and_listed_once_the_data_side_knows_the_epoch() {
    let mut bench = Bench::orphaned();
    let generations = bench.state.slabs.offers()[0].generation;
    let (_, actions) = bench.mount_next(asking());
    assert!(mounts(&actions).is_empty(), "one mount is enough");
    assert!(
        matches!(
            orders(&actions)[..],
            [
                DataOrder::SeeEpoch {
                    epoch: NEXT,
                    keeps: true,
                    ..
                },
                DataOrder::Mounted(_),
                DataOrder::List { from: None, .. }
            ]
        ),
        "{actions:?}"
    );
    let is_kept = |action: &Action| matches!(action, Action::Note(Note::Kept));
    assert!(actions.iter().any(is_kept));
    assert_eq!(bench.state.status().slabs.held, 1);
    assert!(bench.state.status().mounted);
    assert_eq!(bench.state.slabs.offers()[0].generation, generations);
}

#[test]
fn the_next_page_goes_out_after_the_answer_to_the_one_before() {
    let cursor = some_cursor();
    let mut bench = Bench::orphaned();
    let (link, actions) = bench.mount_next(asking());
    let [(walk, None)] = lists(&actions)[..] else {
        panic!("{actions:?}")
    };
    let actions = bench.tell(Event::Listed(walk, page(1, Some(cursor))));
    let [first] = pages(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(first.slabs, page(1, None).slabs);
    assert_eq!(first.records, page(1, None).records);
    assert_eq!(
        (first.agent, first.incarnation),
        (AgentId(5), Incarnation(9))
    );
    assert!(!first.is_last && lists(&actions).is_empty());
    // Heartbeats go on, and their answers are no answer to the page.
    assert!(matches!(sent(&bench.wake())[..], [Outbound::Heartbeat(_)]));
    assert!(lists(&bench.beat(link, NEXT, true)).is_empty());
    // The same page again means nothing.
    let again = bench.tell(Event::Listed(walk, page(1, Some(cursor))));
    assert!(pages(&again).is_empty());
    assert_eq!(lists(&bench.taken(link, NEXT)), [(walk, Some(cursor))]);
    assert!(
        lists(&bench.taken(link, NEXT)).is_empty(),
        "an answer too many"
    );
    let actions = bench.tell(Event::Listed(walk, page(2, None)));
    assert!(pages(&actions)[0].is_last);
    let actions = bench.taken(link, NEXT);
    assert!(lists(&actions).is_empty());
    let told = Note::InventoryTold { records: 2 };
    let is_told = |action: &Action| matches!(action, Action::Note(note) if *note == told);
    assert!(actions.iter().any(is_told), "{actions:?}");
}

#[test]
fn every_mount_that_asks_begins_from_the_start() {
    let cursor = some_cursor();
    let mut bench = Bench::orphaned();
    let (link, actions) = bench.mount_next(asking());
    let [(old, None)] = lists(&actions)[..] else {
        panic!("{actions:?}")
    };
    bench.tell(Event::Listed(old, page(1, Some(cursor))));
    bench.taken(link, NEXT);
    bench.tell(Event::Closed(link));
    let link = bench.open();
    let actions = bench.mount_answer(link, NEXT, asking());
    let [(new, None)] = lists(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert!(new > old);
    // What the data side still says of the walk before is of no use.
    let late = bench.tell(Event::Listed(old, page(2, None)));
    assert!(pages(&late).is_empty());
    let actions = bench.tell(Event::Listed(new, page(1, None)));
    assert_eq!(pages(&actions).len(), 1);
    // A mount that does not ask ends it.
    bench.tell(Event::Closed(link));
    let link = bench.open();
    let actions = bench.mount_answer(link, NEXT, mounted(Vec::new()));
    assert!(lists(&actions).is_empty());
    assert!(lists(&bench.taken(link, NEXT)).is_empty());
    assert_eq!(bench.state.status().slabs.held, 1, "of the same generation");
}

#[test]
fn a_page_that_is_refused_ends_the_link() {
    let mut bench = Bench::orphaned();
    let (link, actions) = bench.mount_next(asking());
    let (walk, _) = lists(&actions)[0];
    bench.tell(Event::Listed(walk, page(1, None)));
    let error = refusal(larder_types::Reason::Starting, "the log is full");
    let actions = bench.tell(Event::Arrived(link, Inbound::Taken(Err(error))));
    assert!(disconnects(&actions));
    assert_eq!(bench.state.status().slabs.held, 1, "it is told again");
    let link = bench.open();
    let actions = bench.mount_answer(link, NEXT, asking());
    assert!(lists(&actions)[0].0 > walk);
}

#[test]
fn slabs_that_are_being_made_are_dropped() {
    let mut bench = Bench::new();
    let link = bench.mount();
    bench.command(
        link,
        SAVED,
        vec![give(slab(10, 0, 1)), give(slab(10, 1, 2))],
    );
    bench.tell(Event::SlabMade(MakeId(1), Ok(())));
    bench.tell(Event::Closed(link));
    let (_, actions) = bench.mount_next(asking());
    assert!(
        !orders(&actions)
            .iter()
            .any(|one| matches!(one, DataOrder::Take(_)))
    );
    // The first has its memory at the data side, which lists it.
    assert_eq!(bench.state.status().slabs.making, 1);
    let ready = Outcome::SlabReady {
        slab: slab(10, 0, 1),
    };
    let actions = bench.tell(Event::Happened(vec![ready]));
    assert!(
        answers(&actions).is_empty(),
        "this master did not ask for it"
    );
    let counts = SlabCounts {
        held: 1,
        ..SlabCounts::default()
    };
    assert_eq!(bench.state.status().slabs, counts);
    let actions = bench.tell(Event::SlabMade(MakeId(2), Ok(())));
    assert!(matches!(actions[..], [Action::DropMade(MakeId(2))]));
}

#[test]
fn under_other_numbers_it_starts_empty_and_says_so() {
    let mut bench = Bench::orphaned();
    let generation = bench.state.slabs.offers()[0].generation;
    let other = Mounted {
        segments: vec![SegmentId(10), SegmentId(99)],
        ..asking()
    };
    let (link, actions) = bench.mount_next(other.clone());
    let [mount] = mounts(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(mount.kept, None);
    assert_ne!(mount.segments[0].generation, generation);
    assert_eq!(bench.state.status().slabs, SlabCounts::default());
    let actions = bench.mount_answer(link, NEXT, other);
    assert!(matches!(
        orders(&actions)[..],
        [
            DataOrder::SeeEpoch { keeps: false, .. },
            DataOrder::Mounted(_),
            DataOrder::List { from: None, .. }
        ]
    ));
    let (walk, _) = lists(&actions)[0];
    let actions = bench.tell(Event::Listed(walk, InventoryPage::default()));
    let [empty] = pages(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert!(empty.is_last && empty.records.is_empty() && empty.slabs.is_empty());
}

#[test]
fn a_new_process_says_that_it_holds_nothing() {
    let mut bench = Bench::new();
    let (_, actions) = bench.mount_next(asking());
    assert!(mounts(&actions).is_empty());
    let (walk, _) = lists(&actions)[0];
    let actions = bench.tell(Event::Listed(walk, InventoryPage::default()));
    assert!(pages(&actions)[0].is_last);
}

/// Only the answer to a mount says whether slabs are kept; until it is there nothing may tell the
/// data side of the new generation.
#[test]
fn a_new_generation_over_an_old_link_drops_the_link_and_not_the_slabs() {
    for known in [true, false] {
        let mut bench = Bench::orphaned();
        let link = bench.open();
        bench.mount_answer(link, SAVED, mounted(Vec::new()));
        assert_eq!(saves(&bench.beat(link, NEXT, known)), [NEXT]);
        let actions = bench.tell(Event::EpochSaved(NEXT));
        assert!(disconnects(&actions) && orders(&actions).is_empty());
        assert_eq!(bench.state.status().slabs.held, 1);
        let link = bench.open();
        let actions = bench.mount_answer(link, NEXT, asking());
        assert_eq!(lists(&actions).len(), 1);
    }
}

#[test]
fn an_agent_that_stops_tells_nothing_more() {
    let mut bench = Bench::orphaned();
    let (link, actions) = bench.mount_next(asking());
    let (walk, _) = lists(&actions)[0];
    bench.tell(Event::Stop);
    let actions = bench.tell(Event::Listed(walk, page(1, None)));
    assert!(actions.is_empty(), "{actions:?}");
    assert!(bench.taken(link, NEXT).is_empty());
    // It hears that it is asked while it stops.
    let mut bench = Bench::orphaned();
    let link = bench.open();
    bench.mount_answer(link, NEXT, asking());
    let actions = bench.tell(Event::Stop);
    assert!(matches!(actions[..], [.., Action::Exit]));
    let actions = bench.tell(Event::EpochSaved(NEXT));
    assert!(orders(&actions).is_empty() && sent(&actions).is_empty());
}
