//! Whether a stopping agent comes back: pure, told what the API server answers.
//!
//! A pool that is deleted and a node that leaves it end the same way: the CacheNode goes, the pod
//! is told to stop, and with the pool go the agent's rights. These come in no certain order, so an
//! agent asks for a few seconds before it believes that it is only restarted.

use crate::membership::Parting;

/// How long a CacheNode that is there may still go, in ms. An ordinary restart waits for that.
const PRESENT_MS: u64 = 3_000;
/// How long an answer of use is waited for, in ms.
const ANSWER_MS: u64 = 6_000;
/// Pause between two questions, in ms.
pub(crate) const PAUSE_MS: u64 = 500;
/// So many refusals in a row are no accident of an API server that is just starting: half of what
/// fits into [`ANSWER_MS`].
const DENIALS_MIN: u32 = 6;

/// An answer of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The CacheNode is there, and of this pool.
    Present,
    /// It is there, but of another pool of that name.
    OfAnother,
    /// It is gone or going.
    Gone,
    /// This agent may not ask.
    Denied,
    /// No answer of use.
    Silent,
}

/// The questions of one stop.
#[derive(Debug)]
pub(crate) struct Farewell {
    since: u64,
    /// Whether the agent was ever allowed to ask: rights that go are a pool that goes.
    was_allowed: bool,
    denials: u32,
}

impl Farewell {
    pub(crate) const fn new(now: u64, was_allowed: bool) -> Self {
        Self {
            since: now,
            was_allowed,
            denials: 0,
        }
    }

    /// Takes an answer; `None`: ask again after [`PAUSE_MS`].
    pub(crate) fn heard(&mut self, answer: Answer, now: u64) -> Option<Parting> {
        let waited_ms = now.saturating_sub(self.since);
        self.denials = match answer {
            Answer::Denied => self.denials + 1,
            _ => 0,
        };
        match answer {
            Answer::Gone => Some(Parting::Left),
            Answer::OfAnother => Some(Parting::Replaced),
            Answer::Present => {
                self.was_allowed = true;
                (waited_ms >= PRESENT_MS).then_some(Parting::Stays)
            }
            Answer::Denied if self.was_allowed && self.denials >= DENIALS_MIN => {
                Some(Parting::Left)
            }
            Answer::Denied | Answer::Silent => (waited_ms >= ANSWER_MS).then_some(Parting::Unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Answer::{Denied, Gone, OfAnother, Present, Silent};
    use super::*;

    /// What comes of these answers, the last of them repeated for ever, and after how long.
    fn end(was_allowed: bool, answers: &[Answer]) -> (Parting, u64) {
        let mut farewell = Farewell::new(1_000, was_allowed);
        let last = answers.last().copied().expect("an answer");
        let answers = answers.iter().copied().chain(std::iter::repeat(last));
        for (answer, turn) in answers.zip(0..1_000) {
            let now = 1_000 + turn * PAUSE_MS;
            if let Some(parting) = farewell.heard(answer, now) {
                return (parting, now - 1_000);
            }
        }
        panic!("it never ends")
    }

    #[test]
    fn what_the_answers_mean() {
        let cases = [
            (true, &[Gone][..], Parting::Left, 0),
            (true, &[Present, Present, Gone], Parting::Left, 1_000),
            (true, &[Silent, Gone], Parting::Left, 500),
            (true, &[Present], Parting::Stays, 3_000),
            (true, &[OfAnother], Parting::Replaced, 0),
            (true, &[Silent], Parting::Unknown, 6_000),
            (true, &[Present, Silent], Parting::Unknown, 6_000),
            // The rights went with the pool.
            (true, &[Denied], Parting::Left, 2_500),
            (false, &[Present, Denied], Parting::Left, 3_000),
            // There never were any: somebody forgot to give them.
            (false, &[Denied], Parting::Unknown, 6_000),
            // An API server that is just starting.
            (true, &[Denied, Denied, Present], Parting::Stays, 3_000),
            (
                true,
                &[Denied, Silent, Denied, Denied, Silent],
                Parting::Unknown,
                6_000,
            ),
        ];
        for (was_allowed, answers, parting, after_ms) in cases {
            assert_eq!(
                end(was_allowed, answers),
                (parting, after_ms),
                "{answers:?}"
            );
        }
    }
}
