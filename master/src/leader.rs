//! The owner of the pool's metadata while this master leads: one task, told everything by events.
//!
//! A turn takes what is waiting, decides each item, proposes all ops as one entry, applies what is
//! committed, answers, and hands each connection its bytes once. Nothing else touches the state.

mod admin;
mod agents;
mod answers;
mod commit;
mod decide;
mod events;
mod peers;
mod prepare;
mod quotas;
mod rules;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use larder_store::{Command, Leader, Op, State};
use larder_types::{AgentId, AgentName, Epoch, PoolTime, TenantId};
use larder_wire::{Refused, RefusedReason};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::mpsc;

use crate::agents::AgentTable;
use crate::calls::CallTable;
use crate::clock::PoolClock;
use crate::event::Event;
use crate::events::Events;
use crate::line::Line;
use crate::log::Log;
use crate::metrics::MasterMetrics;
use crate::rpc::Desk;
use crate::session::Links;
pub(crate) use rules::{Ended, Keys, Rules};

/// The most items decided and ops applied in one turn, but for one slice of a call: at up to 3 us
/// each no turn is longer than 5 ms.
const TURN_ITEMS: usize = 1_024;
/// With so many items in line no more calls are taken in.
const LINE_MAX: usize = 65_536;
/// The most events taken from the channel at once.
const TURN_EVENTS: usize = 256;
/// The longest time between two ticks, in ms. An idle master wakes four times a second.
const TICK_MS_MAX: u64 = 250;
/// The deadline of a call that names none, in ms.
const DEADLINE_MS: u64 = 5_000;
/// While the log has no room, or nobody may be told anything, it is looked again this often, in ms.
const CLOSED_MS: u64 = 5;
/// The longest deadline that a call may ask for, in ms.
const DEADLINE_MS_MAX: u64 = 60_000;

/// The state with its leader and log. Apart from [`Leading`], so that answers can be made from it
/// while a connection is written to.
struct Core<L> {
    state: State,
    leader: Leader,
    log: L,
    random: SmallRng,
    now: PoolTime,
    /// What the next entry will hold.
    entry: Vec<Op>,
    /// Its size, estimated from above, in bytes.
    entry_bytes: usize,
    /// The index of the last entry that is committed and applied.
    committed: u64,
    rules: Rules,
    keys: Keys,
}

impl<L> Core<L> {
    fn epoch(&self) -> Epoch {
        self.leader.epoch()
    }

    fn desk<'a>(&'a self, agents: &'a AgentTable) -> Desk<'a> {
        Desk {
            epoch: self.epoch(),
            now: self.now,
            state: &self.state,
            agents,
            replica_factor: self.rules.replica_factor,
            session_key: self.keys.session_key,
            heartbeat_ms: self.rules.heartbeat_ms(),
            signer: &self.keys.signer,
        }
    }
}

/// A master that leads.
pub(crate) struct Leading<L> {
    core: Core<L>,
    clock: PoolClock,
    metrics: MasterMetrics,
    links: Links,
    agents: AgentTable,
    /// Agents that may have heard of this epoch from this life. As many as nodes, since each name
    /// was proven.
    told: BTreeSet<AgentName>,
    calls: CallTable,
    line: Line,
    /// Cache events, if somebody may want them.
    events: Option<Events>,
    /// Commands of this turn.
    commands: BTreeMap<AgentId, Vec<Command>>,
    /// Tenants whose sessions end with this turn.
    tenants_gone: Vec<TenantId>,
    /// Items decided and ops applied in this turn.
    touched: usize,
    next_tick: PoolTime,
    /// The version of the pool that was proposed last.
    raised: u32,
    /// What was decided is not told yet: it is not certain that nobody else leads.
    is_held: bool,
    /// An agent knows a higher epoch of this generation, since this mark of the log.
    outdone: Option<(Epoch, u64)>,
    ended: Option<Ended>,
}

impl<L: Log> Leading<L> {
    /// A leader that takes over `state`, which has everything that was committed before `term`.
    pub(crate) fn new(
        term: u64,
        state: State,
        rules: Rules,
        keys: Keys,
        log: L,
        metrics: MasterMetrics,
        clock: PoolClock,
    ) -> Self {
        let now = clock.now();
        let epoch = Epoch {
            generation: state.generation(),
            term,
        };
        let mut leader = Leader::new(&state, epoch, rules.settings.clone(), now);
        if state.agents().next().is_none() {
            leader = leader.unheard(now);
        }
        let random = SmallRng::seed_from_u64(rules.seed);
        // Of what came before, whoever led then has waited for the end.
        let (entry, entry_bytes, committed) = (Vec::new(), 0, log.next_index() - 1);
        Self {
            core: Core {
                state,
                leader,
                log,
                random,
                now,
                entry,
                entry_bytes,
                committed,
                rules,
                keys,
            },
            clock,
            metrics,
            links: Links::default(),
            agents: AgentTable::default(),
            told: BTreeSet::new(),
            calls: CallTable::default(),
            line: Line::default(),
            events: None,
            commands: BTreeMap::new(),
            tenants_gone: Vec::new(),
            touched: 0,
            next_tick: now,
            raised: 0,
            is_held: false,
            outdone: None,
            ended: None,
        }
    }

    /// The epoch in which it leads.
    pub(crate) fn epoch(&self) -> Epoch {
        self.core.epoch()
    }

    /// Leads until something ends it; returns what a standby goes on with. Every connection has
    /// been told why when this returns.
    pub(crate) async fn run(
        mut self,
        events: &mut mpsc::Receiver<Event>,
        mut stop: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
        leader: impl Fn() -> Option<String>,
    ) -> (Ended, L, State) {
        let mut taken = Vec::with_capacity(TURN_EVENTS);
        let mut backlog = VecDeque::new();
        loop {
            let is_open = self.is_open();
            let is_full =
                !backlog.is_empty() || self.calls.has_woken() || self.line.len() >= LINE_MAX;
            let is_busy = is_full || self.line.len() > 0;
            let pause = match (is_open, is_busy) {
                (false, _) => Duration::from_millis(CLOSED_MS),
                (true, true) => Duration::ZERO,
                (true, false) => self.pause(),
            };
            let is_full = is_full || !is_open;
            // In this order, so that a run follows from its seed. Nobody starves: a turn takes all
            // that is committed, and decides on what came before.
            tokio::select! {
                biased;
                () = &mut stop => self.ended = Some(Ended::Stopped),
                entry = poll_fn(|context| self.core.log.poll_committed(context)) => match entry {
                    Ok(entry) => self.commit(entry),
                    Err(error) => self.ended = Some(Ended::Log(error)),
                },
                // Zero events: all senders are gone, nobody is left to serve.
                count = events.recv_many(&mut taken, TURN_EVENTS), if !is_full => {
                    if count == 0 {
                        self.ended = Some(Ended::Stopped);
                    }
                }
                () = tokio::time::sleep(pause) => {}
            }
            backlog.extend(taken.drain(..));
            self.turn(&mut backlog);
            if let Some(ended) = self.ended.take() {
                self.say_farewell(&ended, leader());
                return (ended, self.core.log, self.core.state);
            }
        }
    }

    /// Whether anything new is decided: the log takes what would come of it, and what was decided
    /// can be told.
    fn is_open(&self) -> bool {
        self.core.log.has_room() && !self.is_held
    }

    /// How long nothing is to be done unless something happens.
    fn pause(&self) -> Duration {
        let deadline = self.calls.next_deadline().unwrap_or(self.next_tick);
        let wait = self.events.as_ref().and_then(Events::next_end);
        let next = if self.goes_on() {
            self.core.now
        } else {
            deadline.min(self.next_tick)
        };
        let next = wait.map_or(next, |wait| wait.min(next));
        // One more: a sleep that ends within the millisecond before would turn in circles.
        Duration::from_millis(next.since_ms(self.clock.now()) + 1)
    }

    /// One turn.
    fn turn(&mut self, events: &mut VecDeque<Event>) {
        self.core.now = self.clock.now();
        self.touched = 0;
        // A process that was paused finds out before it says anything.
        self.is_held = !self.core.log.is_certain();
        // First: at its deadline such an item says what it waited for, not that time is over.
        self.refuse_space();
        while let Some((id, call)) = self.calls.next_late(self.core.now) {
            self.answer(id, call);
        }
        self.end_waits();
        self.judge_outdone();
        if !self.is_open() {
            // Also what it does on its own would only wait, without a bound. And agents are not
            // judged for a silence in which nobody was heard.
        } else if self.core.now >= self.next_tick {
            self.tick();
        } else if self.goes_on() {
            self.go_on();
        }
        if self.is_open() {
            self.serve_line();
            self.decide_woken(self.core.rules.settings.slice_items);
        }
        while self.touched < TURN_ITEMS
            && self.line.len() < LINE_MAX
            && self.ended.is_none()
            && self.is_open()
        {
            let Some(event) = events.pop_front() else {
                break;
            };
            self.hear(event);
        }
        self.settle();
        self.flush();
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Opened(opened) => self.open(opened),
            Event::Called(called) => self.call(called),
            Event::Closed(connection) => self.close(connection),
            Event::Asked(ask, reply) => self.ask(ask, reply),
        }
    }

    fn tick(&mut self) {
        let mut ops = self.core.leader.tick(&self.core.state, self.core.now);
        ops.extend(self.agreed_version());
        let effects = self.core.leader.take_effects();
        self.route(effects);
        let goes_on = |op: &Op| matches!(op, Op::TenantPurge { .. } | Op::SegmentSwept { .. });
        let is_purging = ops.iter().any(goes_on);
        self.touched += ops.len();
        self.propose(ops);
        // A purge or a sweep goes on in the next turn, not in a quarter of a second.
        let tick_ms = if is_purging {
            0
        } else {
            self.core.rules.tick_ms()
        };
        self.next_tick = self.core.now.plus_ms(tick_ms);
    }

    /// From now on the log may hold what all masters have come to know. Told to nobody: it stands
    /// before whatever depends on it.
    fn agreed_version(&mut self) -> Option<Op> {
        let version = self.core.log.release();
        let is_higher = version > self.core.state.version().max(self.raised);
        is_higher.then(|| {
            self.raised = version;
            let op = Op::PoolVersion { version };
            self.core
                .leader
                .touch_all(&self.core.state, std::slice::from_ref(&op));
            op
        })
    }

    /// Whether something need not wait for the next tick.
    fn goes_on(&self) -> bool {
        self.core.leader.turn_goes_on() || self.core.leader.has_moves()
    }

    /// Evicts on, and begins copies: each that ends makes room for another.
    fn go_on(&mut self) {
        let core = &mut self.core;
        let mut ops = Vec::new();
        if core.leader.turn_goes_on() {
            ops.extend(core.leader.evict(&core.state, core.now));
        }
        if core.leader.has_moves() {
            ops.extend(core.leader.moves(&core.state, core.now));
        }
        let effects = core.leader.take_effects();
        self.touched += ops.len();
        self.propose(ops);
        self.route(effects);
    }

    fn say_farewell(&mut self, ended: &Ended, leader: Option<String>) {
        let refused = match ended {
            Ended::Stopped => Refused::new(RefusedReason::Stopping, "the master stops"),
            Ended::StartOver { .. } => Refused::new(
                RefusedReason::Stopping,
                "the pool starts over under a higher generation",
            ),
            Ended::Corrupt(_) => Refused::new(
                RefusedReason::Stopping,
                "the master stops after a fault; its log says more",
            ),
            Ended::Log(_) => {
                let mut refused = Refused::new(RefusedReason::NotLeader, "another master leads");
                refused.leader_addr = leader;
                refused
            }
        };
        // Nothing may be told that is not certain, not even now.
        if self.is_held || !self.core.log.is_certain() {
            self.links.forget_unsent();
        }
        self.links.close_all(&refused);
        self.links.flush();
        self.metrics.forget_all();
        if let Some(events) = &mut self.events {
            events.forget_all();
        }
    }
}
