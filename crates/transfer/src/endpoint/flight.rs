//! Slices under way: how far each is, and what ends with it.

use std::rc::Rc;
use std::sync::Arc;

use super::link::Link;
use super::state::State;
use crate::OwnMemory;
use crate::engine::core::{Job, PeerKey, SliceEnd, SliceKey};

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

impl State {
    /// A slice under way, as long as its buffer may be touched.
    pub(super) fn flight(&self, key: SliceKey) -> Option<&Flight> {
        self.flights.get(key)
    }

    /// A slice goes on to its next stage. False: it is not wanted any more.
    pub(super) fn advance(&mut self, key: SliceKey, stage: Stage) -> bool {
        let Some(flight) = self.flights.get_mut(key) else {
            return false;
        };
        let is_first = flight.stage == Stage::Waits;
        flight.stage = stage;
        let job = flight.job;
        if is_first && let Some(link) = self.link(&job) {
            link.begun();
        }
        true
    }

    /// A slice has ended; from here on nothing touches its buffer.
    pub(super) fn end(&mut self, key: SliceKey, end: SliceEnd, now_ns: u64) {
        if self.remove(key).is_some() {
            self.core.ended(key, end, now_ns);
        }
    }

    /// A connection broke: so did all that was under way on it.
    pub(super) fn fail(&mut self, peer: PeerKey, rail: usize, now_ns: u64) {
        let of_rail = |(key, flight): (SliceKey, &Flight)| {
            (flight.job.peer == peer && flight.job.rail == rail).then_some(key)
        };
        let failed: Vec<SliceKey> = self.flights.iter().filter_map(of_rail).collect();
        for key in failed {
            self.end(key, SliceEnd::RailFailed, now_ns);
        }
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
