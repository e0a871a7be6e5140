//! A small pool with one agent: what it decides goes into a log, and its state can be lost.

use std::collections::BTreeMap;

use larder_oplog::{BootId, FakeDisk, Log, Payload, Position, encode_ops};
use larder_store::{
    Command, Decision, Leader, Op, PutMode, Reply, Request, SegmentOffer, Settings, State,
    TenantPolicy, Written,
};
use larder_types::{
    AgentName, AgentUid, Attributes, Digest, Epoch, Incarnation, Key, Labels, PoolTime,
    SegmentGeneration, SessionId, TenantId,
};

use crate::steps::{INTERVAL, options};

pub(crate) struct Pool {
    pub(crate) log: Option<Log<FakeDisk>>,
    pub(crate) state: State,
    leader: Leader,
    term: u64,
    now: PoolTime,
    boots: u8,
    /// The digest of the state with each entry in it.
    pub(crate) digests: BTreeMap<u64, u64>,
    /// The members as of each entry that has some.
    pub(crate) members: BTreeMap<Position, Vec<u8>>,
}

fn tenant() -> TenantId {
    TenantId::new("team-a").expect("a name")
}

fn key(number: u8) -> Key {
    Key::new(format!("k{number}")).expect("short")
}

fn leader(state: &State, term: u64, now: PoolTime) -> Leader {
    let generation = state.generation();
    Leader::new(state, Epoch { generation, term }, Settings::default(), now)
}

impl Pool {
    /// A log without an entry.
    pub(crate) fn new() -> Self {
        let state = State::new(0);
        let boot = BootId([1; 16]);
        let (log, _) = Log::open(FakeDisk::new(), options(INTERVAL), boot).expect("a log");
        Self {
            log: Some(log),
            leader: leader(&state, 1, PoolTime(1)),
            state,
            term: 1,
            now: PoolTime(1_000),
            boots: 1,
            digests: BTreeMap::new(),
            members: BTreeMap::new(),
        }
    }

    pub(crate) fn log(&mut self) -> &mut Log<FakeDisk> {
        self.log.as_mut().expect("it is open")
    }

    /// As a process would find it that starts now.
    pub(crate) fn disk(&mut self) -> FakeDisk {
        self.log().disk_mut().clone()
    }

    pub(crate) fn append(&mut self, payload: &Payload) -> Position {
        let term = self.term;
        let log = self.log();
        let index = log.next_index();
        let at = Position { term, index };
        let payload = payload.encode();
        let entry = larder_oplog::Entry { at, payload };
        log.append(&[entry]).expect("room");
        log.note_committed(at);
        self.digests.insert(index, self.state.digest());
        at
    }

    pub(crate) fn new_members(&mut self, members: Vec<u8>) {
        let at = self.append(&Payload::Members(members.clone()));
        self.members.insert(at, members);
    }

    /// What a leader of a former term decided and could not propose in it.
    pub(crate) fn stale(&mut self) {
        let gone = Op::TenantForgotten { tenant: tenant() };
        self.append(&Payload::Ops {
            term: self.term - 1,
            ops: encode_ops(&[gone]).expect("written"),
        });
    }

    /// Ops of one decision: logged, committed, and what they command is done.
    fn propose(&mut self, ops: &[Op]) {
        if ops.is_empty() {
            return;
        }
        let index = self.log().next_index();
        self.leader.proposed(index, ops);
        let mut commands = Vec::new();
        for op in ops {
            let effects = self.leader.committed(&mut self.state, index, op, self.now);
            assert_eq!(effects.corruption, None, "{op:?}");
            commands.extend(effects.commands);
        }
        let term = self.term;
        let ops = encode_ops(ops).expect("written");
        self.append(&Payload::Ops { term, ops });
        for (_, command) in commands {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        let request = match command {
            Command::SlabGive { slab, .. } => Request::SlabReady { slab },
            Command::SlabTake { slab } => Request::SlabReturned { slab },
            Command::Erase { extent, version } => Request::Released {
                agent: extent.slab.agent,
                extents: vec![(extent, version)],
            },
            Command::TenantGone { .. } => return,
            Command::Copy(order) => panic!("there is one agent: {order:?}"),
        };
        self.ask(request);
    }

    /// Asks until it is answered; nothing if it is refused.
    fn ask(&mut self, request: Request) -> Option<Reply> {
        for _ in 0..8 {
            let mut seed = self.now.0;
            let mut draw = || {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                seed
            };
            self.now = self.now.plus_ms(1);
            match self
                .leader
                .decide(&self.state, &request, self.now, &mut draw)
            {
                Decision::Reply { ops, reply, .. } => {
                    self.propose(&ops);
                    return Some(reply);
                }
                Decision::Wait { ops, .. } => self.propose(&ops),
                Decision::Refused(_) => return None,
            }
        }
        None
    }

    /// The pool begins in the next generation, with an agent and a tenant.
    pub(crate) fn begin_anew(&mut self) {
        let generation = self.state.generation() + 1;
        self.propose(&[Op::PoolBegun { generation }]);
        self.ready();
    }

    fn ready(&mut self) {
        self.ask(Request::TenantSet {
            tenant: tenant(),
            policy: TenantPolicy::default(),
        });
        let incarnation = Incarnation(1);
        let mounted = self.ask(Request::Mount {
            name: AgentName::new("node-1").expect("a name"),
            uid: AgentUid(1),
            incarnation,
            segments: vec![SegmentOffer {
                ordinal: 0,
                generation: SegmentGeneration(1),
                slabs: 6,
                slab_bytes: 2 << 20,
                numa: 0,
            }],
            highest_epoch: Epoch::default(),
            labels: Labels::default(),
            kept: None,
        });
        let Some(Reply::Mounted {
            agent, outstanding, ..
        }) = mounted
        else {
            panic!("not mounted: {mounted:?}")
        };
        self.ask(Request::Heartbeat {
            agent,
            incarnation,
            load_permille: 0,
        });
        for command in outstanding {
            self.obey(command);
        }
    }

    pub(crate) fn put(&mut self, number: u8, size_bytes: u64) {
        let (session, tenant, key) = (SessionId(1), tenant(), key(number));
        let granted = self.ask(Request::PutStart {
            session,
            tenant: tenant.clone(),
            key: key.clone(),
            size_bytes,
            replicas: 1,
            preferred: vec![],
            mode: PutMode::Upsert { if_unleased: false },
            strict: true,
            extents_max: 10,
            attributes: Attributes::default(),
        });
        let Some(Reply::PutGranted {
            version, replicas, ..
        }) = granted
        else {
            return;
        };
        let digest = Digest(version.counter);
        let extents = replicas.iter().flatten();
        let written = extents.map(|extent| Written {
            extent: *extent,
            digest,
        });
        let written = written.collect();
        self.ask(Request::PutEnd {
            session,
            tenant,
            key,
            version,
            written,
        });
    }

    pub(crate) fn remove(&mut self, number: u8) {
        self.ask(Request::Remove {
            tenant: tenant(),
            key: key(number),
            if_unleased: false,
        });
    }

    /// The power goes; the log is opened again, and `rebuild` makes the state of it.
    pub(crate) fn crash(&mut self, seed: u64, rebuild: impl FnOnce(FakeDisk) -> State) {
        let mut disk = self.log.take().expect("it is open").into_disk();
        disk.crash(seed);
        self.boots = self.boots.wrapping_add(1);
        let boot = BootId([self.boots; 16]);
        let (mut log, _) = Log::open(disk, options(INTERVAL), boot).expect("a log");
        log.settle_doubt().expect("the disk works");
        let next = log.next_index();
        self.log = Some(log);
        self.digests.split_off(&next);
        self.members.retain(|at, _| at.index < next);
        let disk = self.disk();
        self.state = rebuild(disk);
        self.lead();
    }

    /// Another term begins, over the state as it is.
    pub(crate) fn lead(&mut self) {
        self.term += 1;
        self.leader = leader(&self.state, self.term, self.now);
        if self.state.generation() == 0 {
            self.begin_anew();
        } else {
            self.ready();
        }
    }
}
