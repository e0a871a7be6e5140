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
        if let Some(again) = request.peek() {
            let owner = (request.qos.class, request.qos.tenant);
            let bytes = again.slice.bytes;
            let ticket = self
                .queue
                .readmit(owner, request.qos.deadline_ns, bytes, key);
            request.ticket = Some(ticket);
        }
    }

    /// Those that waited for a rail of this peer stand in line again.
    pub(super) fn unpark(&mut self, peer: PeerKey) {
        let Some(found) = self.peers.get_mut(peer) else {
            return;
        };
        for request in std::mem::take(&mut found.parked) {
            self.line_up(request);
        }
    }

    /// Sends what can go.
    pub(super) fn pump(&mut self, now_ns: u64) {
        if self.again_ns.is_some_and(|at_ns| at_ns <= now_ns) {
            self.again_ns = None;
            let parked = self
                .peers
                .iter()
                .filter(|(_, peer)| !peer.parked.is_empty());
            let parked: Vec<PeerKey> = parked.map(|(key, _)| key).collect();
            parked.into_iter().for_each(|peer| self.unpark(peer));
        }
        loop {
            match self.queue.pop(now_ns) {
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
        // What failed it is left out as long as there is another.
        let is_new = |rail: usize| again.failed_on.checked_shr(rail as u32).unwrap_or(0) & 1 == 0;
        let mut choice = peer
            .rails
            .choose(bytes, now_ns, |rail| is_new(rail).then_some(1.0));
        if matches!(choice, Choice::Nowhere | Choice::At(_)) && again.failed_on != 0 {
            choice = peer.rails.choose(bytes, now_ns, |_| Some(1.0));
        }
        match choice {
            Choice::Rail(rail) => self.send_on(key, again, rail, now_ns),
            Choice::Busy => peer.parked.push_back(key),
            Choice::At(at_ns) => {
                peer.parked.push_back(key);
                self.look_again(at_ns);
            }
            Choice::Nowhere => self.give_up(key, Failure::NoRail, now_ns),
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
