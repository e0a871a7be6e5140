//! Histories of a register that is right, by clients that overlap, and ways to spoil them.

use larder_sim::history::{Call, Interval, Losses, Operation, Outcome, Value};
use larder_sim::seed::{Seed, Stream};

/// What to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) operations: u64,
    pub(super) clients: u32,
    pub(super) keys: u64,
    /// Of a thousand operations.
    pub(super) unknown: u32,
    /// Of a thousand operations.
    pub(super) losses: u32,
    /// How much longer than the time to the next operation one takes.
    pub(super) overlap: u64,
}

/// A history that is right, and the losses that it needs.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub(super) operations: Vec<Operation>,
    pub(super) losses: Losses,
}

pub(super) fn small(seed: u64) -> Made {
    let shape = Shape {
        operations: 8,
        clients: 3,
        keys: 1,
        unknown: 150,
        losses: 100,
        overlap: 3,
    };
    make(seed, shape)
}

/// Each client does one operation after the other; the register does them at moments that are
/// drawn between their ends.
pub(super) fn make(seed: u64, shape: Shape) -> Made {
    let mut chance = Seed(seed).stream("register");
    let mut planned = Vec::new();
    for client in 0..shape.clients {
        let mut now = chance.below(10);
        for _ in 0..shape.operations / u64::from(shape.clients) {
            let length = chance.between(1, 10 * shape.overlap);
            let moment = now + chance.below(length + 1);
            planned.push((moment, client, now, now + length));
            now += length + chance.between(1, 30);
        }
    }
    planned.sort_unstable();
    let mut held = vec![None; usize::try_from(shape.keys).expect("few")];
    let mut intervals = Vec::new();
    let mut operations = Vec::new();
    for (number, (moment, client, from, to)) in (1_u64..).zip(planned) {
        let key = chance.place(held.len());
        if chance.happens(shape.losses) {
            let length = chance.below(4);
            held[key] = None;
            intervals.push(Interval {
                from_ns: moment.saturating_sub(length),
                to_ns: moment,
            });
        }
        let (call, outcome) = act(&mut chance, &mut held[key], Value(number), shape.unknown);
        operations.push(Operation {
            client,
            key: format!("key-{key}"),
            call,
            invoked_ns: from,
            ended_ns: Some(to),
            outcome,
        });
    }
    Made {
        operations,
        losses: Losses::During(intervals),
    }
}

fn act(
    chance: &mut Stream,
    held: &mut Option<Value>,
    value: Value,
    unknown: u32,
) -> (Call, Outcome) {
    let calls = [
        Call::Put(value),
        Call::Put(value),
        Call::Upsert(value),
        Call::Get,
        Call::Get,
        Call::Get,
        Call::Remove,
        Call::Exists,
    ];
    let call = *chance.pick(&calls).expect("a call");
    let is_unknown = chance.happens(unknown);
    if is_unknown && chance.happens(500) {
        return (call, Outcome::Unknown);
    }
    let before = *held;
    let outcome = match (call, before) {
        (Call::Put(_), Some(_)) => Outcome::AlreadyExists,
        (Call::Put(value), None) | (Call::Upsert(value), _) => {
            *held = Some(value);
            Outcome::Done
        }
        (Call::Remove, Some(_)) => {
            *held = None;
            Outcome::Done
        }
        (Call::Get, Some(value)) => Outcome::Got(value),
        (Call::Exists, Some(_)) => Outcome::Present,
        (Call::Get | Call::Exists | Call::Remove, None) => Outcome::Missing,
    };
    (
        call,
        if is_unknown {
            Outcome::Unknown
        } else {
            outcome
        },
    )
}

/// A way to spoil a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Mutation {
    /// An acknowledged write is forgotten: a get behind it misses.
    Forget,
    /// A get returns what was there before.
    Stale,
    /// Two gets of a key got each other's answer.
    Swap,
    /// A write that was read never came.
    Drop,
    /// A get returns what another key holds.
    Foreign,
    /// A removal is said to have worked that found nothing.
    RemoveTwice,
    /// A put is said to have worked that was refused.
    PutTwice,
}

pub(super) const MUTATIONS: [Mutation; 7] = [
    Mutation::Forget,
    Mutation::Stale,
    Mutation::Swap,
    Mutation::Drop,
    Mutation::Foreign,
    Mutation::RemoveTwice,
    Mutation::PutTwice,
];

/// Spoils a history in any way that it offers.
pub(super) fn mutate(operations: &mut Vec<Operation>, seed: u64) {
    let mut chance = Seed(seed).stream("which");
    let mutation = *chance.pick(&MUTATIONS).expect("a mutation");
    spoil(operations, mutation, seed);
}

/// Spoils a history so; whether it offers that.
pub(super) fn spoil(operations: &mut Vec<Operation>, mutation: Mutation, seed: u64) -> bool {
    let mut chance = Seed(seed).stream("spoil");
    let mut places: Vec<usize> = (0..operations.len()).collect();
    chance.shuffle(&mut places);
    let value_of = |one: &Operation| match (one.call, one.outcome) {
        (Call::Put(value) | Call::Upsert(value), Outcome::Done) => Some(value),
        _ => None,
    };
    let got = |one: &Operation| match one.outcome {
        Outcome::Got(value) => Some(value),
        _ => None,
    };
    for place in places {
        let one = operations[place].clone();
        let outcome = match (mutation, one.call, one.outcome) {
            (Mutation::Forget, _, Outcome::Got(_)) => Outcome::Missing,
            (Mutation::Stale, _, Outcome::Got(_)) => {
                let before = operations
                    .iter()
                    .filter(|other| other.key == one.key && other.ended_ns < Some(one.invoked_ns));
                let mut values: Vec<Value> = before.filter_map(value_of).collect();
                values.retain(|value| Some(*value) != got(&one));
                let Some(value) = values.pop() else { continue };
                Outcome::Got(value)
            }
            (Mutation::Swap, _, Outcome::Got(_)) => {
                let other = operations.iter().position(|other| {
                    other.key == one.key && got(other).is_some() && got(other) != got(&one)
                });
                let Some(other) = other else { continue };
                let outcome = operations[other].outcome;
                operations[other].outcome = one.outcome;
                outcome
            }
            (Mutation::Drop, _, Outcome::Done) => {
                let Some(value) = value_of(&one) else {
                    continue;
                };
                if !operations.iter().any(|other| got(other) == Some(value)) {
                    continue;
                }
                operations.remove(place);
                return true;
            }
            (Mutation::Foreign, _, Outcome::Got(_)) => {
                let mut others = operations.iter().filter(|other| other.key != one.key);
                let Some(value) = others.find_map(got) else {
                    continue;
                };
                Outcome::Got(value)
            }
            (Mutation::RemoveTwice, Call::Remove, Outcome::Missing)
            | (Mutation::PutTwice, Call::Put(_), Outcome::AlreadyExists) => Outcome::Done,
            _ => continue,
        };
        operations[place].outcome = outcome;
        return true;
    }
    false
}
