//! What one writer knows of its own keys, and what a read of them may return: pure.
//!
//! Nobody else writes a writer's keys, and it does one thing at a time with each. So a key's
//! content is known but for writes whose outcome nobody heard: after those, either content is
//! right, and the key is not written again. A read that shows the last write settles the doubt.
//! After a loss of power the last writes may have gone back, where the sync policy allows that.

use bytes::Bytes;

/// Bytes of every object of the load.
pub const OBJECT_BYTES: usize = 4 << 10;

/// What a key may hold: nothing, or the bytes of one write.
type Content = Option<u64>;

/// Former contents that are kept of a key.
const PAST: usize = 8;

/// A piece of time whose acknowledged writes may go back, in ns of the clock of the stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// What was acknowledged at this moment or before stays.
    pub from_ns: u64,
    /// What was acknowledged after this moment stays.
    pub to_ns: u64,
}

impl Span {
    /// Whether a write that was acknowledged then may go back.
    #[must_use]
    pub const fn holds(self, at_ns: u64) -> bool {
        self.from_ns < at_ns && at_ns <= self.to_ns
    }
}

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Slot {
    /// The last write that was acknowledged.
    settled: Content,
    /// When.
    settled_ns: u64,
    /// A later one without an answer.
    doubt: Option<Content>,
    /// What was acknowledged before, the latest last.
    past: Vec<(u64, Content)>,
    /// Older contents that are right as well, since their successors may have gone back.
    older: Vec<Content>,
    /// It was found lost already.
    is_lost: bool,
    /// Nobody could read it.
    is_given_up: bool,
}

/// What a read shows of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What it may show.
    Right,
    /// An acknowledged write went back, as the sync policy allows after a loss of power.
    Undone,
    /// A write went back to an object whose bytes were given free already, so that nobody can read
    /// it: after the power of a majority failed, until masters take in what agents hold.
    Stranded,
    /// An acknowledged put is not there. It is told once of each key.
    Lost,
    /// Bytes that the key never held, or no longer may.
    Wrong,
}

/// All keys of one writer.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    writer: u64,
    slots: Vec<Slot>,
    /// The last span that was forgiven.
    forgiven: Span,
}

impl Ledger {
    /// Of the writer of this number, which no other writer of the pool ever had.
    #[must_use]
    pub fn new(writer: u64) -> Self {
        Self {
            writer,
            ..Self::default()
        }
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
        self.slots.push(Slot::default());
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
        let is_certain = |slot: &Slot| slot.doubt.is_none() && slot.older.is_empty();
        self.slots.get(at).is_some_and(is_certain)
    }

    /// Whether a key certainly holds an object.
    #[must_use]
    pub fn is_held(&self, at: usize) -> bool {
        let slot = self.slots.get(at);
        self.is_certain(at) && slot.is_some_and(|slot| slot.settled.is_some() && !slot.is_lost)
    }

    /// A write, or with `None` a removal, was acknowledged.
    pub fn acknowledged(&mut self, at: usize, content: Content, now_ns: u64) {
        if let Some(slot) = self.slots.get_mut(at) {
            if slot.past.len() == PAST {
                slot.past.remove(0);
            }
            slot.past.push((slot.settled_ns, slot.settled));
            slot.settled = content;
            slot.settled_ns = now_ns;
            slot.doubt = None;
            slot.older.clear();
            slot.is_lost = false;
            slot.is_given_up = false;
        }
    }

    /// A write was given up without an answer: it may have happened, or happen yet.
    pub fn unknown(&mut self, at: usize, content: Content) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.doubt = Some(content);
        }
    }

    /// What was acknowledged in this span may have gone back. The same span counts once.
    pub fn forgive(&mut self, span: Span) {
        if span == self.forgiven || span == Span::default() {
            return;
        }
        self.forgiven = span;
        for slot in self
            .slots
            .iter_mut()
            .filter(|slot| span.holds(slot.settled_ns))
        {
            for (at_ns, content) in slot.past.iter().rev() {
                slot.older.push(*content);
                if !span.holds(*at_ns) {
                    break;
                }
            }
        }
    }

    /// Whether nobody could read a key at last, so that nothing more is to be learnt of it.
    #[must_use]
    pub fn is_given_up(&self, at: usize) -> bool {
        self.slots.get(at).is_some_and(|slot| slot.is_given_up)
    }

    /// Nobody can read a key, however often it is tried.
    pub fn give_up(&mut self, at: usize) -> Verdict {
        let Some(slot) = self.slots.get_mut(at) else {
            return Verdict::Wrong;
        };
        slot.is_given_up = true;
        slot.is_lost = true;
        match slot.older.is_empty() {
            true => Verdict::Lost,
            false => Verdict::Stranded,
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
            slot.is_lost = false;
            slot.older.clear();
            return Verdict::Right;
        }
        if shows(slot.settled) {
            slot.older.clear();
            return Verdict::Right;
        }
        if let Some(older) = slot.older.iter().copied().find(|older| shows(*older)) {
            slot.settled = older;
            slot.older.clear();
            return Verdict::Undone;
        }
        match read {
            None if slot.is_lost => Verdict::Right,
            None => {
                slot.is_lost = true;
                Verdict::Lost
            }
            Some(_) => Verdict::Wrong,
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
        ledger.acknowledged(at, Some(5), 10);
        assert!(ledger.is_held(at));
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Right);
        assert_eq!(judged(&mut ledger, at, None), Verdict::Lost);
        assert_eq!(judged(&mut ledger, at, None), Verdict::Right, "told before");
        assert_eq!(judged(&mut ledger, at, read(6)), Verdict::Wrong);
        // A former content is as wrong as any other.
        ledger.acknowledged(at, Some(6), 20);
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Wrong);
        ledger.acknowledged(at, None, 30);
        assert_eq!(judged(&mut ledger, at, read(6)), Verdict::Wrong);
    }

    #[test]
    fn without_an_answer_both_contents_are_right_until_the_later_one_shows() {
        let mut ledger = Ledger::new(1);
        let at = ledger.fresh();
        ledger.acknowledged(at, Some(5), 10);
        ledger.unknown(at, Some(6));
        assert!(!ledger.is_certain(at) && !ledger.is_held(at));
        assert_eq!(judged(&mut ledger, at, None), Verdict::Lost);
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Right);
        assert_eq!(judged(&mut ledger, at, read(6)), Verdict::Right);
        assert_eq!(judged(&mut ledger, at, read(5)), Verdict::Wrong);
        assert!(ledger.is_held(at));
    }

    #[test]
    fn what_was_acknowledged_in_a_span_may_go_back_and_nothing_else() {
        let mut ledger = Ledger::new(1);
        let (new, changed, old) = (ledger.fresh(), ledger.fresh(), ledger.fresh());
        ledger.acknowledged(old, Some(1), 90);
        ledger.acknowledged(changed, Some(2), 95);
        ledger.acknowledged(changed, Some(3), 110);
        ledger.acknowledged(new, Some(4), 120);
        let span = Span {
            from_ns: 100,
            to_ns: 200,
        };
        ledger.forgive(span);
        assert!(!ledger.is_held(new) && ledger.is_held(old));
        assert_eq!(judged(&mut ledger, old, None), Verdict::Lost);
        assert_eq!(judged(&mut ledger, changed, None), Verdict::Lost);
        assert_eq!(judged(&mut ledger, changed, read(2)), Verdict::Undone);
        assert_eq!(judged(&mut ledger, changed, read(3)), Verdict::Wrong);
        assert_eq!(judged(&mut ledger, new, None), Verdict::Undone);
        // What is acknowledged later stays.
        ledger.acknowledged(new, Some(5), 300);
        ledger.forgive(span);
        assert_eq!(judged(&mut ledger, new, None), Verdict::Lost);
    }
}
