//! One role after another: starting, following, leading, and back.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use larder_oplog::{BootId, Options, StdDisk};
use larder_store::{Op, State};
use larder_telemetry::{Metric, Registry};
use larder_types::Incarnation;
use larder_wire::{RootKey, SessionSigner};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::MasterError;
use crate::clock::{PoolClock, boot_ms};
use crate::config::{Config, QuotaConfig, Recovery, TenantConfig};
use crate::consensus::{
    Clock, ConsensusError, Home, Member, PeerDesk, RELEASE, RaftLog, Replica, ReplicaSettings,
    TcpTransport, Transport, Volume,
};
use crate::event::Event;
use crate::events::{Events, zmq};
use crate::flaw::{Flaw, Mistake};
use crate::leader::{Ended, Keys, Leading, Rules};
use crate::metrics::MasterMetrics;
use crate::ready_file::{self, Addrs};
use crate::role::Role;
use crate::snapshots::{Beginning, restore};
use crate::standby::{Followed, Standby, known};

/// What a master stands on: its machine, or what is played for one.
pub(crate) struct Ground<T> {
    /// Its disk. Locked as long as the volume lives: two masters on one folder would be two in one.
    pub(crate) volume: Volume,
    /// Its way to the other masters.
    pub(crate) transport: T,
    pub(crate) clock: Clock,
    pub(crate) home: Home,
    pub(crate) boot: BootId,
    /// Seeds of what is drawn.
    pub(crate) seeds: Seeds,
    /// What this program knows to do.
    pub(crate) release: u32,
    pub(crate) flaw: Flaw,
}

/// Gives a seed each time that one is needed.
pub(crate) type Seeds = Arc<dyn Fn() -> u64 + Send + Sync>;

impl Ground<TcpTransport> {
    /// The machine that this process runs on.
    pub(super) fn of_machine(
        config: &Config,
        root: &RootKey,
        incarnation: Incarnation,
    ) -> Result<Self, MasterError> {
        let disk = StdDisk::open(config.state_dir.join("oplog")).map_err(ConsensusError::from)?;
        let transport = TcpTransport {
            credential: root.master_credential().to_vec(),
            name: config.name.clone(),
            incarnation,
        };
        Ok(Self {
            volume: Arc::new(move || Ok(Box::new(disk.share()?))),
            transport,
            clock: Arc::new(boot_ms),
            home: Home::Thread,
            boot: boot_id()?,
            seeds: Arc::new(|| SmallRng::from_os_rng().random()),
            release: RELEASE,
            flaw: Flaw::default(),
        })
    }
}

/// What the role loop needs.
pub(crate) struct Parts<T> {
    pub(crate) ground: Ground<T>,
    pub(crate) config: Config,
    pub(crate) tenants: Vec<TenantConfig>,
    pub(crate) quotas: Vec<QuotaConfig>,
    pub(crate) root: RootKey,
    pub(crate) incarnation: Incarnation,
    pub(crate) registry: Registry,
    pub(crate) addrs: Addrs,
    pub(crate) zmq_feeds: zmq::Feeds,
    pub(crate) role: watch::Sender<Role>,
    /// Where connections of other masters find who answers them.
    pub(crate) desk: watch::Sender<Option<PeerDesk>>,
}

/// That this master is to stop. May be waited for again and again.
struct Shutdown<'a, F: ?Sized> {
    asked: Pin<&'a mut F>,
    is_asked: bool,
}

impl<F: Future<Output = ()> + ?Sized> Shutdown<'_, F> {
    async fn wait(&mut self) {
        if !self.is_asked {
            self.asked.as_mut().await;
            self.is_asked = true;
        }
    }

    /// As [`Self::wait`], for a leader: it hands its office over first, so that nobody waits for
    /// an election. When that works it ends as one that was deposed, and this never does.
    async fn resign(&mut self, replica: &Replica) {
        self.wait().await;
        if replica.is_alone() {
            return;
        }
        match timeout(RESIGN_TIMEOUT, replica.desk().hand_over(None)).await {
            Ok(Ok(_)) => pending().await,
            Ok(Err(why)) => tracing::warn!(why, "the office was not handed over"),
            Err(_) => tracing::warn!("the office was not handed over in time"),
        }
    }
}

/// How long a leader that stops may take to hand its office over.
const RESIGN_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a leader begins the pool, or begins it again.
enum Begin {
    /// It is new.
    Empty,
    /// What was acknowledged last may be missing in the log.
    Tail,
    /// Agents have seen this generation, of which no master has anything.
    Above(u64),
}

impl std::fmt::Display for Begin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "the pool begins empty",
            Self::Tail => "the end of the log may be lost: the pool is made again from its agents",
            Self::Above(_) => "the log is lost: the pool is made again from its agents",
        })
    }
}

/// How a leader's time ended.
enum Led {
    /// The master is to stop.
    Stopped,
    /// Another one leads.
    Deposed(Box<Standby>),
}

impl<T: Transport> Parts<T> {
    /// Follows, leads, follows again, until the master is to stop.
    pub(crate) async fn hold_roles(
        &self,
        events: &mut mpsc::Receiver<Event>,
        shutdown: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    ) -> Result<(), MasterError> {
        let mut shutdown = Shutdown {
            asked: shutdown,
            is_asked: false,
        };
        let (mut replica, mut standby) = self.start_replica().await?;
        let ended = loop {
            let followed = standby
                .follow(&replica, events, pin!(shutdown.wait()), |role| {
                    self.show(role)
                })
                .await?;
            let term = match followed {
                Followed::Stopped => break Ok(()),
                Followed::Leads(term) => term,
                Followed::JoinsAnew => {
                    tracing::warn!("this replica empties its log and joins anew");
                    self.desk.send_replace(None);
                    replica.wipe(&self.ground.volume).await?;
                    (replica, standby) = self.start_replica().await?;
                    continue;
                }
            };
            match self
                .lead(&replica, standby, term, events, &mut shutdown)
                .await?
            {
                Led::Stopped => break Ok(()),
                Led::Deposed(next) => standby = *next,
            }
        };
        self.desk.send_replace(None);
        replica.close().await;
        ended
    }

    /// Says what this master is now, to probes and to whoever waits for its file.
    fn show(&self, role: Role) -> Result<(), MasterError> {
        let before = self.role.send_replace(role);
        let is_ready = matches!(role, Role::Leading | Role::Standby);
        self.registry
            .set(Metric::MasterReady, &[], u64::from(is_ready));
        let is_leading = u64::from(role == Role::Leading);
        self.registry.set(Metric::MasterLeading, &[], is_leading);
        let was_starting = before == Role::Starting;
        match &self.config.ready_file {
            Some(path) if is_ready && was_starting => {
                ready_file::write(path, &self.config.name, &self.addrs)
            }
            _ => Ok(()),
        }
    }

    async fn start_replica(&self) -> Result<(Replica, Standby), MasterError> {
        let (config, ground) = (&self.config, &self.ground);
        let me = Member {
            name: config.name.clone(),
            addr: self.addrs.client.to_string(),
        };
        let mut members: Vec<Member> = config.members.clone();
        if members.is_empty() {
            members.push(me.clone());
        }
        let me = members
            .iter()
            .find(|member| member.name == me.name)
            .cloned()
            .unwrap_or(me);
        let settings = ReplicaSettings {
            me,
            members,
            heartbeat_ms: config.consensus.heartbeat_ms,
            election_ms: config.consensus.election_ms,
            log: Options {
                policy: config.oplog.policy(),
                ..Options::default()
            },
            synced: self.registry.counter(Metric::MasterLogSyncsTotal, &[]),
            growth_bytes: config.oplog.snapshot_bytes,
            boot: ground.boot,
            release: ground.release,
            seed: (ground.seeds)(),
            flaw: ground.flaw,
        };
        let (volume, clock) = (Arc::clone(&ground.volume), Arc::clone(&ground.clock));
        let (transport, home) = (ground.transport.clone(), ground.home.clone());
        let started = Replica::start(settings, volume, transport, clock, home).await?;
        known(&started.state, started.replica.release())?;
        self.desk.send_replace(Some(started.replica.desk().clone()));
        let standby = Standby::new(started.feed, started.state, 0, ground.flaw);
        Ok((started.replica, standby))
    }

    /// Leads in `term`, over one generation of the pool after another, until something ends it.
    async fn lead(
        &self,
        replica: &Replica,
        standby: Standby,
        term: u64,
        events: &mut mpsc::Receiver<Event>,
        shutdown: &mut Shutdown<'_, impl Future<Output = ()> + ?Sized>,
    ) -> Result<Led, MasterError> {
        let (feed, mut state) = standby.into_parts();
        let mut log = replica.lead(feed, term);
        let mut begin = match state.generation() {
            0 => Some(Begin::Empty),
            _ => replica.lost_tail().then_some(Begin::Tail),
        };
        loop {
            if let Some(begin) = begin.take() {
                let ops = tokio::select! {
                    biased;
                    () = shutdown.wait() => return Ok(Led::Stopped),
                    ops = self.beginning(&begin, state.generation()) => ops?,
                };
                if !log.commit_alone(ops, &mut state).await? {
                    return Ok(self.deposed(log, state, term));
                }
                replica.desk().tail_is_sought_in(term);
                tracing::info!(generation = state.generation(), "{begin}");
            }
            let mut leading = self.leading(term, state, log)?;
            let made = leading.make_tenants(self.tenants.clone(), self.quotas.clone());
            tokio::select! {
                biased;
                () = shutdown.wait() => return Ok(Led::Stopped),
                made = made => made.map_err(MasterError::Tenant)?,
            }
            self.show(Role::Leading)?;
            let leader = || replica.standing().leader.map(|member| member.addr);
            let ended;
            let stop = pin!(shutdown.resign(replica));
            (ended, log, state) = leading.run(events, stop, leader).await;
            match ended {
                Ended::Stopped => return Ok(Led::Stopped),
                Ended::StartOver { above } => begin = Some(Begin::Above(above)),
                Ended::Corrupt(corruption) => return Err(MasterError::Corrupt(corruption)),
                Ended::Log(crate::log::LogError::NotLeader) => {
                    tracing::warn!(term, "this master leads no longer");
                    return Ok(self.deposed(log, state, term));
                }
                Ended::Log(error) => return Err(MasterError::Log(error)),
            }
        }
    }

    /// What the log says first, in one entry: a pool has begun with all of it or not at all.
    async fn beginning(&self, begin: &Begin, generation: u64) -> Result<Vec<Op>, MasterError> {
        let above = match begin {
            Begin::Empty => {
                let told = match &self.config.bootstrap.from_snapshot {
                    Some(from) => restore(&self.config, from).await?,
                    None => Beginning::default(),
                };
                let generation = generation.max(told.above) + 1;
                let mut ops = vec![Op::PoolBegun { generation }];
                ops.extend(told.ops);
                return Ok(ops);
            }
            Begin::Tail => generation,
            Begin::Above(above) => generation.max(*above),
        };
        match self.config.bootstrap.recovery {
            Recovery::Refuse => Err(MasterError::Lost),
            Recovery::Inventory => Ok(vec![Op::PoolRebuilding {
                generation: above + 1,
                knows_agents: matches!(begin, Begin::Tail),
            }]),
        }
    }

    fn deposed(&self, log: RaftLog, state: State, led: u64) -> Led {
        let flaw = self.ground.flaw;
        Led::Deposed(Box::new(Standby::new(log.into_feed(), state, led, flaw)))
    }

    fn leading(
        &self,
        term: u64,
        state: State,
        log: RaftLog,
    ) -> Result<Leading<RaftLog>, MasterError> {
        let signer = SessionSigner::new(&self.root)?;
        let session_key = signer.verify_key()?;
        let keys = Keys {
            root: self.root.clone(),
            signer,
            session_key,
        };
        let config = &self.config;
        let mut settings = config.settings();
        if self.ground.flaw.is(Mistake::ServesUnheard) {
            settings.inventory_wait_ms = 0;
        }
        let rules = Rules {
            pool: config.pool.clone(),
            name: config.name.clone(),
            incarnation: self.incarnation,
            replica_factor: config.replica_factor,
            session_token_ms: config.session_token_ms,
            settings,
            seed: (self.ground.seeds)(),
            flaw: self.ground.flaw,
        };
        let metrics = MasterMetrics::new(self.registry.clone());
        let clock = PoolClock::start(Arc::clone(&self.ground.clock));
        let leading = Leading::new(term, state, rules, keys, log, metrics, clock);
        let epoch = leading.epoch();
        tracing::info!(pool = config.pool, %epoch, "leading");
        Ok(match &config.events {
            Some(events) => {
                let (feeds, registry) = (self.zmq_feeds.clone(), self.registry.clone());
                leading.with_events(Events::new(epoch, events, feeds, registry))
            }
            None => leading,
        })
    }
}

/// Names this run of the machine's kernel.
fn boot_id() -> Result<BootId, MasterError> {
    let path = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(path).map_err(MasterError::Process)?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|error| {
        MasterError::Process(std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    })?;
    Ok(BootId(number.to_be_bytes()))
}
