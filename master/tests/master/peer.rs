//! The other ends: a client and an agent that speak the wire directly.

use std::collections::VecDeque;
use std::net::SocketAddr;

use larder_types::layout::MIN_SLAB_BYTES;
use larder_types::{
    AgentId, AgentName, AgentUid, Attributes, Digest, Epoch, Incarnation, Key, PoolTime, Reason,
    SegmentGeneration, SegmentId, TenantId, Version,
};
use larder_wire::agent::{
    Beat, Command, Commands, Done, Event, Heartbeat, Mount, Mounted, SegmentOffer,
};
use larder_wire::frame::{FLAG_ERROR, FLAG_REPLY, NO_DEADLINE};
use larder_wire::master::{
    Exists, Get, Located, ObjectGrant, PutEnd, PutEndItem, PutGrant, PutMode, PutStart,
    PutStartItem, PutStarted,
};
use larder_wire::{
    AgentKey, CallError, CallResult, Capability, Frame, FrameDecoder, Header, Hello, KeyRing, Kind,
    Purpose, Receipt, Refused, Reply, Welcome, decode_body, encode_frame,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::rig::{Rig, soon, token};

pub(crate) fn key(text: &str) -> Key {
    Key::try_from(text).expect("a valid key")
}

pub(crate) fn tenant(text: &str) -> TenantId {
    TenantId::new(text).expect("a valid id")
}

/// One connection.
pub(crate) struct Peer {
    stream: TcpStream,
    decoder: FrameDecoder,
    session: u32,
    last_request: u64,
    /// Frames that are no replies, in order.
    pushed: VecDeque<(Header, Vec<u8>)>,
    pub(crate) welcome: Option<Welcome>,
}

impl Peer {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("the wire port");
        let mut decoder = FrameDecoder::before_hello();
        decoder.accept(0);
        let pushed = VecDeque::new();
        Self {
            stream,
            decoder,
            session: 0,
            last_request: 0,
            pushed,
            welcome: None,
        }
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("sent");
    }

    /// The next frame; `None` at the end.
    pub(crate) async fn read(&mut self) -> Option<(Header, Vec<u8>)> {
        soon("a frame", async {
            loop {
                if let Some((header, body)) = self.decoder.next_frame().expect("a valid frame") {
                    return Some((header, body.to_vec()));
                }
                match self.stream.read(self.decoder.space()).await {
                    Ok(0) | Err(_) => return None,
                    Ok(bytes) => self.decoder.filled(bytes),
                }
            }
        })
        .await
    }

    pub(crate) async fn say_hello(&mut self, hello: &Hello) -> Result<Welcome, Refused> {
        let mut out = Vec::new();
        let frame = Frame::request(Kind::Hello, 1, 0, NO_DEADLINE);
        encode_frame(&mut out, frame, hello).expect("a hello");
        self.write(&out).await;
        let (header, body) = self.read().await.expect("an answer to the hello");
        if header.has(FLAG_ERROR) || header.kind == Kind::Goodbye {
            return Err(decode_body(header.kind, &body).expect("a refusal"));
        }
        let welcome: Welcome = decode_body(header.kind, &body).expect("a welcome");
        self.session = (welcome.session.0 & 0xffff_ffff) as u32;
        self.welcome = Some(welcome.clone());
        Ok(welcome)
    }

    /// Sends a request and returns its number.
    pub(crate) async fn send<T: Serialize>(
        &mut self,
        kind: Kind,
        body: &T,
        remaining_ms: u32,
    ) -> u64 {
        self.last_request += 1;
        let request = if kind == Kind::Done {
            0
        } else {
            self.last_request
        };
        let mut out = Vec::new();
        let frame = Frame::request(kind, request, self.session, remaining_ms);
        encode_frame(&mut out, frame, body).expect("a request");
        self.write(&out).await;
        request
    }

    /// The reply to a request; what is pushed meanwhile is kept.
    pub(crate) async fn reply<T: DeserializeOwned>(
        &mut self,
        request: u64,
    ) -> CallResult<Reply<T>> {
        loop {
            let (header, body) = self.read().await.expect("a reply before the end");
            if !header.has(FLAG_REPLY) {
                self.pushed.push_back((header, body));
                continue;
            }
            assert_eq!(header.request, request);
            if header.has(FLAG_ERROR) {
                return Err(decode_body::<CallError>(header.kind, &body).expect("an error"));
            }
            return Ok(decode_body(header.kind, &body).expect("a reply"));
        }
    }

    pub(crate) async fn call<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        body: &impl Serialize,
    ) -> CallResult<T> {
        let request = self.send(kind, body, NO_DEADLINE).await;
        self.reply(request).await.map(|reply| reply.answer)
    }

    /// The next frame that is no reply; `None` at the end.
    pub(crate) async fn push(&mut self) -> Option<(Header, Vec<u8>)> {
        match self.pushed.pop_front() {
            Some(pushed) => Some(pushed),
            None => self.read().await,
        }
    }

    /// Reads to the end; the goodbye, if there was one.
    pub(crate) async fn goodbye(&mut self) -> Option<Refused> {
        let mut last = None;
        while let Some((header, body)) = self.push().await {
            if header.kind == Kind::Goodbye {
                last = Some(decode_body(header.kind, &body).expect("a goodbye"));
            }
        }
        last
    }
}

pub(crate) fn hello(name: &str, purpose: Purpose) -> Hello {
    Hello {
        protocol_min: 1,
        protocol_max: 1,
        features: 0,
        credential: token(name).into_bytes(),
        purpose,
        name: "test".to_owned(),
        incarnation: Incarnation(77),
    }
}

/// A client of a tenant.
pub(crate) struct Client(pub(crate) Peer);

impl Client {
    pub(crate) async fn connect(rig: &Rig, tenant: &str) -> Self {
        let mut peer = Peer::connect(rig.client_addr).await;
        peer.say_hello(&hello(tenant, Purpose::Client))
            .await
            .expect("welcome");
        Self(peer)
    }

    pub(crate) async fn start(&mut self, keys: &[&str], size_bytes: u64) -> PutStarted {
        self.try_start(keys, size_bytes)
            .await
            .expect("a whole answer")
    }

    pub(crate) async fn try_start(
        &mut self,
        keys: &[&str],
        size_bytes: u64,
    ) -> CallResult<PutStarted> {
        self.0
            .call(Kind::PutStart, &start_call(keys, size_bytes))
            .await
    }

    pub(crate) async fn start_one(&mut self, key: &str, size_bytes: u64) -> CallResult<PutGrant> {
        let mut started = self.start(&[key], size_bytes).await;
        started.grants.pop().expect("one result")
    }

    pub(crate) async fn end(&mut self, items: Vec<PutEndItem>) -> Vec<CallResult<()>> {
        self.0
            .call(Kind::PutEnd, &PutEnd { items })
            .await
            .expect("a whole answer")
    }

    pub(crate) async fn end_one(&mut self, item: PutEndItem) -> CallResult<()> {
        self.end(vec![item]).await.pop().expect("one result")
    }

    /// A whole put, through the agents that signed for it.
    pub(crate) async fn put(
        &mut self,
        text: &str,
        size_bytes: u64,
        agents: &[&Agent],
    ) -> CallResult<()> {
        let grant = self.start_one(text, size_bytes).await?;
        self.end_one(end_item(text, &grant, agents)).await
    }

    pub(crate) async fn get(&mut self, keys: &[&str]) -> Vec<CallResult<ObjectGrant>> {
        let keys = keys.iter().map(|text| key(text)).collect();
        let located: Located = self
            .0
            .call(Kind::Get, &Get { keys })
            .await
            .expect("an answer");
        located.objects
    }

    pub(crate) async fn exists(&mut self, keys: &[&str]) -> Vec<CallResult<bool>> {
        let keys = keys.iter().map(|text| key(text)).collect();
        self.0
            .call(Kind::Exists, &Exists { keys, lease: false })
            .await
            .expect("an answer")
    }

    pub(crate) async fn remove(&mut self, keys: &[&str]) -> Vec<CallResult<()>> {
        let keys = keys.iter().map(|text| key(text)).collect();
        let call = larder_wire::master::Remove {
            keys,
            if_unleased: false,
        };
        self.0.call(Kind::Remove, &call).await.expect("an answer")
    }

    pub(crate) async fn usage(&mut self) -> larder_wire::master::TenantUsage {
        self.0
            .call(Kind::Usage, &larder_wire::master::Usage {})
            .await
            .expect("an answer")
    }
}

pub(crate) fn start_call(keys: &[&str], size_bytes: u64) -> PutStart {
    let item = |text: &&str| PutStartItem {
        key: key(text),
        size_bytes,
        replicas: 0,
        preferred: vec![],
        mode: PutMode::Create,
        strict: true,
        attributes: Attributes::default(),
    };
    PutStart {
        items: keys.iter().map(item).collect(),
    }
}

/// The end of a put whose extents these agents hold.
pub(crate) fn end_item(text: &str, grant: &PutGrant, agents: &[&Agent]) -> PutEndItem {
    let extents = grant.replicas.iter().flat_map(|replica| &replica.extents);
    let receipts = extents.map(|(extent, capability)| {
        let holder = agents.iter().find(|agent| agent.id == extent.slab.agent);
        holder
            .expect("a known agent")
            .write(&capability.clone(), grant.version)
    });
    PutEndItem {
        key: key(text),
        version: grant.version,
        receipts: receipts.collect(),
    }
}

pub(crate) fn reason<T: std::fmt::Debug>(result: CallResult<T>) -> Reason {
    result.expect_err("a refusal").reason
}

/// What an agent shows of itself, apart from its connection.
#[derive(Clone)]
pub(crate) struct Agent {
    pub(crate) id: AgentId,
    pub(crate) name: AgentName,
    pub(crate) incarnation: Incarnation,
    pub(crate) segments: Vec<SegmentId>,
    pub(crate) key: AgentKey,
    pub(crate) outstanding: Vec<Command>,
}

impl Agent {
    /// Checks leave to write and says that it is done.
    pub(crate) fn write(
        &self,
        signed: &larder_wire::SignedCapability,
        version: Version,
    ) -> Receipt {
        let capability = self.verify(signed);
        assert_eq!(capability.version, version);
        Receipt::sign(
            self.incarnation,
            capability.extent,
            version,
            Digest(7),
            &self.key,
        )
    }

    /// What a capability says, if it was signed for this agent.
    pub(crate) fn verify(&self, signed: &larder_wire::SignedCapability) -> Capability {
        let mut keys = KeyRing::default();
        keys.push(self.key.clone());
        let capability = signed.verify(&keys).expect("signed for this agent");
        assert_eq!(capability.incarnation, self.incarnation);
        assert_eq!(capability.extent.slab.agent, self.id);
        capability
    }
}

pub(crate) fn mount(name: &str, incarnation: u64, generation: u64) -> Mount {
    Mount {
        name: AgentName::new(name).expect("a valid name"),
        uid: AgentUid(u128::from(name.as_bytes()[name.len() - 1])),
        incarnation: Incarnation(incarnation),
        data_addr: "127.0.0.1:9".to_owned(),
        segments: vec![SegmentOffer {
            ordinal: 0,
            generation: SegmentGeneration(incarnation),
            slabs: 8,
            slab_bytes: MIN_SLAB_BYTES,
            numa: 0,
        }],
        highest_epoch: Epoch {
            generation,
            term: u64::from(generation > 0),
        },
        labels: larder_types::Labels::default(),
        kept: None,
    }
}

/// A connection of an agent that mounted.
pub(crate) struct AgentPeer {
    pub(crate) peer: Peer,
    pub(crate) agent: Agent,
}

impl AgentPeer {
    pub(crate) async fn connect(rig: &Rig, name: &str) -> Peer {
        let mut peer = Peer::connect(rig.client_addr).await;
        peer.say_hello(&hello(name, Purpose::Agent))
            .await
            .expect("welcome");
        peer
    }

    pub(crate) async fn mount(rig: &Rig, name: &str, incarnation: u64) -> Self {
        let mut peer = Self::connect(rig, name).await;
        let offer = mount(name, incarnation, 0);
        let mounted: Mounted = peer.call(Kind::Mount, &offer).await.expect("mounted");
        let agent = Agent {
            id: mounted.agent,
            name: offer.name,
            incarnation: offer.incarnation,
            segments: mounted.segments,
            key: AgentKey::new(mounted.capability_key, mounted.key_id),
            outstanding: mounted.outstanding,
        };
        let mut mounted = Self { peer, agent };
        // The first heartbeat acknowledges the leader's epoch: nothing is placed before it.
        assert!(mounted.beat().await);
        mounted
    }

    /// The next commands; `None` at the end of the connection.
    pub(crate) async fn commands(&mut self) -> Option<Commands> {
        loop {
            let (header, body) = self.peer.push().await?;
            if header.kind == Kind::Commands {
                return Some(decode_body(header.kind, &body).expect("commands"));
            }
        }
    }

    /// Says that these commands are done.
    pub(crate) async fn obey(&mut self, commands: Vec<Command>) {
        let events: Vec<Event> = commands.into_iter().filter_map(done).collect();
        if !events.is_empty() {
            self.say(events).await;
        }
    }

    pub(crate) async fn say(&mut self, events: Vec<Event>) {
        let (agent, incarnation) = (self.agent.id, self.agent.incarnation);
        self.peer
            .send(
                Kind::Done,
                &Done {
                    agent,
                    incarnation,
                    events,
                },
                NO_DEADLINE,
            )
            .await;
    }

    pub(crate) async fn beat(&mut self) -> bool {
        let (agent, incarnation) = (self.agent.id, self.agent.incarnation);
        let highest_epoch = self.peer.welcome.as_ref().expect("a welcome").epoch;
        let beat = Heartbeat {
            agent,
            incarnation,
            highest_epoch,
            load_permille: 0,
        };
        self.peer
            .call::<Beat>(Kind::Heartbeat, &beat)
            .await
            .expect("an answer")
            .known
    }

    /// Obeys every command from here on, as a good agent does, until the connection ends.
    pub(crate) fn serve(mut self) -> Agent {
        let agent = self.agent.clone();
        tokio::spawn(async move {
            let outstanding = std::mem::take(&mut self.agent.outstanding);
            self.obey(outstanding).await;
            while let Some((header, body)) = self.peer.push_forever().await {
                if header.kind == Kind::Commands {
                    let commands: Commands = decode_body(header.kind, &body).expect("commands");
                    assert!(commands.pool_time >= PoolTime(0));
                    self.obey(commands.commands).await;
                }
            }
        });
        agent
    }
}

impl Peer {
    /// As [`Peer::push`], for a task that may wait as long as the test runs.
    async fn push_forever(&mut self) -> Option<(Header, Vec<u8>)> {
        if let Some(pushed) = self.pushed.pop_front() {
            return Some(pushed);
        }
        loop {
            if let Some((header, body)) = self.decoder.next_frame().ok()? {
                return Some((header, body.to_vec()));
            }
            match self.stream.read(self.decoder.space()).await {
                Ok(0) | Err(_) => return None,
                Ok(bytes) => self.decoder.filled(bytes),
            }
        }
    }
}

fn done(command: Command) -> Option<Event> {
    match command {
        Command::SlabGive { slab, .. } => Some(Event::SlabReady { slab }),
        Command::SlabTake { slab } => Some(Event::SlabReturned { slab }),
        Command::Erase { extent, version } => Some(Event::Released { extent, version }),
        Command::TenantGone { .. } => None,
        Command::Copy(order) => Some(Event::Copied {
            copy: order.copy,
            digest: order.digest,
        }),
    }
}
