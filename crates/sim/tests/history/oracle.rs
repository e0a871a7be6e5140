//! The checker agrees with trying every order. The oracle shares nothing with it but the words.

use larder_sim::history::{Call, Interval, Losses, Operation, Outcome, Value};
use proptest::prelude::*;

use super::{judged, operation};

/// Whether some order of the rest explains it, when it is `now` and the key holds `held`.
fn explained(rest: &[Operation], held: Option<Value>, now: u64, losses: &Losses) -> bool {
    let must = |one: &&Operation| {
        !matches!(
            one.outcome,
            Outcome::Unknown | Outcome::Maybe | Outcome::Failed
        )
    };
    let mut ends = rest.iter().filter(must).filter_map(|one| one.ended_ns);
    if ends.next().is_none() {
        return true;
    }
    let ends = rest.iter().filter(must).filter_map(|one| one.ended_ns);
    let latest = ends.min().unwrap_or(u64::MAX);
    if latest < now {
        return false;
    }
    if held.is_some() {
        // A loss as early as it can be leaves all that a later one would.
        let at = match losses {
            Losses::Never => None,
            Losses::Any => Some(now),
            Losses::During(intervals) => {
                let open = intervals.iter().filter(|one| one.to_ns >= now);
                open.map(|one| one.from_ns.max(now)).min()
            }
        };
        if at.is_some_and(|at| explained(rest, None, at, losses)) {
            return true;
        }
    }
    (0..rest.len()).any(|at| {
        let mut others = rest.to_vec();
        let one = others.swap_remove(at);
        let moment = now.max(one.invoked_ns);
        if one.outcome == Outcome::Maybe && one.ended_ns.is_some_and(|ended| ended < moment) {
            return false;
        }
        let held = match (one.call, one.outcome, held) {
            (_, Outcome::Failed, _) => return false,
            (Call::Put(value), Outcome::Done | Outcome::Unknown | Outcome::Maybe, None) => {
                Some(value)
            }
            (Call::Put(_), Outcome::AlreadyExists, Some(_)) => held,
            (Call::Upsert(value), Outcome::Done | Outcome::Unknown | Outcome::Maybe, _) => {
                Some(value)
            }
            (Call::Remove, Outcome::Done | Outcome::Unknown, Some(_)) => None,
            (Call::Remove | Call::Get | Call::Exists, Outcome::Missing, None) => None,
            (Call::Get, Outcome::Got(value), Some(held)) if held == value => Some(held),
            (Call::Exists, Outcome::Present, Some(_)) => held,
            _ => return false,
        };
        // Its moment is not after the end of any that is left, itself included.
        moment <= latest && explained(&others, held, moment, losses)
    })
}

fn told() -> impl Strategy<Value = (Call, Outcome)> {
    let value = || (1_u64..4).prop_map(Value);
    prop_oneof![
        3 => value().prop_map(|value| (Call::Put(value), Outcome::Done)),
        1 => value().prop_map(|value| (Call::Put(value), Outcome::Unknown)),
        1 => value().prop_map(|value| (Call::Put(value), Outcome::AlreadyExists)),
        2 => value().prop_map(|value| (Call::Upsert(value), Outcome::Done)),
        1 => value().prop_map(|value| (Call::Upsert(value), Outcome::Unknown)),
        1 => value().prop_map(|value| (Call::Upsert(value), Outcome::Failed)),
        1 => value().prop_map(|value| (Call::Put(value), Outcome::Maybe)),
        1 => value().prop_map(|value| (Call::Upsert(value), Outcome::Maybe)),
        4 => value().prop_map(|value| (Call::Get, Outcome::Got(value))),
        2 => Just((Call::Get, Outcome::Missing)),
        2 => Just((Call::Remove, Outcome::Done)),
        1 => Just((Call::Remove, Outcome::Unknown)),
        1 => Just((Call::Remove, Outcome::Missing)),
        1 => Just((Call::Exists, Outcome::Present)),
        1 => Just((Call::Exists, Outcome::Missing)),
    ]
}

fn losses() -> impl Strategy<Value = Losses> {
    let interval = (0_u64..20, 0_u64..6).prop_map(|(from_ns, length)| Interval {
        from_ns,
        to_ns: from_ns + length,
    });
    prop_oneof![
        3 => Just(Losses::Never),
        1 => Just(Losses::Any),
        3 => proptest::collection::vec(interval, 0..3).prop_map(Losses::During),
    ]
}

fn operations(most: usize) -> impl Strategy<Value = Vec<Operation>> {
    let one = (told(), 0_u64..16, 1_u64..8)
        .prop_map(|((call, outcome), from, length)| operation(call, outcome, from, from + length));
    proptest::collection::vec(one, 0..=most)
}

proptest! {
    #![proptest_config(ProptestConfig {
        // Cheap ones, of which few are interesting.
        cases: ProptestConfig::default().cases * 16,
        ..ProptestConfig::default()
    })]

    #[test]
    fn the_checker_agrees_with_trying_all_orders(operations in operations(7), losses in losses()) {
        let report = judged(&operations, &losses);
        prop_assert_eq!(report.undecided, 0);
        prop_assert_eq!(report.is_ok(), explained(&operations, None, 0, &losses), "{}", report);
    }
}

/// Random histories are mostly wrong, so the oracle is also asked about nearly right ones.
#[test]
fn the_checker_agrees_about_nearly_right_histories() {
    let mut told = [0_u32; 2];
    for seed in 0..3000 {
        let mut made = super::register::small(seed);
        super::register::mutate(&mut made.operations, seed);
        for losses in [Losses::Never, made.losses.clone(), Losses::Any] {
            let report = judged(&made.operations, &losses);
            let expected = explained(&made.operations, None, 0, &losses);
            assert_eq!(report.is_ok(), expected, "seed {seed}: {report}");
            told[usize::from(expected)] += 1;
        }
    }
    assert!(told.iter().all(|count| *count > 1000), "{told:?}");
}
