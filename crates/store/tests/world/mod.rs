//! A world around the store: a test log, agents, parked requests, a standby that hears only ops.

pub(crate) mod agent;
mod calls;
mod heard;

use std::collections::{BTreeMap, BTreeSet};

use larder_store::snapshot::{Builder, Misfit, Walk};
use larder_store::{
    Decision, Effects, Leader, Op, Refusal, RemovalCause, Reply, Request, Settings, State,
    TenantPolicy, WaitOn, apply, check,
};
use larder_types::{Epoch, Extent, Key, PoolTime, Reason, SessionId, TenantId, Version};

use crate::test_log::{Entry, TestLog};
use agent::SimAgent;
pub(crate) use calls::{digest_of, end, receipts};
use heard::Heard;

pub(crate) type Answer = Result<Reply, Refusal>;

/// A request that waits.
struct Parked {
    ticket: u64,
    request: Request,
    on: WaitOn,
    /// Since when it waits for space, across wakes.
    space_since: Option<PoolTime>,
}

pub(crate) struct World {
    pub(crate) state: State,
    standby: State,
    pub(crate) leader: Leader,
    log: TestLog,
    pub(crate) now: PoolTime,
    settings: Settings,
    seed: u64,
    pub(crate) agents: Vec<SimAgent>,
    parked: Vec<Parked>,
    answers: BTreeMap<u64, Answer>,
    mounts: BTreeMap<u64, usize>,
    last_ticket: u64,
    last_version: Version,
    pub(crate) objects_lost: u64,
    /// What was evicted: the key and the version that it had.
    pub(crate) evicted: BTreeSet<(TenantId, Key, Version)>,
    /// Puts that were given up, by cause.
    pub(crate) discards: BTreeMap<&'static str, u64>,
    /// Whether agents now and then fail to make a slab.
    pub(crate) slabs_fail: bool,
    /// How often each op was committed, each wait begun and each reason given.
    pub(crate) seen: BTreeMap<String, u64>,
    checks: bool,
    /// What a follower of cache events believes.
    heard: Heard,
    /// Whether an administrator said where some agent is.
    relabelled: bool,
}

pub(crate) const SLAB: u64 = 2 * 1024 * 1024;

/// A state through a snapshot that is taken so many parts at a time.
pub(crate) fn restored(state: &State, parts_max: usize) -> Result<State, Misfit> {
    let (mut walk, mut builder) = (Walk::default(), Builder::default());
    loop {
        let parts = walk.next(state, parts_max);
        assert!(parts.len() <= parts_max);
        if parts.is_empty() {
            return builder.finish();
        }
        parts.into_iter().try_for_each(|part| builder.take(part))?;
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a tenant id")
}

pub(crate) fn key(text: &str) -> Key {
    Key::try_from(text).expect("a key")
}

pub(crate) const SESSION: SessionId = SessionId(1);

impl World {
    /// A leader and agents that are not mounted yet, each with `slabs` slabs of 2 MiB. What is
    /// stored stays: nothing is evicted.
    pub(crate) fn new(seed: u64, agents: u32, slabs: u32) -> Self {
        let settings = Settings {
            evict: false,
            ..Settings::default()
        };
        Self::with_settings(settings, seed, agents, slabs)
    }

    pub(crate) fn with_settings(settings: Settings, seed: u64, agents: u32, slabs: u32) -> Self {
        let state = State::new(1);
        let epoch = Epoch {
            generation: 1,
            term: 1,
        };
        let now = PoolTime(1_000);
        Self {
            standby: state.clone(),
            leader: Leader::new(&state, epoch, settings.clone(), now),
            state,
            log: TestLog::default(),
            now,
            settings,
            seed,
            agents: (1..=agents)
                .map(|number| SimAgent::new(number, slabs, SLAB))
                .collect(),
            parked: Vec::new(),
            answers: BTreeMap::new(),
            mounts: BTreeMap::new(),
            last_ticket: 0,
            last_version: Version::default(),
            objects_lost: 0,
            evicted: BTreeSet::new(),
            discards: BTreeMap::new(),
            slabs_fail: false,
            seen: BTreeMap::new(),
            checks: true,
            heard: Heard::default(),
            relabelled: false,
        }
    }

    /// As [`Self::new`], with everything mounted and a tenant of each name without limits.
    pub(crate) fn ready(agents: u32, slabs: u32, tenants: &[&str]) -> Self {
        Self::new(7, agents, slabs).made_ready(tenants)
    }

    /// As [`Self::ready`], and the coldest goes when space or quota runs out.
    pub(crate) fn evicting(agents: u32, slabs: u32, tenants: &[&str]) -> Self {
        Self::with_settings(Settings::default(), 7, agents, slabs).made_ready(tenants)
    }

    fn made_ready(mut self, tenants: &[&str]) -> Self {
        self.settle();
        for name in tenants {
            self.set_tenant(name, TenantPolicy::default());
        }
        self
    }

    pub(crate) fn set_tenant(&mut self, name: &str, policy: TenantPolicy) {
        let request = Request::TenantSet {
            tenant: tenant(name),
            policy,
        };
        assert_eq!(self.answer(request), Ok(Reply::Done));
    }

    /// A number that looks random.
    pub(crate) fn lot(&mut self) -> u64 {
        draw(&mut self.seed)
    }

    /// Asks the leader; the ticket to find the answer by.
    pub(crate) fn ask(&mut self, request: Request) -> u64 {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        self.decide(ticket, request, None);
        ticket
    }

    fn decide(&mut self, ticket: u64, request: Request, space_since: Option<PoolTime>) {
        let mut seed = self.seed;
        let decision = self
            .leader
            .decide(&self.state, &request, self.now, &mut || draw(&mut seed));
        self.seed = seed;
        match decision {
            Decision::Reply {
                ops,
                reply,
                saw_index,
            } => {
                if let Reply::PutGranted { version, .. } = &reply {
                    assert!(*version > self.last_version, "versions count up");
                    self.last_version = *version;
                }
                let index = self.propose(ops).unwrap_or(saw_index);
                self.log.hold(ticket, index, reply);
            }
            Decision::Wait { ops, on, for_space } => {
                self.propose(ops);
                let space_since = if for_space {
                    space_since.or(Some(self.now))
                } else {
                    space_since
                };
                let kind = format!("{on:?}");
                self.note(format!(
                    "wait {}",
                    kind.split('(').next().unwrap_or_default()
                ));
                self.parked.push(Parked {
                    ticket,
                    request,
                    on,
                    space_since,
                });
            }
            Decision::Refused(refusal) => {
                self.note(refusal.reason.label().to_owned());
                self.deliver(ticket, Err(refusal));
            }
        }
        let effects = self.leader.take_effects();
        self.perform(effects);
    }

    fn note(&mut self, what: String) {
        *self.seen.entry(what).or_insert(0) += 1;
    }

    pub(crate) fn propose(&mut self, ops: Vec<Op>) -> Option<u64> {
        if ops.is_empty() {
            return None;
        }
        let index = self.log.propose(ops.clone());
        self.leader.proposed(index, &ops);
        Some(index)
    }

    fn perform(&mut self, effects: Effects) {
        assert_eq!(effects.corruption, None);
        self.objects_lost += effects.objects_lost;
        for (cause, count) in effects.discards.iter() {
            *self.discards.entry(cause.label()).or_insert(0) += count;
        }
        for (agent, command) in effects.commands {
            if let Some(agent) = self
                .agents
                .iter_mut()
                .find(|a| a.id == Some(agent) && a.connected)
            {
                agent.inbox.push_back(command);
            }
        }
        let woken: BTreeSet<WaitOn> = effects.wakes.into_iter().collect();
        let (woken, parked): (Vec<_>, Vec<_>) = self
            .parked
            .drain(..)
            .partition(|parked| woken.contains(&parked.on));
        self.parked = parked;
        woken
            .into_iter()
            .for_each(|p| self.decide(p.ticket, p.request, p.space_since));
    }

    /// Commits one entry at the leader and at the standby, and checks everything.
    pub(crate) fn commit(&mut self) -> bool {
        let Some(entry) = self.log.commit() else {
            return false;
        };
        for op in &entry.ops {
            let effects = self
                .leader
                .committed(&mut self.state, entry.index, op, self.now);
            self.heard.take(op, &effects);
            self.follow(op);
            self.perform(effects);
        }
        if self.checks && entry.index % 8 == 0 {
            self.restore_standby(entry.index);
        }
        true
    }

    /// The standby starts again from a snapshot, and follows on from there.
    fn restore_standby(&mut self, lot: u64) {
        let parts_max = usize::try_from(1 + lot % 7).expect("small");
        self.standby = restored(&self.standby, parts_max).expect("a whole snapshot");
        assert_eq!(check(&self.standby), []);
        // What is reserved on a lost segment does not matter to anybody.
        if self.state.lost_segments().next().is_none() {
            assert!(
                self.standby == self.state,
                "a snapshot is of the same state"
            );
        }
        self.note("restored".to_owned());
    }

    /// From now on nothing is checked after each op: for many objects.
    pub(crate) fn without_checks(&mut self) {
        self.checks = false;
    }

    /// Commits everything and checks once at the end: for many objects.
    pub(crate) fn commit_all_unchecked(&mut self) {
        self.checks = false;
        self.quiesce();
        self.checks = true;
        self.heard.check(&self.state);
        assert_eq!(check(&self.state), []);
        assert_eq!(self.standby.digest(), self.state.digest());
    }

    fn follow(&mut self, op: &Op) {
        assert_eq!(apply(&mut self.standby, op).corruption, None);
        self.note(op.name().to_owned());
        self.note_eviction(op);
        match op {
            Op::PutEnd { replicas, .. } if replicas.iter().any(|r| r.len() > 1) => {
                self.note("put in pieces".to_owned());
            }
            Op::ReplicaAdded { extents, .. } if extents.len() > 1 => {
                self.note("copied in pieces".to_owned());
            }
            _ => {}
        }
        self.relabelled |= matches!(op, Op::AgentLabels { .. });
        if !self.checks {
            return;
        }
        self.heard.check(&self.state);
        if !self.relabelled {
            self.check_hosts(format_args!("after {op:?}"));
        }
        assert_eq!(check(&self.state), [], "after {op:?}");
        assert_eq!(self.leader.check(&self.state), [], "after {op:?}");
        assert_eq!(self.standby.digest(), self.state.digest(), "after {op:?}");
    }

    /// No two replicas of an object are on one host, unless hosts got other names since.
    pub(crate) fn check_hosts(&self, when: std::fmt::Arguments<'_>) {
        let host = |extent: &Extent| self.state.agent(extent.slab.agent).map(|a| a.host());
        for (tenant, held) in self.state.tenants() {
            for (key, object) in held.objects().iter() {
                let replicas = object.replicas();
                let hosts: BTreeSet<_> = replicas.iter().map(|r| r.first().map(host)).collect();
                assert_eq!(
                    hosts.len(),
                    replicas.len(),
                    "hosts of {key} of {tenant} {when}"
                );
            }
        }
    }

    fn note_eviction(&mut self, op: &Op) {
        if let Op::Remove {
            tenant,
            key,
            version,
            cause: RemovalCause::Evicted,
        } = op
        {
            self.note("evicted".to_owned());
            let gone = (tenant.clone(), key.clone(), *version);
            self.evicted.insert(gone);
        }
    }

    /// Lets one answer leave.
    pub(crate) fn acknowledge(&mut self) -> bool {
        let lot = self.lot();
        let Some((ticket, reply)) = self.log.acknowledge(lot) else {
            return false;
        };
        self.deliver(ticket, Ok(reply));
        true
    }

    fn deliver(&mut self, ticket: u64, answer: Answer) {
        let Some(agent) = self.mounts.remove(&ticket) else {
            self.answers.insert(ticket, answer);
            return;
        };
        let state = &self.state;
        let agent = &mut self.agents[agent];
        if agent.mounting != Some(ticket) {
            return;
        }
        let Ok(Reply::Mounted {
            agent: id,
            segments,
            outstanding,
            wants_inventory: false,
        }) = answer
        else {
            agent.mounting = None;
            return;
        };
        agent.mounted(
            self.leader.epoch(),
            id,
            segments,
            outstanding,
            |extent, version| knows(state, extent, version),
        );
        // What was commanded between the decision and its answer is asked for again.
        agent.inbox = self.leader.outstanding(state, id).into();
    }

    pub(crate) fn taken(&mut self, ticket: u64) -> Option<Answer> {
        self.answers.remove(&ticket)
    }

    /// Mounts an agent that runs and is not mounted.
    pub(crate) fn mount(&mut self, agent: usize) {
        let sim = &mut self.agents[agent];
        if sim.up && !sim.connected && sim.mounting.is_none() {
            let request = sim.mount();
            self.last_ticket += 1;
            sim.mounting = Some(self.last_ticket);
            self.mounts.insert(self.last_ticket, agent);
            self.decide(self.last_ticket, request, None);
        }
    }

    /// The agent obeys one command and says one thing.
    pub(crate) fn step(&mut self, agent: usize) -> bool {
        let fails = self.slabs_fail && self.lot().is_multiple_of(8);
        let repeats = !fails && self.lot().is_multiple_of(4);
        let sim = &mut self.agents[agent];
        if !sim.up || !sim.connected {
            return false;
        }
        let obeyed = !sim.inbox.is_empty();
        let repeated = sim.inbox.front().filter(|_| repeats).cloned();
        sim.obey(fails);
        if let Some(command) = repeated {
            // Commands may come twice; so do the answers.
            sim.inbox.push_front(command);
            sim.obey(false);
        }
        let said = sim.outbox.pop_front();
        let spoke = said.is_some();
        let copies = !obeyed && !spoke && self.copy(agent);
        if let Some(request) = said {
            self.ask(request);
        }
        obeyed || spoke || copies
    }

    /// The agent ends one of its copies, not the oldest; whether it had one.
    fn copy(&mut self, agent: usize) -> bool {
        if self.agents[agent].copying.is_empty() {
            return false;
        }
        let fails = self.slabs_fail && self.lot().is_multiple_of(8);
        let lot = usize::try_from(self.lot() % 64).expect("small");
        let copying = &mut self.agents[agent].copying;
        let Some(at) = lot.checked_rem(copying.len()) else {
            return false;
        };
        let order = copying.swap_remove(at);
        let reads = |extent: &Extent| {
            let mut agents = self.agents.iter();
            let source = agents.find(|a| a.id == Some(extent.slab.agent) && a.up);
            source.is_some_and(|source| source.reads(extent, order.version))
        };
        let was_read = !fails && order.from.iter().all(reads);
        self.agents[agent].end_copy(&order, was_read);
        true
    }

    /// Whether a replica of this key is about to be one elsewhere.
    pub(crate) fn is_moving(&self, tenant: &TenantId, key: &Key) -> bool {
        let moves = |op: &Op| match op {
            Op::ReplicaAdded {
                tenant: t, key: k, ..
            } => t == tenant && k == key,
            _ => false,
        };
        self.log.proposed().any(moves)
    }

    /// The connection of an agent closes; `kills` ends the process too.
    pub(crate) fn disconnect(&mut self, agent: usize, kills: bool) {
        let sim = &mut self.agents[agent];
        sim.disconnect();
        sim.up &= !kills;
        if let Some(id) = sim.id {
            let incarnation = sim.incarnation;
            self.ask(Request::AgentGone {
                agent: id,
                incarnation,
            });
        }
    }

    /// Time passes in steps; agents that are connected send heartbeats.
    pub(crate) fn pass(&mut self, ms: u64) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(500);
            left -= step;
            self.now = self.now.plus_ms(step);
            for agent in 0..self.agents.len() {
                let sim = &self.agents[agent];
                if let Some(id) = sim.id.filter(|_| sim.up && sim.connected) {
                    let (incarnation, load_permille) = (sim.incarnation, sim.load_permille);
                    let ticket = self.ask(Request::Heartbeat {
                        agent: id,
                        incarnation,
                        load_permille,
                    });
                    if matches!(self.taken(ticket), Some(Err(_))) {
                        self.agents[agent].disconnect();
                    }
                }
            }
            self.give_up_on_space();
            let ops = self.leader.tick(&self.state, self.now);
            self.propose(ops);
            let effects = self.leader.take_effects();
            self.perform(effects);
        }
    }

    /// Who waited for space as long as it may hears so.
    fn give_up_on_space(&mut self) {
        let (now, most_ms) = (self.now, self.settings.space_wait_ms);
        let late = |parked: &Parked| {
            let since = parked.space_since;
            since.is_some_and(|since| now.since_ms(since) >= most_ms)
        };
        let (late, parked): (Vec<_>, Vec<_>) = self.parked.drain(..).partition(late);
        self.parked = parked;
        for Parked { ticket, .. } in late {
            let refusal = self.leader.space_refusal(&self.state);
            self.deliver(ticket, Err(refusal));
        }
    }

    /// The leader is gone; of what it proposed, `keep` entries reached the next one.
    pub(crate) fn fail_over(&mut self, keep: usize) {
        let (kept, lost_tickets) = self.log.lose_leader(keep);
        let epoch = self.leader.epoch();
        let epoch = Epoch {
            term: epoch.term + 1,
            ..epoch
        };
        self.agents.iter_mut().for_each(SimAgent::disconnect);
        for Entry { ops, .. } in &kept {
            for op in ops {
                let effects = apply(&mut self.state, op);
                assert_eq!(effects.corruption, None);
                self.heard.take(op, &effects);
                self.objects_lost += effects.objects_lost;
                assert_eq!(apply(&mut self.standby, op).corruption, None);
                self.note_eviction(op);
                self.relabelled |= matches!(op, Op::AgentLabels { .. });
            }
        }
        self.leader = Leader::new(&self.state, epoch, self.settings.clone(), self.now);
        let parked: Vec<u64> = self.parked.drain(..).map(|parked| parked.ticket).collect();
        for ticket in parked.into_iter().chain(lost_tickets) {
            self.deliver(ticket, Err(Refusal::new(Reason::NotLeader, "fail-over")));
        }
        assert_eq!(check(&self.state), []);
        assert_eq!(self.leader.check(&self.state), []);
    }

    /// The leader begins the pool anew in the next generation, and agents hear of it when they
    /// mount.
    pub(crate) fn begin_anew(&mut self) {
        self.quiesce();
        let generation = self.state.generation() + 1;
        self.agents.iter_mut().for_each(SimAgent::disconnect);
        self.propose(vec![Op::PoolBegun { generation }]);
        self.parked.clear();
        assert!(self.commit(), "it was proposed");
        assert!(self.state == State::new(generation), "nothing is left");
        assert_eq!(self.leader.epoch().generation, generation);
    }

    /// Runs until nothing moves, without time passing.
    pub(crate) fn quiesce(&mut self) {
        let mut moves = true;
        while moves {
            moves = false;
            while self.commit() || self.acknowledge() {
                moves = true;
            }
            for agent in 0..self.agents.len() {
                self.mount(agent);
                while self.step(agent) {
                    moves = true;
                }
            }
            moves |= !self.log.is_quiet();
        }
    }

    /// Runs until nothing moves; time passes only while somebody waits.
    ///
    /// # Panics
    /// If a request still waits after twice the longest deadline.
    pub(crate) fn settle(&mut self) {
        self.quiesce();
        for _ in 0..160 {
            if self.parked.is_empty() && self.agents.iter().all(|a| !a.up || a.connected) {
                return;
            }
            self.pass(500);
            self.quiesce();
        }
        let waiting: Vec<_> = self.parked.iter().map(|p| (&p.request, &p.on)).collect();
        assert!(waiting.is_empty(), "never woken: {waiting:?}");
    }

    /// A few turns of 100 ms, each run to its end.
    pub(crate) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.pass(100);
            self.settle();
        }
    }

    /// The deadlines of all that waits have passed.
    pub(crate) fn drop_parked(&mut self) {
        self.parked.clear();
    }

    pub(crate) fn parked(&self) -> usize {
        self.parked.len()
    }
}

/// Whether the log holds this record, as part of an object or to be released.
fn knows(state: &State, extent: &Extent, version: Version) -> bool {
    let releasing = state.slab(extent.slab).is_some_and(|slab| {
        slab.releasing()
            .get(&extent.offset_bytes)
            .is_some_and(|r| r.version == version)
    });
    let lies_there = |e: Extent| e.slab == extent.slab && e.offset_bytes == extent.offset_bytes;
    let held = state
        .tenants()
        .flat_map(|(_, tenant)| tenant.objects().iter())
        .any(|(_, object)| object.version() == version && object.extents().any(lies_there));
    releasing || held
}

fn draw(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
