//! Slices under way: how far each is, and what ends with it.

use std::rc::Rc;
use std::sync::Arc;

use super::link::Link;
use super::state::State;
use crate::OwnMemory;
use crate::engine::core::{Job, PeerKey, SliceEnd, SliceKey};
use crate::engine::plan::Direction;

/// A slice under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) job: Job,
    pub(super) memory: Arc<OwnMemory>,
    pub(super) stage: Stage,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the line of its connection.
    Waits,
    /// Its bytes are on their way out of the buffer: what follows on the connection is the rest.
    Leaves,
    /// All that goes out has; its answer is due.
    Sent,
}

impl Flight {
    /// Whether the peer may do it after its connection broke here.
    fn may_be_done_later(&self) -> bool {
        self.job.direction == Direction::Write && self.stage != Stage::Waits
    }
}

impl State {
    /// A slice under way, as long as its buffer may be touched.
    pub(super) fn flight(&self, key: SliceKey) -> Option<&Flight> {
        self.flights.get(key)
    }

    /// A slice goes on to its next stage, if it is wanted still.
    pub(super) fn advance(&mut self, key: SliceKey, stage: Stage) {
        let Some(flight) = self.flights.get_mut(key) else {
            return;
        };
        let is_first = flight.stage == Stage::Waits;
        flight.stage = stage;
        let job = flight.job;
        if is_first && let Some(link) = self.link(&job) {
            link.begun();
        }
    }

    /// A slice has ended; from here on nothing touches its buffer.
    pub(super) fn end(&mut self, key: SliceKey, end: SliceEnd, now_ns: u64) {
        if self.remove(key).is_some() {
            self.core.ended(key, end, now_ns);
        }
    }

    /// A connection broke: so did what was under way on it. Writes of which something has left are
    /// kept back with `are_sure` unset, as the peer may still do them. True: some are kept.
    pub(super) fn fail(
        &mut self,
        (peer, rail): (PeerKey, usize),
        are_sure: bool,
        now_ns: u64,
    ) -> bool {
        let of_rail = |(key, flight): (SliceKey, &Flight)| {
            let is_of_rail = flight.job.peer == peer && flight.job.rail == rail;
            is_of_rail.then(|| (key, are_sure || !flight.may_be_done_later()))
        };
        let all: Vec<_> = self.flights.iter().filter_map(of_rail).collect();
        let mut has_kept = false;
        for (key, is_sure) in all {
            if is_sure {
                self.end(key, SliceEnd::RailFailed, now_ns);
            }
            has_kept |= !is_sure;
        }
        has_kept
    }

    fn remove(&mut self, key: SliceKey) -> Option<Flight> {
        let flight = self.flights.remove(key)?;
        if flight.stage != Stage::Waits
            && let Some(link) = self.link(&flight.job)
        {
            link.ended();
            if flight.stage == Stage::Leaves {
                // The peer waits for the rest of it, which does not come.
                link.cut();
            }
        }
        Some(flight)
    }

    fn link(&self, job: &Job) -> Option<&Rc<Link>> {
        self.peers.get(job.peer)?.links.get(job.rail)
    }
}
