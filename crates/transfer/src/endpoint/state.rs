//! The engine's core with what its keys stand for: memories, connections, and who waits.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larder_types::Incarnation;
use larder_wire::engine::{Changes, Notice};
use slotmap::SecondaryMap;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

use super::control::Control;
use super::error::CallError;
use super::flight::{Flight, Stage};
use super::link::Link;
use super::options::EndpointOptions;
use super::pending::Seat;
use crate::OwnMemory;
use crate::engine::Outcome;
use crate::engine::buffers::{BufferKey, RegisterError};
use crate::engine::core::{Action, Core, Job, PeerKey, RequestKey, SliceEnd, SliceKey};
use crate::serve::Connections;

/// A peer's connections.
#[derive(Debug)]
pub(super) struct PeerLinks {
    pub(super) links: Vec<Rc<Link>>,
    pub(super) control: Rc<Control>,
    pub(super) incarnation: Incarnation,
    pub(super) tasks: Vec<AbortHandle>,
}

/// All of it; owned by one thread.
#[derive(Debug)]
pub(super) struct State {
    pub(super) core: Core,
    pub(super) memories: SecondaryMap<BufferKey, Arc<OwnMemory>>,
    pub(super) peers: SecondaryMap<PeerKey, PeerLinks>,
    /// Which process has which session here, of those that are served.
    pub(super) sessions: BTreeMap<u64, Incarnation>,
    pub(super) flights: SecondaryMap<SliceKey, Flight>,
    waiters: SecondaryMap<RequestKey, Rc<Seat>>,
    notices: VecDeque<Notice>,
    /// The actions that are being done; kept for its room.
    batch: Vec<Action>,
    /// When the driver looks again, in ns.
    armed_ns: u64,
    /// A buffer has gone, and nobody was told yet.
    has_gone: bool,
}

/// What the tasks of an endpoint share.
#[derive(Debug)]
pub(super) struct Shared {
    state: RefCell<State>,
    pub(super) options: EndpointOptions,
    pub(super) connections: Connections,
    start: Instant,
    /// There is something to do sooner than was thought.
    sooner: Notify,
    /// A buffer has gone.
    gone: Notify,
    /// A notice has come.
    noticed: Notify,
}

impl Shared {
    pub(super) fn new(options: EndpointOptions) -> Self {
        let state = State {
            core: Core::new(options.limits),
            memories: SecondaryMap::new(),
            peers: SecondaryMap::new(),
            sessions: BTreeMap::new(),
            flights: SecondaryMap::new(),
            waiters: SecondaryMap::new(),
            notices: VecDeque::new(),
            batch: Vec::new(),
            armed_ns: u64::MAX,
            has_gone: false,
        };
        Self {
            state: RefCell::new(state),
            connections: Connections::new(options.connections_max),
            options,
            start: Instant::now(),
            sooner: Notify::new(),
            gone: Notify::new(),
            noticed: Notify::new(),
        }
    }

    /// Runs `f` on the state at the present time, in ns, and does what follows from it. `f` cannot
    /// wait, and must not call `with` again.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut State, u64) -> R) -> R {
        let now_ns = self.ns_of(Instant::now());
        let mut state = self.state.borrow_mut();
        let result = f(&mut state, now_ns);
        state.act(now_ns);
        if std::mem::take(&mut state.has_gone) {
            self.gone.notify_waiters();
        }
        if state
            .core
            .wakes_at()
            .is_some_and(|at_ns| at_ns < state.armed_ns)
        {
            self.sooner.notify_one();
        }
        result
    }

    /// Looks at the state, from which nothing follows. `f` must not call this or `with`.
    pub(super) fn look<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.state.borrow())
    }

    /// A time as the core is told it, in ns.
    pub(super) fn ns_of(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.start).as_nanos();
        u64::try_from(since).unwrap_or(u64::MAX)
    }

    pub(super) async fn unregister(&self, key: BufferKey) -> Result<(), RegisterError> {
        let is_idle = self.with(|state, _| {
            let is_idle = state.core.buffers.unregister(key)?;
            if is_idle {
                state.memories.remove(key);
            }
            Ok::<_, RegisterError>(is_idle)
        })?;
        if is_idle {
            return Ok(());
        }
        loop {
            let gone = self.gone.notified();
            if self.look(|state| !state.memories.contains_key(key)) {
                return Ok(());
            }
            gone.await;
        }
    }

    /// Takes a notice in; false: there is no room.
    pub(super) fn take_notice(&self, notice: Notice) -> bool {
        let notices_max = self.options.notices_max;
        let has_room = self.with(|state, _| {
            let has_room = state.notices.len() < notices_max;
            if has_room {
                state.notices.push_back(notice);
            }
            has_room
        });
        self.noticed.notify_one();
        has_room
    }

    pub(super) async fn notice(&self) -> Notice {
        loop {
            let next = self.with(|state, _| {
                let next = state.notices.pop_front();
                (next, !state.notices.is_empty())
            });
            match next {
                (Some(notice), has_more) => {
                    if has_more {
                        // Another one may wait for it.
                        self.noticed.notify_one();
                    }
                    return notice;
                }
                (None, _) => self.noticed.notified().await,
            }
        }
    }

    /// Takes in what a peer said of its buffers in this life. False: it has another one by now.
    pub(super) fn described(
        &self,
        peer: PeerKey,
        life: Option<Incarnation>,
        changes: Changes,
    ) -> Result<bool, CallError> {
        self.with(|state, _| {
            let links = state.peers.get(peer).ok_or(CallError::NoPeer)?;
            let is_present = life == Some(links.incarnation);
            if is_present {
                state.core.described(peer, changes)?;
            }
            Ok(is_present)
        })
    }

    /// Compares the process that answers with the one that was known. True: it is the same.
    pub(super) fn is_same_life(&self, peer: PeerKey, found: Incarnation) -> bool {
        self.with(|state, now_ns| {
            let Some(links) = state.peers.get_mut(peer) else {
                return false;
            };
            let is_same = links.incarnation == found;
            links.incarnation = found;
            if !is_same {
                // Registrations of one life mean nothing in the other, but look alike.
                links.links.iter().for_each(|link| link.cut());
                state.core.restarted(peer, now_ns);
            }
            is_same
        })
    }

    pub(super) fn keep_task(&self, peer: PeerKey, task: AbortHandle) {
        let homeless = self.with(|state, _| match state.peers.get_mut(peer) {
            Some(links) => {
                links.tasks.push(task);
                None
            }
            None => Some(task),
        });
        if let Some(task) = homeless {
            task.abort();
        }
    }

    pub(super) fn close(&self, peer: PeerKey) {
        let links = self.with(|state, now_ns| {
            state.core.close(peer, now_ns);
            // What it still had under way has been stopped by now.
            state.act(now_ns);
            state.peers.remove(peer)
        });
        links.iter().for_each(PeerLinks::end);
    }

    /// Closes all peers: whoever waits for a transfer hears of its end.
    pub(super) fn close_all(&self) {
        let all: Vec<PeerKey> = self.look(|state| state.peers.keys().collect());
        all.into_iter().for_each(|peer| self.close(peer));
    }
}

impl PeerLinks {
    fn end(&self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl State {
    /// Does what the core has decided.
    fn act(&mut self, now_ns: u64) {
        loop {
            let mut batch = std::mem::take(&mut self.batch);
            batch.extend(self.core.actions());
            if batch.is_empty() {
                self.batch = batch;
                return;
            }
            for action in batch.drain(..) {
                match action {
                    Action::Send(key, job) => self.send(key, job, now_ns),
                    Action::Stop(key) => self.end(key, SliceEnd::Stopped, now_ns),
                    Action::Ended(request, outcome) => self.tell(request, outcome),
                    Action::Released(buffer) => {
                        self.memories.remove(buffer);
                        self.has_gone = true;
                    }
                }
            }
            self.batch = batch;
        }
    }

    fn send(&mut self, key: SliceKey, job: Job, now_ns: u64) {
        let links = self.peers.get(job.peer);
        let link = links.and_then(|links| links.links.get(job.rail));
        let memory = self.memories.get(job.buffer);
        let (Some(link), Some(memory)) = (link, memory) else {
            self.core.ended(key, SliceEnd::RailFailed, now_ns);
            return;
        };
        link.line_up(key, |key| self.flights.contains_key(key));
        let flight = Flight {
            job,
            memory: Arc::clone(memory),
            stage: Stage::Waits,
        };
        self.flights.insert(key, flight);
    }

    fn tell(&mut self, request: RequestKey, outcome: Outcome) {
        // Nobody waits for what was dropped.
        if let Some(seat) = self.waiters.remove(request) {
            seat.tell(outcome);
        }
    }

    /// Somebody waits for what comes of a request. It is told there and not kept under the
    /// request's key, which the next request may take the place of before anybody looks.
    pub(super) fn waits_for(&mut self, request: RequestKey) -> Rc<Seat> {
        let seat = Rc::new(Seat::default());
        self.waiters.insert(request, Rc::clone(&seat));
        seat
    }

    /// Nobody looks any more.
    pub(super) fn abandon(&mut self, request: RequestKey, now_ns: u64) {
        if self.waiters.remove(request).is_some() {
            self.core.cancel(request, now_ns);
        }
    }
}

/// Tells the core when its time has come.
pub(super) async fn drive(shared: Rc<Shared>) {
    loop {
        let wakes_at = shared.with(|state, now_ns| {
            state.core.tick(now_ns);
            let wakes_at = state.core.wakes_at();
            state.armed_ns = wakes_at.unwrap_or(u64::MAX);
            wakes_at
        });
        let sooner = shared.sooner.notified();
        match wakes_at {
            None => sooner.await,
            Some(at_ns) => {
                let at = shared.start + Duration::from_nanos(at_ns);
                tokio::select! {
                    () = sooner => {}
                    () = sleep_until(at) => {}
                }
            }
        }
    }
}

#[cfg(test)]
impl Shared {
    /// Whether nothing is under way and nobody waits.
    pub(super) fn is_at_rest(&self) -> bool {
        self.look(|state| state.flights.is_empty() && state.waiters.is_empty())
    }
}
