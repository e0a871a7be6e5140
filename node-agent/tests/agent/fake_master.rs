//! A master that says what a test wants: real sockets, real frames, no state.

use std::net::SocketAddr;
use std::time::Duration;

use larder_transfer::lane::{Admission, FrameReader, FrameWriter, accept, session_bits};
use larder_types::{
    AgentId, AgentName, Epoch, Incarnation, PoolTime, Principal, SegmentId, SessionId,
};
use larder_wire::agent::{
    Beat, Command, Commands, Done, Event, Heartbeat, Inventory, Mount, Mounted, Unmount,
};
use larder_wire::frame::{FLAG_ERROR, NO_DEADLINE};
use larder_wire::limit::MAX_HELLO_BYTES;
use larder_wire::{
    AgentKey, CallError, Frame, Header, Hello, Kind, Purpose, Refused, RefusedReason, Reply,
    RootKey, SessionSigner,
};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};

/// Far more than anything here takes: it only turns a hang into a failure.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const AGENT: AgentId = AgentId(5);
pub(crate) const SEGMENT: SegmentId = SegmentId(10);

/// Waits, but not for ever.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("nothing happened: {what}"),
    }
}

pub(crate) fn root_key() -> RootKey {
    RootKey::new([3; 32])
}

/// The key under which capabilities for the agent of this mount are signed.
pub(crate) fn agent_key(mount: &Mount) -> AgentKey {
    root_key().agent_key(&mount.name, mount.incarnation, 1)
}

pub(crate) fn signer() -> SessionSigner {
    SessionSigner::new(&root_key()).expect("a key")
}

pub(crate) struct FakeMaster {
    pub(crate) listener: TcpListener,
    pub(crate) epoch: Epoch,
    /// As seldom as it may be, so that a test that looks elsewhere for a while is not taken for
    /// a master that is silent.
    pub(crate) heartbeat_ms: u64,
}

/// What an agent says, with the header that an answer needs.
#[derive(Debug)]
pub(crate) enum Call {
    Mount(Header, Mount),
    Heartbeat(Header, Heartbeat),
    Done(Done),
    Inventory(Header, Inventory),
    Unmount(Header),
}

pub(crate) struct MasterLink {
    stream: TcpStream,
    reader: FrameReader,
    writer: FrameWriter,
    session: u32,
    pub(crate) epoch: Epoch,
    heartbeat_ms: u64,
}

impl FakeMaster {
    pub(crate) async fn new(epoch: Epoch) -> Self {
        Self::at("127.0.0.1:0", epoch).await
    }

    pub(crate) async fn at(addr: &str, epoch: Epoch) -> Self {
        let listener = TcpListener::bind(addr).await.expect("bound");
        Self {
            listener,
            epoch,
            heartbeat_ms: 60_000,
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }

    /// The next connection that says a good hello.
    pub(crate) async fn accept(&self) -> MasterLink {
        let (mut stream, _) = soon("an agent connects", self.listener.accept())
            .await
            .expect("tcp");
        let mut reader = FrameReader::new(MAX_HELLO_BYTES);
        let mut writer = FrameWriter::default();
        let epoch = self.epoch;
        let admit = async |hello: Hello| admit(&hello, epoch);
        let accepted = accept(&mut stream, &mut reader, &mut writer, admit)
            .await
            .expect("a hello");
        let session = session_bits(&accepted.welcome);
        let heartbeat_ms = self.heartbeat_ms;
        MasterLink {
            stream,
            reader,
            writer,
            session,
            epoch,
            heartbeat_ms,
        }
    }

    /// The next connection, mounted.
    pub(crate) async fn mount(&self) -> (MasterLink, Mount) {
        let mut link = self.accept().await;
        let mount = link.answer_mount(Vec::new()).await;
        (link, mount)
    }
}

fn admit(hello: &Hello, epoch: Epoch) -> Result<Admission, Refused> {
    if hello.credential != b"token-of-small-0" || hello.purpose != Purpose::Agent {
        let detail = "who are you";
        return Err(Refused::new(RefusedReason::Credential, detail));
    }
    Ok(Admission {
        session: SessionId(77),
        principal: Principal::Agent(AgentName::new("small-0").expect("a name")),
        incarnation: Incarnation(1),
        epoch,
        pool_time: PoolTime(1_000),
        session_token: Vec::new(),
        session_token_ms: 0,
        name: "listener".to_owned(),
    })
}

impl MasterLink {
    /// What the agent says next; `None` if it hangs up.
    pub(crate) async fn next(&mut self) -> Option<Call> {
        let next = soon("the agent speaks", self.reader.next(&mut self.stream)).await;
        // Hanging up with bytes unread looks like an error.
        let header = next.ok().flatten()?;
        assert_eq!(header.session, self.session);
        Some(match header.kind {
            Kind::Mount => Call::Mount(header, self.reader.decode().expect("a mount")),
            Kind::Heartbeat => Call::Heartbeat(header, self.reader.decode().expect("a beat")),
            Kind::Done => Call::Done(self.reader.decode().expect("done")),
            Kind::Inventory => Call::Inventory(header, self.reader.decode().expect("a page")),
            Kind::Unmount => {
                let unmount: Unmount = self.reader.decode().expect("an unmount");
                assert_eq!(unmount.agent, AGENT);
                Call::Unmount(header)
            }
            other => panic!("an agent does not say {other:?}"),
        })
    }

    /// Answers heartbeats until the agent says something else.
    pub(crate) async fn next_but_beats(&mut self) -> Option<Call> {
        loop {
            match self.next().await? {
                Call::Heartbeat(header, _) => {
                    self.reply(&header, &Beat { known: true }).await;
                }
                other => return Some(other),
            }
        }
    }

    /// Answers heartbeats until so many events were told.
    pub(crate) async fn events(&mut self, count: usize) -> Vec<Event> {
        let mut events = Vec::new();
        while events.len() < count {
            match self.next_but_beats().await {
                Some(Call::Done(done)) => {
                    assert_eq!(done.agent, AGENT);
                    events.extend(done.events);
                }
                other => panic!("events were due, not {other:?}"),
            }
        }
        events
    }

    pub(crate) async fn answer_mount(&mut self, outstanding: Vec<Command>) -> Mount {
        self.answer(outstanding, false).await
    }

    /// The same from a master that makes its pool again.
    pub(crate) async fn answer_mount_asking(&mut self) -> Mount {
        self.answer(Vec::new(), true).await
    }

    async fn answer(&mut self, outstanding: Vec<Command>, wants_inventory: bool) -> Mount {
        let Some(Call::Mount(header, mount)) = self.next_but_beats().await else {
            panic!("a mount was due")
        };
        let key = agent_key(&mount);
        let mounted = Mounted {
            agent: AGENT,
            segments: (0..mount.segments.len()).map(segment).collect(),
            capability_key: *key.bytes(),
            key_id: key.id(),
            session_key: signer().verify_key().expect("a key"),
            heartbeat_ms: self.heartbeat_ms,
            outstanding,
            wants_inventory,
        };
        self.reply(&header, &mounted).await;
        mount
    }

    pub(crate) async fn reply<T: Serialize>(&mut self, to: &Header, answer: &T) {
        let body = Reply {
            epoch: self.epoch,
            pool_time: PoolTime(1_000),
            answer,
        };
        self.writer
            .push(Frame::reply(to, 0), &body)
            .expect("it fits");
        self.flush().await;
    }

    pub(crate) async fn fail(&mut self, to: &Header, error: &CallError) {
        self.writer
            .push(Frame::reply(to, FLAG_ERROR), error)
            .expect("it fits");
        self.flush().await;
    }

    pub(crate) async fn command(&mut self, epoch: Epoch, commands: Vec<Command>) {
        let commands = Commands {
            epoch,
            pool_time: PoolTime(1_000),
            commands,
        };
        let frame = Frame::request(Kind::Commands, 0, self.session, NO_DEADLINE);
        self.writer.push(frame, &commands).expect("it fits");
        self.flush().await;
    }

    async fn flush(&mut self) {
        // The agent may have hung up; what it does then is what tests look at.
        let _ = self.writer.flush(&mut self.stream).await;
    }
}

fn segment(ordinal: usize) -> SegmentId {
    SegmentId(SEGMENT.0 + u32::try_from(ordinal).expect("few"))
}
