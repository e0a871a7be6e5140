//! A store in one process: a state, its leader, and agents that obey at once.

use std::collections::BTreeMap;

use larder_store::{
    Command, Decision, Effects, Leader, Op, PutMode, Refusal, Reply, Request, SegmentOffer,
    Settings, State, TenantPolicy, WaitOn, Written,
};
use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, Digest, Epoch, Extent, Incarnation, Key, PoolTime,
    SegmentGeneration, SessionId, TenantId, Version,
};

/// The size of each object, in bytes.
pub(super) const OBJECT_BYTES: u64 = 4 << 10;
/// Agents of the pool.
pub(super) const AGENTS: u32 = 8;
/// The size of each slab, in bytes.
const SLAB_BYTES: u64 = 1 << 30;
/// Slabs of each agent: room for 33 million objects of 4 KiB in all.
const SLABS: u32 = 16;
/// The most extents that an agent releases in one call.
const RELEASED: usize = 1024;

/// See the module.
pub(super) struct Rig {
    pub(super) state: State,
    pub(super) leader: Leader,
    pub(super) tenant: TenantId,
    /// Where objects go as long as there is room.
    pub(super) preferred: Option<AgentId>,
    now: PoolTime,
    index: u64,
    seed: u64,
    slabs: u32,
    slab_bytes: u64,
    /// What agents have erased and not said yet.
    erased: Vec<(Extent, Version)>,
    /// Whether agents say what they have erased.
    pub(super) releases: bool,
}

/// The key of an object: 35 bytes, of which the last 32 look random, as hashes of blocks do.
pub(super) fn key(number: u64) -> Key {
    let (mut high, mut low) = (number, number ^ u64::MAX);
    let text = format!("kv/{:016x}{:016x}", mix(&mut high), mix(&mut low));
    Key::new(text.into_bytes()).unwrap_or_else(|error| unreachable!("35 bytes: {error}"))
}

/// A well-spread number, and the next seed.
pub(super) fn mix(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with_slabs(SLABS, SLAB_BYTES)
    }

    /// As [`Self::new`], with so many slabs of this size on each of the agents.
    pub(super) fn with_slabs(slabs: u32, slab_bytes: u64) -> Self {
        let (state, now) = (State::new(1), PoolTime(1));
        let epoch = Epoch {
            generation: 1,
            term: 1,
        };
        let leader = Leader::new(&state, epoch, Settings::default(), now);
        let tenant = TenantId::new("bench").unwrap_or_else(|error| unreachable!("{error}"));
        let mut rig = Self {
            state,
            leader,
            tenant: tenant.clone(),
            preferred: None,
            now,
            index: 0,
            seed: 1,
            slabs,
            slab_bytes,
            erased: Vec::new(),
            releases: false,
        };
        let policy = TenantPolicy::default();
        rig.ask(&Request::TenantSet { tenant, policy });
        (1..=AGENTS).for_each(|number| rig.mount(number));
        rig
    }

    /// Mounts an agent, as another life of it if it was mounted.
    pub(super) fn mount(&mut self, number: u32) {
        let life = self.index + 1;
        let name = AgentName::new(&format!("node-{number}"));
        let offer = SegmentOffer {
            ordinal: 0,
            generation: SegmentGeneration(life),
            slabs: self.slabs,
            slab_bytes: self.slab_bytes,
            numa: 0,
        };
        self.ask(&Request::Mount {
            name: name.unwrap_or_else(|error| unreachable!("{error}")),
            uid: AgentUid(u128::from(number)),
            incarnation: Incarnation(life),
            segments: vec![offer],
            highest_epoch: self.leader.epoch(),
            labels: larder_types::Labels::default(),
            kept: None,
        });
    }

    /// Decides a request and commits its ops; the reply, or what it waits for.
    pub(super) fn decide(&mut self, request: &Request) -> Result<Reply, Result<WaitOn, Refusal>> {
        let seed = &mut self.seed;
        let decision = self
            .leader
            .decide(&self.state, request, self.now, &mut || mix(seed));
        match decision {
            Decision::Reply { ops, reply, .. } => {
                self.commit(&ops);
                Ok(reply)
            }
            Decision::Wait { ops, on, .. } => {
                self.commit(&ops);
                Err(Ok(on))
            }
            Decision::Refused(refusal) => Err(Err(refusal)),
        }
    }

    /// Asks until it is answered.
    ///
    /// # Panics
    /// If it is refused: the rig has room for all that is asked.
    pub(super) fn ask(&mut self, request: &Request) -> Reply {
        for _ in 0..16 {
            match self.decide(request) {
                Ok(reply) => return reply,
                Err(Ok(_)) => {}
                Err(Err(refusal)) => unreachable!("{refusal}: {request:?}"),
            }
        }
        unreachable!("never answered: {request:?}")
    }

    /// Commits ops as one entry; what they ask of agents is done.
    pub(super) fn commit(&mut self, ops: &[Op]) {
        if ops.is_empty() {
            return;
        }
        self.index += 1;
        self.leader.proposed(self.index, ops);
        for op in ops {
            let effects = self
                .leader
                .committed(&mut self.state, self.index, op, self.now);
            self.obey(effects);
        }
    }

    fn obey(&mut self, effects: Effects) {
        if let Some(corruption) = effects.corruption {
            unreachable!("{corruption}");
        }
        for (_, command) in effects.commands {
            match command {
                Command::SlabGive { slab, .. } => {
                    self.ask(&Request::SlabReady { slab });
                }
                // Erased extents come back in calls of many, as agents send them.
                Command::Erase { extent, version } if self.releases => {
                    self.erased.push((extent, version));
                }
                // Nobody here carries out copies; those that are ordered run out of time.
                Command::Copy(_)
                | Command::Erase { .. }
                | Command::SlabTake { .. }
                | Command::TenantGone { .. } => {}
            }
        }
    }

    /// Agents say what they have erased, if it is a call's worth.
    pub(super) fn release(&mut self) {
        if self.erased.len() < RELEASED {
            return;
        }
        let mut by_agent: BTreeMap<AgentId, Vec<(Extent, Version)>> = BTreeMap::new();
        for (extent, version) in std::mem::take(&mut self.erased) {
            let agent = extent.slab.agent;
            by_agent.entry(agent).or_default().push((extent, version));
        }
        for (agent, extents) in by_agent {
            for extents in extents.chunks(RELEASED) {
                let extents = extents.to_vec();
                self.ask(&Request::Released { extents, agent });
            }
        }
    }

    /// Whether each of these keys is there.
    pub(super) fn exists_all(&mut self, keys: &[&Key]) -> Result<Vec<bool>, Refusal> {
        let found = self
            .leader
            .exists_all(&self.state, &self.tenant, keys, self.now);
        found.map(|(found, _)| found)
    }

    /// What is over a watermark; its ops, not committed.
    pub(super) fn evict(&mut self) -> Vec<Op> {
        self.leader.evict(&self.state, self.now)
    }

    /// What time brings; its ops, not committed.
    pub(super) fn tick(&mut self) -> Vec<Op> {
        self.leader.tick(&self.state, self.now)
    }

    /// A whole put: start, end, both committed.
    pub(super) fn put(&mut self, key: Key) {
        let start = self.start_of(key);
        let Reply::PutGranted {
            version, replicas, ..
        } = self.ask(&start)
        else {
            unreachable!("a start is granted")
        };
        let Request::PutStart { key, .. } = start else {
            return;
        };
        let end = self.end_of(key, version, &replicas);
        self.ask(&end);
    }

    fn start_of(&self, key: Key) -> Request {
        Request::PutStart {
            session: SessionId(1),
            tenant: self.tenant.clone(),
            key,
            size_bytes: OBJECT_BYTES,
            replicas: 1,
            preferred: self.preferred.into_iter().collect(),
            mode: PutMode::Create,
            strict: false,
            extents_max: 1_000,
            attributes: Attributes::default(),
        }
    }

    fn end_of(&self, key: Key, version: Version, replicas: &[Vec<Extent>]) -> Request {
        let digest = Digest(version.counter);
        let extents = replicas.iter().flatten();
        let written = extents.map(|extent| Written {
            extent: *extent,
            digest,
        });
        Request::PutEnd {
            session: SessionId(1),
            tenant: self.tenant.clone(),
            key,
            version,
            written: written.collect(),
        }
    }

    pub(super) fn removal_of(&self, key: Key) -> Request {
        Request::Remove {
            tenant: self.tenant.clone(),
            key,
            if_unleased: false,
        }
    }

    /// How many extents lie on the segments of an agent.
    pub(super) fn segment_objects(&self, number: u32) -> u64 {
        let agent = self.agent(number);
        let segments = self.state.segments();
        let own = segments.filter(|segment| Some(segment.agent()) == agent);
        own.flat_map(|segment| segment.slabs().values())
            .map(|slab| slab.extent_count() as u64)
            .sum()
    }

    /// The number of an agent by its name's.
    pub(super) fn agent(&self, number: u32) -> Option<AgentId> {
        let name = AgentName::new(&format!("node-{number}")).ok()?;
        self.state.agent_named(&name)
    }
}
