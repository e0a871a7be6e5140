//! Small sets of the operations that are pending at one time.

use std::ops::{BitAnd, Not};

/// How many operations of one key may be pending at one time; those of unknown outcome are for
/// ever.
pub const SLOTS: usize = 256;

const WORDS: usize = SLOTS / 64;

/// A set of slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Slots([u64; WORDS]);

impl Slots {
    pub(super) fn has(&self, slot: usize) -> bool {
        self.0[slot / 64] >> (slot % 64) & 1 == 1
    }

    pub(super) fn add(&mut self, slot: usize) {
        self.0[slot / 64] |= 1 << (slot % 64);
    }

    pub(super) fn take(&mut self, slot: usize) {
        self.0[slot / 64] &= !(1 << (slot % 64));
    }

    /// The lowest slot that is not in the set.
    pub(super) fn free(&self) -> Option<usize> {
        self.not().iter().next()
    }

    pub(super) fn is_only(&self, slot: usize) -> bool {
        let mut one = Self::default();
        one.add(slot);
        *self == one
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether all of these are in the other.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(a, b)| a & !b == 0)
    }

    pub(super) fn len(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Its slots, lowest first.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        let words = self.0.into_iter().enumerate();
        words.flat_map(|(at, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(at * 64 + bit)
            })
        })
    }
}

impl BitAnd for Slots {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        let mut both = self;
        both.0.iter_mut().zip(other.0).for_each(|(a, b)| *a &= b);
        both
    }
}

impl Not for Slots {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_again() {
        let mut slots = Slots::default();
        for slot in [0, 63, 64, 255] {
            slots.add(slot);
        }
        assert_eq!(slots.iter().collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert_eq!((slots.free(), slots.len()), (Some(1), 4));
        slots.take(63);
        assert!(!slots.has(63) && slots.has(64) && !slots.is_only(64));
        let mut fewer = slots;
        fewer.take(255);
        assert!(fewer.is_within(&slots) && !slots.is_within(&fewer));
        assert_eq!((!Slots::default()).len() as usize, SLOTS);
        assert_eq!((!Slots::default()).free(), None);
        assert!((slots & !slots).is_empty());
    }
}
