//! A request while it lives: which of its slices have gone, which are left, and what became of each
//! transfer. Pure.

use super::core::{PeerKey, SliceKey};
use super::plan::{Qos, Slice, Transfer};
use super::queue::Ticket;

/// Why the bytes of a transfer are not where they should be. They may be there in part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The time ran out.
    #[error("the deadline passed")]
    DeadlinePassed,
    /// The caller does not want it any more.
    #[error("it was cancelled")]
    Cancelled,
    /// Every rail that was tried broke.
    #[error("{tries} tries failed, each by the fault of a rail; look at the rails of that peer")]
    RailsFailed {
        /// How many.
        tries: u32,
    },
    /// No rail connects the two places.
    #[error("no rail connects the two buffers")]
    NoRail,
    /// The peer refused it.
    #[error("the peer refused it: {0}")]
    Refused(super::buffers::Refusal),
    /// The peer was closed.
    #[error("the peer was closed")]
    PeerGone,
    /// The peer was started anew since it was asked what is registered there.
    #[error("the peer was started anew; ask what is registered there now")]
    PeerRestarted,
}

impl Failure {
    /// Whether the same may succeed when it is asked for again.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        match self {
            Self::DeadlinePassed | Self::RailsFailed { .. } | Self::PeerRestarted => true,
            Self::Refused(refusal) => refusal.is_retryable(),
            Self::Cancelled | Self::NoRail | Self::PeerGone => false,
        }
    }
}

/// When what happened to a request, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// It was asked for.
    pub asked_ns: u64,
    /// Its first slice was sent; `None`: none was.
    pub sent_ns: Option<u64>,
    /// Its last slice had ended.
    pub ended_ns: u64,
    /// Slices that were sent.
    pub slices: u32,
    /// Of these, how many were sent once more.
    pub retries: u32,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// By transfer, in the order in which they were asked for.
    pub transfers: Vec<Result<(), Failure>>,
    /// When what happened.
    pub timeline: Timeline,
}

/// A slice that has to go once more, and the rails that failed it, a bit each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    pub(super) slice: Slice,
    pub(super) failed_on: u64,
    pub(super) tries: u32,
}

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) peer: PeerKey,
    pub(super) qos: Qos,
    pub(super) transfers: Vec<Transfer>,
    /// Bytes of each transfer that have not ended.
    left: Vec<u64>,
    failed: Vec<Option<Failure>>,
    slices: Vec<Slice>,
    next: usize,
    again: Vec<Again>,
    pub(super) flying: Vec<SliceKey>,
    /// Its place in line, if it waits there.
    pub(super) ticket: Option<Ticket>,
    /// Nothing of it is sent any more.
    over: Option<Failure>,
    pub(super) timeline: Timeline,
}

impl Request {
    pub(super) fn new(
        peer: PeerKey,
        qos: Qos,
        transfers: Vec<Transfer>,
        slices: Vec<Slice>,
        now_ns: u64,
    ) -> Self {
        Self {
            peer,
            qos,
            left: transfers.iter().map(|transfer| transfer.bytes).collect(),
            failed: vec![None; transfers.len()],
            transfers,
            slices,
            next: 0,
            again: Vec::new(),
            flying: Vec::new(),
            ticket: None,
            over: None,
            timeline: Timeline {
                asked_ns: now_ns,
                ..Timeline::default()
            },
        }
    }

    /// The slice that is next, without taking it. What failed goes first: the others wait for it.
    pub(super) fn peek(&self) -> Option<Again> {
        if self.over.is_some() {
            return None;
        }
        let fresh = || {
            let slice = *self.slices.get(self.next)?;
            Some(Again {
                slice,
                failed_on: 0,
                tries: 0,
            })
        };
        self.again.last().copied().or_else(fresh)
    }

    /// What [`Request::peek`] showed is under way.
    pub(super) fn advance(&mut self, slice: SliceKey, now_ns: u64) {
        self.timeline.sent_ns.get_or_insert(now_ns);
        self.timeline.slices += 1;
        self.flying.push(slice);
        if self.again.pop().is_some() {
            self.timeline.retries += 1;
        } else {
            self.next += 1;
        }
    }

    /// A slice is to go once more.
    pub(super) fn repeat(&mut self, again: Again) {
        self.again.push(again);
    }

    /// The bytes of a slice have ended, well or not.
    pub(super) fn settle(&mut self, slice: &Slice, failure: Option<Failure>) {
        let mut at = slice.local.offset_bytes;
        let end = at + slice.bytes;
        let first = slice.first as usize;
        for number in first..first + slice.count as usize {
            let (Some(transfer), Some(left)) =
                (self.transfers.get(number), self.left.get_mut(number))
            else {
                return;
            };
            let until = (transfer.local.offset_bytes + transfer.bytes).min(end);
            *left = left.saturating_sub(until - at);
            at = until;
            if let (Some(failure), Some(slot)) = (failure, self.failed.get_mut(number)) {
                slot.get_or_insert(failure);
            }
        }
    }

    /// Nothing of it is sent from now on; what has not gone failed by this.
    pub(super) fn give_up(&mut self, failure: Failure) {
        self.over.get_or_insert(failure);
    }

    /// Why nothing of it is sent any more, if so.
    pub(super) const fn over(&self) -> Option<Failure> {
        self.over
    }

    /// Whether all of it has ended.
    pub(super) fn is_done(&self) -> bool {
        self.flying.is_empty() && self.peek().is_none()
    }

    pub(super) fn into_outcome(mut self, now_ns: u64) -> Outcome {
        self.timeline.ended_ns = now_ns;
        let over = self.over;
        let each = self.left.into_iter().zip(self.failed);
        let transfers = each.map(|(left, failed)| match (failed, over) {
            (Some(failure), _) => Err(failure),
            (None, Some(failure)) if left > 0 => Err(failure),
            _ => Ok(()),
        });
        Outcome {
            transfers: transfers.collect(),
            timeline: self.timeline,
        }
    }
}
