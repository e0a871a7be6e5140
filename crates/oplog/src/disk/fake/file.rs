//! One file of the fake disk: what of it is durable, and what a loss of power makes of it.

use std::ops::Range;

/// What a loss of power leaves and destroys in units of.
const SECTOR_BYTES: usize = 512;

/// The durable bytes are `current[..floor]` and `old_tail`.
#[derive(Debug, Clone, Default)]
pub(super) struct FakeFile {
    pub(super) current: Vec<u8>,
    pub(super) floor: usize,
    /// Durable bytes that were cut off, and the cut is not durable.
    pub(super) old_tail: Vec<u8>,
    /// Bytes whose sync failed: readable, and gone with the power whatever is synced later.
    pub(super) doomed: Option<Range<usize>>,
    /// What the sync that is under way makes durable: the bytes before this. `None` also if the
    /// file was cut below its durable bytes since, as then nothing can be said.
    pub(super) syncing: Option<usize>,
}

impl FakeFile {
    pub(super) fn durable(bytes: &[u8]) -> Self {
        Self {
            current: bytes.to_vec(),
            floor: bytes.len(),
            ..Self::default()
        }
    }

    /// Cuts off what is behind `length`, and keeps of it what is durable.
    pub(super) fn cut(&mut self, length: usize) {
        if length < self.floor {
            let cut = self.current[length..self.floor].to_vec();
            self.old_tail.splice(0..0, cut);
            self.floor = length;
            self.syncing = None;
        }
        self.syncing = self.syncing.map(|syncing| syncing.min(length));
        self.current.truncate(length);
    }

    /// Back to what is durable.
    pub(super) fn undo(&mut self) {
        self.current.truncate(self.floor);
        self.current.append(&mut self.old_tail);
    }

    /// What the file holds is durable, but for what a failed sync left.
    pub(super) fn settle(&mut self) {
        if let Some(doomed) = self.doomed.take() {
            let end = doomed.end.min(self.current.len());
            self.current[doomed.start.min(end)..end].fill(0);
        }
        self.floor = self.current.len();
        self.old_tail.clear();
        self.syncing = None;
    }

    /// Loses power: a part of what is not durable stays.
    pub(super) fn crash(&mut self, dice: &mut Dice) {
        if !self.old_tail.is_empty() && dice.below(2) == 0 {
            return self.undo();
        }
        let whole = self.current.len();
        let keep = self.floor + dice.below(whole - self.floor + 1);
        let reach = keep + dice.below(whole - keep + 1);
        match dice.below(4) {
            0 => self.current.truncate(keep),
            1 => {
                self.current.truncate(reach);
                self.current[keep..].fill(0);
            }
            2 => {
                self.current.truncate(reach);
                self.current[keep..].fill_with(|| dice.byte());
            }
            _ => {
                for at in (self.floor..whole).step_by(SECTOR_BYTES) {
                    if dice.below(4) == 0 {
                        let end = whole.min(at + SECTOR_BYTES);
                        self.current[at..end].fill(0);
                    }
                }
            }
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `bound - 1`; `bound` is at least 1. The bias is of no matter here.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }
}
