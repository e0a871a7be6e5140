//! What one writer knows of its own keys, and what a read of them may return: pure.
//!
//! Nobody else writes a writer's keys, and it does one thing at a time with each. So a key's
//! content is known but for writes whose outcome nobody heard: after those, either content is
//! right, and the key is not written again. A read that shows the last write settles the doubt.

use bytes::Bytes;

/// Bytes of every object of the load.
pub const OBJECT_BYTES: usize = 4 << 10;

/// What a key may hold: nothing, or the bytes of one write.
type Content = Option<u64>;

/// One key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    /// The last write that was acknowledged.
    settled: Content,
    /// A later one without an answer.
    doubt: Option<Content>,
}

/// What a read shows of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What it may show.
    Right,
    /// An acknowledged put is not there.
    Lost,
    /// Bytes that the key never held, or no longer may.
    Wrong,
}

/// All keys of one writer.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    writer: u64,
    slots: Vec<Slot>,
}

impl Ledger {
    /// Of the writer of this number, which no other writer of the pool ever had.
    #[must_use]
    pub const fn new(writer: u64) -> Self {
        let slots = Vec::new();
        Self { writer, slots }
    }

    /// How many keys there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// A key that was never used; it holds nothing.
    pub fn fresh(&mut self) -> usize {
        self.slots.push(Slot {
            settled: None,
            doubt: None,
        });
        self.slots.len() - 1
    }

    /// The text of a key.
    #[must_use]
    pub fn key(&self, at: usize) -> String {
        format!("load/{}/{at}", self.writer)
    }

    /// Whether the content of a key is certain, so that it may be written.
    #[must_use]
    pub fn is_certain(&self, at: usize) -> bool {
        self.slots.get(at).is_some_and(|slot| slot.doubt.is_none())
    }

    /// Whether a key certainly holds an object.
    #[must_use]
    pub fn is_held(&self, at: usize) -> bool {
        let slot = self.slots.get(at);
        slot.is_some_and(|slot| slot.doubt.is_none() && slot.settled.is_some())
    }

    /// A write, or with `None` a removal, was acknowledged.
    pub fn acknowledged(&mut self, at: usize, content: Content) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.settled = content;
            slot.doubt = None;
        }
    }

    /// A write was given up without an answer: it may have happened, or happen yet.
    pub fn unknown(&mut self, at: usize, content: Content) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.doubt = Some(content);
        }
    }

    /// Judges what a read of a key returned, `None` for a miss.
    pub fn judge(&mut self, at: usize, read: Option<&[u8]>) -> Verdict {
        let Some(slot) = self.slots.get_mut(at) else {
            return Verdict::Wrong;
        };
        let shows = |content: Content| match (content, read) {
            (None, None) => true,
            (Some(seed), Some(bytes)) => value(seed) == bytes,
            _ => false,
        };
        if let Some(doubt) = slot.doubt
            && shows(doubt)
        {
            slot.settled = doubt;
            slot.doubt = None;
            return Verdict::Right;
        }
        match (shows(slot.settled), read) {
            (true, _) => Verdict::Right,
            (false, None) => Verdict::Lost,
            (false, Some(_)) => Verdict::Wrong,
        }
    }
}

/// The bytes of a write: they depend on `seed` and on their place, so that a mix of two shows.
#[must_use]
pub fn value(seed: u64) -> Bytes {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(OBJECT_BYTES);
    out.extend_from_slice(&seed.to_le_bytes());
    while out.len() < OBJECT_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    Bytes::from(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(seed: u64) -> Option<Bytes> {
        Some(value(seed))
    }

    fn judged(ledger: &mut Ledger, at: usize, read: Option<Bytes>) -> Verdict {
        ledger.judge(at, read.as_deref())
    }

    #[test]
    fn an_acknowledged_put_must_be_there_with_its_own_bytes() {
        let mut ledger = Ledger::new(1);
        let at = ledger.fresh();
        assert_eq!(judged(&mut ledger, at, None), Verdict::Right);
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Wrong);
        ledger.acknowledged(at, Some(5));
        assert!(ledger.is_held(at));
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Right);
        assert_eq!(judged(&mut ledger, at, None), Verdict::Lost);
        assert_eq!(judged(&mut ledger, at, read(6)), Verdict::Wrong);
        // A former content is as wrong as any other.
        ledger.acknowledged(at, Some(6));
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Wrong);
        ledger.acknowledged(at, None);
        assert_eq!(judged(&mut ledger, at, read(6)), Verdict::Wrong);
    }

    #[test]
    fn without_an_answer_both_contents_are_right_until_the_later_one_shows() {
        let mut ledger = Ledger::new(1);
        let at = ledger.fresh();
        ledger.acknowledged(at, Some(5));
        ledger.unknown(at, Some(6));
        assert!(!ledger.is_certain(at) && !ledger.is_held(at));
        assert_eq!(judged(&mut ledger, at, None), Verdict::Lost);
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Right);
        assert_eq!(judged(&mut ledger, at, read(6)), Verdict::Right);
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Wrong);
        assert!(ledger.is_held(at));
    }
}
