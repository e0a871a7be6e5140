//! What clients ask, drawn so that they collide.

use crate::history::{Call, Value};
use crate::seed::Seed;

/// How much of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkShape {
    /// How many clients.
    pub clients: u32,
    /// How many operations of all clients together.
    pub operations: u32,
    /// How many keys; few, so that they collide.
    pub keys: u32,
    /// The longest pause before an operation, in ns.
    pub think_max_ns: u64,
    /// How large objects are, from this many bytes.
    pub size_min_bytes: u64,
    /// To this many bytes.
    pub size_max_bytes: u64,
}

impl Default for WorkShape {
    /// 240 operations of five clients on four small keys within seconds.
    fn default() -> Self {
        Self {
            clients: 5,
            operations: 240,
            keys: 4,
            think_max_ns: 60_000_000,
            size_min_bytes: 16,
            size_max_bytes: 4096,
        }
    }
}

/// One thing that a client does after the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// How long it pauses before, in ns.
    pub think_ns: u64,
    /// The key.
    pub key: String,
    /// What it asks. Each write has a value of its own.
    pub call: Call,
    /// Of a write: how many bytes.
    pub size_bytes: u64,
}

/// What each client does, in order.
#[must_use]
pub fn draw_work(seed: Seed, shape: &WorkShape) -> Vec<Vec<Step>> {
    let clients = shape.clients.max(1);
    let mut next_value = 0;
    (0..clients)
        .map(|client| {
            let mut chance = seed.stream_of("work", u64::from(client));
            let count = shape.operations / clients + u32::from(client < shape.operations % clients);
            let step = |_| {
                next_value += 1;
                let value = Value(next_value);
                let call = match chance.below(100) {
                    0..30 => Call::Put(value),
                    30..45 => Call::Upsert(value),
                    45..75 => Call::Get,
                    75..90 => Call::Remove,
                    _ => Call::Exists,
                };
                // Some keys are asked for more often than others.
                let key = chance
                    .below(u64::from(shape.keys))
                    .min(chance.below(u64::from(shape.keys)));
                Step {
                    think_ns: chance.below(shape.think_max_ns.saturating_add(1)),
                    key: format!("key-{key}"),
                    call,
                    size_bytes: chance.between(shape.size_min_bytes, shape.size_max_bytes),
                }
            };
            (0..count).map(step).collect()
        })
        .collect()
}

/// The bytes that stand for a value: any eight of them, aligned, name it and their place, so that
/// a torn or shifted read is none.
#[must_use]
pub fn bytes_of(value: Value, size_bytes: u64) -> Vec<u8> {
    let words = size_bytes.div_ceil(8);
    let mut bytes = Vec::new();
    for place in 0..words {
        let word = value
            .0
            .wrapping_add(place.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.truncate(usize::try_from(size_bytes).unwrap_or(usize::MAX));
    bytes
}

/// The value that bytes stand for, if they are all of one.
#[must_use]
pub fn value_of(bytes: &[u8]) -> Option<Value> {
    let first = bytes.first_chunk::<8>()?;
    let value = Value(u64::from_le_bytes(*first));
    (bytes_of(value, bytes.len() as u64) == bytes).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn work_follows_from_the_seed_and_has_all_kinds() {
        let shape = WorkShape::default();
        let work = draw_work(Seed(3), &shape);
        assert_eq!(work, draw_work(Seed(3), &shape));
        assert_ne!(work, draw_work(Seed(4), &shape));
        let steps: Vec<&Step> = work.iter().flatten().collect();
        assert_eq!(steps.len(), 240);
        let kinds: BTreeSet<String> = steps
            .iter()
            .map(|step| {
                step.call
                    .to_string()
                    .split(' ')
                    .next()
                    .unwrap_or("")
                    .to_owned()
            })
            .collect();
        assert_eq!(kinds.len(), 5);
        let keys: BTreeSet<&str> = steps.iter().map(|step| step.key.as_str()).collect();
        assert_eq!(keys.len(), 4);
        let values: Vec<Value> = steps
            .iter()
            .filter_map(|step| match step.call {
                Call::Put(value) | Call::Upsert(value) => Some(value),
                _ => None,
            })
            .collect();
        assert_eq!(values.iter().collect::<BTreeSet<_>>().len(), values.len());
    }

    #[test]
    fn bytes_stand_for_one_value() {
        for size_bytes in [8, 9, 16, 100, 4096] {
            let bytes = bytes_of(Value(7), size_bytes);
            assert_eq!(bytes.len() as u64, size_bytes);
            assert_eq!(value_of(&bytes), Some(Value(7)));
            let mut torn = bytes.clone();
            let other = bytes_of(Value(8), size_bytes);
            let half = torn.len() / 2;
            torn[half..].copy_from_slice(&other[half..]);
            if size_bytes > 16 {
                assert_eq!(value_of(&torn), None);
                assert_ne!(value_of(&bytes[8..]), Some(Value(7)));
            }
        }
        assert_eq!(value_of(&[1, 2]), None);
    }
}
