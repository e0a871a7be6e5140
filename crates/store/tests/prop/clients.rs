//! Clients of the random sequences, and what they were promised.

use std::collections::{BTreeMap, BTreeSet};

use larder_store::{PutMode, QuotaPolicy, Reply, Request, Settings, TaskWish, TenantPolicy};
use larder_types::{
    AgentId, Attributes, Borrowing, Extent, GroupId, Key, Label, Labels, Pin, QuotaName, SessionId,
    TaskId, TenantId, Version,
};

use super::acts::Act;
use super::{AGENTS, TENANTS};
use crate::world::agent::SimAgent;
use crate::world::{World, end, key, tenant};

/// A put as its client sees it.
struct Put {
    session: SessionId,
    tenant: TenantId,
    key: Key,
    ticket: u64,
    granted: Option<(Version, Vec<Vec<Extent>>)>,
    written: bool,
    /// The ticket of its end.
    end: Option<u64>,
    /// An agent that holds a part of it was lost, or its removal is asked: nothing is promised.
    hit: bool,
}

impl Put {
    fn start(
        world: &mut World,
        session: SessionId,
        (tenant, key): (TenantId, Key),
        (size_bytes, replicas, preferred): (u64, u8, Option<AgentId>),
        (upsert, (pin, grouped, lenient)): (bool, (Pin, bool, bool)),
    ) -> Self {
        let mode = if upsert {
            PutMode::Upsert { if_unleased: false }
        } else {
            PutMode::Create
        };
        let ticket = world.ask(Request::PutStart {
            session,
            tenant: tenant.clone(),
            key: key.clone(),
            size_bytes,
            replicas,
            preferred: preferred.into_iter().collect(),
            mode,
            strict: !lenient,
            extents_max: 100,
            attributes: Attributes {
                pin,
                group: grouped.then(|| GroupId::new("g").expect("a name")),
                ..Attributes::default()
            },
        });
        let (granted, written, end, hit) = (None, false, None, false);
        Self {
            session,
            tenant,
            key,
            ticket,
            granted,
            written,
            end,
            hit,
        }
    }

    fn write(&mut self, world: &mut World) {
        if let Some((version, replicas)) = &self.granted {
            self.written = world.write(&self.tenant, *version, replicas);
        }
    }

    fn end(&mut self, world: &mut World) {
        if let Some((version, replicas)) = self.granted.as_ref().filter(|_| self.written) {
            let (tenant, key) = (self.tenant.clone(), self.key.clone());
            self.end = Some(world.ask(end(self.session, tenant, key, *version, replicas)));
        }
    }

    fn revoke(&mut self, world: &mut World) {
        if let Some((version, _)) = self.granted {
            let (session, tenant, key) = (self.session, self.tenant.clone(), self.key.clone());
            world.ask(Request::PutRevoke {
                session,
                tenant,
                key,
                version,
            });
        }
    }
}

fn label(text: &str) -> Label {
    Label::new(text).expect("a label")
}

/// The quota that tenants share.
fn shared() -> QuotaName {
    QuotaName::new("shared").expect("a name")
}

/// The key of a number in the tenant of a number.
fn name(of: usize, number: u8) -> (TenantId, Key) {
    (tenant(TENANTS[of]), key(&format!("k{number}")))
}

pub(super) struct Clients {
    pub(super) world: World,
    puts: Vec<Put>,
    /// Session numbers change when one is closed.
    sessions: BTreeMap<u64, u64>,
    /// Removals that are not answered: the key, or all of the tenant.
    removals: Vec<(u64, TenantId, Option<Key>)>,
    /// For how long each agent has not been mounted.
    apart_ms: [u64; AGENTS],
    /// Acknowledged puts that nobody has asked to remove, with the agents that hold them.
    /// and those of puts that may have replaced them since.
    pub(super) acknowledged: BTreeMap<(TenantId, Key), (BTreeSet<Version>, BTreeSet<AgentId>)>,
}

impl Clients {
    pub(super) fn new(seed: u64) -> Self {
        let agents = u32::try_from(AGENTS).expect("few");
        // Purges and sweeps take several turns, between which anything happens.
        let settings = Settings {
            max_touched_objects: 2,
            // In half of the runs what is cold goes, and early, so that it happens often.
            evict: seed % 2 == 1,
            high_watermark: 500,
            low_watermark: 300,
            max_pinned_bytes: 400_000,
            ..Settings::default()
        };
        let mut world = World::with_settings(settings, seed, agents, 4);
        // The last two are on one machine.
        let host = world.agents[AGENTS - 2].name.to_string();
        world.agents[AGENTS - 1].labels.host = Some(label(&host));
        world.settle();
        TENANTS
            .iter()
            .for_each(|name| world.set_tenant(name, TenantPolicy::default()));
        world.slabs_fail = true;
        Self {
            world,
            puts: Vec::new(),
            sessions: BTreeMap::new(),
            removals: Vec::new(),
            apart_ms: [0; AGENTS],
            acknowledged: BTreeMap::new(),
        }
    }

    fn session(&self, number: u64) -> SessionId {
        let life = self.sessions.get(&number).copied().unwrap_or(0);
        SessionId(number + 1000 * life)
    }

    pub(super) fn act(&mut self, act: Act) {
        match act {
            Act::Start {
                session,
                tenant: of,
                key: number,
                size_bytes,
                replicas,
                near,
                upsert,
                said,
            } => {
                let session = self.session(session);
                let near = near.map(|agent| AgentId(u32::from(agent)));
                let put = Put::start(
                    &mut self.world,
                    session,
                    name(of, number),
                    (size_bytes, replicas, near),
                    (upsert, said),
                );
                self.puts.push(put);
            }
            Act::Write(which) => self.with_put(which, |put| !put.written, Put::write),
            Act::End(which) => {
                self.with_put(which, |put| put.written, Put::end);
                self.allow_ends();
            }
            Act::Revoke(which) => self.with_put(which, |_| true, Put::revoke),
            other => self.act_on_objects(other),
        }
        self.learn();
    }

    fn act_on_objects(&mut self, act: Act) {
        match act {
            Act::Remove {
                tenant: of,
                key: number,
                if_unleased,
            } => {
                let (tenant, key) = name(of, number);
                self.promise_no_more(&tenant, Some(&key));
                let ticket = self.world.ask(Request::Remove {
                    tenant: tenant.clone(),
                    key: key.clone(),
                    if_unleased,
                });
                self.removals.push((ticket, tenant, Some(key)));
            }
            Act::RemovePrefix {
                tenant: of,
                limit,
                if_unleased,
            } => {
                let all = tenant(TENANTS[of]);
                self.promise_no_more(&all, None);
                let ticket = self.world.ask(Request::RemovePrefix {
                    tenant: all.clone(),
                    prefix: b"k".to_vec(),
                    after: None,
                    limit,
                    if_unleased,
                });
                self.removals.push((ticket, all, None));
            }
            Act::Pin {
                tenant: of,
                key: number,
                pin,
            } => {
                let (tenant, key) = name(of, number);
                self.world.ask(Request::PinSet { tenant, key, pin });
            }
            other => self.read_or_act(other),
        }
    }

    fn read_or_act(&mut self, act: Act) {
        match act {
            Act::Read {
                tenant: of,
                key: number,
            } => {
                let (tenant, key) = name(of, number);
                self.world.ask(Request::Get {
                    tenant: tenant.clone(),
                    key: key.clone(),
                });
                self.world.ask(Request::Exists {
                    tenant: tenant.clone(),
                    key: key.clone(),
                    lease: true,
                });
                self.world.ask(Request::Stat { tenant, key });
            }
            Act::List { tenant: of } => {
                let (tenant, prefix) = (tenant(TENANTS[of]), b"k".to_vec());
                self.world.ask(Request::List {
                    tenant,
                    prefix: prefix.clone(),
                    after: None,
                    limit: 5,
                });
                self.world.ask(Request::ListStats {
                    tenant: self::tenant(TENANTS[of]),
                    prefix,
                    after: None,
                    limit: 5,
                });
            }
            Act::Task {
                tenant: of,
                key: number,
                source,
                target,
            } => {
                let (tenant, key) = name(of, number);
                let number = |agent: u8| AgentId(u32::from(agent));
                let (source, target) = (source.map(number), number(target));
                let targets = vec![target];
                let wish = source.map_or(TaskWish::Copy { targets }, |source| TaskWish::Move {
                    source,
                    target,
                });
                self.world.ask(Request::TaskCreate { tenant, key, wish });
            }
            other => self.act_on_tenants(other),
        }
    }

    fn act_on_tenants(&mut self, act: Act) {
        match act {
            Act::CloseSession(number) => {
                let session = self.session(number);
                *self.sessions.entry(number).or_insert(0) += 1;
                self.world.ask(Request::SessionClosed { session });
            }
            Act::SetTenant {
                tenant: of,
                limit_bytes,
                guaranteed_bytes,
                borrows,
                shares,
            } => {
                let borrowing = if borrows {
                    Borrowing::Allowed
                } else {
                    Borrowing::Forbidden
                };
                let policy = TenantPolicy {
                    limit_bytes,
                    guaranteed_bytes,
                    borrowing,
                    cohort: shares.then(shared),
                    ..TenantPolicy::default()
                };
                self.world.ask(Request::TenantSet {
                    tenant: tenant(TENANTS[of]),
                    policy,
                });
            }
            Act::SetQuota {
                limit_bytes,
                guaranteed_bytes,
            } => {
                let policy = QuotaPolicy {
                    limit_bytes,
                    guaranteed_bytes,
                    ..QuotaPolicy::default()
                };
                let quota = shared();
                self.world.ask(Request::QuotaSet { quota, policy });
            }
            Act::DeleteQuota => {
                self.world.ask(Request::QuotaDelete { quota: shared() });
            }
            Act::DeleteTenant(of) => {
                let gone = tenant(TENANTS[of]);
                self.promise_no_more(&gone, None);
                let tenant = gone.clone();
                let ticket = self.world.ask(Request::TenantDelete { tenant });
                self.removals.push((ticket, gone, None));
            }
            other => self.act_on_pool(other),
        }
    }

    fn act_on_pool(&mut self, act: Act) {
        let world = &mut self.world;
        match act {
            Act::Commit => {
                world.commit();
            }
            Act::Acknowledge => {
                world.acknowledge();
            }
            Act::Run(rounds) => {
                for _ in 0..rounds {
                    world.commit();
                    world.acknowledge();
                    world.acknowledge();
                    for agent in 0..AGENTS {
                        world.step(agent);
                    }
                }
                (0..AGENTS).for_each(|agent| world.mount(agent));
            }
            Act::Pass(ms) => self.pass(ms),
            Act::FailOver(keep) => world.fail_over(keep),
            Act::CancelTask(at) => {
                let tasks = world.state.tasks_after(TaskId(0)).map(|(id, _)| id);
                if let Some(task) = tasks.collect::<Vec<_>>().into_iter().nth_back(at) {
                    world.ask(Request::TaskCancel { task });
                }
            }
            other => self.act_on_agent(other),
        }
    }

    fn act_on_agent(&mut self, act: Act) {
        let world = &mut self.world;
        match act {
            Act::Step(agent) => {
                world.step(agent);
            }
            Act::Mount(agent) => world.mount(agent),
            Act::Disconnect { agent, kills } => {
                world.disconnect(agent, kills);
                if kills {
                    self.lose(agent);
                }
            }
            Act::Hold { agent, holds } => {
                if holds {
                    world.agents[agent].holds = true;
                } else {
                    world.agents[agent].let_go();
                }
            }
            Act::Restart(agent) => {
                self.lose(agent);
                self.world.disconnect(agent, true);
                self.world.agents[agent].restart();
            }
            Act::Unmount(agent) => {
                self.lose(agent);
                if let Some(id) = self.world.agents[agent].id {
                    self.world.ask(Request::Unmount { agent: id });
                    self.world.agents[agent].disconnect();
                }
            }
            Act::Drain { agent, on } => {
                if let Some(agent) = world.agents[agent].id {
                    world.ask(Request::Drain { agent, on });
                }
            }
            Act::Label { agent, host, zone } => {
                if let Some(agent) = world.agents[agent].id {
                    let labels = Labels {
                        host: host.map(|host| label(&format!("node-{host}"))),
                        zone: zone.map(|zone| label(&format!("zone-{zone}"))),
                        ..Labels::default()
                    };
                    world.ask(Request::LabelsSet { agent, labels });
                }
            }
            _ => unreachable!("clients act on their own"),
        }
    }

    /// Lets time pass; agents that stay away too long are lost.
    fn pass(&mut self, ms: u64) {
        self.world.pass(ms);
        for agent in 0..AGENTS {
            let connected = self.world.agents[agent].connected;
            self.apart_ms[agent] = if connected {
                0
            } else {
                self.apart_ms[agent] + ms
            };
            // Suspect since the connection closed, and given up no earlier than this.
            if self.apart_ms[agent] >= 7_000 {
                self.lose(agent);
            }
        }
    }

    /// Acts on one of the latest granted puts that `wanted` picks, or else on any put.
    fn with_put(
        &mut self,
        which: proptest::sample::Index,
        wanted: impl Fn(&Put) -> bool,
        act: impl FnOnce(&mut Put, &mut World),
    ) {
        let fits = |put: &Put| put.granted.is_some() && put.end.is_none() && wanted(put);
        let mut fitting: Vec<usize> = (0..self.puts.len())
            .rev()
            .filter(|i| fits(&self.puts[*i]))
            .take(4)
            .collect();
        if fitting.is_empty() {
            fitting = (0..self.puts.len()).collect();
        }
        if !fitting.is_empty() {
            act(&mut self.puts[*which.get(&fitting)], &mut self.world);
        }
    }

    /// Nothing that this agent holds is promised any more.
    fn lose(&mut self, agent: usize) {
        let Some(id) = self.world.agents[agent].id else {
            return;
        };
        let world = &self.world;
        // It may have moved there since, or be about to.
        let lies_there = |tenant: &TenantId, key: &Key| {
            let object = world.state.object(tenant, key);
            let mut extents = object.into_iter().flat_map(|object| object.extents());
            extents.any(|extent| extent.slab.agent == id) || world.is_moving(tenant, key)
        };
        self.acknowledged
            .retain(|(tenant, key), (_, agents)| !agents.contains(&id) && !lies_there(tenant, key));
        for put in &mut self.puts {
            let mut extents = put.granted.iter().flat_map(|(_, r)| r.iter().flatten());
            put.hit |= extents.any(|extent| extent.slab.agent == id);
            put.hit |= lies_there(&put.tenant, &put.key);
        }
    }

    /// A removal is asked or answered: in between it may come at any time, also after puts that
    /// were asked later, as it waits for what touches the same names.
    fn promise_no_more(&mut self, tenant: &TenantId, key: Option<&Key>) {
        let same = |t: &TenantId, k: &Key| t == tenant && key.is_none_or(|key| k == key);
        self.acknowledged.retain(|(t, k), _| !same(t, k));
        for put in &mut self.puts {
            put.hit |= same(&put.tenant, &put.key);
        }
    }

    /// The end of an upsert is asked: from now on it may replace what was acknowledged before.
    fn allow_ends(&mut self) {
        for put in self.puts.iter().filter(|put| put.end.is_some()) {
            let name = (put.tenant.clone(), put.key.clone());
            let (Some((version, replicas)), Some((versions, agents))) =
                (&put.granted, self.acknowledged.get_mut(&name))
            else {
                continue;
            };
            if versions.first().is_some_and(|first| first < version) {
                versions.insert(*version);
                agents.extend(replicas.iter().flatten().map(|extent| extent.slab.agent));
            }
        }
    }

    /// Clients hear their answers.
    pub(super) fn learn(&mut self) {
        self.learn_of_puts();
        for (ticket, tenant, key) in std::mem::take(&mut self.removals) {
            if self.world.taken(ticket).is_some() {
                self.promise_no_more(&tenant, key.as_ref());
            } else {
                self.removals.push((ticket, tenant, key));
            }
        }
    }

    fn learn_of_puts(&mut self) {
        for put in &mut self.puts {
            if put.granted.is_none()
                && let Some(Ok(Reply::PutGranted {
                    version, replicas, ..
                })) = self.world.taken(put.ticket)
            {
                put.granted = Some((version, replicas));
            }
            let ended = put.end.and_then(|ticket| self.world.taken(ticket));
            if let (Some(answer), Some((version, replicas))) = (ended, &put.granted) {
                put.end = None;
                let is_there = self
                    .world
                    .state
                    .object(&put.tenant, &put.key)
                    .is_some_and(|object| object.version() == *version);
                if matches!(answer, Ok(Reply::Done | Reply::AlreadyComplete))
                    && is_there
                    && !put.hit
                {
                    let agents = replicas
                        .iter()
                        .flatten()
                        .map(|extent| extent.slab.agent)
                        .collect();
                    let name = (put.tenant.clone(), put.key.clone());
                    self.acknowledged
                        .insert(name, (BTreeSet::from([*version]), agents));
                }
            }
        }
        self.allow_ends();
    }

    /// Every acknowledged put that nobody removed, that was not evicted and whose agents live is
    /// there, whole.
    pub(super) fn check_acknowledged(&mut self) {
        let evicted = &self.world.evicted;
        self.acknowledged.retain(|(tenant, key), (versions, _)| {
            let gone = |version| evicted.contains(&(tenant.clone(), key.clone(), version));
            !versions.iter().copied().any(gone)
        });
        for ((tenant, key), (versions, _)) in &self.acknowledged {
            let object = self.world.state.object(tenant, key);
            let held = object.map(|object| object.version());
            assert!(
                held.is_some_and(|held| versions.contains(&held)),
                "{key} of {tenant}: {held:?}, not of {versions:?}"
            );
            let version = held.unwrap_or_default();
            for extent in object.into_iter().flat_map(|object| object.extents()) {
                let agent = self
                    .world
                    .agents
                    .iter()
                    .find(|a| a.id == Some(extent.slab.agent));
                assert!(
                    agent.is_some_and(|agent| agent.reads(&extent, version)),
                    "{extent:?}"
                );
            }
        }
    }

    /// Removes everything; then nothing is charged, reserved, released or held.
    pub(super) fn wind_up(&mut self) {
        let world = &mut self.world;
        world.slabs_fail = false;
        world.agents.iter_mut().for_each(SimAgent::let_go);
        world.settle();
        for life in 0..40 {
            for number in 1..6 {
                world.ask(Request::SessionClosed {
                    session: SessionId(number + 1000 * life),
                });
            }
        }
        world.settle();
        let names: Vec<(TenantId, Key)> = world
            .state
            .tenants()
            .flat_map(|(id, tenant)| {
                tenant
                    .objects()
                    .iter()
                    .map(|(k, _)| (id.clone(), k.to_key()))
            })
            .collect();
        for (tenant, key) in names {
            world.ask(Request::Remove {
                tenant,
                key,
                if_unleased: false,
            });
        }
        world.settle();
        for _ in 0..4 {
            world.pass(15_000);
            world.settle();
        }
        // Two things a turn: each slab, extent and segment is one.
        for _ in 0..500 {
            let purging = world
                .state
                .tenants()
                .any(|(_, tenant)| tenant.is_deleting());
            if purging || world.state.lost_segments().count() > 0 {
                world.turns(1);
            }
        }
        assert_eq!(world.leader.pending_puts(), 0);
        assert_eq!(world.leader.discarded_puts(), 0);
        assert_eq!(world.leader.reserved_bytes(), 0);
        assert_eq!(world.leader.in_flight_ops(), 0);
        assert_eq!(world.parked(), 0);
        assert_eq!(world.state.used_bytes(), 0);
        assert_eq!(world.state.objects(), 0);
        let tenants: Vec<TenantId> = world.state.tenants().map(|(id, _)| id.clone()).collect();
        for tenant in tenants {
            let report = world.leader.quota_report(&world.state, &tenant);
            assert!(report.bounds.iter().all(|bound| bound.charged == 0));
            assert_eq!((report.borrowed_bytes, report.lent_bytes), (0, 0));
        }
        assert_eq!(world.state.releasing_bytes(), 0);
        assert_eq!(world.state.lost_segments().count(), 0);
        for segment in world.state.segments() {
            assert_eq!(segment.slabs().len(), 0, "idle slabs go back");
        }
        assert!(
            world
                .state
                .tenants()
                .all(|(_, tenant)| !tenant.is_deleting())
        );
    }
}
