//! Commands about slabs: each done once, answered as often as it was received.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[test]
fn a_slab_is_made_given_and_reported() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let one = slab(11, 1, 8);
    let actions = bench.command(link, SAVED, vec![give(one)]);
    let [
        Action::Data(_),
        Action::MakeSlab {
            make,
            slab,
            ordinal: 1,
        },
    ] = actions[..]
    else {
        panic!("{actions:?}")
    };
    assert_eq!(slab, one);
    let actions = bench.tell(Event::SlabMade(make, Ok(())));
    let [DataOrder::Give { slab, .. }] = orders(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(*slab, one);
    assert!(
        answers(&actions).is_empty(),
        "the data side has not got it yet"
    );
    let actions = bench.tell(Event::Happened(vec![Outcome::SlabReady { slab: one }]));
    assert_eq!(answers(&actions), [Outcome::SlabReady { slab: one }]);
}

#[test]
fn what_cannot_be_given_is_refused_with_the_reason() {
    let mut bench = Bench::new();
    let link = bench.mount();
    bench.command(link, SAVED, vec![give(slab(10, 0, 1))]);
    let foreign = SlabRef {
        agent: AgentId(6),
        ..slab(10, 1, 1)
    };
    let small = Command::SlabGive {
        slab: slab(10, 2, 1),
        tenant: tenant(),
        slab_bytes: 1,
        view_bytes: None,
    };
    let cases = [
        (give(foreign), "not of a segment of this agent"),
        (give(slab(12, 0, 1)), "not of a segment of this agent"),
        (give(slab(11, 2, 1)), "only 2 slabs"),
        (give(slab(10, 0, 2)), "under another registration"),
        (small, "2097152 bytes, not 1"),
    ];
    for (command, why) in cases {
        let actions = bench.command(link, SAVED, vec![command]);
        let [Outcome::SlabFailed { detail, .. }] = &answers(&actions)[..] else {
            panic!("{actions:?}")
        };
        assert!(detail.contains(why), "{detail}");
        assert!(made(&actions).is_empty());
    }
}

#[test]
fn a_failure_to_make_is_reported_with_a_bounded_text() {
    let mut bench = Bench::new();
    let link = bench.mount();
    bench.command(link, SAVED, vec![give(slab(10, 0, 1))]);
    let actions = bench.tell(Event::SlabMade(MakeId(1), Err("ü".repeat(1_000))));
    let [Outcome::SlabFailed { detail, .. }] = &answers(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(detail.len(), 512);
    // It may be tried again.
    assert_eq!(
        made(&bench.command(link, SAVED, vec![give(slab(10, 0, 1))])).len(),
        1
    );
}

#[test]
fn a_slab_taken_back_while_it_is_made_answers_both() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let one = slab(10, 0, 1);
    bench.command(link, SAVED, vec![give(one)]);
    let actions = bench.command(link, SAVED, vec![Command::SlabTake { slab: one }]);
    assert!(
        matches!(answers(&actions)[..], [Outcome::SlabFailed { .. }]),
        "{actions:?}"
    );
    assert!(matches!(
        orders(&actions)[..],
        [DataOrder::SeeEpoch { .. }, DataOrder::Take(_)]
    ));
    let actions = bench.tell(Event::Happened(vec![Outcome::SlabReturned { slab: one }]));
    assert_eq!(answers(&actions), [Outcome::SlabReturned { slab: one }]);
    let actions = bench.tell(Event::SlabMade(MakeId(1), Ok(())));
    assert!(
        matches!(actions[..], [Action::DropMade(MakeId(1))]),
        "{actions:?}"
    );
}

#[test]
fn answers_are_cut_into_messages_of_a_bounded_length() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let one = slab(10, 0, 1);
    let erase = |unit| Command::Erase {
        extent: extent(one, unit),
        version: version(SAVED, unit),
    };
    let released = |unit| Outcome::Released {
        extent: extent(one, unit),
        version: version(SAVED, unit),
    };
    bench.command(link, SAVED, (0..3_000).map(erase).collect());
    let actions = bench.tell(Event::Happened((0..3_000).map(released).collect()));
    let lengths: Vec<usize> = sent(&actions)
        .iter()
        .map(|message| match message {
            Outbound::Done(done) => done.events.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [1_024, 1_024, 952]);
}

#[test]
fn too_many_unanswered_commands_end_the_link() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let one = slab(10, 0, 1);
    let mut unit = 0;
    let dropped = (0..100).find(|_| {
        let erase = |unit| Command::Erase {
            extent: extent(one, unit),
            version: version(SAVED, 1),
        };
        let commands = (unit..unit + 1_024).map(erase).collect();
        unit += 1_024;
        disconnects(&bench.command(link, SAVED, commands))
    });
    assert_eq!(dropped, Some(64), "65,536 are the most");
    assert!(!bench.state.status().mounted);
}

/// A command of the random runs, or something that goes on elsewhere.
#[derive(Clone, Debug)]
enum Turn {
    Commands(Vec<Command>),
    /// The memory that was ordered longest ago is there, or not.
    Made(bool),
    /// The data side does something of what it was told: which of its orders.
    Outcome(usize),
    Time(u64),
}

fn any_slab() -> impl Strategy<Value = SlabRef> {
    (10_u32..=12, 0_u16..5, 1_u64..4).prop_map(|(segment, index, life)| slab(segment, index, life))
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        any_slab().prop_map(give),
        any_slab().prop_map(|slab| Command::SlabTake { slab }),
        (any_slab(), 0_u64..3, 1_u64..3).prop_map(|(slab, unit, counter)| Command::Erase {
            extent: extent(slab, unit),
            version: version(SAVED, counter),
        }),
        Just(Command::TenantGone { tenant: tenant() }),
    ]
}

fn any_turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        prop::collection::vec(any_command(), 1..6).prop_map(Turn::Commands),
        any::<bool>().prop_map(Turn::Made),
        (0_usize..8).prop_map(Turn::Outcome),
        (0_u64..50).prop_map(Turn::Time),
    ]
}

/// The data side as far as answers go: every order is answered, at some time.
#[derive(Default)]
struct DataSide {
    due: Vec<Outcome>,
}

impl DataSide {
    fn obey(&mut self, order: &DataOrder) {
        let outcome = match order {
            DataOrder::Give { slab, .. } => Outcome::SlabReady { slab: *slab },
            DataOrder::Take(slab) => Outcome::SlabReturned { slab: *slab },
            DataOrder::Erase(extent, version) => Outcome::Released {
                extent: *extent,
                version: *version,
            },
            _ => return,
        };
        // Told once, however often it was asked.
        if !self.due.contains(&outcome) {
            self.due.push(outcome);
        }
    }
}

/// What is counted: the answer's kind and subject, without texts.
fn subject(answer: &Outcome) -> String {
    match answer {
        Outcome::SlabReady { slab } | Outcome::SlabFailed { slab, .. } => format!("give {slab:?}"),
        Outcome::SlabReturned { slab } => format!("take {slab:?}"),
        Outcome::Released { extent, version } => format!("erase {extent:?} {version}"),
        Outcome::Copied { copy, .. } | Outcome::CopyFailed { copy, .. } => format!("copy {copy}"),
    }
}

fn asked(command: &Command) -> Option<String> {
    match command {
        Command::SlabGive { slab, .. } => Some(format!("give {slab:?}")),
        Command::SlabTake { slab } => Some(format!("take {slab:?}")),
        Command::Erase { extent, version } => Some(format!("erase {extent:?} {version}")),
        Command::Copy(order) => Some(format!("copy {}", order.copy)),
        Command::TenantGone { .. } => None,
    }
}

struct Run {
    bench: Bench,
    link: LinkId,
    data: DataSide,
    making: Vec<MakeId>,
    received: BTreeMap<String, i64>,
}

impl Run {
    fn new() -> Self {
        let mut bench = Bench::new();
        let link = bench.mount();
        let (data, making) = (DataSide::default(), Vec::new());
        Self {
            bench,
            link,
            data,
            making,
            received: BTreeMap::new(),
        }
    }

    fn tell(&mut self, event: Event) -> Result<(), TestCaseError> {
        let actions = self.bench.tell(event);
        for answer in answers(&actions) {
            let open = self.received.entry(subject(&answer)).or_insert(0);
            *open -= 1;
            prop_assert!(*open >= 0, "answered more often than received: {answer:?}");
        }
        for order in orders(&actions) {
            self.data.obey(order);
        }
        self.making
            .extend(made(&actions).iter().map(|(make, _)| *make));
        prop_assert!(self.making.len() <= 2 * 64);
        prop_assert!(!disconnects(&actions));
        let counts = self.bench.state.status().slabs;
        prop_assert!(
            counts.making + counts.held + counts.taking <= 6,
            "{counts:?}"
        );
        Ok(())
    }

    fn turn(&mut self, turn: Turn) -> Result<(), TestCaseError> {
        match turn {
            Turn::Commands(commands) => {
                for one in commands.iter().filter_map(asked) {
                    *self.received.entry(one).or_insert(0) += 1;
                }
                let (epoch, pool_time) = (SAVED, PoolTime(3));
                let commands = Commands {
                    epoch,
                    pool_time,
                    commands,
                };
                self.tell(Event::Arrived(self.link, Inbound::Commands(commands)))
            }
            Turn::Made(works) if !self.making.is_empty() => {
                let make = self.making.remove(0);
                let result = if works {
                    Ok(())
                } else {
                    Err("no memory".to_owned())
                };
                self.tell(Event::SlabMade(make, result))
            }
            Turn::Outcome(at) if !self.data.due.is_empty() => {
                let outcome = self.data.due.remove(at % self.data.due.len());
                self.tell(Event::Happened(vec![outcome]))
            }
            Turn::Time(ms) => {
                self.bench.now.0 += ms;
                self.tell(Event::Tick)?;
                let beat = reply(SAVED, Beat { known: true });
                self.tell(Event::Arrived(self.link, Inbound::Beat(Ok(beat))))
            }
            Turn::Made(_) | Turn::Outcome(_) => Ok(()),
        }
    }

    /// Everything that is under way comes to its end.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        while !self.making.is_empty() || !self.data.due.is_empty() {
            self.turn(Turn::Made(true))?;
            self.turn(Turn::Outcome(0))?;
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_command_is_answered_once_per_receipt(
        turns in prop::collection::vec(any_turn(), 1..60),
    ) {
        let mut run = Run::new();
        for turn in turns {
            run.turn(turn)?;
        }
        run.settle()?;
        let open: Vec<_> = run.received.iter().filter(|(_, open)| **open != 0).collect();
        prop_assert!(open.is_empty(), "unanswered: {open:?}");
    }
}
