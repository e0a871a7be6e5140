//! A state out of snapshots and log is the one that was there, after whatever happened.

use larder_oplog::{
    About, Disk, FakeDisk, LogError, MakeSnapshot, Payload, Position, Progress, ReadDisk, Rebuild,
    RebuildError, Rebuilt, RecordError, Through, encode_ops, read_snapshot, remove_snapshot,
    snapshots,
};
use larder_store::{Op, State, check};
use larder_types::TenantId;
use proptest::prelude::*;

use crate::pool::Pool;
use crate::steps::at;

#[derive(Debug, Clone)]
enum Act {
    Put {
        key: u8,
        size_bytes: u64,
    },
    Remove(u8),
    Members(Vec<u8>),
    Blank,
    /// Ops of a leader that had lost its office.
    Stale,
    Lead,
    BeginAnew,
    Sync,
    Crash(u64),
    /// A snapshot through an entry so far back, in steps of so many ops; given up after some.
    Snapshot {
        back: u64,
        ops_max: usize,
        steps_max: Option<usize>,
    },
    /// As far as the last snapshot that was made allows.
    Purge,
    /// A byte of the newest snapshot changes.
    Damage(prop::sample::Index),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let snapshot = (
        0..20u64,
        1..40usize,
        prop::option::weighted(0.3, 0..30usize),
    );
    let act = prop_oneof![
        20 => (0..12u8, 1..60_000u64).prop_map(|(key, size_bytes)| Act::Put { key, size_bytes }),
        6 => (0..12u8).prop_map(Act::Remove),
        2 => prop::collection::vec(any::<u8>(), 0..9).prop_map(Act::Members),
        1 => Just(Act::Blank),
        2 => Just(Act::Stale),
        1 => Just(Act::Lead),
        1 => Just(Act::BeginAnew),
        6 => Just(Act::Sync),
        2 => any::<u64>().prop_map(Act::Crash),
        4 => snapshot.prop_map(|(back, ops_max, steps_max)| {
            Act::Snapshot { back, ops_max, steps_max }
        }),
        3 => Just(Act::Purge),
        1 => any::<prop::sample::Index>().prop_map(Act::Damage),
    ];
    prop::collection::vec(act, 1..80)
}

fn rebuilt<D: ReadDisk>(disk: D, through: Through) -> Rebuilt {
    Rebuild::begin(disk, through)
        .and_then(Rebuild::run)
        .expect("a state")
        .0
}

struct World {
    pool: Pool,
    purge_through: Option<Position>,
    /// The newest snapshot is damaged: there is no other that would do if it is damaged too.
    is_damaged: bool,
}

impl World {
    fn act(&mut self, act: Act) {
        match act {
            Act::Put { key, size_bytes } => self.pool.put(key, size_bytes),
            Act::Remove(key) => self.pool.remove(key),
            Act::Members(members) => self.pool.new_members(members),
            Act::Blank => drop(self.pool.append(&Payload::Blank)),
            Act::Stale => self.pool.stale(),
            Act::Lead => self.pool.lead(),
            Act::BeginAnew => self.pool.begin_anew(),
            Act::Sync => drop(self.pool.log().sync().expect("a sync")),
            Act::Crash(seed) => {
                let rebuild = |disk| rebuilt(disk, Through::Last).state;
                self.pool.crash(seed, rebuild);
            }
            Act::Snapshot {
                back,
                ops_max,
                steps_max,
            } => self.snapshot(back, ops_max, steps_max),
            Act::Purge => {
                if let Some(through) = self.purge_through {
                    self.pool.log().purge_through(through).expect("a purge");
                }
            }
            Act::Damage(at) => self.damage(at),
        }
    }

    fn snapshot(&mut self, back: u64, ops_max: usize, steps_max: Option<usize>) {
        // What a snapshot stands for is committed; here one log has to do for a quorum.
        let last = self.pool.log().sync().expect("a sync");
        let last = last.expect("it has begun").index;
        let mut disk = self.pool.disk();
        let newest = snapshots(&mut disk).expect("a list").last().copied();
        let through = last.saturating_sub(back);
        // An owner never goes back with them.
        let through = newest.map_or(through, |newest| newest.index.max(through));
        let digest = self.pool.digests[&through];
        let disk = self.pool.log().disk_mut();
        let mut make = MakeSnapshot::begin(disk, through).expect("a log");
        let mut steps = 0;
        while make.step(ops_max).expect("it can be made") == Progress::More {
            steps += 1;
            if steps_max.is_some_and(|max| steps > max) {
                return;
            }
        }
        let made = make.finish().expect("it is done");
        assert_eq!((made.at.index, made.digest), (through, digest));
        assert_eq!(made.about, self.about(through));
        self.purge_through = made.purge_through;
        self.is_damaged &= made.was_there;
        let mut disk = self.pool.disk();
        let all = snapshots(&mut disk).expect("a list");
        assert!(all.len() <= 2 && all.last() == Some(&made.at), "{all:?}");
        if !self.is_damaged {
            let (state, about) = read_snapshot(&mut disk, made.at).expect("whole");
            assert_eq!((state.digest(), about), (digest, made.about));
        }
    }

    fn damage(&mut self, at: prop::sample::Index) {
        let disk = self.pool.log().disk_mut();
        let names = disk.names().filter(|name| name.starts_with("snapshot-"));
        let Some(name) = names.last().map(str::to_owned) else {
            return;
        };
        // The older one has to do then; it can, as only what it has is purged.
        if disk
            .names()
            .filter(|name| name.starts_with("snapshot-"))
            .count()
            < 2
        {
            return;
        }
        if !self.is_damaged {
            let mut bytes = disk.bytes(&name).expect("a file").to_vec();
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << (at % 8);
            disk.put(&name, Some(&bytes));
            self.is_damaged = true;
        }
    }

    fn about(&self, through: u64) -> About {
        let mut members = self.pool.members.iter();
        let last = members.rfind(|(at, _)| at.index <= through);
        last.map_or_else(About::default, |(at, members)| About {
            members: members.clone(),
            members_at: Some(*at),
        })
    }

    /// What is rebuilt is what is there, with snapshots and without them.
    fn check(&mut self) {
        let mut disk = self.pool.disk();
        let last = self.pool.log().last().expect("it has begun");
        let found = rebuilt(disk.clone(), Through::Last);
        assert_eq!(found.applied, Some(last));
        assert_eq!(found.state.digest(), self.pool.state.digest());
        assert!(found.state == self.pool.state);
        assert_eq!(found.about, self.about(last.index));
        assert_eq!(check(&found.state), []);
        if self.pool.log().purged().is_some() {
            return;
        }
        for at in snapshots(&mut disk).expect("a list") {
            remove_snapshot(&mut disk, at).expect("removed");
        }
        let from_zero = rebuilt(disk, Through::Last);
        assert_eq!(from_zero.snapshot, None);
        assert!(from_zero.state == self.pool.state);
    }
}

proptest! {
    #[test]
    fn a_state_comes_back_whatever_happened(acts in acts()) {
        let mut pool = Pool::new();
        pool.begin_anew();
        let mut world = World { pool, purge_through: None, is_damaged: false };
        for act in acts {
            let checks = matches!(act, Act::Crash(_) | Act::Purge | Act::Damage(_));
            world.act(act);
            if checks {
                world.check();
            }
        }
        world.check();
    }
}

/// A replica that lost power may have a snapshot of more than its log, as others had it.
#[test]
fn a_snapshot_may_be_ahead_of_the_log() {
    let mut pool = pool();
    let at = pool.log().sync().expect("a sync").expect("entries");
    let mut ahead = pool.disk();
    MakeSnapshot::begin(&mut ahead, at.index)
        .and_then(MakeSnapshot::run)
        .expect("made");
    let mut log = pool.log.take().expect("it is open");
    let digest = pool.state.digest();
    log.truncate_from(at.index - 5).expect("a truncation");
    let mut behind = log.into_disk();
    let file = format!("snapshot-{:020}-{:020}", at.index, at.term);
    behind.put(&file, ahead.bytes(&file));
    for through in [Through::Last, Through::Committed, Through::Index(at.index)] {
        let found = rebuilt(behind.clone(), through);
        assert_eq!((found.applied, found.state.digest()), (Some(at), digest));
    }
    let error = failed(behind.clone(), Through::Index(at.index - 1));
    assert!(matches!(error, RebuildError::Short { .. }), "{error}");
    let shorter = rebuilt(behind, Through::Index(at.index - 6));
    assert_eq!(shorter.snapshot, None);
}

/// A pool with some objects; entries from 0 on.
fn pool() -> Pool {
    let mut pool = Pool::new();
    pool.begin_anew();
    for key in 0..80 {
        pool.put(key % 10, 5_000);
    }
    pool
}

fn failed<D: Disk>(disk: D, through: Through) -> RebuildError {
    let outcome = Rebuild::begin(disk, through).and_then(Rebuild::run);
    outcome.map(drop).expect_err("there is no whole state")
}

#[test]
fn a_log_without_an_entry_makes_the_state_before_the_first_op() {
    let found = rebuilt(Pool::new().disk(), Through::Last);
    assert!(found.state == State::new(0));
    assert_eq!((found.applied, found.about), (None, About::default()));
}

#[test]
fn what_is_missing_or_damaged_is_named_and_nothing_is_served() {
    let mut pool = pool();
    let next = pool.log().next_index();
    match failed(pool.disk(), Through::Index(next + 3)) {
        RebuildError::Short {
            through, next: end, ..
        } => assert_eq!((through, end), (next + 3, next)),
        other => panic!("{other}"),
    }
    let second = format!("segment-{:020}.log", 1);
    let mut damaged = pool.disk();
    let mut bytes = damaged.bytes(&second).expect("a file").to_vec();
    bytes[100] ^= 1;
    damaged.put(&second, Some(&bytes));
    for through in [Through::Index(next - 1), Through::Last, Through::Committed] {
        let error = failed(damaged.clone(), through);
        assert!(error.to_string().contains(&second), "{error}");
    }
    // What is before the damage can be asked for.
    assert_eq!(rebuilt(damaged, Through::Index(3)).applied, Some(at(1, 3)));
    assert!(matches!(
        failed(FakeDisk::new(), Through::Last),
        RebuildError::Log(LogError::NoLog)
    ));

    // Purged by a snapshot that is gone, then by two that are damaged.
    for through in [20, 30] {
        let made = MakeSnapshot::begin(pool.log().disk_mut(), through).and_then(MakeSnapshot::run);
        if let Some(through) = made.expect("made").purge_through {
            pool.log().purge_through(through).expect("a purge");
        }
    }
    let mut gone = pool.disk();
    for snapshot in snapshots(&mut gone).expect("a list") {
        let file = format!("snapshot-{:020}-{:020}", snapshot.index, snapshot.term);
        gone.put(&file, Some(b"LARDRSNP"));
    }
    let error = failed(gone, Through::Last);
    assert!(matches!(&error, RebuildError::NoBase { first: 21, tried } if tried.len() == 2));
    assert!(
        error.to_string().contains("snapshot-00000000000000000030"),
        "{error}"
    );
}

#[test]
fn an_op_that_does_not_fit_and_bytes_that_are_none_stop_it() {
    let mut pool = pool();
    let stranger = Op::TenantForgotten {
        tenant: TenantId::new("stranger").expect("a name"),
    };
    let ops = encode_ops(&[Op::PoolBegun { generation: 9 }, stranger]).expect("written");
    let bad = pool.append(&Payload::Ops { term: 1, ops });
    match failed(pool.disk(), Through::Last) {
        RebuildError::Op {
            at, nth, source, ..
        } => {
            assert_eq!((at, nth, source.op), (bad, 1, "TenantForgotten"));
        }
        other => panic!("{other}"),
    }
    let mut stopped = Rebuild::begin(pool.disk(), Through::Last).expect("a log");
    while stopped.step(1).is_ok() {}
    assert!(matches!(stopped.step(1), Err(RebuildError::Unfinished)));
    assert!(matches!(stopped.finish(), Err(RebuildError::Unfinished)));
    // Before it all is well.
    let before = rebuilt(pool.disk(), Through::Index(bad.index - 1));
    assert!(before.state == pool.state);

    let mut pool = self::pool();
    let bad = pool.append(&Payload::Ops {
        term: 1,
        ops: vec![1, 1, 200],
    });
    match failed(pool.disk(), Through::Last) {
        RebuildError::Entry { at, file, .. } => {
            assert_eq!(at, bad);
            assert!(file.starts_with("segment-"), "{file}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_snapshot_of_the_same_entries_is_not_made_twice() {
    let mut pool = pool();
    let make = |pool: &mut Pool| {
        let made = MakeSnapshot::begin(pool.log().disk_mut(), 30).and_then(MakeSnapshot::run);
        made.expect("made")
    };
    let first = make(&mut pool);
    assert!(!first.was_there && first.purge_through.is_none());
    let again = make(&mut pool);
    assert!(again.was_there);
    assert_eq!((again.at, again.digest), (first.at, first.digest));
}

#[test]
fn a_full_disk_leaves_what_there_was() {
    let mut pool = pool();
    let disk = pool.log().disk_mut();
    MakeSnapshot::begin(&mut *disk, 20)
        .and_then(MakeSnapshot::run)
        .expect("made");
    disk.set_capacity_bytes(Some(disk.used_bytes() + 100));
    let full = MakeSnapshot::begin(&mut *disk, 30).and_then(MakeSnapshot::run);
    assert!(full.expect_err("no room").is_retryable());
    assert_eq!(snapshots(disk).expect("a list").len(), 1);
    disk.set_capacity_bytes(None);
    MakeSnapshot::begin(&mut *disk, 30)
        .and_then(MakeSnapshot::run)
        .expect("made");
    assert_eq!(snapshots(disk).expect("a list").len(), 2);
}

#[test]
fn what_a_snapshot_is_about_is_the_bytes_that_it_was() {
    let none = About::default();
    let some = About {
        members: b"abc".to_vec(),
        members_at: Some(at(7, 0x0102_0304)),
    };
    let golden: [(&About, &[u8]); 2] = [
        (
            &none,
            &[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            &some,
            &[
                1, 1, 7, 0, 0, 0, 0, 0, 0, 0, 4, 3, 2, 1, 0, 0, 0, 0, b'a', b'b', b'c',
            ],
        ),
    ];
    for (about, bytes) in golden {
        assert_eq!(about.encode(), bytes);
        assert_eq!(&About::decode(bytes).expect("readable"), about);
    }
    let bytes = some.encode();
    for length in 0..18 {
        let cut = About::decode(&bytes[..length]);
        assert!(matches!(cut, Err(RecordError::Damaged(_))), "{length}");
    }
    let changed = |at: usize, to: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = to;
        About::decode(&bytes)
    };
    assert!(matches!(
        changed(0, 2),
        Err(RecordError::Format { found: 2 })
    ));
    assert!(matches!(changed(0, 0), Err(RecordError::Damaged(_))));
    assert!(matches!(changed(1, 2), Err(RecordError::Damaged(_))));
    assert!(
        matches!(changed(1, 0), Err(RecordError::Damaged(_))),
        "no position has none"
    );
}
