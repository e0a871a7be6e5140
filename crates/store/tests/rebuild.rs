//! A pool that lost its log is found again in what its agents hold: whatever they hold, in
//! whatever order they tell it, and however often a leader or a connection is lost meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use larder_store::{
    Decision, Effects, Found, FoundObject, Leader, Op, Refusal, Reply, Request, SegmentOffer,
    Settings, State, TenantPolicy, WaitOn, apply, check,
};
use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, Digest, Epoch, Extent, Incarnation, Key, Labels,
    Memo, Pin, PoolTime, Reason, Registration, SegmentGeneration, SegmentId, SlabRef, TenantId,
    Version,
};
use proptest::prelude::*;

use crate::world::{key, restored, tenant};

const SLABS: u32 = 16;
const PIECE: u64 = 64 * 1024;
/// Has room for the pieces of all 24 puts of a case, at most three each.
const SLAB: u64 = 128 * PIECE;
const TENANTS: [&str; 2] = ["red", "green"];

/// What happened to a put before the log was lost.
#[derive(Clone, Debug)]
struct Put {
    tenant: usize,
    key: u8,
    /// Each replica as the agents of its parts.
    replicas: Vec<Vec<usize>>,
    /// The part of which replica is missing, or not whole.
    torn: Option<(usize, usize, bool)>,
}

#[derive(Clone, Debug)]
struct Case {
    agents: usize,
    puts: Vec<Put>,
    page: usize,
    /// A former log knew tenants and agents.
    has_base: bool,
    /// After so many requests: a new leader, or an agent that mounts again.
    turns: Vec<(usize, Turn)>,
    /// An agent that is gone.
    gone: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    Leader,
    Mount(usize),
}

fn put(agents: usize) -> impl Strategy<Value = Put> {
    let order = Just((0..agents).collect::<Vec<_>>()).prop_shuffle();
    (
        0..TENANTS.len(),
        0..6_u8,
        order,
        1..=2_usize,
        1..=3_usize,
        any::<[u8; 4]>(),
    )
        .prop_map(move |(tenant, key, order, wanted, parts, lot)| {
            let wanted = wanted.min(agents);
            // Disjoint agents: each replica has every `wanted`-th.
            let replicas: Vec<Vec<usize>> = (0..wanted)
                .map(|replica| {
                    let own: Vec<usize> = order
                        .iter()
                        .copied()
                        .skip(replica)
                        .step_by(wanted)
                        .collect();
                    (0..parts).map(|part| own[part % own.len()]).collect()
                })
                .collect();
            let torn = (lot[0] < 90).then(|| {
                let replica = usize::from(lot[1]) % wanted;
                (replica, usize::from(lot[2]) % parts, lot[3] < 128)
            });
            Put {
                tenant,
                key,
                replicas,
                torn,
            }
        })
}

fn case() -> impl Strategy<Value = Case> {
    (1..=4_usize).prop_flat_map(|agents| {
        let turn = prop_oneof![Just(Turn::Leader), (0..agents).prop_map(Turn::Mount)];
        (
            proptest::collection::vec(put(agents), 0..24),
            1..=5_usize,
            any::<bool>(),
            proptest::collection::vec((0..40_usize, turn), 0..3),
            proptest::option::weighted(0.2, 0..agents),
        )
            .prop_map(move |(puts, page, has_base, turns, gone)| Case {
                agents,
                puts,
                page,
                has_base,
                turns,
                gone,
            })
    })
}

/// An agent that outlived the log, with what it has to tell.
#[derive(Debug, Default)]
struct Holder {
    slabs: BTreeMap<TenantId, (SlabRef, u64)>,
    found: Vec<Found>,
    id: u32,
    /// Pages that are not told yet.
    pages: VecDeque<Request>,
    is_mounted: bool,
    is_done: bool,
}

impl Holder {
    fn new(number: usize) -> Self {
        let id = u32::try_from(number).expect("few") + 5;
        Self {
            id,
            ..Self::default()
        }
    }

    /// Room for a piece of this tenant.
    fn place(&mut self, tenant: &TenantId) -> Extent {
        let index = u16::try_from(self.slabs.len()).expect("few");
        let (slab, used) = self.slabs.entry(tenant.clone()).or_insert_with(|| {
            let slab = SlabRef {
                agent: AgentId(self.id),
                segment: SegmentId(self.id + 20),
                index,
                registration: Registration((3 << 40) + u64::from(self.id * 10) + u64::from(index)),
            };
            (slab, 0)
        });
        let offset_bytes = *used;
        *used += PIECE;
        Extent {
            slab: *slab,
            offset_bytes,
            length_bytes: PIECE,
        }
    }

    fn mount(&self) -> Request {
        Request::Mount {
            name: AgentName::new(&format!("node-{}", self.id)).expect("a name"),
            uid: AgentUid(u128::from(self.id)),
            incarnation: Incarnation(7),
            segments: vec![SegmentOffer {
                ordinal: 0,
                generation: SegmentGeneration(11),
                slabs: SLABS,
                slab_bytes: SLAB,
                numa: 0,
            }],
            highest_epoch: Epoch {
                generation: 3,
                term: 9,
            },
            labels: Labels::default(),
            kept: Some((AgentId(self.id), vec![SegmentId(self.id + 20)])),
        }
    }

    fn begin(&mut self, page: usize) {
        let agent = AgentId(self.id);
        let slabs = self
            .slabs
            .iter()
            .map(|(tenant, (slab, _))| (*slab, tenant.clone()));
        let mut pages: Vec<Request> = vec![Request::Inventory {
            agent,
            incarnation: Incarnation(7),
            slabs: slabs.collect(),
            found: Vec::new(),
            is_last: false,
        }];
        pages.extend(self.found.chunks(page).map(|found| Request::Inventory {
            agent,
            incarnation: Incarnation(7),
            slabs: Vec::new(),
            found: found.to_vec(),
            is_last: false,
        }));
        if let Some(Request::Inventory { is_last, .. }) = pages.last_mut() {
            *is_last = true;
        }
        self.pages = pages.into();
        (self.is_mounted, self.is_done) = (true, false);
    }
}

/// What should be found: the whole replicas of the highest version of each key that has one.
type Expected = BTreeMap<(TenantId, Key), (Version, BTreeSet<Vec<Extent>>)>;

fn laid_out(case: &Case) -> (Vec<Holder>, Expected) {
    let mut holders: Vec<Holder> = (0..case.agents).map(Holder::new).collect();
    let mut expected = Expected::new();
    for (at, put) in case.puts.iter().enumerate() {
        let (tenant, key) = (tenant(TENANTS[put.tenant]), key(&format!("k{}", put.key)));
        let epoch = Epoch {
            generation: 3,
            term: 9,
        };
        let version = Version {
            epoch,
            counter: at as u64 + 1,
        };
        for (number, parts) in put.replicas.iter().enumerate() {
            let count = u16::try_from(parts.len()).expect("few");
            let mut whole = Vec::new();
            for (part, agent) in parts.iter().enumerate() {
                let extent = holders[*agent].place(&tenant);
                let torn = put.torn.filter(|torn| (torn.0, torn.1) == (number, part));
                let object = FoundObject {
                    key: key.clone(),
                    part: u16::try_from(part).expect("few"),
                    parts: count,
                    size_bytes: PIECE * u64::from(count),
                    digest: digest_of(at, part),
                    memo: Memo {
                        stripe: u32::try_from(number).expect("few"),
                        wanted: 2,
                        attributes: attributes(at),
                    },
                };
                if torn.is_none_or(|torn| torn.2) {
                    holders[*agent].found.push(Found {
                        extent,
                        version,
                        object: torn.is_none().then_some(object),
                    });
                }
                let is_there = torn.is_none() && case.gone != Some(*agent);
                whole.extend(is_there.then_some(extent));
            }
            if whole.len() == parts.len() {
                let best = expected.entry((tenant.clone(), key.clone()));
                let best = best.or_insert_with(|| (version, BTreeSet::new()));
                if best.0 < version {
                    *best = (version, BTreeSet::new());
                }
                best.1.insert(whole);
            }
        }
    }
    (holders, expected)
}

fn digest_of(put: usize, part: usize) -> Digest {
    Digest((put as u64) << 8 | part as u64)
}

fn attributes(put: usize) -> Attributes {
    let pin = if put.is_multiple_of(3) {
        Pin::Hard
    } else {
        Pin::None
    };
    Attributes {
        pin,
        ..Attributes::default()
    }
}

/// The leader of the rebuilt pool, with a log that commits at once but for what is in flight.
struct Pool {
    state: State,
    standby: State,
    leader: Leader,
    settings: Settings,
    generation: u64,
    term: u64,
    index: u64,
    now: PoolTime,
    in_flight: VecDeque<(u64, Vec<Op>)>,
    erased: BTreeSet<(Extent, Version)>,
}

impl Pool {
    fn new(case: &Case) -> Self {
        let mut state = State::new(if case.has_base { 3 } else { 1 });
        if case.has_base {
            for name in TENANTS {
                let policy = TenantPolicy {
                    limit_objects: Some(1_000),
                    ..TenantPolicy::default()
                };
                let op = Op::TenantSet {
                    tenant: tenant(name),
                    policy,
                };
                assert_eq!(apply(&mut state, &op).corruption, None);
            }
            for number in 0..case.agents {
                let holder = Holder::new(number);
                let op = Op::AgentMounted {
                    agent: AgentId(holder.id),
                    name: AgentName::new(&format!("node-{}", holder.id)).expect("a name"),
                    uid: AgentUid(u128::from(holder.id)),
                    incarnation: Incarnation(7),
                    segments: Vec::new(),
                    labels: Labels::default(),
                };
                assert_eq!(apply(&mut state, &op).corruption, None);
            }
        }
        Self::over(state, case)
    }

    fn over(mut state: State, case: &Case) -> Self {
        let generation = state.generation().max(3) + 1;
        let op = Op::PoolRebuilding {
            generation,
            knows_agents: case.has_base,
        };
        assert_eq!(apply(&mut state, &op).corruption, None);
        let settings = Settings {
            evict: false,
            ..Settings::default()
        };
        let now = PoolTime(5_000);
        let epoch = Epoch {
            generation,
            term: 1,
        };
        Self {
            standby: state.clone(),
            leader: Leader::new(&state, epoch, settings.clone(), now),
            state,
            settings,
            generation,
            term: 1,
            index: 0,
            now,
            in_flight: VecDeque::new(),
            erased: BTreeSet::new(),
        }
    }

    fn propose(&mut self, ops: Vec<Op>) {
        if !ops.is_empty() {
            self.index += 1;
            self.leader.proposed(self.index, &ops);
            self.in_flight.push_back((self.index, ops));
        }
    }

    fn commit(&mut self) -> bool {
        let Some((index, ops)) = self.in_flight.pop_front() else {
            return false;
        };
        for op in &ops {
            let effects = self.leader.committed(&mut self.state, index, op, self.now);
            self.take(effects);
            assert_eq!(apply(&mut self.standby, op).corruption, None);
            assert_eq!(check(&self.state), [], "after {op:?}");
            assert_eq!(self.leader.check(&self.state), [], "after {op:?}");
            assert_eq!(self.state.digest(), self.standby.digest());
        }
        self.standby = restored(&self.standby, 3).expect("a whole snapshot");
        true
    }

    fn take(&mut self, effects: Effects) {
        assert_eq!(effects.corruption, None);
        for (_, command) in effects.commands {
            if let larder_store::Command::Erase { extent, version } = command {
                self.erased.insert((extent, version));
            }
        }
    }

    /// Decides a request; commits what it waits for.
    fn ask(&mut self, request: &Request) -> Result<Reply, Refusal> {
        loop {
            match self
                .leader
                .decide(&self.state, request, self.now, &mut || 1)
            {
                Decision::Reply { ops, reply, .. } => {
                    self.propose(ops);
                    return Ok(reply);
                }
                Decision::Refused(refusal) => return Err(refusal),
                Decision::Wait { ops, on, .. } => {
                    assert!(matches!(on, WaitOn::Inventory | WaitOn::Agent(_)), "{on:?}");
                    self.propose(ops);
                    assert!(self.commit(), "it waits for something");
                }
            }
        }
    }

    fn tick(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        let ops = self.leader.tick(&self.state, self.now);
        self.propose(ops);
        let effects = self.leader.take_effects();
        self.take(effects);
    }

    /// Another leader, with all that is committed or not.
    fn fail_over(&mut self, holders: &mut [Holder]) {
        while self.commit() {}
        self.term += 1;
        let epoch = Epoch {
            generation: self.generation,
            term: self.term,
        };
        self.leader = Leader::new(&self.state, epoch, self.settings.clone(), self.now);
        holders
            .iter_mut()
            .for_each(|holder| holder.is_mounted = false);
    }

    fn serves(&mut self) -> bool {
        let get = Request::Get {
            tenant: tenant("red"),
            key: key("nothing"),
        };
        match self.ask(&get) {
            Err(refusal) => refusal.reason != Reason::Starting,
            Ok(_) => true,
        }
    }
}

/// Everybody tells what they hold, until the pool is served.
fn rebuild(case: &Case, pool: &mut Pool, holders: &mut [Holder]) {
    let mut asked = 0;
    let mut beat = 0;
    while pool.state.is_rebuilding() {
        assert!(!pool.serves(), "nothing is served before all is found");
        for at in 0..holders.len() {
            for (when, turn) in &case.turns {
                match turn {
                    Turn::Leader if *when == asked => pool.fail_over(holders),
                    Turn::Mount(agent) if *when == asked => holders[*agent].is_mounted = false,
                    _ => {}
                }
            }
            asked += 1;
            if case.gone == Some(at) {
                continue;
            }
            if !holders[at].is_mounted {
                let Ok(Reply::Mounted {
                    wants_inventory,
                    agent,
                    ..
                }) = pool.ask(&holders[at].mount())
                else {
                    panic!("not mounted");
                };
                // After everything was found it is an agent like others.
                assert_eq!(agent, AgentId(holders[at].id));
                if wants_inventory {
                    holders[at].begin(case.page);
                } else {
                    holders[at].is_mounted = true;
                }
            } else if let Some(page) = holders[at].pages.front().cloned() {
                match pool.ask(&page) {
                    Ok(_) => drop(holders[at].pages.pop_front()),
                    Err(refusal) => {
                        assert_eq!(refusal.reason, Reason::SessionUnknown);
                        holders[at].is_mounted = false;
                    }
                }
                holders[at].is_done = holders[at].pages.is_empty();
            }
            pool.commit();
        }
        beat += 1;
        assert!(beat < 1_000, "it ends");
        pool.tick(100);
        while pool.commit() {}
        for holder in holders.iter().filter(|holder| holder.is_mounted) {
            let beat = Request::Heartbeat {
                agent: AgentId(holder.id),
                incarnation: Incarnation(7),
                load_permille: 0,
            };
            pool.ask(&beat).expect("known");
        }
    }
    while pool.commit() {}
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn what_agents_hold_is_found(case in case()) {
        let (mut holders, expected) = laid_out(&case);
        let mut pool = Pool::new(&case);
        rebuild(&case, &mut pool, &mut holders);
        let mut found = Expected::new();
        let mut used = BTreeSet::new();
        for (id, held) in pool.state.tenants() {
            for (key, object) in held.objects().iter() {
                let at = usize::try_from(object.version().counter - 1).expect("small");
                prop_assert_eq!(object.attributes(), &attributes(at));
                let parts = case.puts[at].replicas[0].len();
                let sums = (0..parts).map(|part| (digest_of(at, part), PIECE));
                prop_assert_eq!(Some(object.digest()), Digest::joined(sums));
                let replicas: BTreeSet<Vec<Extent>> = object.replicas().into_iter().collect();
                used.extend(replicas.iter().flatten().copied());
                found.insert((id.clone(), key.to_key()), (object.version(), replicas));
            }
        }
        prop_assert_eq!(&found, &expected);
        // Everything else is erased.
        for (at, holder) in holders.iter().enumerate().filter(|(at, _)| case.gone != Some(*at)) {
            for one in &holder.found {
                let is_erased = pool.erased.contains(&(one.extent, one.version));
                prop_assert_eq!(is_erased, !used.contains(&one.extent), "{:?} of {}", one, at);
            }
        }
        prop_assert!(pool.serves());
        // New versions are above all that were found.
        prop_assert!(pool.leader.epoch().generation > 3);
    }
}

#[test]
fn who_comes_after_the_end_starts_from_nothing() {
    let mut pool = Pool::new(&lone(false));
    for _ in 0..101 {
        pool.tick(100);
        while pool.commit() {}
    }
    assert!(!pool.state.is_rebuilding());
    assert!(pool.state.is_of_inventory());
    // So high a pool begins from a snapshot.
    assert!(!State::new(4).is_of_inventory());
    let late = Holder::new(0);
    let Ok(Reply::Mounted {
        wants_inventory,
        agent,
        ..
    }) = pool.ask(&late.mount())
    else {
        panic!("not mounted");
    };
    assert!(!wants_inventory);
    assert_ne!(
        agent,
        AgentId(late.id),
        "another number, so that it forgets its slabs"
    );
}

#[test]
fn an_agent_that_stops_telling_is_lost_whole() {
    let mut holder = Holder::new(0);
    let red = tenant("red");
    let extent = holder.place(&red);
    let mut pool = Pool::new(&lone(false));
    assert!(pool.ask(&holder.mount()).is_ok());
    holder.begin(1);
    if let Some(Request::Inventory { is_last, .. }) = holder.pages.front_mut() {
        *is_last = false;
    }
    assert!(pool.ask(&holder.pages[0].clone()).is_ok() && pool.commit());
    assert!(pool.state.slab(extent.slab).is_some());
    assert_eq!(pool.leader.agents_told(&pool.state), Some(0));
    for _ in 0..120 {
        pool.tick(100);
        while pool.commit() {}
        let beat = Request::Heartbeat {
            agent: AgentId(holder.id),
            incarnation: Incarnation(7),
            load_permille: 0,
        };
        let _ = pool.ask(&beat);
    }
    assert!(!pool.state.is_rebuilding());
    assert_eq!(pool.leader.agents_told(&pool.state), None);
    assert!(
        pool.state.slab(extent.slab).is_none(),
        "nobody knows what lies there"
    );
}

/// One replica of one extent, of its own key.
fn single(extent: Extent, counter: u64) -> Found {
    let epoch = Epoch {
        generation: 3,
        term: 9,
    };
    Found {
        extent,
        version: Version { epoch, counter },
        object: Some(FoundObject {
            key: key(&format!("k{counter}")),
            part: 0,
            parts: 1,
            size_bytes: extent.length_bytes,
            digest: Digest(counter),
            memo: Memo::default(),
        }),
    }
}

fn lone(has_base: bool) -> Case {
    Case {
        agents: 1,
        puts: Vec::new(),
        page: 1,
        has_base,
        turns: Vec::new(),
        gone: None,
    }
}

#[test]
fn what_the_log_had_taken_away_is_not_found_again() {
    for losses in 1..=3 {
        let mut holder = Holder::new(0);
        for counter in 1..=2 {
            let extent = holder.place(&tenant("red"));
            holder.found.push(single(extent, counter));
        }
        let case = lone(true);
        let gone = &holder.found[0];
        let doomed = BTreeSet::from([(gone.extent, gone.version)]);
        let mut pool = Pool::over(with_releasing(&holder), &case);
        for _ in 1..losses {
            // Lost again before the agent came.
            pool = Pool::over(pool.state, &case);
        }
        pool.standby = restored(&pool.standby, 1).expect("whole");
        pool.fail_over(std::slice::from_mut(&mut holder));
        rebuild(&case, &mut pool, std::slice::from_mut(&mut holder));
        let red = tenant("red");
        assert!(pool.state.object(&red, &key("k1")).is_none(), "{losses}");
        assert!(pool.state.object(&red, &key("k2")).is_some(), "{losses}");
        assert_eq!(pool.erased, doomed);
        assert_eq!(pool.state.releasing().collect::<BTreeSet<_>>(), doomed);
    }
}

/// The agents that a first rebuild had heard are not all that there are.
#[test]
fn a_rebuild_of_a_rebuild_waits_for_who_was_not_heard_yet() {
    let mut first = Pool::new(&lone(false));
    assert!(first.ask(&Holder::new(0).mount()).is_ok());
    while first.commit() {}
    let mut pool = Pool::over(first.state, &lone(true));
    assert!(matches!(
        pool.ask(&Holder::new(0).mount()),
        Ok(Reply::Mounted { .. })
    ));
    let mut heard = Holder::new(0);
    heard.begin(1);
    assert!(pool.ask(&heard.pages[0].clone()).is_ok());
    pool.tick(100);
    while pool.commit() {}
    assert!(pool.state.is_rebuilding(), "another agent may come");
}

/// An agent names a part of a stripe and later another object on the same bytes.
#[test]
fn of_a_place_that_is_named_twice_one_is_believed() {
    let mut holder = Holder::new(0);
    let extent = holder.place(&tenant("red"));
    let mut part = single(extent, 1);
    if let Some(object) = &mut part.object {
        (object.parts, object.size_bytes) = (2, 2 * PIECE);
    }
    holder.found = vec![part, single(extent, 2)];
    let case = lone(false);
    let mut pool = Pool::new(&case);
    rebuild(&case, &mut pool, std::slice::from_mut(&mut holder));
    let red = tenant("red");
    assert!(pool.state.object(&red, &key("k1")).is_none());
    assert!(pool.state.object(&red, &key("k2")).is_some());
}

#[test]
fn what_comes_back_is_bounded() {
    let case = lone(false);
    let mut holder = Holder::new(0);
    for (counter, name) in [(1, "red"), (2, "green")] {
        let extent = holder.place(&tenant(name));
        holder.found.push(single(extent, counter));
    }
    let mut pool = Pool::new(&case);
    pool.settings.max_tenants = 1;
    pool.fail_over(std::slice::from_mut(&mut holder));
    rebuild(&case, &mut pool, std::slice::from_mut(&mut holder));
    assert_eq!(pool.state.tenants().count(), 1);
    assert_eq!(pool.state.digest(), pool.standby.digest());

    let mut pool = Pool::new(&case);
    pool.settings.max_agents = 1;
    pool.fail_over(&mut []);
    assert!(pool.ask(&Holder::new(0).mount()).is_ok());
    while pool.commit() {}
    let refusal = pool.ask(&Holder::new(1).mount()).expect_err("one too many");
    assert_eq!(refusal.reason, Reason::Overloaded);
}

/// A state in which the first that the agent holds was put and removed.
fn with_releasing(holder: &Holder) -> State {
    let mut state = State::new(3);
    let (first, red) = (&holder.found[0], tenant("red"));
    let Request::Mount {
        name,
        uid,
        incarnation,
        segments,
        labels,
        kept: Some((agent, ids)),
        ..
    } = holder.mount()
    else {
        unreachable!("a mount");
    };
    let slab = first.extent.slab;
    let offer = segments[0];
    let mounted = larder_store::MountedSegment {
        id: ids[0],
        ordinal: offer.ordinal,
        generation: offer.generation,
        slabs: offer.slabs,
        slab_bytes: offer.slab_bytes,
        numa: offer.numa,
    };
    let object = first.object.as_ref().expect("whole");
    let ops = [
        Op::TenantSet {
            tenant: red.clone(),
            policy: TenantPolicy::default(),
        },
        Op::AgentMounted {
            agent,
            name,
            uid,
            incarnation,
            segments: vec![mounted],
            labels,
        },
        Op::SlabGive {
            slab,
            tenant: red.clone(),
        },
        Op::SlabReady { slab },
        Op::PutEnd {
            tenant: red.clone(),
            key: object.key.clone(),
            version: first.version,
            size_bytes: object.size_bytes,
            digest: object.digest,
            replicas: vec![vec![first.extent]],
            wanted: 1,
            attributes: Attributes::default(),
            replaces: None,
        },
        Op::Remove {
            tenant: red,
            key: object.key.clone(),
            version: first.version,
            cause: larder_store::RemovalCause::Removed,
        },
    ];
    for op in &ops {
        assert_eq!(apply(&mut state, op).corruption, None, "{op:?}");
    }
    state
}
