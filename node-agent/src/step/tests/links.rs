//! Connect, mount, heartbeats, back-off, epochs, stop.

use super::link::Phase;
use super::*;

fn higher() -> Epoch {
    Epoch {
        generation: SAVED.generation,
        term: SAVED.term + 1,
    }
}

#[test]
fn mounts_what_it_has_and_tells_the_data_side() {
    let mut bench = Bench::new();
    let [Action::Connect { link, master }] = &bench.wake()[..] else {
        panic!("no connect")
    };
    let (link, master) = (*link, master.clone());
    assert_eq!(master, "m0:1");
    let actions = bench.tell(Event::Opened(link, SAVED));
    let [Outbound::Mount(mount)] = sent(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(mount.highest_epoch, SAVED);
    assert_eq!(mount.data_addr, "192.0.2.1:4000");
    assert_eq!(Ok(&mount.labels), "zone=z".parse().as_ref());
    let offers: Vec<_> = mount
        .segments
        .iter()
        .map(|s| (s.ordinal, s.slabs, s.slab_bytes, s.numa))
        .collect();
    assert_eq!(offers, [(0, 4, SLAB_BYTES, 0), (1, 2, SLAB_BYTES, 1)]);
    let actions = bench.mount_answer(link, SAVED, mounted(vec![give(slab(10, 0, 1))]));
    assert!(matches!(
        orders(&actions)[..],
        [DataOrder::SeeEpoch { .. }, DataOrder::Mounted(_)]
    ));
    assert_eq!(made(&actions).len(), 1, "what is outstanding is done");
    assert!(saves(&actions).is_empty(), "this epoch is on the disk");
    assert!(bench.state.status().mounted);
}

/// A leader gives out what an agent has only after a heartbeat: a fail-over must not cost one more
/// period of them.
#[test]
fn the_first_heartbeat_goes_out_as_soon_as_older_epochs_are_cut() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let actions = bench.tell(Event::Fenced);
    assert!(
        matches!(&actions[..], [Action::Send(to, Outbound::Heartbeat(beat)), ..]
            if *to == link && beat.highest_epoch == SAVED),
        "{actions:?}"
    );
    // Of a mount that is over it means nothing.
    bench.tell(Event::Closed(link));
    assert!(sent(&bench.tell(Event::Fenced)).is_empty());
}

#[test]
fn b06_heartbeats_go_out_while_memory_is_being_made() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let commands = (0..4).map(|index| give(slab(10, index, 1))).collect();
    assert_eq!(made(&bench.command(link, SAVED, commands)).len(), 4);
    // Nothing is ever made; heartbeats are due and answered all the same.
    for _ in 0..100 {
        let actions = bench.wake();
        assert!(
            matches!(sent(&actions)[..], [Outbound::Heartbeat(_)]),
            "{actions:?}"
        );
        bench.beat(link, SAVED, true);
    }
    assert_eq!(bench.state.status().slabs.making, 4);
    assert!(bench.state.status().mounted);
}

#[test]
fn heartbeats_go_out_while_an_epoch_is_being_saved() {
    let mut bench = Bench::new();
    let link = bench.mount();
    assert_eq!(saves(&bench.beat(link, higher(), true)), [higher()]);
    for _ in 0..10 {
        let actions = bench.wake();
        let [Outbound::Heartbeat(beat)] = sent(&actions)[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(beat.highest_epoch, higher());
        assert!(orders(&bench.beat(link, higher(), true)).is_empty());
    }
}

#[test]
fn a_silent_master_without_others_is_connected_anew() {
    let mut bench = Bench::alone();
    bench.mount();
    let mut beats = 0;
    let left = loop {
        let actions = bench.wake();
        beats += sent(&actions).len();
        if disconnects(&actions) {
            break bench.now;
        }
        assert!(connects(&actions).is_empty(), "there is nobody to ask");
    };
    assert!(beats >= 3, "{beats}");
    assert!(!bench.state.status().mounted);
    assert_eq!(connects(&bench.wake())[0].1, "m0:1");
    assert!(bench.now > left);
}

/// How long it waits after each of many failures, and for which masters.
fn failures(bench: &mut Bench, count: usize) -> (Vec<u64>, Vec<String>) {
    let mut pauses = Vec::new();
    let mut masters = Vec::new();
    for _ in 0..count {
        let (link, master) = bench.connecting();
        masters.push(master);
        bench.tell(Event::Closed(link));
        pauses.push(match bench.state.link.phase {
            Phase::Waiting { until } => until.0 - bench.now.0,
            _ => 0,
        });
    }
    (pauses, masters)
}

#[test]
fn b66_tries_for_ever_with_growing_and_bounded_pauses() {
    let mut bench = Bench::alone();
    let (pauses, _) = failures(&mut bench, 40);
    assert!((50..=100).contains(&pauses[0]), "{pauses:?}");
    assert!(
        pauses[20..]
            .iter()
            .all(|pause| (2_500..=5_000).contains(pause)),
        "{pauses:?}"
    );
    assert!(
        pauses[20..].iter().any(|pause| *pause != pauses[20]),
        "they differ: {pauses:?}"
    );
    // It still mounts, and pauses start over once a heartbeat was answered.
    let link = bench.mount();
    bench.beat(link, SAVED, true);
    bench.tell(Event::Closed(link));
    assert!(bench.state.next_wake().expect("it tries again").0 - bench.now.0 <= 100);
}

#[test]
fn several_masters_are_tried_quickly_while_a_fail_over_may_be_under_way() {
    let mut bench = Bench::new();
    let link = bench.mount();
    bench.beat(link, SAVED, true);
    bench.tell(Event::Closed(link));
    let broke = bench.now.0;
    let (mut quick, mut slow) = (Vec::new(), Vec::new());
    // The break itself is the first failure of the first round.
    let (pauses, masters) = failures(&mut bench, 2);
    assert_eq!(masters, ["m1:1", "m2:1"]);
    assert!(
        pauses[0] == 0 && (12..=25).contains(&pauses[1]),
        "{pauses:?}"
    );
    for _ in 0..80 {
        let (pauses, masters) = failures(&mut bench, 3);
        assert_eq!(masters, ["m0:1", "m1:1", "m2:1"]);
        assert_eq!(pauses[..2], [0, 0], "the pause is behind all of them");
        if bench.now.0 - broke < 5_000 {
            quick.push(pauses[2]);
        } else {
            slow.push(pauses[2]);
        }
    }
    assert!(
        quick.iter().all(|pause| (12..=200).contains(pause)),
        "{quick:?}"
    );
    assert!(quick.len() > 20, "{quick:?}");
    assert!((50..=100).contains(&slow[0]), "{slow:?}");
    assert!(slow[20..].iter().all(|pause| *pause >= 2_500), "{slow:?}");
}

#[test]
fn follows_the_leader_that_a_standby_names_at_once() {
    let mut bench = Bench::new();
    let connect = |actions: &[Action]| connects(actions)[0].clone();
    let (link, _) = connect(&bench.wake());
    let leader = Some("m2:1".to_owned());
    let actions = bench.tell(Event::NotLeader(link, leader));
    let (link, master) = connect(&actions);
    assert_eq!(master, "m2:1");
    // One that is not in the list is not trusted.
    let actions = bench.tell(Event::NotLeader(link, Some("evil:1".to_owned())));
    assert_eq!(connect(&actions).1, "m0:1");
}

#[test]
fn masters_that_name_each_other_are_not_asked_without_end() {
    let mut bench = Bench::new();
    let mut actions = bench.wake();
    let mut tried = 0;
    while let [(link, master)] = &connects(&actions)[..] {
        tried += 1;
        assert!(tried < 10, "without a pause");
        let other = if master == "m0:1" { "m1:1" } else { "m0:1" };
        actions = bench.tell(Event::NotLeader(*link, Some(other.to_owned())));
    }
    assert!(bench.state.next_wake().expect("it tries again") > bench.now);
}

/// Lets time pass until another master is asked; the present one is silent.
fn until_asked(bench: &mut Bench) -> (LinkId, String) {
    loop {
        let actions = bench.wake();
        assert!(
            !disconnects(&actions),
            "the present one is kept: {actions:?}"
        );
        if let Some(asked) = connects(&actions).pop() {
            return asked;
        }
    }
}

#[test]
fn a_paused_leader_is_left_for_one_of_a_higher_epoch_and_slabs_stay() {
    let mut bench = Bench::new();
    let link = bench.mount();
    bench.command(link, SAVED, vec![give(slab(10, 0, 1))]);
    bench.tell(Event::SlabMade(MakeId(1), Ok(())));
    let ready = vec![Outcome::SlabReady {
        slab: slab(10, 0, 1),
    }];
    bench.tell(Event::Happened(ready));
    let offers = bench.state.slabs.offers();
    let silent_since = bench.now;
    let (asked, master) = until_asked(&mut bench);
    assert_eq!(master, "m1:1");
    assert!(bench.now.0 - silent_since.0 <= 100 + 300, "a beat and some");
    // It stands by, and names the one that is silent, which is no news.
    let hint = Some("m0:1".to_owned());
    let actions = bench.tell(Event::NotLeader(asked, hint));
    let (asked, master) = connects(&actions).pop().expect("the next at once");
    assert_eq!(master, "m2:1");
    let actions = bench.tell(Event::Opened(asked, higher()));
    let [Outbound::Mount(mount)] = sent(&actions)[..] else {
        panic!("{actions:?}")
    };
    let kept = |segments: &[larder_wire::agent::SegmentOffer]| {
        segments
            .iter()
            .map(|one| one.generation)
            .collect::<Vec<_>>()
    };
    assert_eq!(kept(&mount.segments), kept(&offers), "the bytes are kept");
    assert!(disconnects(&actions), "the silent one is left");
    // What the paused one says when it wakes is not heard.
    assert!(made(&bench.command(link, SAVED, vec![give(slab(10, 1, 2))])).is_empty());
    assert_eq!(
        saves(&bench.mount_answer(asked, higher(), mounted(Vec::new()))),
        [higher()]
    );
    let actions = bench.tell(Event::EpochSaved(higher()));
    assert!(bench.state.status().mounted);
    assert_eq!(bench.state.status().slabs.held, 1);
    assert!(
        !orders(&actions)
            .iter()
            .any(|order| matches!(order, DataOrder::Take(_)))
    );
}

#[test]
fn another_master_of_no_higher_epoch_does_not_take_over() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let (asked, _) = until_asked(&mut bench);
    let actions = bench.tell(Event::Opened(asked, SAVED));
    assert!(sent(&actions).is_empty());
    assert!(matches!(actions[0], Action::Disconnect(link) if link == asked));
    assert!(bench.state.status().mounted);
    // The present one answers: nobody is asked any more.
    let [(asked, _)] = &connects(&actions)[..] else {
        panic!("{actions:?}")
    };
    let actions = bench.beat(link, SAVED, true);
    assert!(
        actions
            .iter()
            .any(|one| matches!(one, Action::Disconnect(link) if link == asked))
    );
    let actions = bench.wake();
    assert!(connects(&actions).is_empty(), "{actions:?}");
}

#[test]
fn a_master_that_does_not_answer_the_hello_holds_it_up_no_longer_than_a_moment() {
    let mut bench = Bench::new();
    let [(silent, _)] = connects(&bench.wake())[..] else {
        panic!("no connect")
    };
    let before = bench.now.0;
    let actions = bench.wake();
    let [(asked, master)] = &connects(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(master, "m1:1");
    assert_eq!(bench.now.0 - before, 300);
    let actions = bench.tell(Event::Opened(*asked, SAVED));
    assert!(matches!(sent(&actions)[..], [Outbound::Mount(_)]));
    assert!(
        matches!(actions[1], Action::Disconnect(link) if link == silent),
        "{actions:?}"
    );
}

#[test]
fn a_higher_epoch_is_saved_before_anything_of_it_is_done() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let actions = bench.command(link, higher(), vec![give(slab(10, 0, 1))]);
    assert_eq!(saves(&actions), [higher()]);
    assert!(made(&actions).is_empty() && orders(&actions).is_empty());
    // What comes behind it waits too, in order.
    let erase = Command::Erase {
        extent: extent(slab(10, 0, 1), 0),
        version: version(SAVED, 1),
    };
    assert!(orders(&bench.command(link, higher(), vec![erase])).is_empty());
    let actions = bench.tell(Event::EpochSaved(higher()));
    assert_eq!(made(&actions).len(), 1);
    assert!(matches!(
        orders(&actions)[..],
        [
            DataOrder::SeeEpoch { .. },
            DataOrder::SeeEpoch { .. },
            DataOrder::Erase(..)
        ]
    ));
    assert_eq!(bench.state.status().epoch, higher());
}

#[test]
fn a_mount_in_a_higher_epoch_waits_with_the_commands_behind_it() {
    let mut bench = Bench::new();
    let link = bench.open();
    let actions = bench.mount_answer(link, higher(), mounted(vec![give(slab(10, 0, 1))]));
    assert_eq!(saves(&actions), [higher()]);
    assert!(!bench.state.status().mounted);
    bench.command(link, higher(), vec![give(slab(10, 1, 2))]);
    let actions = bench.tell(Event::EpochSaved(higher()));
    assert_eq!(made(&actions).len(), 2);
    assert!(bench.state.status().mounted);
}

#[test]
fn an_epoch_that_cannot_be_saved_is_not_obeyed() {
    let mut bench = Bench::new();
    let link = bench.mount();
    bench.command(link, higher(), vec![give(slab(10, 0, 1))]);
    let actions = bench.tell(Event::EpochNotSaved);
    assert!(disconnects(&actions) && made(&actions).is_empty());
    // It is still fenced against, and saved when a master says it again.
    let link = bench.open();
    let actions = bench.mount_answer(link, SAVED, mounted(Vec::new()));
    assert!(
        disconnects(&actions),
        "the old epoch is not good enough any more: {actions:?}"
    );
    let link = bench.open();
    assert_eq!(
        saves(&bench.mount_answer(link, higher(), mounted(Vec::new()))),
        [higher()]
    );
}

#[test]
fn commands_of_a_lower_epoch_are_refused() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let old = Epoch {
        generation: SAVED.generation - 1,
        term: 99,
    };
    let actions = bench.command(link, old, vec![give(slab(10, 0, 1))]);
    assert!(made(&actions).is_empty() && orders(&actions).is_empty() && disconnects(&actions));
    let lower = Note::LowerEpoch {
        told: old,
        seen: SAVED,
    };
    assert!(
        actions
            .iter()
            .any(|one| matches!(one, Action::Note(note) if *note == lower))
    );
}

#[test]
fn a_forgotten_agent_mounts_new_segments_over_the_same_link() {
    let mut bench = Bench::new();
    let link = bench.open();
    let before = bench.state.slabs.offers();
    bench.mount_answer(link, SAVED, mounted(vec![give(slab(10, 0, 1))]));
    let make = MakeId(1);
    bench.tell(Event::SlabMade(make, Ok(())));
    bench.tell(Event::Happened(vec![Outcome::SlabReady {
        slab: slab(10, 0, 1),
    }]));
    assert_eq!(bench.state.status().slabs.held, 1);
    let actions = bench.beat(link, SAVED, false);
    assert!(
        matches!(orders(&actions)[..], [DataOrder::Take(_)]),
        "{actions:?}"
    );
    let [Outbound::Mount(mount)] = sent(&actions)[..] else {
        panic!("{actions:?}")
    };
    for (new, old) in mount.segments.iter().zip(before) {
        assert_ne!(new.generation, old.generation);
    }
    assert_eq!(bench.state.status().slabs, SlabCounts::default());
    // Commands for the life before are not obeyed, nor answered.
    let actions = bench.command(link, SAVED, vec![give(slab(10, 1, 1))]);
    assert!(made(&actions).is_empty() && answers(&actions).is_empty());
    let mut with = mounted(Vec::new());
    with.segments = vec![SegmentId(20), SegmentId(21)];
    bench.mount_answer(link, SAVED, with);
    assert!(bench.state.status().mounted);
}

#[test]
fn a_pool_that_started_over_gets_empty_segments() {
    let mut bench = Bench::new();
    let link = bench.mount();
    bench.command(link, SAVED, vec![give(slab(10, 0, 1))]);
    bench.tell(Event::Closed(link));
    let next = Epoch {
        generation: SAVED.generation + 1,
        term: 0,
    };
    let link = bench.open();
    let before = bench.state.slabs.offers();
    bench.mount_answer(link, next, mounted(Vec::new()));
    let actions = bench.tell(Event::EpochSaved(next));
    let [Outbound::Mount(mount)] = sent(&actions)[..] else {
        panic!("{actions:?}")
    };
    assert_ne!(mount.segments[0].generation, before[0].generation);
    assert_eq!(mount.highest_epoch, next);
    assert!(!bench.state.status().mounted);
    bench.mount_answer(link, next, mounted(Vec::new()));
    assert!(bench.state.status().mounted);
    // The memory that was under way is for nobody.
    let actions = bench.tell(Event::SlabMade(MakeId(1), Ok(())));
    assert!(
        matches!(actions[..], [Action::DropMade(MakeId(1))]),
        "{actions:?}"
    );
}

#[test]
fn the_first_mount_of_a_process_needs_no_second() {
    let mut bench = Bench::new();
    let link = bench.open();
    let next = Epoch {
        generation: SAVED.generation + 5,
        term: 0,
    };
    bench.mount_answer(link, next, mounted(Vec::new()));
    let actions = bench.tell(Event::EpochSaved(next));
    assert!(sent(&actions).is_empty(), "{actions:?}");
    assert!(bench.state.status().mounted);
}

#[test]
fn slabs_survive_a_lost_connection() {
    let mut bench = Bench::new();
    let link = bench.open();
    bench.mount_answer(link, SAVED, mounted(vec![give(slab(10, 0, 1))]));
    bench.tell(Event::SlabMade(MakeId(1), Ok(())));
    bench.tell(Event::Happened(vec![Outcome::SlabReady {
        slab: slab(10, 0, 1),
    }]));
    bench.tell(Event::Closed(link));
    let link = bench.open();
    // The answer was lost, so the master asks again.
    let actions = bench.mount_answer(link, SAVED, mounted(vec![give(slab(10, 0, 1))]));
    assert_eq!(
        answers(&actions),
        [Outcome::SlabReady {
            slab: slab(10, 0, 1)
        }]
    );
    assert!(made(&actions).is_empty());
}

#[test]
fn what_comes_over_an_old_link_is_ignored() {
    let mut bench = Bench::new();
    let old = bench.mount();
    bench.tell(Event::Closed(old));
    bench.mount();
    for event in [Event::Closed(old), Event::Opened(old, SAVED)] {
        assert!(bench.tell(event).is_empty());
    }
    assert!(made(&bench.command(old, SAVED, vec![give(slab(10, 0, 1))])).is_empty());
    assert!(bench.state.status().mounted);
}

#[test]
fn stops_after_saying_so() {
    let mut bench = Bench::new();
    let link = bench.mount();
    let actions = bench.tell(Event::Stop);
    assert!(matches!(sent(&actions)[..], [Outbound::Unmount(_)]));
    assert!(!bench.state.status().mounted);
    assert!(bench.tell(Event::Stop).is_empty(), "once is enough");
    let actions = bench.tell(Event::Arrived(link, Inbound::Unmounted));
    assert!(matches!(actions[..], [Action::Disconnect(_), Action::Exit]));
    assert_eq!(bench.state.next_wake(), None);
}

#[test]
fn stops_without_an_answer_after_a_while_or_when_the_link_ends() {
    let mut bench = Bench::new();
    bench.mount();
    bench.tell(Event::Stop);
    assert!(matches!(
        bench.wake()[..],
        [Action::Disconnect(_), Action::Exit]
    ));
    let mut bench = Bench::new();
    let link = bench.mount();
    bench.tell(Event::Stop);
    assert!(matches!(
        bench.tell(Event::Closed(link))[..],
        [.., Action::Exit]
    ));
    // Before the mount nobody has to be told.
    let mut bench = Bench::new();
    assert!(matches!(bench.tell(Event::Stop)[..], [Action::Exit]));
    let mut bench = Bench::new();
    bench.open();
    assert!(matches!(
        bench.tell(Event::Stop)[..],
        [Action::Disconnect(_), Action::Exit]
    ));
}
