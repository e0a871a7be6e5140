//! Random calls, faults and crashes against a naive model of what must and may be there.

use std::collections::BTreeMap;

use larder_oplog::{BootId, Opened, SyncWork, Trust, Vote};
use larder_oplog::{Entry, FakeDisk, Log, LogError, Operation, Position, Restart, SyncPolicy};
use proptest::prelude::*;

use crate::steps::{all, options};

#[derive(Debug, Clone)]
enum Step {
    Append {
        count: u64,
        size_bytes: usize,
        new_term: bool,
    },
    Sync,
    BeginSync,
    FinishSync,
    Truncate {
        back: u64,
    },
    Purge {
        forth: u64,
    },
    /// Through an entry that the log does not have.
    PurgeBeyond {
        by: u64,
    },
    Vote {
        candidate: u64,
    },
    Committed,
    Read {
        from: u64,
        count: u64,
    },
    /// The next operations of the disk work, then none.
    StopAfter {
        operations: u64,
    },
    /// One operation fails.
    Fail {
        operation: Operation,
        skip: u64,
    },
    Capacity {
        room_bytes: Option<u64>,
    },
    Kill,
    Crash {
        seed: u64,
    },
    CutAtSynced,
    CleanStop {
        seed: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let operation = prop_oneof![
        Just(Operation::Create),
        Just(Operation::Append),
        Just(Operation::Truncate),
        Just(Operation::Sync),
        Just(Operation::SyncFolder),
        Just(Operation::Rename),
        Just(Operation::Remove),
    ];
    let step = prop_oneof![
        12 => (1..6u64, 0..900usize, any::<bool>()).prop_map(|(count, size_bytes, new_term)| {
            Step::Append { count, size_bytes, new_term }
        }),
        4 => Just(Step::Sync),
        5 => Just(Step::BeginSync),
        5 => Just(Step::FinishSync),
        3 => (0..8u64).prop_map(|back| Step::Truncate { back }),
        3 => (0..12u64).prop_map(|forth| Step::Purge { forth }),
        1 => (0..9u64).prop_map(|by| Step::PurgeBeyond { by }),
        2 => (0..3u64).prop_map(|candidate| Step::Vote { candidate }),
        1 => Just(Step::Committed),
        2 => (0..9u64, 0..9u64).prop_map(|(from, count)| Step::Read { from, count }),
        2 => (0..12u64).prop_map(|operations| Step::StopAfter { operations }),
        1 => (operation, 0..2u64).prop_map(|(operation, skip)| Step::Fail { operation, skip }),
        1 => prop::option::weighted(0.6, 0..900u64)
            .prop_map(|room_bytes| Step::Capacity { room_bytes }),
        2 => Just(Step::Kill),
        3 => any::<u64>().prop_map(|seed| Step::Crash { seed }),
        1 => Just(Step::CutAtSynced),
        1 => any::<u64>().prop_map(|seed| Step::CleanStop { seed }),
    ];
    prop::collection::vec(step, 1..60)
}

fn policies() -> impl Strategy<Value = SyncPolicy> {
    prop_oneof![
        Just(SyncPolicy::Interval { ms: 20 }),
        Just(SyncPolicy::Always),
        Just(SyncPolicy::Never),
    ]
}

/// How the log comes to be opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    Crash(u64),
    CutAtSynced,
    Clean(u64),
}

struct Model {
    policy: SyncPolicy,
    log: Option<Log<FakeDisk>>,
    /// What the log holds, durable or not.
    entries: BTreeMap<u64, Entry>,
    /// Indexes below this are durable.
    durable_next: u64,
    /// A sync that is under way, and below which indexes it makes what is left of them durable.
    syncing: Option<(SyncWork, u64)>,
    purged: Option<Position>,
    vote: Option<Vote>,
    /// Of the call that failed, if it may have been done in part or as a whole.
    maybe_purged: Option<Position>,
    maybe_vote: Option<Vote>,
    maybe_truncated: Option<u64>,
    maybe_appended: Vec<Entry>,
    /// A sync failed, so what the kernel shows proves nothing.
    must_lose_power: bool,
    term: u64,
    payloads: u64,
    boots: u8,
}

impl Model {
    fn new(policy: SyncPolicy) -> Self {
        let mut model = Self {
            policy,
            log: None,
            entries: BTreeMap::new(),
            durable_next: 0,
            syncing: None,
            purged: None,
            vote: None,
            maybe_purged: None,
            maybe_vote: None,
            maybe_truncated: None,
            maybe_appended: Vec::new(),
            must_lose_power: false,
            term: 1,
            payloads: 0,
            boots: 1,
        };
        let (log, opened) = model.open(FakeDisk::new());
        assert_eq!(opened.restart, Restart::Fresh);
        model.log = Some(log);
        model
    }

    fn open(&self, disk: FakeDisk) -> (Log<FakeDisk>, Opened) {
        let boot = BootId([self.boots; 16]);
        Log::open(disk, options(self.policy), boot).expect("a crash is no damage")
    }

    fn log(&mut self) -> &mut Log<FakeDisk> {
        self.log.as_mut().expect("it is open")
    }

    fn next(&self) -> u64 {
        let behind_purged = self.purged.map_or(0, |purged| purged.index + 1);
        let last = self.entries.last_key_value();
        last.map_or(behind_purged, |(index, _)| index + 1)
    }

    fn first(&self) -> u64 {
        self.purged.map_or(0, |purged| purged.index + 1)
    }

    /// Payloads are all different, so that an old entry is never taken for a new one.
    fn fresh(&mut self, count: u64, size_bytes: usize) -> Vec<Entry> {
        let next = self.next();
        let term = self.term;
        let make = |index| {
            self.payloads += 1;
            let mut payload = self.payloads.to_le_bytes().to_vec();
            payload.resize(8 + size_bytes, self.payloads as u8);
            let at = Position { term, index };
            Entry { at, payload }
        };
        (next..next + count).map(make).collect()
    }

    /// Runs a step. What the log then says is durable will have to be.
    fn run(&mut self, step: Step) {
        self.make(step);
        let durable = self.log().durable().map_or(0, |last| last.index + 1);
        assert!(durable >= self.durable_next);
        self.durable_next = durable;
    }

    fn make(&mut self, step: Step) {
        match step {
            Step::Append {
                count,
                size_bytes,
                new_term,
            } => {
                self.term += u64::from(new_term);
                self.append(count, size_bytes);
            }
            Step::Sync => match self.log().sync() {
                Ok(durable) => {
                    assert_eq!(durable.map_or(0, |last| last.index + 1), self.next());
                    self.durable_next = self.next();
                }
                Err(error) => self.failed(&error),
            },
            Step::BeginSync => self.begin_sync(),
            Step::FinishSync => self.finish_sync(),
            Step::Truncate { back } => self.truncate(back),
            Step::Purge { forth } => {
                let index = self.first() + forth;
                if let Some(entry) = self.entries.get(&index) {
                    self.purge(entry.at);
                }
            }
            Step::PurgeBeyond { by } => {
                self.term += 1;
                let through = Position {
                    term: self.term,
                    index: self.next() + by,
                };
                self.purge(through);
            }
            Step::Vote { candidate } => self.vote(candidate),
            Step::Committed => {
                if let Some(last) = self.log().last() {
                    self.log().note_committed(last);
                }
            }
            Step::Read { from, count } => self.read(from, count),
            Step::StopAfter { operations } => self.log().disk_mut().stop_after(operations),
            Step::Fail { operation, skip } => self.log().disk_mut().fail(operation, skip),
            Step::Capacity { room_bytes } => {
                let disk = self.log().disk_mut();
                let used = disk.used_bytes();
                disk.set_capacity_bytes(room_bytes.map(|room| used + room));
            }
            Step::Kill => self.reopen(End::Kill),
            Step::Crash { seed } => self.reopen(End::Crash(seed)),
            Step::CutAtSynced => self.reopen(End::CutAtSynced),
            Step::CleanStop { seed } => match self.log().mark_clean() {
                Ok(()) => self.reopen(End::Clean(seed)),
                Err(error) => self.failed(&error),
            },
        }
    }

    fn begin_sync(&mut self) {
        let next = self.next();
        match self.log().begin_sync() {
            Ok(Some(work)) => {
                assert!(self.syncing.is_none(), "one at a time");
                self.syncing = Some((work, next));
            }
            // Nothing is due, or one is under way.
            Ok(None) => assert_eq!(self.log().is_syncing(), self.syncing.is_some()),
            Err(error) => self.failed(&error),
        }
    }

    fn finish_sync(&mut self) {
        let Some((work, begun_next)) = self.syncing.take() else {
            return;
        };
        match self.log().finish_sync(work.run()) {
            Ok(durable) => {
                let expected = self.durable_next.max(begun_next);
                assert_eq!(durable.map_or(0, |last| last.index + 1), expected);
                self.durable_next = expected;
            }
            Err(error) => self.failed(&error),
        }
    }

    fn append(&mut self, count: u64, size_bytes: usize) {
        let entries = self.fresh(count, size_bytes);
        match self.log().append(&entries) {
            Ok(()) => {
                let indexed = entries.into_iter().map(|entry| (entry.at.index, entry));
                self.entries.extend(indexed);
            }
            Err(error) => {
                self.maybe_appended = entries;
                self.failed(&error);
            }
        }
    }

    fn truncate(&mut self, back: u64) {
        let from = self.next().saturating_sub(back).max(self.first());
        match self.log().truncate_from(from) {
            Ok(()) => {
                if from < self.next() {
                    self.entries.split_off(&from);
                    if let Some((_, begun_next)) = &mut self.syncing {
                        *begun_next = from.min(*begun_next);
                    }
                    self.durable_next = self.next();
                }
                self.term += 1;
            }
            Err(error) => {
                self.maybe_truncated = Some(from);
                self.failed(&error);
            }
        }
    }

    fn purge(&mut self, through: Position) {
        let outcome = self.log().purge_through(through);
        let is_done = match &outcome {
            Ok(()) => true,
            // Files could not be removed.
            Err(LogError::Disk(_)) => self.log().purged() == Some(through),
            Err(_) => false,
        };
        if is_done {
            self.durable_next = self.next().max(through.index + 1);
            self.purged = Some(through);
            self.entries = self.entries.split_off(&(through.index + 1));
        }
        if let Err(error) = outcome {
            self.maybe_purged = Some(through);
            self.failed(&error);
            // Done in part: it is finished, or the log is opened again.
            if self.log().purged() != Some(through) && self.log().last() == Some(through) {
                self.log().disk_mut().set_capacity_bytes(None);
                self.purge(through);
            }
        }
    }

    fn vote(&mut self, candidate: u64) {
        let old = self.vote;
        let vote = Vote {
            term: old.map_or(1, |vote| vote.term + candidate % 2),
            voted_for: Some(candidate),
            committed: candidate == 2,
        };
        match self.log().save_vote(vote) {
            Ok(()) => self.vote = Some(vote),
            Err(LogError::VoteBehind { .. }) => {
                assert!(old.is_some_and(|old| !vote.follows(old)));
            }
            Err(error) => {
                self.maybe_vote = Some(vote);
                self.failed(&error);
            }
        }
    }

    fn read(&mut self, from: u64, count: u64) {
        let range = self.first() + from..self.first() + from + count;
        let wanted: Vec<Entry> = self
            .entries
            .range(range.clone())
            .map(|(_, one)| one.clone())
            .collect();
        match self.log().read(range, usize::MAX) {
            Ok(read) => assert_eq!(read, wanted),
            Err(error) => self.failed(&error),
        }
    }

    /// After an error the log is as it was, or it has stopped and is opened again.
    fn failed(&mut self, error: &LogError) {
        match error {
            LogError::Disk(_) => {
                self.log().disk_mut().revive();
                let next = self.next();
                let log = self.log();
                if log.purged() == log.last() || log.next_index() == next {
                    self.maybe_vote = None;
                    self.maybe_truncated = None;
                    self.maybe_appended.clear();
                }
            }
            LogError::Unknown(_) | LogError::Halted { .. } => {
                self.must_lose_power = true;
                let durable = self.log().durable().map_or(0, |last| last.index + 1);
                self.durable_next = self.durable_next.max(durable);
                self.log().disk_mut().revive();
                self.reopen(End::Crash(self.payloads));
            }
            other => panic!("{other}"),
        }
    }

    fn reopen(&mut self, end: End) {
        let mut disk = self.log.take().expect("it is open").into_disk();
        disk.set_capacity_bytes(None);
        disk.revive();
        match end {
            End::Kill => {}
            End::Crash(seed) | End::Clean(seed) => disk.crash(seed),
            End::CutAtSynced => disk.cut_at_synced(),
        }
        let loses_power = end != End::Kill;
        assert!(loses_power || !self.must_lose_power);
        self.boots = self.boots.wrapping_add(u8::from(loses_power));
        let (mut log, opened) = self.open(disk);
        let clean = matches!(end, End::Clean(_));
        self.check_opened(&opened, end, log.purged());
        self.check_state(&mut log, clean || end == End::Kill);
        log.settle_doubt().expect("the disk works");

        self.entries = all(&mut log)
            .into_iter()
            .map(|one| (one.at.index, one))
            .collect();
        self.purged = log.purged();
        self.durable_next = self.next();
        assert_eq!(log.next_index(), self.next());
        self.vote = log.vote();
        self.maybe_purged = None;
        self.maybe_vote = None;
        self.maybe_truncated = None;
        self.maybe_appended.clear();
        self.must_lose_power = false;
        self.syncing = None;
        self.term += 1;
        self.log = Some(log);
    }

    fn check_opened(&self, opened: &Opened, end: End, purged: Option<Position>) {
        let restart = match end {
            End::Kill => Restart::Killed,
            End::Clean(_) => Restart::Clean,
            End::Crash(_) | End::CutAtSynced => Restart::PowerLost,
        };
        // A log that stopped while it was being marked clean may be so.
        assert!(opened.restart == restart || self.must_lose_power);
        match opened.trust {
            Trust::Whole => assert!(
                restart != Restart::PowerLost
                    || self.policy == SyncPolicy::Always
                    || opened.restart == Restart::Clean
            ),
            Trust::Through(through) => {
                assert!(restart == Restart::PowerLost);
                let next = through.map_or(0, |through| through.index + 1);
                let through_purged = purged.map_or(0, |purged| purged.index + 1);
                // A truncation that was lost has made durable what it then did not truncate.
                let through_lost = self.maybe_truncated.map_or(0, |_| self.next());
                let most = self.durable_next.max(through_purged).max(through_lost);
                assert!(next <= most, "trusted too much");
            }
        }
    }

    /// What was durable is there with its bytes, and nothing is there that was not written.
    fn check_state(&self, log: &mut Log<FakeDisk>, keeps_all: bool) {
        let purged = log.purged();
        assert!(purged == self.purged || (purged.is_some() && purged == self.maybe_purged));
        let vote = log.vote();
        assert!(vote == self.vote || (vote.is_some() && vote == self.maybe_vote));
        let must_next = if keeps_all {
            self.next()
        } else {
            self.durable_next
        };
        let must_next = must_next.min(self.maybe_truncated.unwrap_or(u64::MAX));
        let first = purged.map_or(0, |purged| purged.index + 1);
        assert!(
            log.next_index() >= must_next.max(first),
            "a durable entry is gone"
        );
        for (next, entry) in (first..).zip(all(log)) {
            assert_eq!(entry.at.index, next, "a gap");
            let was = self.entries.get(&entry.at.index);
            let is_known = was == Some(&entry) || self.maybe_appended.contains(&entry);
            assert!(is_known, "{:?} was never written or came back", entry.at);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    #[test]
    fn crashes_and_faults_keep_what_was_promised(steps in steps(), policy in policies()) {
        let mut model = Model::new(policy);
        for step in steps {
            model.run(step);
        }
        model.reopen(End::Crash(1));
        model.reopen(End::Kill);
    }
}
