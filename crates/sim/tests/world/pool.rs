//! Agents and clients on the stage before a scripted master: real control side, real segments,
//! real frames.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use larder_sim::history::{Limits, Losses, Outcome, Recorder, Value, check};
use larder_sim::seed::Seed;
use larder_sim::world::{
    AgentFolder, AgentSettings, ClientSettings, Context, DataAsk, DataTold, Line, LineBody,
    LineName, Network, Node, Packet, Stage, Weather, WorkShape, bytes_of, draw_work, run_agent,
    run_client, value_of, wait_for,
};
use larder_types::{
    AgentId, AgentName, AgentUid, Epoch, Extent, Incarnation, Key, Memo, PoolTime, Principal,
    Reason, Registration, SegmentId, SessionId, SlabRef, TenantId, Version,
};
use larder_wire::agent::{
    Beat, Command, Commands, Done, Event, Heartbeat, Inventory, Mount, Mounted,
};
use larder_wire::data::{DataError, DataReason};
use larder_wire::frame::NO_DEADLINE;
use larder_wire::master::{
    AgentAddress, Exists, Get, Located, ObjectGrant, PutEnd, PutGrant, PutMode, PutStart,
    PutStartItem, PutStarted, Remove, ReplicaGrant,
};
use larder_wire::{
    CallError, CallResult, Capability, Frame, FrameDecoder, Header, Kind, Reach, Receipt, Reply,
    RootKey, SessionSigner, SignedCapability, Welcome, checksum, decode_body, encode_frame,
};

const MS: u64 = 1_000_000;
const MASTER: Node = Node(1);
const AGENT: Node = Node(10);
const CLIENT: Node = Node(100);
const SLAB_BYTES: u64 = 256 << 10;

fn root() -> RootKey {
    RootKey::new([7; 32])
}

fn epoch(term: u64) -> Epoch {
    Epoch {
        generation: 1,
        term,
    }
}

fn tenant() -> TenantId {
    TenantId::new("a").expect("a name")
}

fn slab() -> SlabRef {
    SlabRef {
        agent: AgentId(3),
        segment: SegmentId(5),
        index: 0,
        registration: Registration(1),
    }
}

/// What the test tells the master, and what the master heard.
#[derive(Default)]
struct Desk {
    epoch: Cell<Epoch>,
    commands: RefCell<Vec<Command>>,
    events: RefCell<Vec<Event>>,
    mounts: RefCell<Vec<Mount>>,
    beats: Cell<u64>,
    /// Whether it has lost its log, and what agents told it then.
    asks: Cell<bool>,
    pages: RefCell<Vec<Inventory>>,
    objects: RefCell<BTreeMap<Key, Receipt>>,
    writing: RefCell<BTreeSet<Key>>,
    started: Cell<u64>,
}

/// Asks of the client that were not sent, and answers by number.
#[derive(Default)]
struct Window {
    asks: RefCell<VecDeque<DataAsk>>,
    answers: RefCell<BTreeMap<u64, Result<DataTold, DataError>>>,
}

struct MasterLine {
    line: Line,
    decoder: FrameDecoder,
}

async fn master(mut context: Context<Packet>, desk: Rc<Desk>) {
    let mut lines: BTreeMap<LineName, MasterLine> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            Some(arrival) = context.inbox.recv() => {
                let Packet::Line(packet) = arrival.message else { continue };
                let name = packet.line;
                let entry = lines.entry(name).or_insert_with(|| {
                    let mut decoder = FrameDecoder::before_hello();
                    decoder.accept(0);
                    MasterLine { line: Line::new(name, arrival.from), decoder }
                });
                for body in entry.line.take(packet).expect("nothing is lost") {
                    let reply = match body {
                        LineBody::Hello(_) => {
                            Some(LineBody::Welcome(Box::new(welcome(desk.epoch.get()))))
                        }
                        LineBody::Frames(bytes) => {
                            let frames = frames(&desk, &mut entry.decoder, &bytes);
                            (!frames.is_empty()).then_some(LineBody::Frames(frames))
                        }
                        _ => None,
                    };
                    if let Some(reply) = reply {
                        let packet = entry.line.packet(reply);
                        context.send(entry.line.peer, Packet::Line(packet));
                    }
                }
            }
            () = wait_for(Duration::from_millis(5)) => {
                let commands = desk.commands.take();
                if let Some(entry) = lines.values_mut().last().filter(|_| !commands.is_empty()) {
                    let body = Commands {
                        epoch: desk.epoch.get(),
                        pool_time: PoolTime(60_000),
                        commands,
                    };
                    let mut bytes = Vec::new();
                    let frame = Frame::request(Kind::Commands, 0, 77, NO_DEADLINE);
                    encode_frame(&mut bytes, frame, &body).expect("it encodes");
                    let packet = entry.line.packet(LineBody::Frames(bytes));
                    context.send(entry.line.peer, Packet::Line(packet));
                }
            }
        }
    }
}

fn welcome(epoch: Epoch) -> Welcome {
    Welcome {
        protocol: 1,
        features: 0,
        session: SessionId(77),
        principal: Principal::Agent(AgentName::new("pool-0").expect("a name")),
        incarnation: Incarnation(1),
        epoch,
        pool_time: PoolTime(60_000),
        session_token: Vec::new(),
        session_token_ms: 0,
        name: "master-0".to_owned(),
    }
}

/// The answers to what an agent says.
fn frames(desk: &Desk, decoder: &mut FrameDecoder, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    decoder.feed(bytes);
    while let Some((header, body)) = decoder.next_frame().expect("frames") {
        let epoch = desk.epoch.get();
        match header.kind {
            Kind::Mount => {
                let mount: Mount = decode_body(header.kind, body).expect("a mount");
                let key = root().agent_key(&mount.name, mount.incarnation, 1);
                desk.mounts.borrow_mut().push(mount);
                let answer = Mounted {
                    agent: AgentId(3),
                    segments: vec![SegmentId(5)],
                    capability_key: *key.bytes(),
                    key_id: key.id(),
                    session_key: SessionSigner::new(&root())
                        .and_then(|s| s.verify_key())
                        .expect("a key"),
                    heartbeat_ms: 50,
                    outstanding: Vec::new(),
                    wants_inventory: desk.asks.get(),
                };
                reply(&mut out, &header, epoch, answer);
            }
            Kind::Heartbeat => {
                let _: Heartbeat = decode_body(header.kind, body).expect("a beat");
                desk.beats.set(desk.beats.get() + 1);
                reply(&mut out, &header, epoch, Beat { known: true });
            }
            Kind::Inventory => {
                let page = decode_body(header.kind, body).expect("a page");
                desk.pages.borrow_mut().push(page);
                reply(&mut out, &header, epoch, ());
            }
            Kind::Done => {
                let done: Done = decode_body(header.kind, body).expect("done");
                desk.events.borrow_mut().extend(done.events);
            }
            _ => client_frames(desk, &header, body, &mut out),
        }
    }
    out
}

/// The answers to what a client says: the simplest pool that there is, which never frees anything.
fn client_frames(desk: &Desk, header: &Header, body: &[u8], out: &mut Vec<u8>) {
    let mut objects = desk.objects.borrow_mut();
    let not_found = || CallError::new(Reason::NotFound);
    let epoch = desk.epoch.get();
    match header.kind {
        Kind::PutStart => {
            let start: PutStart = decode_body(header.kind, body).expect("a start");
            let item = &start.items[0];
            let is_taken = objects.contains_key(&item.key) && item.mode == PutMode::Create;
            let grant = if is_taken {
                Err(CallError::new(Reason::AlreadyExists))
            } else if !desk.writing.borrow_mut().insert(item.key.clone()) {
                Err(CallError::new(Reason::BeingWritten))
            } else {
                Ok(put_grant(desk, item))
            };
            let answer = PutStarted {
                agents: vec![address(desk)],
                grants: vec![grant],
            };
            reply(out, header, epoch, answer);
        }
        Kind::PutEnd => {
            let mut end: PutEnd = decode_body(header.kind, body).expect("an end");
            let item = end.items.remove(0);
            desk.writing.borrow_mut().remove(&item.key);
            objects.insert(item.key, item.receipts[0].clone());
            reply(out, header, epoch, vec![CallResult::Ok(())]);
        }
        Kind::Get => {
            let get: Get = decode_body(header.kind, body).expect("a get");
            let object = objects.get(&get.keys[0]).ok_or_else(not_found);
            let object = object.map(|receipt| ObjectGrant {
                version: receipt.version,
                size_bytes: receipt.extent.length_bytes,
                digest: receipt.digest,
                replicas: vec![replica(desk, receipt.extent, receipt.version, Reach::Read)],
                lease_ms: 0,
            });
            let answer = Located {
                agents: vec![address(desk)],
                objects: vec![object],
            };
            reply(out, header, epoch, answer);
        }
        Kind::Remove => {
            let remove: Remove = decode_body(header.kind, body).expect("a removal");
            let removed = objects
                .remove(&remove.keys[0])
                .map(drop)
                .ok_or_else(not_found);
            reply(out, header, epoch, vec![removed]);
        }
        Kind::Exists => {
            let exists: Exists = decode_body(header.kind, body).expect("a question");
            let answer = vec![CallResult::Ok(objects.contains_key(&exists.keys[0]))];
            reply(out, header, epoch, answer);
        }
        other => panic!("nobody says {other:?}"),
    }
}

fn address(desk: &Desk) -> AgentAddress {
    AgentAddress {
        agent: AgentId(3),
        name: AgentName::new("pool-0").expect("a name"),
        incarnation: desk.mounts.borrow().last().expect("mounted").incarnation,
        data_addr: "pool-0:1".to_owned(),
    }
}

fn replica(desk: &Desk, extent: Extent, version: Version, reach: Reach) -> ReplicaGrant {
    let capability = signed(desk, extent, version, reach);
    ReplicaGrant {
        extents: vec![(extent, capability)],
    }
}

fn put_grant(desk: &Desk, item: &PutStartItem) -> PutGrant {
    let counter = desk.started.get() + 1;
    desk.started.set(counter);
    let extent = Extent {
        slab: slab(),
        offset_bytes: (counter - 1) * 4_096,
        length_bytes: item.size_bytes,
    };
    let version = Version {
        epoch: epoch(1),
        counter,
    };
    PutGrant {
        version,
        discard_ms: 1_000,
        replicas: vec![replica(desk, extent, version, Reach::Write)],
        wanted: 1,
        preference_ignored: false,
    }
}

fn signed(desk: &Desk, extent: Extent, version: Version, reach: Reach) -> SignedCapability {
    let mounts = desk.mounts.borrow();
    let mount = mounts.last().expect("it is mounted");
    let capability = Capability {
        tenant: tenant(),
        incarnation: mount.incarnation,
        extent,
        version,
        reach,
        epoch: epoch(1),
        deadline: PoolTime(u64::MAX),
        part: 0,
        parts: 1,
        object_bytes: extent.length_bytes,
        key: match reach {
            Reach::Write => b"key".to_vec(),
            Reach::Read => Vec::new(),
        },
        memo: Memo::default(),
    };
    let key = root().agent_key(&mount.name, mount.incarnation, 1);
    SignedCapability::sign(&capability, &key).expect("it encodes")
}

fn reply<T: serde::Serialize>(out: &mut Vec<u8>, to: &Header, epoch: Epoch, answer: T) {
    let body = Reply {
        epoch,
        pool_time: PoolTime(60_000),
        answer,
    };
    encode_frame(out, Frame::reply(to, 0), &body).expect("it encodes");
}

async fn client(mut context: Context<Packet>, window: Rc<Window>) {
    loop {
        tokio::select! {
            biased;
            Some(arrival) = context.inbox.recv() => {
                if let Packet::Told { number, outcome } = arrival.message {
                    window.answers.borrow_mut().insert(number, outcome);
                }
            }
            () = wait_for(Duration::from_millis(1)) => {
                while let Some(ask) = window.asks.borrow_mut().pop_front() {
                    context.send(AGENT, Packet::Ask(ask));
                }
            }
        }
    }
}

struct World {
    stage: Stage<Packet>,
    desk: Rc<Desk>,
    window: Rc<Window>,
    folder: AgentFolder,
    asked: u64,
}

impl World {
    /// An agent that is mounted at a master of term 1 and has one slab.
    fn new(seed: u64) -> Self {
        let weather = Weather::calm(MS, 3 * MS);
        let network = Network::new(weather, 1_000, Seed(seed).stream("network"));
        let mut world = Self {
            stage: Stage::new(Seed(seed), MS, network),
            desk: Rc::default(),
            window: Rc::default(),
            folder: AgentFolder::default(),
            asked: 0,
        };
        world.desk.epoch.set(epoch(1));
        world.start_master();
        let window = Rc::clone(&world.window);
        world
            .stage
            .start(CLIENT, |context| client(context, window))
            .expect("a runtime");
        world.start_agent();
        world.until("it mounts and is alive", |world| world.desk.beats.get() > 1);
        world.give_slab();
        world
    }

    fn start_master(&mut self) {
        let desk = Rc::clone(&self.desk);
        self.stage
            .start(MASTER, |context| master(context, desk))
            .expect("a runtime");
    }

    fn start_agent(&mut self) {
        let settings = AgentSettings {
            name: AgentName::new("pool-0").expect("a name"),
            uid: AgentUid(9),
            masters: vec![("master-0:1".to_owned(), MASTER)],
            slabs: 2,
            slab_bytes: SLAB_BYTES,
        };
        let folder = self.folder.clone();
        let run = |context| run_agent(context, settings, folder);
        self.stage.start(AGENT, run).expect("a runtime");
    }

    fn give_slab(&mut self) {
        let give = Command::SlabGive {
            slab: slab(),
            tenant: tenant(),
            slab_bytes: SLAB_BYTES,
            view_bytes: None,
        };
        self.desk.commands.borrow_mut().push(give);
        let ready = Event::SlabReady { slab: slab() };
        self.until("the slab is made", |world| {
            world.desk.events.borrow().contains(&ready)
        });
    }

    fn pass(&mut self, ms: u64) {
        (0..ms).for_each(|_| self.stage.pass().expect("no panic"));
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let came = (0..20_000).any(|_| {
            self.pass(1);
            is_so(self)
        });
        assert!(came, "{what}");
    }

    fn ask(&mut self, counter: u64, write: Option<Vec<u8>>) -> u64 {
        let length_bytes = 4_000;
        let reach = if write.is_some() {
            Reach::Write
        } else {
            Reach::Read
        };
        self.asked += 1;
        let ask = DataAsk {
            number: self.asked,
            tenant: tenant(),
            capability: {
                let (extent, version) = place(counter, length_bytes);
                signed(&self.desk, extent, version, reach)
            },
            length_bytes,
            write: write.map(|bytes| {
                let crcs = checksum::block_crcs(&bytes);
                (bytes, crcs)
            }),
        };
        self.window.asks.borrow_mut().push_back(ask);
        self.asked
    }

    fn answer(&mut self, number: u64) -> Result<DataTold, DataReason> {
        self.until("it answers", |world| {
            world.window.answers.borrow().contains_key(&number)
        });
        let answer = self.window.answers.borrow_mut().remove(&number);
        answer.expect("it is there").map_err(|error| error.reason)
    }
}

fn place(counter: u64, length_bytes: u64) -> (Extent, Version) {
    let extent = Extent {
        slab: slab(),
        offset_bytes: 0,
        length_bytes,
    };
    let version = Version {
        epoch: epoch(1),
        counter,
    };
    (extent, version)
}

#[test]
fn what_is_written_is_read_until_it_is_erased() {
    let mut world = World::new(1);
    let write = world.ask(1, Some(bytes_of(Value(5), 4_000)));
    assert!(matches!(world.answer(write), Ok(DataTold::Written(_))));
    let read = world.ask(1, None);
    let Ok(DataTold::Bytes(bytes, crcs)) = world.answer(read) else {
        panic!("it was written");
    };
    assert_eq!(value_of(&bytes), Some(Value(5)));
    assert_eq!(checksum::block_crcs(&bytes), crcs);
    let (extent, version) = place(1, 4_000);
    world
        .desk
        .commands
        .borrow_mut()
        .push(Command::Erase { extent, version });
    let released = Event::Released { extent, version };
    world.until("it is released", |world| {
        world.desk.events.borrow().contains(&released)
    });
    let read = world.ask(1, None);
    assert_eq!(world.answer(read), Err(DataReason::StaleVersion));
}

/// A write that began under an older leader does not end once the agent heard of the next one.
#[test]
fn writes_of_an_older_epoch_are_cut() {
    let cut = (0..40).filter(|seed| {
        let mut world = World::new(*seed);
        world.desk.epoch.set(epoch(2));
        world.desk.commands.borrow_mut().push(Command::TenantGone {
            tenant: TenantId::new("other").expect("a name"),
        });
        world.pass(2);
        let write = world.ask(1, Some(bytes_of(Value(5), 4_000)));
        let answer = world.answer(write);
        world.until("the epoch is saved", |world| {
            world.folder.epoch() == epoch(2)
        });
        let again = world.ask(2, None);
        assert_eq!(
            world.answer(again),
            Err(DataReason::StaleVersion),
            "seed {seed}"
        );
        answer == Err(DataReason::StaleEpoch)
    });
    let cut = cut.count();
    assert!(
        (1..40).contains(&cut),
        "{cut} of 40: some before and some after"
    );
}

#[test]
fn an_agent_that_died_remembers_the_epoch_and_nothing_else() {
    let mut world = World::new(2);
    world.desk.epoch.set(epoch(4));
    world.until("it hears of it", |world| world.folder.epoch() == epoch(4));
    world.stage.kill(AGENT);
    world.desk.epoch.set(epoch(3));
    let (mounts, beats) = (world.desk.mounts.borrow().len(), world.desk.beats.get());
    world.start_agent();
    world.pass(2_000);
    assert!(world.desk.mounts.borrow().len() > mounts, "it asks");
    assert_eq!(
        world.desk.beats.get(),
        beats,
        "and takes no word of a leader of the past"
    );
    assert_eq!(world.folder.epoch(), epoch(4));
    world.desk.epoch.set(epoch(5));
    world.until("it mounts", |world| world.desk.beats.get() > beats);
    let read = world.ask(1, None);
    assert_eq!(world.answer(read), Err(DataReason::StaleRegistration));
}

#[test]
fn an_agent_tells_a_master_without_a_log_what_it_holds() {
    let mut world = World::new(3);
    let write = world.ask(1, Some(bytes_of(Value(5), 4_000)));
    let Ok(DataTold::Written(receipt)) = world.answer(write) else {
        panic!("it is free");
    };
    world.stage.kill(MASTER);
    world.desk.epoch.set(Epoch {
        generation: 2,
        term: 1,
    });
    world.desk.asks.set(true);
    world.start_master();
    world.until("it tells", |world| !world.desk.pages.borrow().is_empty());
    world.pass(2_000);
    let pages = world.desk.pages.take();
    let [page] = &pages[..] else {
        panic!("one page, once: {pages:?}");
    };
    assert!(page.is_last && page.slabs.len() == 1);
    let [record] = &page.records[..] else {
        panic!("{page:?}");
    };
    let said = record.written.as_ref().map(|object| object.digest);
    assert_eq!(
        (record.extent, said),
        (receipt.extent, Some(receipt.digest))
    );
    let read = world.ask(1, None);
    assert!(matches!(world.answer(read), Ok(DataTold::Bytes(..))));
}

/// Clients by the whole protocol, over a network that repeats and is late, against the simplest
/// pool: what they were told is what one register per key would have told.
#[test]
fn clients_put_and_get_by_the_protocol() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        let shape = WorkShape {
            clients: 4,
            operations: 120,
            keys: 3,
            ..WorkShape::default()
        };
        let settings = ClientSettings {
            masters: vec![("master-0:1".to_owned(), MASTER)],
            agents: vec![(AgentName::new("pool-0").expect("a name"), AGENT)],
            tenant: tenant(),
            credential: b"a".to_vec(),
            replicas: 1,
            patience: Duration::from_millis(500),
            removes_again: false,
        };
        let mut records = Vec::new();
        let nodes = (200..).map(Node);
        for (node, steps) in nodes.zip(draw_work(Seed(seed), &shape)) {
            let record = Rc::new(RefCell::new(Recorder::new(node.0, 100)));
            let (settings, ours) = (settings.clone(), Rc::clone(&record));
            let run = |context| run_client(context, settings, steps, ours);
            world.stage.start(node, run).expect("a runtime");
            records.push((node, record));
        }
        world.until("all are done", |world| {
            !records
                .iter()
                .any(|(node, _)| world.stage.is_running(*node))
        });
        let records = records.into_iter().map(|(_, record)| {
            Rc::into_inner(record)
                .expect("the client is gone")
                .into_inner()
        });
        let history = Recorder::merge(records).expect("they fit");
        let report = check(&history, &Losses::Never, Limits::default());
        assert!(report.is_ok(), "seed {seed}: {report}");
        let of = |outcome: Outcome| {
            let all = history.operations().iter();
            all.filter(|one| one.outcome == outcome).count()
        };
        assert_eq!((history.operations().len(), of(Outcome::Unknown)), (120, 0));
        let got = history.operations().iter();
        let got = got
            .filter(|one| matches!(one.outcome, Outcome::Got(_)))
            .count();
        assert!(of(Outcome::Done) > 20 && got > 5, "seed {seed}: {report}");
    }
}
