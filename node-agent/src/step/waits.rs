//! Who waits for an answer: each command is answered as often as it was received.

use std::collections::BTreeMap;

use larder_types::{Extent, SlabRef, Version};
use larder_wire::agent::Event as Outcome;

/// The most receipts that wait for their answer. Most are answered within a turn of the data
/// thread; those that wait long are held by readers, of which there are fewer. At about 100 bytes
/// each, here and as an answer, this is 12 MiB.
const RECEIPTS_MAX: u32 = 65_536;
/// The longest reason that is sent to a master, in bytes: 1,024 of them in one message stay below
/// the longest frame.
const DETAIL_BYTES_MAX: usize = 512;

/// Too many commands wait for their answer.
#[derive(Debug)]
pub(super) struct TooMany;

/// What a received command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wait {
    Ready(SlabRef),
    Returned(SlabRef),
    // The slab is the first field of an extent, so that the erasures of one slab stand together.
    Released(Extent, Version),
}

/// Receipts without an answer, and answers that are not sent yet.
#[derive(Debug, Default)]
pub(super) struct Waits {
    receipts: BTreeMap<Wait, u32>,
    /// The sum of all receipts.
    total: u32,
    answers: Vec<Outcome>,
}

impl Waits {
    pub(super) fn receive(&mut self, wait: Wait) -> Result<(), TooMany> {
        if self.total >= RECEIPTS_MAX {
            return Err(TooMany);
        }
        self.total += 1;
        // Never more than the total.
        *self.receipts.entry(wait).or_insert(0) += 1;
        Ok(())
    }

    pub(super) fn answer(&mut self, wait: Wait) {
        for _ in 0..self.take(wait) {
            self.answers.push(match wait {
                Wait::Ready(slab) => Outcome::SlabReady { slab },
                Wait::Returned(slab) => Outcome::SlabReturned { slab },
                Wait::Released(extent, version) => Outcome::Released { extent, version },
            });
        }
    }

    /// Says something whose command names itself in its answer: who asked over a former link may
    /// hear it over this one. Bounded by the copies that the data side lets run.
    pub(super) fn tell(&mut self, outcome: Outcome) {
        self.answers.push(outcome);
    }

    /// Says that the slab cannot be given. What was said, if anybody waited.
    pub(super) fn fail(&mut self, slab: SlabRef, mut detail: String) -> Option<String> {
        let end = DETAIL_BYTES_MAX.min(detail.len());
        let end = (0..=end).rev().find(|end| detail.is_char_boundary(*end));
        detail.truncate(end.unwrap_or(0));
        let receipts = self.take(Wait::Ready(slab));
        for _ in 0..receipts {
            let detail = detail.clone();
            self.answers.push(Outcome::SlabFailed { slab, detail });
        }
        (receipts > 0).then_some(detail)
    }

    /// The slab has no memory any more: all who waited for that or for its extents are answered.
    pub(super) fn answer_gone(&mut self, slab: SlabRef) {
        self.answer(Wait::Returned(slab));
        let (offset_bytes, length_bytes) = (0, 0);
        let extent = Extent {
            slab,
            offset_bytes,
            length_bytes,
        };
        let lowest = Wait::Released(extent, Version::default());
        let from = self.receipts.range(lowest..).map(|(wait, _)| *wait);
        let erasures: Vec<Wait> = from
            .take_while(|wait| matches!(wait, Wait::Released(extent, _) if extent.slab == slab))
            .collect();
        for wait in erasures {
            self.answer(wait);
        }
    }

    pub(super) fn take_answers(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.answers)
    }

    fn take(&mut self, wait: Wait) -> u32 {
        let receipts = self.receipts.remove(&wait).unwrap_or(0);
        self.total = self.total.saturating_sub(receipts);
        receipts
    }
}
