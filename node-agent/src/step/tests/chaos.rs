//! Masters of any epoch, lost links, failing disks: what the control side never does.

use std::collections::{BTreeMap, BTreeSet};

use larder_transfer::InventoryPage;
use proptest::prelude::*;

use super::*;

/// One thing that happens; where it makes no sense at the moment, nothing does.
#[derive(Clone, Debug)]
enum Turn {
    Wake,
    /// Of the latest link.
    Opened(Epoch),
    /// Of the latest link.
    Closed,
    /// Of the latest link; with the place of the leader in the list.
    NotLeader(Option<usize>),
    /// With the same numbers or others, and whether it asks what there is.
    MountAnswer(Epoch, bool, bool),
    MountRefused,
    Beat(Epoch, bool),
    /// A give and an erasure, sent in this epoch.
    Commands(Epoch, u16),
    Saved(bool),
    Made(bool),
    Outcome,
    /// The data side made the page that it was asked for.
    Listed,
    /// The master took a page, or says so unasked.
    Taken(Epoch),
    /// An event of a link that is gone.
    Ghost(Epoch),
}

fn any_epoch() -> impl Strategy<Value = Epoch> {
    (2_u64..6, 0_u64..3).prop_map(|(generation, term)| Epoch { generation, term })
}

fn any_turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        4 => Just(Turn::Wake),
        4 => any_epoch().prop_map(Turn::Opened),
        1 => Just(Turn::Closed),
        1 => prop::option::of(0_usize..4).prop_map(Turn::NotLeader),
        5 => (any_epoch(), any::<bool>(), any::<bool>())
            .prop_map(|(epoch, same, asks)| Turn::MountAnswer(epoch, same, asks)),
        1 => Just(Turn::MountRefused),
        2 => (any_epoch(), prop::bool::weighted(0.8)).prop_map(|(e, known)| Turn::Beat(e, known)),
        6 => (any_epoch(), 0_u16..4).prop_map(|(epoch, index)| Turn::Commands(epoch, index)),
        4 => prop::bool::weighted(0.8).prop_map(Turn::Saved),
        3 => prop::bool::weighted(0.8).prop_map(Turn::Made),
        3 => Just(Turn::Outcome),
        2 => Just(Turn::Listed),
        2 => any_epoch().prop_map(Turn::Taken),
        1 => any_epoch().prop_map(Turn::Ghost),
    ]
}

struct World {
    bench: Bench,
    /// The link to the master, then one to another while that is silent.
    links: Vec<LinkId>,
    saving: Option<Epoch>,
    disk: Epoch,
    /// The highest epoch that the agent has shown to have seen.
    seen: Epoch,
    making: Vec<MakeId>,
    due: Vec<Outcome>,
    /// What the data side holds, and the generation that it knows.
    held: BTreeSet<SlabRef>,
    generation: u64,
    /// The latest page that the data side was asked for, until it is made.
    listing: Option<WalkId>,
    /// A page was sent over the present link and has no answer.
    untaken: bool,
    /// The epoch in which each version was commanded to be erased; a version is sent once.
    sent_in: BTreeMap<u64, Epoch>,
    next: u64,
}

impl World {
    fn new() -> Self {
        Self {
            bench: Bench::new(),
            links: Vec::new(),
            saving: None,
            disk: SAVED,
            seen: SAVED,
            making: Vec::new(),
            due: Vec::new(),
            held: BTreeSet::new(),
            generation: SAVED.generation,
            listing: None,
            untaken: false,
            sent_in: BTreeMap::new(),
            next: 0,
        }
    }

    fn tell(&mut self, event: Event) -> Result<(), TestCaseError> {
        let actions = self.bench.tell(event);
        for action in actions {
            self.judge(action)?;
        }
        prop_assert!(self.bench.state.status().epoch <= self.disk);
        // A slab that the control side takes for usable is there.
        let usable = self.bench.state.status().slabs.held;
        prop_assert!(
            usable <= self.held.len() as u64,
            "{usable} of {:?}",
            self.held
        );
        Ok(())
    }

    fn judge(&mut self, action: Action) -> Result<(), TestCaseError> {
        match action {
            Action::Connect { link, .. } => {
                self.links.push(link);
                prop_assert!(self.links.len() <= 2, "a master, and one that is asked");
            }
            Action::Disconnect(link) => {
                let at = self.links.iter().position(|open| *open == link);
                prop_assert!(at.is_some(), "it was open");
                self.links.remove(at.unwrap_or_default());
            }
            Action::Send(link, message) => {
                prop_assert_eq!(
                    self.links.first(),
                    Some(&link),
                    "only to the present master"
                );
                match message {
                    Outbound::Mount(mount) => {
                        prop_assert!(mount.highest_epoch >= self.seen);
                        self.untaken = false;
                    }
                    Outbound::Inventory(_) => {
                        prop_assert!(!self.untaken, "one page at a time");
                        self.untaken = true;
                    }
                    _ => {}
                }
            }
            Action::SaveEpoch(epoch) => {
                prop_assert!(self.saving.is_none(), "one at a time");
                prop_assert!(epoch > self.disk && epoch >= self.seen, "never backwards");
                (self.saving, self.seen) = (Some(epoch), epoch);
            }
            Action::MakeSlab { make, .. } => {
                prop_assert!(
                    self.disk >= self.seen,
                    "not before the epoch is on the disk"
                );
                self.making.push(make);
            }
            Action::Data(order) => self.judge_order(order)?,
            Action::Exit => prop_assert!(false, "nobody asked it to stop"),
            Action::DropMade(_) | Action::Note(_) => {}
        }
        Ok(())
    }

    fn judge_order(&mut self, order: DataOrder) -> Result<(), TestCaseError> {
        match order {
            DataOrder::SeeEpoch { epoch, keeps, .. } => {
                prop_assert!(epoch <= self.disk, "saved before anything is done in it");
                prop_assert!(epoch >= self.seen, "never one of the past");
                if epoch.generation > self.generation && !keeps {
                    self.held.clear();
                }
                self.generation = epoch.generation;
            }
            DataOrder::Erase(extent, version) => {
                let sent_in = self.sent_in.remove(&version.counter);
                let sent_in = sent_in.expect("a command is done once");
                prop_assert!(sent_in >= self.seen, "{sent_in} < {}", self.seen);
                prop_assert!(sent_in <= self.disk);
                self.due.push(Outcome::Released { extent, version });
            }
            DataOrder::Give { slab, .. } => {
                self.held.insert(slab);
                self.due.push(Outcome::SlabReady { slab });
            }
            DataOrder::Take(slab) => {
                self.held.remove(&slab);
                self.due.push(Outcome::SlabReturned { slab });
            }
            DataOrder::Mounted(with) => {
                prop_assert!(self.disk >= self.seen);
                self.held
                    .retain(|slab| with.segments.contains(&slab.segment));
            }
            DataOrder::List { walk, .. } => {
                prop_assert!(self.disk >= self.seen && self.generation == self.seen.generation);
                prop_assert!(!self.untaken, "not before the answer");
                self.listing = Some(walk);
            }
            DataOrder::TenantGone(_) | DataOrder::Copy(_) => {
                prop_assert!(self.disk >= self.seen);
            }
        }
        Ok(())
    }

    fn commands(&mut self, epoch: Epoch, index: u16) -> Commands {
        self.next += 1;
        self.sent_in.insert(self.next, epoch);
        let one = slab(10, index, self.next);
        let erase = Command::Erase {
            extent: extent(one, 0),
            version: version(SAVED, self.next),
        };
        Commands {
            epoch,
            pool_time: PoolTime(3),
            commands: vec![give(one), erase],
        }
    }

    fn arrive(&mut self, message: Inbound) -> Result<(), TestCaseError> {
        match self.links.first().copied() {
            Some(link) => self.tell(Event::Arrived(link, message)),
            None => Ok(()),
        }
    }

    fn turn(&mut self, turn: Turn) -> Result<(), TestCaseError> {
        match (turn, self.links.last().copied()) {
            (Turn::Wake, _) => {
                let wake = self.bench.state.next_wake();
                self.bench.now = wake.unwrap_or(self.bench.now).max(self.bench.now);
                self.tell(Event::Tick)
            }
            (Turn::Opened(epoch), Some(link)) => self.tell(Event::Opened(link, epoch)),
            (Turn::Closed, Some(link)) => {
                self.links.pop();
                self.tell(Event::Closed(link))
            }
            (Turn::NotLeader(leader), Some(link)) => {
                self.links.pop();
                let leader = leader.map(|at| format!("m{at}:1"));
                self.tell(Event::NotLeader(link, leader))
            }
            (Turn::MountAnswer(epoch, same, asks), _) => {
                self.arrive(mount_answer(epoch, same, asks))
            }
            (Turn::MountRefused, _) => {
                let error = refusal(larder_types::Reason::Starting, "");
                self.arrive(Inbound::Mounted(Err(error)))
            }
            (Turn::Beat(epoch, known), _) => {
                self.arrive(Inbound::Beat(Ok(reply(epoch, Beat { known }))))
            }
            (Turn::Commands(epoch, index), _) => {
                let commands = self.commands(epoch, index);
                self.arrive(Inbound::Commands(commands))
            }
            (Turn::Saved(works), _) => match self.saving.take() {
                Some(epoch) if works => {
                    self.disk = epoch;
                    self.tell(Event::EpochSaved(epoch))
                }
                Some(_) => self.tell(Event::EpochNotSaved),
                None => Ok(()),
            },
            (Turn::Made(works), _) if !self.making.is_empty() => {
                let make = self.making.remove(0);
                let result = works.then_some(()).ok_or("no memory".to_owned());
                self.tell(Event::SlabMade(make, result))
            }
            (Turn::Outcome, _) if !self.due.is_empty() => {
                let outcome = self.due.remove(0);
                self.tell(Event::Happened(vec![outcome]))
            }
            (Turn::Listed, _) => match self.listing.take() {
                Some(walk) => self.tell(Event::Listed(walk, InventoryPage::default())),
                None => Ok(()),
            },
            (Turn::Taken(epoch), _) => {
                if epoch >= self.seen {
                    self.untaken = false;
                }
                self.arrive(Inbound::Taken(Ok(reply(epoch, ()))))
            }
            (Turn::Ghost(epoch), _) => {
                let commands = self.commands(epoch, 0);
                let ghost = self.links.first().map_or(u64::MAX, |link| link.0 - 1);
                self.tell(Event::Arrived(LinkId(ghost), Inbound::Commands(commands)))
            }
            (Turn::Opened(_) | Turn::Closed | Turn::NotLeader(_), None) => Ok(()),
            (Turn::Made(_) | Turn::Outcome, _) => Ok(()),
        }
    }
}

fn mount_answer(epoch: Epoch, same: bool, asks: bool) -> Inbound {
    let mut with = mounted(Vec::new());
    with.wants_inventory = asks;
    if !same {
        with.segments = vec![SegmentId(10), SegmentId(99)];
    }
    Inbound::Mounted(Ok(reply(epoch, with)))
}

proptest! {
    #[test]
    fn no_order_of_events_makes_it_obey_the_past(
        turns in prop::collection::vec(any_turn(), 1..200),
    ) {
        let mut world = World::new();
        for turn in turns {
            world.turn(turn)?;
        }
    }
}
