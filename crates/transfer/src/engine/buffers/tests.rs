//! Registration, use and what peers are told.

use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::topology::Location;

const PEERS: Access = Access {
    read: true,
    write: true,
};
const WRITES: Access = Access {
    read: false,
    write: true,
};

fn spec(start: u64, bytes: u64) -> BufferSpec {
    BufferSpec {
        start,
        bytes,
        regions: Vec::new(),
        access: PEERS,
    }
}

#[test]
fn what_is_empty_overlaps_or_leaves_the_address_space_is_refused() {
    let mut buffers = Buffers::new(10);
    buffers.register(spec(100, 50)).expect("free");
    let error = |start, bytes| {
        let mut buffers = Buffers::new(10);
        buffers.register(spec(100, 50)).expect("free");
        buffers.register(spec(start, bytes)).expect_err("refused")
    };
    assert_eq!(error(7, 0), RegisterError::Empty { start: 7 });
    assert!(matches!(error(u64::MAX, 2), RegisterError::Overflow { .. }));
    for (start, bytes) in [(100, 50), (99, 2), (149, 1), (120, 5), (0, 1_000)] {
        assert!(
            matches!(
                error(start, bytes),
                RegisterError::Overlap {
                    other_start: 100,
                    ..
                }
            ),
            "{bytes} from {start}"
        );
    }
    buffers.register(spec(150, 1)).expect("beside it");
    buffers.register(spec(99, 1)).expect("before it");
}

#[test]
fn regions_follow_each_other_and_end_where_the_buffer_does() {
    let region = |end_bytes| Region {
        end_bytes,
        location: Location::Cpu(0),
    };
    let register = |ends: &[u64]| {
        let regions = ends.iter().map(|end| region(*end)).collect();
        Buffers::new(10).register(BufferSpec {
            regions,
            ..spec(0, 100)
        })
    };
    register(&[100]).expect("one");
    register(&[10, 40, 100]).expect("three");
    for ends in [&[0, 100][..], &[50], &[50, 50, 100], &[60, 50, 100], &[101]] {
        assert_eq!(
            register(ends),
            Err(RegisterError::Regions { bytes: 100 }),
            "{ends:?}"
        );
    }
}

#[test]
fn a_batch_is_registered_whole_or_not_at_all() {
    let mut buffers = Buffers::new(10);
    let failed = buffers.register_all(vec![spec(0, 10), spec(20, 10), spec(5, 10)]);
    let (number, error) = failed.expect_err("the third overlaps the first");
    assert_eq!(number, 2);
    assert!(matches!(error, RegisterError::Overlap { .. }));
    assert!(buffers.is_empty());
    assert_eq!(
        buffers
            .register_all(vec![spec(0, 10), spec(20, 10)])
            .expect("free")
            .len(),
        2
    );
    let many = (0..9).map(|at| spec(1_000 + at * 10, 10)).collect();
    let (number, error) = buffers.register_all(many).expect_err("ten are the most");
    assert_eq!((number, error), (8, RegisterError::TooMany { count: 10 }));
    assert_eq!(buffers.len(), 2);
}

#[test]
fn a_buffer_goes_with_the_last_slice_on_it() {
    let mut buffers = Buffers::new(10);
    let key = buffers.register(spec(0, 100)).expect("free");
    let registration = buffers.get(key).expect("there").registration;
    buffers.hold(key, 0, 100).expect("there");
    buffers.hold(key, 50, 50).expect("there");
    let allowed = buffers.allows((registration, 1), 50, 50, WRITES);
    assert_eq!(allowed, Ok(key));
    assert_eq!(buffers.unregister(key), Ok(false));
    assert_eq!(buffers.unregister(key), Err(RegisterError::Stale), "once");
    assert_eq!(buffers.hold(key, 0, 1), Err(Refusal::StaleRegistration));
    let late = buffers.allows((registration, 1), 0, 1, WRITES);
    assert_eq!(late, Err(Refusal::StaleRegistration));
    let again = buffers
        .register(spec(0, 100))
        .expect_err("its bytes are in use");
    assert!(matches!(again, RegisterError::Overlap { .. }));
    assert!(!buffers.release(key));
    assert!(buffers.release(key), "the last one");
    let next = buffers.register(spec(0, 100)).expect("free again");
    assert_ne!(buffers.get(next).expect("there").registration, registration);
    assert_eq!(
        buffers.hold(key, 0, 1),
        Err(Refusal::StaleRegistration),
        "a stale handle"
    );
    assert!(!buffers.release(key));
}

#[test]
fn a_fence_refuses_what_was_allowed_before() {
    let mut buffers = Buffers::new(10);
    let key = buffers.register(spec(0, 100)).expect("free");
    let registration = buffers.get(key).expect("there").registration;
    let asked = |buffers: &Buffers, epoch| buffers.allows((registration, epoch), 0, 1, WRITES);
    assert_eq!(asked(&buffers, 1), Ok(key));
    assert_eq!(buffers.fence(key), Ok(2));
    assert_eq!(asked(&buffers, 1), Err(Refusal::StaleEpoch));
    assert_eq!(
        asked(&buffers, 3),
        Err(Refusal::StaleEpoch),
        "nobody was told that one"
    );
    assert_eq!(asked(&buffers, 2), Ok(key));
}

#[test]
fn peers_reach_what_they_may_and_no_byte_beyond_it() {
    let mut buffers = Buffers::new(10);
    let access = Access {
        read: true,
        write: false,
    };
    let key = buffers
        .register(BufferSpec {
            access,
            ..spec(0, 100)
        })
        .expect("free");
    let of = (buffers.get(key).expect("there").registration, 1);
    assert_eq!(buffers.allows(of, 0, 1, WRITES), Err(Refusal::NotAllowed));
    let read = Access {
        read: true,
        write: false,
    };
    for (offset, bytes) in [
        (0, 101),
        (100, 1),
        (99, 2),
        (0, 0),
        (u64::MAX, 2),
        (1, u64::MAX),
    ] {
        let refused = buffers.allows(of, offset, bytes, read);
        assert_eq!(refused, Err(Refusal::OutOfRange), "{bytes} from {offset}");
    }
    assert_eq!(buffers.allows(of, 99, 1, read), Ok(key));
}

/// Registration is told to cost as much for the last as for the first; a quadratic one would take
/// minutes here. What it costs is measured by the benchmark.
#[test]
fn a_hundred_thousand_buffers_are_told_in_pages() {
    let count = 100_000;
    let begun = Instant::now();
    let mut buffers = Buffers::new(count);
    for at in 0..count as u64 {
        buffers.register(spec(at * 4_096, 4_096)).expect("free");
    }
    let mut mirror = Mirror::default();
    let mut pages = 0;
    loop {
        let changes = buffers.changes(mirror.known(), 1_000);
        assert!(changes.added.len() <= 1_000);
        let has_more = changes.has_more;
        mirror.take(changes, count).expect("sound");
        pages += 1;
        if !has_more {
            break;
        }
    }
    assert_eq!((pages, mirror.len()), (100, count));
    println!(
        "{count} buffers registered and told in {:?}",
        begun.elapsed()
    );
}

#[test]
fn who_knows_too_little_is_told_everything() {
    let mut buffers = Buffers::new(100);
    let mut mirror = Mirror::default();
    buffers.register(spec(0, 10)).expect("free");
    mirror
        .take(buffers.changes(mirror.known(), 10), 100)
        .expect("sound");
    for _ in 0..=GONE_MAX {
        let key = buffers.register(spec(100, 10)).expect("free");
        buffers.unregister(key).expect("there");
    }
    let changes = buffers.changes(mirror.known(), 10);
    assert!(changes.is_whole && changes.removed.is_empty());
    mirror.take(changes, 100).expect("sound");
    assert_eq!(mirror.len(), 1);
    assert!(!buffers.changes(mirror.known(), 10).is_whole);
    let ahead = Known {
        added: u64::MAX,
        removed: u64::MAX,
    };
    assert!(buffers.changes(ahead, 10).is_whole, "of a former life");
}

#[test]
fn nothing_unsound_is_believed() {
    let described = |start, bytes, ends: &[u64]| Described {
        registration: start,
        epoch: 1,
        start,
        bytes,
        regions: ends
            .iter()
            .map(|end| Region {
                end_bytes: *end,
                location: Location::Any,
            })
            .collect(),
        access: PEERS,
    };
    let take = |added: Vec<Described>| {
        let mut mirror = Mirror::default();
        let changes = Changes {
            is_whole: true,
            removed: Vec::new(),
            added,
            known: Known {
                added: 9,
                removed: 9,
            },
            has_more: false,
        };
        let done = mirror.take(changes, 3);
        assert_eq!(
            done.is_err(),
            mirror.is_empty() && mirror.known() == Known::default()
        );
        done
    };
    take(vec![described(0, 10, &[5, 10]), described(10, 5, &[])]).expect("sound");
    for wrong in [
        described(1, 0, &[]),
        described(u64::MAX, 2, &[]),
        described(1, 10, &[5]),
        described(1, 10, &[0, 10]),
        described(1, 10, &[8, 5, 10]),
    ] {
        assert!(matches!(
            take(vec![wrong]),
            Err(MirrorError::Unsound { .. })
        ));
    }
    let overlapping = vec![described(0, 10, &[]), described(9, 10, &[])];
    assert_eq!(take(overlapping), Err(MirrorError::Overlap { start: 9 }));
    let many = (0..4).map(|at| described(at * 10, 5, &[])).collect();
    assert_eq!(take(many), Err(MirrorError::TooMany { count_max: 3 }));
}

proptest! {
    /// Whatever comes, goes and changes between pages, a mirror that has asked often enough knows
    /// what there is; and what overlaps is never registered twice.
    #[test]
    fn a_mirror_comes_to_know_what_there_is(
        steps in prop::collection::vec((0_u8..6, 0_u64..40, 1_u64..20, 1_usize..4), 1..200),
    ) {
        let mut buffers = Buffers::new(30);
        let mut mirror = Mirror::default();
        let mut keys: Vec<BufferKey> = Vec::new();
        for (step, at, bytes, page) in steps {
            let some = usize::try_from(at).expect("small") % keys.len().max(1);
            match step {
                0 | 1 => keys.extend(buffers.register(spec(at * 8, bytes))),
                2 if !keys.is_empty() => {
                    let key = keys.swap_remove(some);
                    prop_assert_eq!(buffers.unregister(key), Ok(true));
                }
                3 if !keys.is_empty() => drop(buffers.fence(keys[some]).expect("there")),
                _ => {
                    let changes = buffers.changes(mirror.known(), page);
                    mirror.take(changes, 100).expect("sound");
                }
            }
        }
        loop {
            let changes = buffers.changes(mirror.known(), 3);
            let has_more = changes.has_more;
            mirror.take(changes, 100).expect("sound");
            if !has_more {
                break;
            }
        }
        prop_assert_eq!(mirror.len(), keys.len());
        for key in keys {
            let buffer = buffers.get(key).expect("there");
            let found = mirror.find(buffer.start, buffer.bytes);
            prop_assert_eq!(found, Some((&buffer, 0)));
            prop_assert_eq!(buffers.find(buffer.start, buffer.bytes), Some((key, 0)));
        }
    }
}
