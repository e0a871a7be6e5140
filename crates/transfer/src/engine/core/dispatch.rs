//! Which slice goes which way.

use crate::engine::buffers::Refusal;
use crate::engine::queue::Next;
use crate::engine::rails::Choice;
use crate::engine::request::{Again, Failure};

use super::model::Flying;
use super::{Action, Core, Job, PeerKey, RequestKey};

impl Core {
    /// Puts a request in line that has something to send and does not stand there.
    pub(super) fn line_up(&mut self, key: RequestKey) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        if request.ticket.is_some() {
            return;
        }
        let peer = self.peers.get_mut(request.peer);
        if let (Some(again), Some(peer)) = (request.peek(), peer) {
            let owner = (request.qos.class, request.qos.tenant);
            let (deadline_ns, bytes) = (request.qos.deadline_ns, again.slice.bytes);
            let ticket = peer.queue.readmit(owner, deadline_ns, bytes, key);
            request.ticket = Some(ticket);
        }
    }

    /// Sends what can go to a peer.
    pub(super) fn pump(&mut self, key: PeerKey, now_ns: u64) {
        while let Some(peer) = self.peers.get_mut(key)
            && !peer.queue.is_empty()
        {
            match peer.rails.choose(1, now_ns, |_| Some(1.0)) {
                Choice::Rail(_) => {}
                Choice::At(at_ns) => return self.look_again(at_ns),
                Choice::Busy => return,
                // It has no rail at all: whoever waits hears so.
                Choice::Nowhere => {
                    for request in peer.requests.clone() {
                        self.give_up(request, Failure::NoRail, now_ns);
                    }
                    return;
                }
            }
            match peer.queue.pop(&mut self.tenants, now_ns) {
                Next::Entry(request, _) => self.send(request, now_ns),
                Next::At(at_ns) => return self.look_again(at_ns),
                Next::Idle => return,
            }
        }
    }

    fn look_again(&mut self, at_ns: u64) {
        let sooner = self.again_ns.map_or(at_ns, |again_ns| again_ns.min(at_ns));
        self.again_ns = Some(sooner);
    }

    /// Sends the next slice of a request, which has left the line.
    fn send(&mut self, key: RequestKey, now_ns: u64) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        request.ticket = None;
        let Some(again) = request.peek() else {
            return;
        };
        let Some(peer) = self.peers.get_mut(request.peer) else {
            return;
        };
        let bytes = again.slice.bytes;
        // What failed it is left out as long as another has room.
        let is_new = |rail: usize| again.failed_on.checked_shr(rail as u32).unwrap_or(0) & 1 == 0;
        let mut choice = peer
            .rails
            .choose(bytes, now_ns, |rail| is_new(rail).then_some(1.0));
        if !matches!(choice, Choice::Rail(_)) {
            choice = peer.rails.choose(bytes, now_ns, |_| Some(1.0));
        }
        match choice {
            Choice::Rail(rail) => self.send_on(key, again, rail, now_ns),
            // One had room a moment ago, and nothing has happened since.
            Choice::Busy | Choice::At(_) | Choice::Nowhere => self.line_up(key),
        }
    }

    fn send_on(&mut self, key: RequestKey, again: Again, rail: usize, now_ns: u64) {
        let Some(request) = self.requests.get_mut(key) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(request.peer) else {
            return;
        };
        let slice = again.slice;
        let Some(buffer) = self.buffers.key_of(slice.local.registration) else {
            // It is held, so it is there.
            return;
        };
        let known = peer.mirror.epoch_of(slice.remote.registration);
        let Some(epoch) = known else {
            let failure = Failure::Refused(Refusal::StaleRegistration);
            return self.give_up(key, failure, now_ns);
        };
        let underway = peer.rails.begin(rail, slice.bytes, now_ns);
        let job = Job {
            peer: request.peer,
            rail,
            direction: slice.direction,
            buffer,
            offset_bytes: slice.local.offset_bytes,
            remote: slice.remote,
            epoch,
            bytes: slice.bytes,
            qos: request.qos,
        };
        let flying = self.flying.insert(Flying {
            request: key,
            slice,
            underway,
            failed_on: again.failed_on,
            tries: again.tries,
        });
        request.advance(flying, now_ns);
        self.actions.push(Action::Send(flying, job));
        self.line_up(key);
    }
}
