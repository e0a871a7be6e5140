//! Small histories, each right or wrong for a reason with a name.

use larder_sim::history::Call::{Exists, Get, Put, Remove, Upsert};
use larder_sim::history::Outcome::{
    AlreadyExists, Done, Failed, Garbled, Got, Maybe, Missing, Present, Unknown,
};
use larder_sim::history::{
    Call, Fault, History, HistoryError, Interval, Limits, Losses, Operation, Outcome, SLOTS, Value,
    Why, check, check_keys,
};

use super::{judged, operation};

const A: Value = Value(0xa);
const B: Value = Value(0xb);
const C: Value = Value(0xc);

type Row = (Call, Outcome, u64, u64);

fn operations(rows: &[Row]) -> Vec<Operation> {
    let made = |row: &Row| operation(row.0, row.1, row.2, row.3);
    rows.iter().map(made).collect()
}

#[track_caller]
fn right_with(losses: &Losses, rows: &[Row]) {
    let report = judged(&operations(rows), losses);
    assert!(report.is_ok(), "{report}");
}

#[track_caller]
fn wrong_with(losses: &Losses, fault: Fault, rows: &[Row]) {
    let report = judged(&operations(rows), losses);
    assert_eq!((report.violated, report.undecided), (1, 0), "{report}");
    assert_eq!(report.violations[0].fault, fault, "{report}");
}

#[track_caller]
fn right(rows: &[Row]) {
    right_with(&Losses::Never, rows);
}

#[track_caller]
fn wrong(fault: Fault, rows: &[Row]) {
    wrong_with(&Losses::Never, fault, rows);
}

fn during(from_ns: u64, to_ns: u64) -> Losses {
    Losses::During(vec![Interval { from_ns, to_ns }])
}

#[test]
fn a_life_of_a_key_is_right() {
    right(&[]);
    right(&[
        (Get, Missing, 1, 2),
        (Exists, Missing, 3, 4),
        (Remove, Missing, 5, 6),
        (Put(A), Done, 7, 8),
        (Put(B), AlreadyExists, 9, 10),
        (Get, Got(A), 11, 12),
        (Exists, Present, 13, 14),
        (Upsert(B), Done, 15, 16),
        (Get, Got(B), 17, 18),
        (Remove, Done, 19, 20),
        (Get, Missing, 21, 22),
        (Upsert(C), Done, 23, 24),
        (Get, Got(C), 25, 26),
    ]);
}

#[test]
fn a_lost_acknowledged_put_is_found() {
    wrong(Fault::Lost, &[(Put(A), Done, 1, 2), (Get, Missing, 3, 4)]);
    wrong(
        Fault::Lost,
        &[(Upsert(A), Done, 1, 2), (Exists, Missing, 3, 4)],
    );
    wrong(
        Fault::Lost,
        &[(Put(A), Done, 1, 2), (Remove, Missing, 3, 4)],
    );
    // Lost and written again.
    wrong(
        Fault::PutTwice,
        &[
            (Put(A), Done, 1, 2),
            (Put(B), Done, 3, 4),
            (Get, Got(B), 5, 6),
        ],
    );
}

#[test]
fn a_stale_read_is_found() {
    let rows = [
        (Put(A), Done, 1, 2),
        (Upsert(B), Done, 3, 4),
        (Get, Got(A), 5, 6),
    ];
    wrong(Fault::Stale, &rows);
    // Overlapping the write it may see either.
    right(&[rows[0], rows[1], (Get, Got(A), 3, 9)]);
    // But not the new one and then the old one.
    wrong(
        Fault::Stale,
        &[
            (Put(A), Done, 1, 2),
            (Upsert(B), Done, 3, 20),
            (Get, Got(B), 4, 5),
            (Get, Got(A), 6, 7),
        ],
    );
    wrong(
        Fault::Stale,
        &[
            (Put(A), Done, 1, 2),
            (Remove, Done, 3, 4),
            (Get, Got(A), 5, 6),
        ],
    );
}

#[test]
fn foreign_and_torn_bytes_are_found() {
    wrong(
        Fault::NeverWritten,
        &[(Put(A), Done, 1, 2), (Get, Got(B), 3, 4)],
    );
    wrong(
        Fault::Garbled,
        &[(Put(A), Done, 1, 2), (Get, Garbled, 3, 4)],
    );
    // From the future.
    wrong(
        Fault::NeverWritten,
        &[(Get, Got(A), 1, 2), (Put(A), Done, 3, 4)],
    );
    // A value of another key.
    let mut operations = operations(&[(Put(A), Done, 1, 2), (Get, Got(A), 3, 4)]);
    operations[0].key = "other".to_owned();
    let report = judged(&operations, &Losses::Never);
    assert_eq!(report.violations[0].fault, Fault::NeverWritten);
    // A put that was refused wrote nothing.
    wrong(
        Fault::Stale,
        &[
            (Put(A), Done, 1, 2),
            (Put(B), AlreadyExists, 3, 4),
            (Get, Got(B), 5, 6),
        ],
    );
    wrong(Fault::Stale, &[(Put(A), Failed, 1, 2), (Get, Got(A), 3, 4)]);
}

#[test]
fn a_removal_works_once() {
    wrong(
        Fault::RemovedTwice,
        &[
            (Put(A), Done, 1, 2),
            (Remove, Done, 3, 4),
            (Remove, Done, 5, 6),
        ],
    );
    // Of two at a time also only one works.
    wrong(
        Fault::RemovedTwice,
        &[
            (Put(A), Done, 1, 2),
            (Remove, Done, 3, 9),
            (Remove, Done, 4, 8),
        ],
    );
    right(&[
        (Put(A), Done, 1, 2),
        (Remove, Done, 3, 9),
        (Remove, Missing, 4, 8),
    ]);
}

#[test]
fn a_put_works_once_without_a_removal() {
    wrong(
        Fault::PutTwice,
        &[(Put(A), Done, 1, 2), (Put(B), Done, 3, 4)],
    );
    wrong(
        Fault::PutTwice,
        &[(Put(A), Done, 1, 9), (Put(B), Done, 2, 8)],
    );
    right(&[
        (Put(A), Done, 1, 9),
        (Put(B), Done, 2, 8),
        (Remove, Done, 3, 7),
    ]);
    wrong(Fault::Ghost, &[(Put(A), AlreadyExists, 1, 2)]);
    wrong(Fault::Ghost, &[(Exists, Present, 1, 2)]);
}

#[test]
fn an_unknown_put_may_appear_late_and_once() {
    right(&[
        (Put(A), Unknown, 1, 2),
        (Get, Missing, 3, 4),
        (Get, Got(A), 5, 6),
    ]);
    right(&[
        (Put(A), Unknown, 1, 0),
        (Get, Missing, 3, 4),
        (Get, Missing, 5, 6),
    ]);
    wrong(
        Fault::Lost,
        &[
            (Put(A), Unknown, 1, 2),
            (Get, Got(A), 3, 4),
            (Get, Missing, 5, 6),
            (Get, Got(A), 7, 8),
        ],
    );
    wrong(
        Fault::Stale,
        &[
            (Put(A), Unknown, 1, 2),
            (Get, Got(A), 3, 4),
            (Remove, Done, 5, 6),
            (Get, Got(A), 7, 8),
        ],
    );
    // It is refused where there is something.
    wrong(
        Fault::Stale,
        &[
            (Put(B), Done, 1, 2),
            (Put(A), Unknown, 3, 0),
            (Get, Got(A), 5, 6),
        ],
    );
    right(&[
        (Put(B), Done, 1, 2),
        (Upsert(A), Unknown, 3, 0),
        (Get, Got(B), 5, 6),
        (Get, Got(A), 7, 8),
    ]);
    // Never before its call.
    wrong(
        Fault::NeverWritten,
        &[(Get, Got(A), 1, 2), (Put(A), Unknown, 3, 0)],
    );
}

#[test]
fn each_unknown_removal_takes_one_object() {
    let rows = [
        (Put(A), Done, 1, 2),
        (Remove, Unknown, 3, 0),
        (Get, Got(A), 5, 6),
        (Get, Missing, 7, 8),
        (Put(B), Done, 9, 10),
        (Get, Missing, 11, 12),
    ];
    right(&rows[..5]);
    wrong(Fault::Lost, &rows);
    let mut two = rows.to_vec();
    two.push((Remove, Unknown, 4, 0));
    right(&two);
}

#[test]
fn losses_are_right_where_they_are_allowed() {
    let rows = [(Put(A), Done, 1, 2), (Get, Missing, 5, 6)];
    right_with(&Losses::Any, &rows);
    right_with(&during(3, 4), &rows);
    right_with(&during(6, 7), &rows);
    wrong_with(&during(7, 8), Fault::Lost, &rows);
    wrong_with(&during(0, 0), Fault::Lost, &rows);
    // What was lost does not come back.
    let back = [rows[0], rows[1], (Get, Got(A), 7, 8)];
    wrong_with(&Losses::Any, Fault::Stale, &back);
    // It is still there after the time of losses, so it was not lost then.
    let late = [rows[0], (Get, Got(A), 5, 6), (Get, Missing, 7, 8)];
    right_with(&Losses::Any, &late);
    wrong_with(&during(3, 4), Fault::Lost, &late);
    // An operation that overlaps the end of losses is judged on both sides of it.
    let over = [(Put(A), Done, 1, 9), (Get, Missing, 10, 11)];
    right_with(&during(3, 4), &over);
    let again = [over[0], (Put(B), Done, 5, 8), (Get, Got(B), 10, 11)];
    right_with(&during(3, 4), &again);
    let both = [over[0], again[1], (Get, Got(A), 20, 21)];
    right_with(&during(9, 9), &both);
    wrong_with(&during(10, 10), Fault::PutTwice, &both);
}

#[test]
fn keys_have_losses_of_their_own() {
    let mut all = operations(&[(Put(A), Done, 1, 2), (Get, Missing, 3, 4)]);
    let mut other = all.clone();
    other.iter_mut().for_each(|one| one.key = "safe".to_owned());
    all.extend(other);
    let history = History::new(all).expect("it fits");
    let losses = |key: &str| match key {
        "safe" => Losses::Never,
        _ => Losses::Any,
    };
    let report = check_keys(&history, losses, Limits::default());
    assert_eq!((report.keys, report.violated), (2, 1));
    assert_eq!(report.violations[0].key, "safe");
}

#[test]
fn what_is_too_much_is_undecided_and_not_right() {
    let mut rows: Vec<Row> = (0..=SLOTS as u64)
        .map(|at| (Upsert(Value(at)), Done, 1 + at, 9_000))
        .collect();
    let report = judged(&operations(&rows), &Losses::Never);
    assert_eq!(report.undecided_keys[0].why, Why::Pending);
    assert!(!report.is_ok());
    rows.truncate(30);
    let report = judged(&operations(&rows), &Losses::Never);
    assert_eq!(report.undecided_keys[0].why, Why::Configurations);
    let history = History::new(operations(&rows)).expect("it fits");
    let limits = Limits {
        steps_max: 100,
        ..Limits::default()
    };
    let report = check(&history, &Losses::Never, limits);
    assert_eq!(report.undecided_keys[0].why, Why::Steps);
    assert!(report.to_string().contains("is undecided"));
}

#[test]
fn a_counterexample_says_what_was_before() {
    let rows = [
        (Put(A), Done, 1, 2),
        (Upsert(B), Done, 3, 4),
        (Upsert(C), Unknown, 5, 0),
        (Get, Got(A), 6, 7),
        (Remove, Done, 8, 9),
    ];
    let report = judged(&operations(&rows), &Losses::Never);
    let found = &report.violations[0];
    assert_eq!(found.prefix, 4, "the removal is not to blame");
    assert_eq!(found.operation, operations(&rows)[3]);
    assert_eq!(found.order, operations(&rows[..2]));
    assert_eq!(found.pending, operations(&rows[2..3]));
    assert_eq!(found.held, [Some(B)]);
    let text = report.to_string();
    for part in [
        "no order explains  client 1: get \"k\" -> a [6..7 ns]",
        "held b",
        "upsert c",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

#[test]
fn outcomes_that_no_call_has_are_refused() {
    for (call, outcome, from, to) in [
        (Get, Done, 1, 2),
        (Put(A), Missing, 1, 2),
        (Remove, Got(A), 1, 2),
        (Get, Present, 1, 2),
        (Upsert(A), AlreadyExists, 1, 2),
        (Get, Got(A), 2, 1),
        (Get, Got(A), 2, 0),
    ] {
        let made = History::new(vec![operation(call, outcome, from, to)]);
        assert!(
            matches!(made, Err(HistoryError::Misfit { .. })),
            "{call} {outcome}"
        );
    }
}

/// What a cache may bring back is there from some moment before the end on, or never.
#[test]
fn what_may_come_back_does_so_until_its_end() {
    let life = |more: &[Row]| {
        let begun = [(Put(A), Done, 1, 2), (Remove, Done, 3, 4)];
        [&begun[..], more].concat()
    };
    let back = (Put(A), Maybe, 5, 9);
    for told in [Missing, Got(A)] {
        right(&life(&[back, (Get, told, 6, 7)]));
        right(&life(&[back, (Get, told, 10, 11)]));
    }
    right(&life(&[back, (Put(B), Done, 6, 7), (Get, Got(B), 10, 11)]));
    let late = life(&[back, (Get, Missing, 10, 11), (Get, Got(A), 12, 13)]);
    wrong(Fault::Stale, &late);
    let early = life(&[(Get, Got(A), 5, 6), (Put(A), Maybe, 7, 9)]);
    wrong(Fault::Stale, &early);
    let kept = [(Put(B), Done, 1, 2), back, (Get, Got(A), 10, 11)];
    wrong(Fault::Stale, &kept);
    right(&[
        (Put(B), Done, 1, 2),
        (Upsert(A), Maybe, 5, 9),
        (Get, Got(A), 10, 11),
    ]);
    let no_end = Operation {
        ended_ns: None,
        ..operation(Put(A), Maybe, 5, 9)
    };
    for misfit in [no_end, operation(Remove, Maybe, 5, 9)] {
        let made = History::new(vec![misfit]);
        assert!(matches!(made, Err(HistoryError::Misfit { .. })));
    }
}
