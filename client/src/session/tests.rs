//! Tables and properties of the decisions.

use std::time::Duration;

use larder_types::Reason;
use proptest::prelude::*;

use super::*;

const LONG: Duration = Duration::from_secs(60);

fn again(next: Next) -> bool {
    matches!(next, Next::Again(_))
}

#[test]
fn what_never_left_is_sent_again_and_what_may_be_done_only_if_that_is_harmless() {
    for (fault, repeatable, expected) in [
        (CallFault::NotSent, false, true),
        (CallFault::NotSent, true, true),
        (CallFault::Lost, false, false),
        (CallFault::Lost, true, true),
        (CallFault::Refused(Reason::NotLeader), false, true),
        (CallFault::Refused(Reason::Starting), false, true),
        (CallFault::Refused(Reason::Overloaded), false, true),
        (CallFault::Refused(Reason::SessionUnknown), false, true),
        (CallFault::Refused(Reason::QuotaBytes), true, false),
        (CallFault::Refused(Reason::AccessDenied), true, false),
        (CallFault::Refused(Reason::DeadlinePassed), true, false),
        (CallFault::Final, true, false),
    ] {
        let next = after_call(fault, repeatable, 1, LONG, 7);
        assert_eq!(again(next), expected, "{fault:?} {repeatable}");
    }
}

#[test]
fn a_put_starts_again_when_the_leader_or_the_session_changed() {
    let start = |reason, ours| PutFault::Start { reason, ours };
    let end = |reason, moved| PutFault::End { reason, moved };
    for (fault, expected) in [
        (end(Reason::StaleEpoch, false), true),
        (end(Reason::StaleOwner, true), true),
        (end(Reason::StaleOwner, false), false),
        (end(Reason::NotWriting, true), true),
        (end(Reason::BadReceipt, true), false),
        (PutFault::Write { stale: true }, true),
        (PutFault::Write { stale: false }, false),
        (start(Reason::BeingWritten, false), false),
        (start(Reason::BeingWritten, true), true),
        (start(Reason::AlreadyExists, true), false),
        (start(Reason::QuotaBytes, true), false),
        (start(Reason::NoAgents, false), false),
    ] {
        assert_eq!(again(after_put(fault, 1, LONG, 7)), expected, "{fault:?}");
        assert!(
            !again(after_put(fault, PUT_STARTS_MAX, LONG, 7)),
            "{fault:?}"
        );
    }
}

#[test]
fn what_needs_agents_waits_for_them_after_a_fail_over() {
    let start = PutFault::Start {
        reason: Reason::Starting,
        ours: false,
    };
    let (short, pause_max) = (Duration::from_millis(1), Duration::from_millis(100));
    for attempt in [1, PUT_STARTS_MAX + 1, CALLS_MAX - 1] {
        let next = after_put(start, attempt, LONG, 3);
        assert!(
            matches!(next, Next::Again(pause) if pause <= pause_max),
            "{next:?}"
        );
        let next = after_get(&[ReadFault::Awaited], attempt, LONG, 3);
        assert!(
            matches!(next, Next::Again(pause) if pause <= pause_max),
            "{next:?}"
        );
    }
    assert!(!again(after_put(start, CALLS_MAX, LONG, 3)));
    assert!(!again(after_get(&[ReadFault::Awaited], CALLS_MAX, LONG, 3)));
    assert!(!again(after_get(&[ReadFault::Awaited], 1, short, 3)));
}

#[test]
fn an_interrupted_write_is_repeated_under_its_grant() {
    assert!(again(after_write(WriteFault::Interrupted, 1, LONG, 0)));
    assert!(!again(after_write(
        WriteFault::Interrupted,
        WRITES_MAX,
        LONG,
        0
    )));
    assert!(!again(after_write(WriteFault::Stale, 1, LONG, 0)));
    assert!(!again(after_write(WriteFault::Final, 1, LONG, 0)));
}

#[test]
fn the_master_is_asked_again_only_if_something_moved() {
    use ReadFault::{Corrupt, Final, Moved};
    for (faults, asks, expected) in [
        (&[Moved][..], 1, true),
        (&[Corrupt, Moved], 1, true),
        (&[Moved], GET_ASKS_MAX, false),
        (&[Corrupt], 1, false),
        (&[Final, Final], 1, false),
        (&[], 1, false),
    ] {
        assert_eq!(
            again(after_get(faults, asks, LONG, 3)),
            expected,
            "{faults:?} {asks}"
        );
    }
}

fn faults() -> impl Strategy<Value = CallFault> {
    prop_oneof![
        Just(CallFault::NotSent),
        Just(CallFault::Lost),
        Just(CallFault::Final),
        prop::sample::select(Reason::ALL).prop_map(CallFault::Refused),
    ]
}

proptest! {
    #[test]
    fn pauses_grow_to_a_bound(attempt in 1_u32.., random: u64) {
        let now = pause(attempt, random);
        prop_assert!(now >= PAUSE_FIRST / 2 && now <= PAUSE_MAX);
        prop_assert!(pause(attempt.saturating_add(1), 0) >= pause(attempt, 0));
    }

    #[test]
    fn rounds_come_quickly_while_a_fail_over_may_be_under_way(
        round in 1_u32.., since_ms in 0_u64..10_000, random: u64,
    ) {
        let since = Duration::from_millis(since_ms);
        let now = round_pause(round, since, random);
        let doubt = doubt_pause(round, since, random);
        if since < FAIL_OVER {
            prop_assert!(now >= ROUND_FIRST / 2 && now <= ROUND_MAX);
            prop_assert!(doubt >= ROUND_MAX / 2 && doubt <= 2 * ROUND_MAX);
        } else {
            prop_assert_eq!(now, pause(round, random));
            prop_assert!(doubt >= ROUND_MAX / 2 && doubt <= FAIL_OVER);
        }
    }

    #[test]
    fn no_attempt_outlives_the_deadline(
        fault in faults(), repeatable: bool, attempt in 1_u32..200, left_ms in 0_u64..2_000,
        random: u64,
    ) {
        let left = Duration::from_millis(left_ms);
        if let Next::Again(pause) = after_call(fault, repeatable, attempt, left, random) {
            prop_assert!(pause < left);
            prop_assert!(attempt < CALLS_MAX);
            prop_assert!(fault != CallFault::Lost || repeatable);
        }
    }

    #[test]
    fn every_call_ends(fault in faults(), random: u64) {
        let mut attempt = 1;
        while let Next::Again(_) = after_call(fault, true, attempt, LONG, random) {
            attempt += 1;
            prop_assert!(attempt <= CALLS_MAX);
        }
    }

    #[test]
    fn every_replica_is_read_once_and_local_ones_first(
        local in prop::collection::vec(any::<bool>(), 0..6), random: u64,
    ) {
        let order = read_order(&local, random);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..local.len()).collect::<Vec<_>>());
        let near = local.iter().filter(|is| **is).count();
        prop_assert!(order[..near].iter().all(|at| local[*at]));
    }
}

#[test]
fn far_replicas_are_spread() {
    let firsts: std::collections::BTreeSet<usize> = (0..64_u64)
        .map(|n| read_order(&[false; 3], n.wrapping_mul(0x9e37_79b9_7f4a_7c15))[0])
        .collect();
    assert_eq!(firsts.len(), 3);
}
