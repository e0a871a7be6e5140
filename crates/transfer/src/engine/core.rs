//! The engine without its hands: told what is asked and what became of slices, it says which slice
//! goes which way, which is to stop, and what came of each request. Pure.
//!
//! Nothing waits for the caller to look: each event brings on what follows from it. A buffer is
//! held until the last slice on it has ended, so a request that is cancelled or late ends only when
//! nothing of it is under way any more. Each peer has a queue of its own, so none waits for
//! another, and nothing leaves it before a rail has room: what waits is shared by class and tenant,
//! and only what is sent counts against a tenant's weight and limit.

mod dispatch;
mod model;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use slotmap::SlotMap;

use super::buffers::{Buffers, Changes, Mirror, MirrorError};
use super::plan::{Cut, Direction, Place, Qos, Transfer, plan};
use super::queue::Queue;
use super::rails::{End, Rails};
use super::request::{Again, Failure, Request};
use super::tenants::Tenants;

pub use model::{
    Action, CoreLimits, Job, PeerKey, Range, RequestKey, SliceEnd, SliceKey, SubmitError,
};
use model::{Flying, Peer};

/// The most transfers that go in one slice.
const JOINED_MAX: u32 = 64;
/// So often a slice is tried at most.
const TRIES_MAX: u32 = 4;
/// So many deadlines may be of requests that have ended, beyond as many as live.
const SLACK: usize = 64;

/// The engine.
#[derive(Debug)]
pub struct Core {
    limits: CoreLimits,
    /// What is registered here.
    pub buffers: Buffers,
    peers: SlotMap<PeerKey, Peer>,
    requests: SlotMap<RequestKey, Request>,
    flying: SlotMap<SliceKey, Flying>,
    /// Weights and limits of tenants.
    pub tenants: Tenants,
    /// By deadline. May name some that have ended.
    deadlines: BinaryHeap<Reverse<(u64, RequestKey)>>,
    /// When to look again, in ns, beside the next deadline.
    again_ns: Option<u64>,
    actions: Vec<Action>,
}

impl Core {
    /// An engine with nothing.
    #[must_use]
    pub fn new(limits: CoreLimits) -> Self {
        Self {
            limits,
            buffers: Buffers::new(limits.buffers),
            peers: SlotMap::with_key(),
            requests: SlotMap::with_key(),
            flying: SlotMap::with_key(),
            tenants: Tenants::default(),
            deadlines: BinaryHeap::new(),
            again_ns: None,
            actions: Vec::new(),
        }
    }

    /// What is to be done now, in order.
    pub fn actions(&mut self) -> impl Iterator<Item = Action> + '_ {
        self.actions.drain(..)
    }

    /// When to call [`Core::tick`] next, in ns; `None`: nothing waits for time.
    #[must_use]
    pub fn wakes_at(&self) -> Option<u64> {
        let deadline = self.deadlines.peek().map(|Reverse((at_ns, _))| *at_ns);
        [deadline, self.again_ns].into_iter().flatten().min()
    }

    /// Opens a peer that is reached by these rails.
    pub fn open(&mut self, rails: Rails) -> PeerKey {
        self.peers.insert(Peer {
            mirror: Mirror::default(),
            rails,
            queue: Queue::new(self.limits.queue),
            requests: BTreeSet::new(),
            is_closed: false,
        })
    }

    /// What is known of a peer's buffers.
    #[must_use]
    pub fn mirror(&self, peer: PeerKey) -> Option<&Mirror> {
        self.peers.get(peer).map(|peer| &peer.mirror)
    }

    /// The rails of a peer.
    #[must_use]
    pub fn rails(&self, peer: PeerKey) -> Option<&Rails> {
        self.peers.get(peer).map(|peer| &peer.rails)
    }

    /// Takes in what a peer said of its buffers.
    ///
    /// # Errors
    /// [`MirrorError`]; nothing is known of it then.
    pub fn described(&mut self, peer: PeerKey, changes: Changes) -> Result<(), MirrorError> {
        match self.peers.get_mut(peer) {
            Some(peer) => peer.mirror.take(changes, self.limits.peer_buffers),
            None => Ok(()),
        }
    }

    /// Closes a peer: its requests end, and what was known of it is gone with the last of them.
    pub fn close(&mut self, peer: PeerKey, now_ns: u64) {
        let Some(closed) = self.peers.get_mut(peer) else {
            return;
        };
        closed.is_closed = true;
        for request in closed.requests.clone() {
            self.give_up(request, Failure::PeerGone, now_ns);
        }
        self.forget(peer);
    }

    /// Another process answers for a peer: what was known of its buffers is of a former life.
    pub fn restarted(&mut self, key: PeerKey, now_ns: u64) {
        let Some(peer) = self.peers.get_mut(key) else {
            return;
        };
        peer.mirror = Mirror::default();
        for request in peer.requests.clone() {
            self.give_up(request, Failure::PeerRestarted, now_ns);
        }
    }

    /// Takes a request: all of its ranges go in one direction, between this process and one peer.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing is done.
    pub fn submit(
        &mut self,
        peer: PeerKey,
        direction: Direction,
        ranges: &[Range],
        qos: Qos,
        now_ns: u64,
    ) -> Result<RequestKey, SubmitError> {
        let open = self.peers.get(peer).filter(|peer| !peer.is_closed);
        let open = open.ok_or(SubmitError::NoPeer)?;
        let counts = [
            (ranges.len(), self.limits.transfers),
            (self.requests.len() + 1, self.limits.requests),
        ];
        if let Some((count, count_max)) = counts.into_iter().find(|(count, most)| count > most) {
            return Err(SubmitError::TooMany { count, count_max });
        }
        if ranges.is_empty() {
            return Err(SubmitError::Empty { number: 0 });
        }
        let mut transfers = Vec::with_capacity(ranges.len());
        for (number, range) in ranges.iter().enumerate() {
            transfers.push(self.resolve(open, direction, qos, (number, range))?);
        }
        let cut = Cut {
            slice_bytes: open.rails.slice_bytes(),
            transfers_max: JOINED_MAX,
        };
        let mut slices = Vec::new();
        let until_edge = |local: Place, remote: Place| {
            let here = self.buffers.until_edge(local);
            here.min(open.mirror.until_edge(remote))
        };
        plan(&transfers, cut, until_edge, &mut slices);
        let first_bytes = slices.first().map_or(0, |slice| slice.bytes);
        let request = Request::new(peer, qos, transfers, slices, now_ns);
        let key = self.requests.insert(request);
        self.admit(key, first_bytes).inspect_err(|_| {
            self.requests.remove(key);
        })?;
        self.pump(peer, now_ns);
        Ok(key)
    }

    /// Puts a new request in line, and holds its buffers.
    fn admit(&mut self, key: RequestKey, first_bytes: u64) -> Result<(), SubmitError> {
        let request = self.requests.get_mut(key).ok_or(SubmitError::NoPeer)?;
        let peer = self.peers.get_mut(request.peer);
        let peer = peer.ok_or(SubmitError::NoPeer)?;
        let (qos, owner) = (request.qos, (request.qos.class, request.qos.tenant));
        let ticket = peer.queue.push(owner, qos.deadline_ns, first_bytes, key);
        request.ticket = Some(ticket.map_err(|(full, _)| full)?);
        peer.requests.insert(key);
        for transfer in &request.transfers {
            // Resolved just now, and nothing has changed since.
            self.buffers.hold_number(transfer.local.registration);
        }
        self.deadlines.push(Reverse((qos.deadline_ns, key)));
        self.forget_deadlines();
        Ok(())
    }

    /// Drops deadlines of requests that have ended, when they are many.
    fn forget_deadlines(&mut self) {
        if self.deadlines.len() > 2 * self.requests.len() + SLACK {
            let live = &self.requests;
            self.deadlines
                .retain(|Reverse((_, key))| live.contains_key(*key));
        }
    }

    fn resolve(
        &self,
        peer: &Peer,
        direction: Direction,
        qos: Qos,
        (number, range): (usize, &Range),
    ) -> Result<Transfer, SubmitError> {
        let bytes = range.bytes;
        if bytes == 0 {
            return Err(SubmitError::Empty { number });
        }
        let local = self.buffers.place_of(range.local_address, bytes);
        let local = local.ok_or(SubmitError::NotLocal {
            number,
            address: range.local_address,
            bytes,
        })?;
        let remote = peer.mirror.find(range.remote_address, bytes);
        let (described, offset_bytes) = remote.ok_or(SubmitError::NotRemote {
            number,
            address: range.remote_address,
            bytes,
        })?;
        Ok(Transfer {
            direction,
            local,
            remote: Place {
                registration: described.registration,
                offset_bytes,
            },
            bytes,
            qos,
        })
    }

    /// Ends a request that nobody wants any more: what waits does not go, what is under way is
    /// stopped, and the request ends when nothing of it is.
    pub fn cancel(&mut self, request: RequestKey, now_ns: u64) {
        self.give_up(request, Failure::Cancelled, now_ns);
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ns: u64) {
        while let Some(Reverse((at_ns, request))) = self.deadlines.peek().copied() {
            if at_ns > now_ns {
                break;
            }
            self.deadlines.pop();
            self.give_up(request, Failure::DeadlinePassed, now_ns);
        }
        if self.again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.again_ns = None;
            let waits = |(key, peer): (PeerKey, &Peer)| (!peer.queue.is_empty()).then_some(key);
            let waiting: Vec<PeerKey> = self.peers.iter().filter_map(waits).collect();
            waiting.into_iter().for_each(|peer| self.pump(peer, now_ns));
        }
    }

    /// A slice has ended.
    pub fn ended(&mut self, key: SliceKey, end: SliceEnd, now_ns: u64) {
        let Some(flying) = self.flying.remove(key) else {
            return;
        };
        let rail = flying.underway.rail();
        let failed_on = flying.failed_on | 1_u64.checked_shl(rail as u32).unwrap_or(0);
        let peer_key = self
            .requests
            .get(flying.request)
            .map(|request| request.peer);
        if let Some(peer) = peer_key.and_then(|peer| self.peers.get_mut(peer)) {
            let of_rail = match end {
                SliceEnd::Done => End::Done,
                SliceEnd::RailFailed => End::RailFailed,
                SliceEnd::Refused(_) => End::Refused,
                SliceEnd::Stopped => End::Abandoned,
            };
            peer.rails.end(flying.underway, of_rail, now_ns);
        }
        if let Some(request) = self.requests.get_mut(flying.request) {
            request.flying.retain(|slice| *slice != key);
            let tries = flying.tries + 1;
            let over = request.over();
            match end {
                SliceEnd::Done => request.settle(&flying.slice, None),
                SliceEnd::RailFailed if over.is_none() && tries < TRIES_MAX => {
                    request.repeat(Again {
                        slice: flying.slice,
                        failed_on,
                        tries,
                    });
                }
                SliceEnd::RailFailed => {
                    let failure = over.unwrap_or(Failure::RailsFailed { tries });
                    request.settle(&flying.slice, Some(failure));
                }
                SliceEnd::Refused(refusal) => {
                    request.settle(&flying.slice, Some(Failure::Refused(refusal)));
                }
                SliceEnd::Stopped => {
                    let failure = over.unwrap_or(Failure::Cancelled);
                    request.settle(&flying.slice, Some(failure));
                }
            }
        }
        self.line_up(flying.request);
        self.end_if_done(flying.request, now_ns);
        if let Some(peer) = peer_key {
            self.pump(peer, now_ns);
        }
    }

    fn give_up(&mut self, key: RequestKey, failure: Failure, now_ns: u64) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        if request.over().is_some() {
            return;
        }
        request.give_up(failure);
        let (peer, ticket) = (self.peers.get_mut(request.peer), request.ticket.take());
        if let (Some(peer), Some(ticket)) = (peer, ticket) {
            peer.queue.remove(ticket);
        }
        let stops = request.flying.iter().map(|slice| Action::Stop(*slice));
        self.actions.extend(stops);
        self.end_if_done(key, now_ns);
    }

    fn end_if_done(&mut self, key: RequestKey, now_ns: u64) {
        let is_done = self.requests.get(key).is_some_and(Request::is_done);
        let Some(request) = is_done.then(|| self.requests.remove(key)).flatten() else {
            return;
        };
        let peer = request.peer;
        if let Some(found) = self.peers.get_mut(peer) {
            found.requests.remove(&key);
        }
        for transfer in &request.transfers {
            let buffer = self.buffers.key_of(transfer.local.registration);
            if let Some(buffer) = buffer.filter(|buffer| self.buffers.release(*buffer)) {
                self.actions.push(Action::Released(buffer));
            }
        }
        let outcome = request.into_outcome(now_ns);
        self.actions.push(Action::Ended(key, outcome));
        self.forget(peer);
    }

    /// Drops a peer that was closed, when nothing is left of it.
    fn forget(&mut self, peer: PeerKey) {
        let found = self.peers.get(peer);
        if found.is_some_and(|peer| peer.is_closed && peer.requests.is_empty()) {
            self.peers.remove(peer);
        }
    }
}
