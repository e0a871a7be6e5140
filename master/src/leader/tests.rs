//! Tests of the leader with a log that commits when told.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use larder_store::{Request, SegmentOffer, Settings};
use larder_telemetry::{Component, Registry};
use larder_types::{
    AgentName, AgentUid, Incarnation, Key, Labels, Principal, Reason, SegmentGeneration, TenantId,
};
use larder_wire::agent::{Kept, Mount};
use larder_wire::frame::{FLAG_ERROR, NO_DEADLINE};
use larder_wire::master::{Exists, Get};
use larder_wire::{
    CallError, Frame, FrameDecoder, FrameError, Header, Kind, Purpose, RootKey, SessionSigner,
    decode_body, encode_frame,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::*;
use crate::event::{AdminAnswer, AdminAsk, Called, ConnectionId, Opened, Outgoing};
use crate::log::{Entry, LogError};
use crate::rpc::Body;

/// What a test tells its log.
struct Told {
    commits_to: Cell<u64>,
    /// So many entries may be proposed and not committed.
    room: Cell<usize>,
    is_certain: Cell<bool>,
    /// Counts the rounds of a quorum.
    rounds: Cell<u64>,
    is_deposed: Cell<bool>,
}

/// A log that commits up to where it is told.
struct HeldLog {
    last: u64,
    held: VecDeque<Entry>,
    told: Rc<Told>,
}

impl Log for HeldLog {
    fn next_index(&self) -> u64 {
        self.last + 1
    }

    fn append(&mut self, ops: Vec<Op>) -> Result<u64, LogError> {
        self.last += 1;
        self.held.push_back(Entry {
            index: self.last,
            ops,
        });
        Ok(self.last)
    }

    fn poll_committed(&mut self, _: &mut Context<'_>) -> Poll<Result<Entry, LogError>> {
        if self.told.is_deposed.get() {
            return Poll::Ready(Err(LogError::NotLeader));
        }
        let commits_to = self.told.commits_to.get();
        if self
            .held
            .front()
            .is_some_and(|entry| entry.index <= commits_to)
        {
            let entry = self.held.pop_front();
            return entry.map_or(Poll::Pending, |entry| Poll::Ready(Ok(entry)));
        }
        Poll::Pending
    }

    fn has_room(&self) -> bool {
        self.held.len() < self.told.room.get()
    }

    fn is_certain(&self) -> bool {
        self.told.is_certain.get()
    }

    fn mark(&self) -> u64 {
        self.told.rounds.get()
    }

    fn is_certain_since(&self, mark: u64) -> bool {
        self.told.is_certain.get() && self.told.rounds.get() > mark
    }
}

struct Bench {
    leading: Leading<HeldLog>,
    told: Rc<Told>,
    clock_ms: Arc<AtomicU64>,
    last_request: u64,
}

fn tenant() -> TenantId {
    TenantId::new("a").expect("valid")
}

impl Bench {
    /// A leader with one tenant, whose log commits nothing from here on.
    fn new() -> Self {
        let root = RootKey::new([1; 32]);
        let signer = SessionSigner::new(&root).expect("a key");
        let session_key = signer.verify_key().expect("a key");
        let rules = Rules {
            pool: "p".to_owned(),
            name: "m".to_owned(),
            incarnation: Incarnation(1),
            replica_factor: 1,
            session_token_ms: 1_000,
            settings: Settings::default(),
            seed: 7,
            flaw: crate::flaw::Flaw::default(),
        };
        let told = Rc::new(Told {
            commits_to: Cell::new(1),
            room: Cell::new(usize::MAX),
            is_certain: Cell::new(true),
            rounds: Cell::new(0),
            is_deposed: Cell::new(false),
        });
        let log = HeldLog {
            last: 0,
            held: VecDeque::new(),
            told: Rc::clone(&told),
        };
        let keys = Keys {
            root,
            signer,
            session_key,
        };
        let metrics = MasterMetrics::new(Registry::new(Component::Master));
        let clock_ms = Arc::new(AtomicU64::new(1_000));
        let read = Arc::clone(&clock_ms);
        let mut leading = Leading::new(
            1,
            State::new(1),
            rules,
            keys,
            log,
            metrics,
            PoolClock::start(Arc::new(move || read.load(Ordering::Relaxed))),
        );
        let config = r#"[{"tenant":"a"}]"#;
        let tenants = crate::config::parse_json("t".as_ref(), config).expect("valid");
        {
            let mut made = std::pin::pin!(leading.make_tenants(tenants, Vec::new()));
            let mut context = Context::from_waker(std::task::Waker::noop());
            let Poll::Ready(made) = made.as_mut().poll(&mut context) else {
                panic!("the log commits its first entry");
            };
            made.expect("made");
        }
        Self {
            leading,
            told,
            clock_ms,
            last_request: 0,
        }
    }

    /// A turn, so much later.
    fn pass(&mut self, ms: u64) {
        self.clock_ms.fetch_add(ms, Ordering::Relaxed);
        self.turn(Vec::new());
    }

    /// An agent with one segment.
    fn mount(&mut self) {
        let core = &mut self.leading.core;
        let mount = Request::Mount {
            name: AgentName::new("n").expect("valid"),
            uid: AgentUid(1),
            incarnation: Incarnation(1),
            segments: vec![SegmentOffer {
                ordinal: 0,
                generation: SegmentGeneration(1),
                slabs: 4,
                slab_bytes: 16 << 20,
                numa: 0,
            }],
            highest_epoch: core.leader.epoch(),
            labels: Labels::default(),
            kept: None,
        };
        let decision = core.leader.decide(&core.state, &mount, core.now, &mut || 1);
        let larder_store::Decision::Reply { ops, .. } = decision else {
            panic!("not mounted")
        };
        self.leading.propose(ops);
        self.turn(Vec::new());
    }

    fn turn(&mut self, events: Vec<Event>) {
        self.leading.turn(&mut events.into());
    }

    fn open(&mut self, number: u64) -> mpsc::Receiver<Outgoing> {
        self.open_as(number, Principal::Tenant(tenant()), Purpose::Client)
    }

    fn open_as(
        &mut self,
        number: u64,
        principal: Principal,
        purpose: Purpose,
    ) -> mpsc::Receiver<Outgoing> {
        let (outbox, outgoing) = mpsc::channel(8);
        let (reply, mut welcome) = oneshot::channel();
        let connection = ConnectionId(number);
        let opened = Opened {
            connection,
            protocol: 1,
            principal,
            purpose,
            outbox,
            reply,
        };
        self.turn(vec![Event::Opened(opened)]);
        welcome.try_recv().expect("answered").expect("welcome");
        outgoing
    }

    /// A call that was encoded and decoded, as from a connection.
    fn called(&mut self, kind: Kind, body: Body, remaining_ms: u32) -> Event {
        self.last_request += 1;
        let frame = Frame::request(kind, self.last_request, 1, remaining_ms);
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, frame, &()).expect("a frame");
        let (header, _) = frames(&bytes).remove(0);
        Event::Called(Called {
            connection: ConnectionId(1),
            header,
            body,
            at: Instant::now(),
        })
    }

    fn exists(&mut self) -> Event {
        self.called(
            Kind::Exists,
            Body::Exists(Exists {
                keys: vec![key()],
                lease: false,
            }),
            NO_DEADLINE,
        )
    }

    fn ask(&mut self, ask: AdminAsk) -> oneshot::Receiver<AdminAnswer> {
        let (reply, answer) = oneshot::channel();
        self.turn(vec![Event::Asked(ask, reply)]);
        answer
    }
}

fn key() -> Key {
    Key::try_from("k").expect("valid")
}

fn frames(bytes: &[u8]) -> Vec<(Header, Vec<u8>)> {
    let mut decoder = FrameDecoder::before_hello();
    decoder.accept(0);
    decoder.feed(bytes);
    let mut frames = Vec::new();
    while let Some((header, body)) = decoder.next_frame().expect("valid") {
        frames.push((header, body.to_vec()));
    }
    frames
}

fn replies(outgoing: &mut mpsc::Receiver<Outgoing>) -> Vec<Outgoing> {
    std::iter::from_fn(|| outgoing.try_recv().ok()).collect()
}

#[test]
fn an_answer_leaves_only_when_what_it_says_is_committed() {
    let mut bench = Bench::new();
    let policy = larder_store::TenantPolicy::default();
    let mut answer = bench.ask(AdminAsk::TenantSet(
        TenantId::new("b").expect("valid"),
        policy,
    ));
    bench.turn(Vec::new());
    assert!(answer.try_recv().is_err(), "entry 2 is not committed");
    bench.told.commits_to.set(2);
    bench.turn(Vec::new());
    assert_eq!(
        answer.try_recv().expect("answered"),
        Ok(serde_json::Value::Null)
    );
}

#[test]
fn a_read_that_saw_only_committed_ops_does_not_wait_for_others() {
    let mut bench = Bench::new();
    let mut outgoing = bench.open(1);
    let answer = bench.ask(AdminAsk::TenantDelete(tenant()));
    let exists = bench.exists();
    bench.turn(vec![exists]);
    let [reply] = &replies(&mut outgoing)[..] else {
        panic!("one flush")
    };
    assert_eq!((reply.replies, reply.close), (1, false));
    drop(answer);
}

/// A master that was paused, or cut off, may find another one leading when it wakes.
#[test]
fn nothing_is_told_while_it_is_not_certain_that_nobody_else_leads() {
    let mut bench = Bench::new();
    let mut outgoing = bench.open(1);
    bench.told.is_certain.set(false);
    let exists = bench.exists();
    bench.turn(vec![exists]);
    assert!(replies(&mut outgoing).is_empty(), "not even taken in");
    assert!(bench.leading.calls.next_deadline().is_none());

    // It becomes uncertain between deciding and telling.
    bench.told.is_certain.set(true);
    let exists = bench.exists();
    bench.leading.hear(exists);
    bench.leading.settle();
    bench.told.is_certain.set(false);
    bench.leading.flush();
    assert!(replies(&mut outgoing).is_empty());
    // It was the leader all the time.
    bench.told.is_certain.set(true);
    bench.turn(Vec::new());
    let [told] = &replies(&mut outgoing)[..] else {
        panic!("one flush")
    };
    assert_eq!((told.replies, told.close), (1, false));
}

#[test]
fn agents_are_not_judged_while_nobody_is_heard() {
    let mut bench = Bench::new();
    bench.told.commits_to.set(u64::MAX);
    bench.mount();
    let settings = Settings::default();
    bench.told.is_certain.set(false);
    for _ in 0..3 {
        bench.pass(settings.agent_ttl_ms);
    }
    bench.told.is_certain.set(true);
    bench.turn(Vec::new());
    assert_eq!(bench.leading.core.state.segments().count(), 1);
    // From now on it could be heard.
    bench.pass(settings.agent_ttl_ms);
    bench.turn(Vec::new());
    assert_eq!(bench.leading.core.state.segments().count(), 0);
}

#[test]
fn who_is_deposed_takes_back_what_it_has_not_told() {
    let mut bench = Bench::new();
    let mut outgoing = bench.open(1);
    let exists = bench.exists();
    bench.leading.hear(exists);
    bench.leading.settle();
    bench.told.is_certain.set(false);
    bench.leading.flush();
    bench.told.is_deposed.set(true);
    bench.turn(Vec::new());
    let ended = bench.leading.ended.take().expect("deposed");
    assert!(matches!(ended, Ended::Log(LogError::NotLeader)));
    bench
        .leading
        .say_farewell(&ended, Some("b:7400".to_owned()));
    let [told] = &replies(&mut outgoing)[..] else {
        panic!("one flush")
    };
    assert_eq!((told.replies, told.close), (0, true));
    let all = frames(&told.bytes);
    let [(header, body)] = &all[..] else {
        panic!("the good-bye alone")
    };
    let refused: Refused = decode_body(header.kind, body).expect("a good-bye");
    assert_eq!(refused.reason, RefusedReason::NotLeader);
    assert_eq!(refused.leader_hint(), Some("b:7400"));
}

#[test]
fn a_log_without_room_takes_no_more_and_goes_on_when_it_has() {
    let mut bench = Bench::new();
    bench.told.room.set(1);
    let policy = larder_store::TenantPolicy::default;
    let name = |name| TenantId::new(name).expect("valid");
    let mut first = bench.ask(AdminAsk::TenantSet(name("b"), policy()));
    let mut second = bench.ask(AdminAsk::TenantSet(name("c"), policy()));
    assert_eq!(
        bench.leading.core.log.held.len(),
        1,
        "the second is not taken in"
    );
    bench.told.commits_to.set(2);
    bench.turn(Vec::new());
    first.try_recv().expect("answered").expect("made");
    assert!(second.try_recv().is_err());
}

/// What fits into no frame to another master would end this one.
#[test]
fn a_turn_with_many_long_keys_makes_several_entries() {
    let mut bench = Bench::new();
    let long = Key::try_from("k".repeat(larder_types::key::MAX_KEY_BYTES).as_str());
    let op = Op::Remove {
        tenant: tenant(),
        key: long.expect("valid"),
        version: larder_types::Version::default(),
        cause: larder_store::RemovalCause::Evicted,
    };
    bench.leading.propose(vec![op; 1_000]);
    bench.leading.append();
    let held = &bench.leading.core.log.held;
    assert!(held.len() > 1, "{}", held.len());
    assert_eq!(
        held.iter().map(|entry| entry.ops.len()).sum::<usize>(),
        1_000
    );
    for entry in held {
        let bytes = larder_oplog::encode_ops(&entry.ops).expect("encodes").len();
        assert!(bytes <= 640 * 1024, "{bytes}");
    }
}

/// An agent that knows a higher term of this generation: either another master leads, or a log
/// was lost that had come further. A quorum tells which.
#[test]
fn an_agent_of_a_higher_term_makes_the_pool_start_over_only_if_nobody_else_leads() {
    let mut bench = Bench::new();
    let seen = Epoch {
        generation: 1,
        term: 9,
    };
    bench.leading.outdone = Some((seen, bench.leading.core.log.mark()));
    bench.turn(Vec::new());
    assert!(bench.leading.ended.is_none(), "no quorum was heard since");
    bench.told.rounds.set(1);
    bench.turn(Vec::new());
    let ended = bench.leading.ended.take().expect("judged");
    assert!(matches!(ended, Ended::StartOver { above: 1 }));
}

/// All masters lost their disks, and the new pool has come further in the same generation.
#[test]
fn an_agent_with_numbers_of_another_log_makes_the_pool_start_over() {
    let mounts = |kept: Option<u32>| {
        let mut bench = Bench::new();
        let name = AgentName::new("agent-1").expect("a name");
        let _outgoing = bench.open_as(1, Principal::Agent(name.clone()), Purpose::Agent);
        let mount = Mount {
            name,
            uid: AgentUid(3),
            incarnation: Incarnation(5),
            data_addr: "agent-1:1".to_owned(),
            segments: Vec::new(),
            highest_epoch: Epoch {
                generation: 1,
                term: 0,
            },
            labels: Labels::default(),
            kept: kept.map(|agent| Kept {
                agent: AgentId(agent),
                segments: Vec::new(),
            }),
        };
        let call = bench.called(Kind::Mount, Body::Mount(mount), NO_DEADLINE);
        bench.turn(vec![call]);
        bench.leading.ended
    };
    assert!(matches!(
        mounts(Some(1)),
        Some(Ended::StartOver { above: 1 })
    ));
    assert!(mounts(None).is_none(), "it is new");
}

#[test]
fn a_turn_flushes_a_connection_once_with_all_its_answers() {
    let mut bench = Bench::new();
    let mut outgoing = bench.open(1);
    let events = (0..5).map(|_| bench.exists()).collect();
    bench.turn(events);
    let [flush] = &replies(&mut outgoing)[..] else {
        panic!("one flush")
    };
    assert_eq!(flush.replies, 5);
    let numbers: Vec<u64> = frames(&flush.bytes)
        .iter()
        .map(|(h, _)| h.request)
        .collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5]);
}

#[test]
fn what_is_not_committed_in_time_is_told_as_unknown() {
    let mut bench = Bench::new();
    let mut answer = bench.ask(AdminAsk::TenantDelete(tenant()));
    let now = bench.leading.core.now;
    // The clock of this test: the call is taken out as its deadline would.
    let late = bench.leading.calls.next_late(now.plus_ms(DEADLINE_MS));
    let (id, call) = late.expect("the call waits");
    bench.leading.answer(id, call);
    let error = answer.try_recv().expect("answered").expect_err("not known");
    assert_eq!(error.reason, Reason::DeadlinePassed);
}

#[test]
fn a_tenants_sessions_end_with_it_and_not_before() {
    let mut bench = Bench::new();
    let mut outgoing = bench.open(1);
    let _answer = bench.ask(AdminAsk::TenantDelete(tenant()));
    assert!(replies(&mut outgoing).is_empty(), "not committed");
    bench.told.commits_to.set(2);
    bench.turn(Vec::new());
    let [last] = &replies(&mut outgoing)[..] else {
        panic!("one flush")
    };
    assert!(last.close);
    assert_eq!(frames(&last.bytes)[0].0.kind, Kind::Goodbye);
}

#[test]
fn calls_of_unknown_connections_change_nothing() {
    let mut bench = Bench::new();
    let exists = bench.exists();
    bench.turn(vec![exists, Event::Closed(ConnectionId(9))]);
    assert!(bench.leading.calls.next_deadline().is_none());
}

#[test]
fn a_connection_that_takes_nothing_is_given_up_in_bounds() {
    let mut bench = Bench::new();
    let mut outgoing = bench.open(1);
    // Its outbox holds eight flushes; then bytes pile up to their limit.
    let mut rounds: usize = 0;
    while bench.leading.links.get(ConnectionId(1)).is_some() {
        let get = Get {
            keys: vec![key(); 1024],
        };
        let call = bench.called(Kind::Get, Body::Get(get), NO_DEADLINE);
        bench.turn(vec![call]);
        rounds += 1;
        assert!(rounds < 10_000, "never given up");
    }
    let taken = replies(&mut outgoing);
    assert_eq!(taken.len(), 8);
    assert!(outgoing.is_closed() || outgoing.try_recv().is_err());
}

#[test]
fn a_long_call_lets_others_go_on_and_keeps_the_order_of_its_caller() {
    let mut bench = Bench::new();
    let (mut long, mut short) = (bench.open(1), bench.open(2));
    let keys = vec![key(); 1024];
    let slices = 1024 / bench.leading.core.rules.settings.slice_items;
    let get = bench.called(Kind::Get, Body::Get(Get { keys }), NO_DEADLINE);
    let behind = bench.exists();
    let mut other = bench.exists();
    if let Event::Called(called) = &mut other {
        called.connection = ConnectionId(2);
    }
    bench.turn(vec![get, behind, other]);
    assert_eq!(replies(&mut short).len(), 1);
    assert!(replies(&mut long).is_empty(), "more than a slice at once");
    let mut numbers = Vec::new();
    for _ in 1..=slices {
        bench.turn(Vec::new());
        for flush in replies(&mut long) {
            numbers.extend(frames(&flush.bytes).iter().map(|(h, _)| h.request));
        }
    }
    assert_eq!(numbers, [1, 2]);
    assert_eq!(bench.leading.line.len(), 0);
}

#[test]
fn what_a_gone_connection_has_in_line_is_dropped() {
    let mut bench = Bench::new();
    let _outgoing = bench.open(1);
    let keys = vec![key(); 1024];
    let get = bench.called(Kind::Get, Body::Get(Get { keys }), NO_DEADLINE);
    bench.turn(vec![get]);
    assert!(bench.leading.line.len() > 0);
    bench.turn(vec![Event::Closed(ConnectionId(1))]);
    assert_eq!(bench.leading.line.len(), 0);
}

#[test]
fn a_whole_call_can_be_refused() {
    let mut bench = Bench::new();
    let mut outgoing = bench.open(1);
    let keys = vec![key(); 1025];
    let call = bench.called(
        Kind::Exists,
        Body::Exists(Exists { keys, lease: false }),
        NO_DEADLINE,
    );
    bench.turn(vec![call]);
    let sent = replies(&mut outgoing);
    let (header, body) = frames(&sent[0].bytes).remove(0);
    assert!(header.has(FLAG_ERROR));
    let error: Result<CallError, FrameError> = decode_body(header.kind, &body);
    assert_eq!(error.expect("an error").reason, Reason::BadArgument);
}

#[test]
fn the_end_of_a_connection_is_heard_behind_no_long_call() {
    let mut bench = Bench::new();
    let _outgoing = bench.open(1);
    let (reply, _answer) = oneshot::channel();
    let ask = AdminAsk::Remove {
        tenant: tenant(),
        keys: vec![key(); 1000],
        if_unleased: false,
    };
    bench.turn(vec![Event::Asked(ask, reply)]);
    let before = bench.leading.line.len();
    assert!(before > 0, "the removal takes more than a turn");
    // As after a turn in which nobody's turn came.
    bench.leading.close(ConnectionId(1));
    assert_eq!(bench.leading.line.len(), before);
}

#[test]
fn what_weighs_more_than_one_item_counts_so() {
    let entries = |count| vec![(key(), 1_u64); count];
    let reply = |reply| larder_store::Decision::Reply {
        ops: Vec::new(),
        reply,
        saw_index: 0,
    };
    let listed = |count| larder_store::Reply::Listed {
        entries: entries(count),
        more: false,
    };
    assert_eq!(decide::weight(&reply(listed(0))), 1);
    assert_eq!(decide::weight(&reply(listed(1_000))), 125);
    assert_eq!(decide::weight(&reply(larder_store::Reply::Done)), 1);
}
