//! A master without sockets, for the simulator. Behind the feature `sim`, which no program needs.
//!
//! It is the whole of a master: standby, leader, standby again. Only what it stands on is played:
//! its disk, its clock, its way to the other masters, and the connections, which come in by a
//! [`Door`]. Snapshots are not sent here: each call of another master stands for itself.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use larder_oplog::{BootId, Disk, DiskError, Position};
use larder_store::{State, check};
use larder_telemetry::{Component, Registry};
use larder_types::{Incarnation, Principal};
use larder_wire::{FrameDecoder, Hello, Refused, RootKey, Welcome, negotiate};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

/// What this program knows to do.
pub const RELEASE: u32 = crate::consensus::RELEASE;
pub use crate::flaw::Mistake;

use crate::config::{Config, TenantConfig};
use crate::connection::hello::ask_leader;
use crate::connection::{End, Session, Understood, pass_on};
use crate::consensus::{
    ConsensusError, Home, Link, Member, PeerAnswer, PeerCall, PeerDesk, PeerSession, SyncPause,
    Transport, TransportError,
};
use crate::event::{AdminAsk, ConnectionId, Event};
use crate::flaw::Flaw;
use crate::node::roles::{Ground, Parts};
use crate::node::{EVENTS_LENGTH, MasterError};
use crate::ready_file::Addrs;
use crate::role::Role;

/// What a simulated master is started with.
#[derive(Debug)]
pub struct SimSettings {
    /// As of a real one; what it says of files and addresses is not read.
    pub config: Config,
    /// The tenants from the start.
    pub tenants: Vec<TenantConfig>,
    /// The root of the pool's keys.
    pub root: RootKey,
    /// Another one after each loss of power.
    pub boot: BootId,
    /// What all choices of this life follow from.
    pub seed: u64,
    /// Names this life; not 0.
    pub incarnation: Incarnation,
    /// What its program knows to do; see the crate's notes on releases.
    pub release: u32,
    /// A mistake to make it with.
    pub mistake: Option<Mistake>,
}

/// Opens the disk of a simulated master, as often as somebody needs it.
pub type SimVolume = Arc<dyn Fn() -> Result<Box<dyn Disk + Send + Sync>, DiskError> + Send + Sync>;
/// The clock of its machine, in ms.
pub type SimClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// How long a sync of its disk takes that is begun now.
pub type SimSync = SyncPause;

/// A way to the other masters: bytes there and bytes back.
pub trait PeerWay: Clone + Send + Sync + 'static {
    /// Calls the master at this address; `None` if no answer came within this time.
    fn call(
        &self,
        addr: &str,
        body: Vec<u8>,
        within: Duration,
    ) -> impl Future<Output = Option<Vec<u8>>> + Send;
}

#[derive(Clone)]
struct Ways<W>(W);

struct Way<W> {
    way: W,
    addr: String,
}

impl<W: PeerWay> Transport for Ways<W> {
    type Link = Way<W>;

    fn link(&self, member: &Member) -> Way<W> {
        let (way, addr) = (self.0.clone(), member.addr.clone());
        Way { way, addr }
    }
}

impl<W: PeerWay> Link for Way<W> {
    async fn call(
        &mut self,
        call: &PeerCall,
        within: Duration,
    ) -> Result<PeerAnswer, TransportError> {
        let body = postcard::to_allocvec(call).map_err(|_| TransportError::Ended)?;
        let answer = self.way.call(&self.addr, body, within).await;
        let answer = answer.ok_or(TransportError::Late)?;
        postcard::from_bytes(&answer).map_err(|_| TransportError::Ended)
    }
}

/// What comes to a simulated master from outside.
#[derive(Clone, Debug)]
pub struct Door {
    events: mpsc::Sender<Event>,
    desk: watch::Receiver<Option<PeerDesk>>,
    connections: Arc<AtomicU64>,
}

/// What a connection is told.
#[derive(Debug)]
pub enum Told {
    /// It is let in.
    Welcome(Box<Welcome>),
    /// It is not, or no longer.
    Refused(Refused),
    /// Whole frames.
    Frames(Vec<u8>),
}

/// What is seen of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The generation of its state.
    pub generation: u64,
    /// Whether its pool is being made again from what agents hold.
    pub is_rebuilding: bool,
    /// Whether it serves as the leader.
    pub leads: bool,
    /// The term in which it is certain to lead alone.
    pub certain_term: Option<u64>,
    /// Term and index of the last entry that it applied in this life.
    pub applied: Option<(u64, u64)>,
    /// The digest of its state after that.
    pub digest: u64,
    /// What its full check found.
    pub findings: Vec<String>,
}

/// A simulated master: what comes to it, and its life, which ends only with an error.
pub fn master<W: PeerWay>(
    settings: SimSettings,
    volume: SimVolume,
    clock: SimClock,
    sync: SimSync,
    way: W,
) -> (Door, impl Future<Output = Result<(), MasterError>>) {
    let (sender, mut events) = mpsc::channel(EVENTS_LENGTH);
    let (role, _) = watch::channel(Role::Starting);
    let (desk, desk_seen) = watch::channel(None);
    let door = Door {
        events: sender,
        desk: desk_seen,
        connections: Arc::default(),
    };
    let drawn = AtomicU64::new(settings.seed);
    // Each of them is far from the one before.
    let seeds = move || {
        let seed = drawn.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        SmallRng::seed_from_u64(seed).next_u64()
    };
    let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let parts = Parts {
        ground: Ground {
            volume,
            transport: Ways(way),
            clock,
            home: Home::Task(sync),
            boot: settings.boot,
            seeds: Arc::new(seeds),
            release: settings.release,
            flaw: Flaw {
                made: settings.mistake,
            },
        },
        config: settings.config,
        tenants: settings.tenants,
        quotas: Vec::new(),
        root: settings.root,
        incarnation: settings.incarnation,
        registry: Registry::new(Component::Master),
        addrs: Addrs {
            client: nowhere,
            admin: nowhere,
            zmq: Vec::new(),
        },
        zmq_feeds: Default::default(),
        role,
        desk,
    };
    let life = async move { parts.hold_roles(&mut events, pin!(pending::<()>())).await };
    (door, life)
}

/// What a master that ended so says, with all causes.
#[must_use]
pub fn why(error: &MasterError) -> String {
    larder_telemetry::error_chain(error)
}

/// Whether a master that ended so shows that the pool is broken, and not only its machine.
#[must_use]
pub fn is_broken(error: &MasterError) -> bool {
    match error {
        MasterError::Consensus(error) => match error {
            ConsensusError::Entry { .. }
            | ConsensusError::Corrupt { .. }
            | ConsensusError::Snapshots(_)
            | ConsensusError::Number { .. } => true,
            ConsensusError::Stopped(why) => why.contains("panic"),
            _ => false,
        },
        MasterError::Log(error) => !matches!(error, crate::log::LogError::NotLeader),
        MasterError::Corrupt(_) | MasterError::Tenant(_) => true,
        _ => false,
    }
}

impl Door {
    /// Answers a call of another master; `None` if it is none.
    pub async fn answer(&self, call: &[u8]) -> Option<Vec<u8>> {
        let call: PeerCall = postcard::from_bytes(call).ok()?;
        let desk = self.desk.borrow().clone();
        let answer = match desk {
            Some(desk) => desk.answer(&mut PeerSession::default(), call).await,
            None => PeerAnswer::Failed("this master is starting or stops".to_owned()),
        };
        postcard::to_allocvec(&answer).ok()
    }

    /// Serves a connection whose credential was proven, until `frames` is closed or the leader
    /// ends it.
    pub async fn serve(
        &self,
        hello: &Hello,
        principal: Principal,
        mut frames: mpsc::Receiver<Vec<u8>>,
        mut tell: impl FnMut(Told),
    ) {
        let connection = ConnectionId(self.connections.fetch_add(1, Ordering::Relaxed) + 1);
        let opened = match negotiate(hello) {
            Ok(protocol) => {
                let who = (protocol, principal, hello.purpose);
                ask_leader(&self.events, connection, who).await
            }
            Err(refused) => Err(refused),
        };
        let (welcome, outbox) = match opened {
            Ok(opened) => opened,
            Err(refused) => return tell(Told::Refused(refused)),
        };
        let session = Session {
            connection,
            purpose: hello.purpose,
            session: welcome.session,
            outbox,
        };
        tell(Told::Welcome(Box::new(welcome)));
        if let End::Refused(refused, _) = self.go_on(session, &mut frames, &mut tell).await {
            tell(Told::Refused(refused));
        }
        // The leader must hear it, and takes events as long as it runs.
        drop(self.events.send(Event::Closed(connection)).await);
    }

    async fn go_on(
        &self,
        mut session: Session,
        frames: &mut mpsc::Receiver<Vec<u8>>,
        tell: &mut impl FnMut(Told),
    ) -> End {
        let mut decoder = FrameDecoder::before_hello();
        decoder.accept(0);
        loop {
            tokio::select! {
                biased;
                outgoing = session.outbox.recv() => match outgoing {
                    Some(outgoing) => {
                        tell(Told::Frames(outgoing.bytes));
                        if outgoing.close {
                            return End::Closed;
                        }
                    }
                    None => return End::Closed,
                },
                bytes = frames.recv() => {
                    let Some(bytes) = bytes else { return End::Closed };
                    decoder.feed(&bytes);
                    if let Err(end) = self.hear(&session, &mut decoder, tell).await {
                        return end;
                    }
                }
            }
        }
    }

    async fn hear(
        &self,
        session: &Session,
        decoder: &mut FrameDecoder,
        tell: &mut impl FnMut(Told),
    ) -> Result<(), End> {
        while let Some((header, body)) = decoder.next_frame()? {
            match session.understand(&header, body)? {
                Understood::Nothing => {}
                Understood::Answer(bytes) => tell(Told::Frames(bytes)),
                // Lost, if the leader has no room: whoever called asks again.
                Understood::Call(called) => drop(pass_on(called, &self.events).await),
            }
        }
        Ok(())
    }

    /// Looks inside; `None` if the master stops.
    pub async fn look(&self) -> Option<Look> {
        let (reply, answer) = oneshot::channel();
        let asked = Event::Asked(AdminAsk::Look, reply);
        self.events.send(asked).await.ok()?;
        let told = answer.await.ok()?.ok()?;
        let number = |key: &str| told.get(key).and_then(Value::as_u64);
        let findings = told.get("findings").and_then(Value::as_array);
        let findings = findings.into_iter().flatten().filter_map(Value::as_str);
        Some(Look {
            generation: number("generation")?,
            is_rebuilding: told.get("rebuilding").and_then(Value::as_bool)?,
            leads: told.get("leads").and_then(Value::as_bool)?,
            certain_term: number("certain_term"),
            applied: number("term").zip(number("index")),
            digest: number("digest")?,
            findings: findings.map(ToOwned::to_owned).collect(),
        })
    }
}

/// What a master shows of itself, for [`Door::look`].
pub(crate) fn look(
    state: &State,
    applied: Option<Position>,
    role: Role,
    certain_term: Option<u64>,
) -> Value {
    let findings: Vec<String> = check(state).iter().map(ToString::to_string).collect();
    json!({
        "generation": state.generation(),
        "rebuilding": state.is_rebuilding(),
        "leads": role == Role::Leading,
        "certain_term": certain_term,
        "term": applied.map(|at| at.term),
        "index": applied.map(|at| at.index),
        "digest": state.digest(),
        "findings": findings,
    })
}
