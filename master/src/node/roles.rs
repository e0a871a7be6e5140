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
use crate::config::{Config, QuotaConfig, TenantConfig};
use crate::consensus::{
    ConsensusError, Home, Member, PeerDesk, RaftLog, Replica, ReplicaSettings, TcpTransport, Volume,
};
use crate::event::Event;
use crate::events::{Events, zmq};
use crate::leader::{Ended, Keys, Leading, Rules};
use crate::metrics::MasterMetrics;
use crate::ready_file::{self, Addrs};
use crate::role::Role;
use crate::standby::{Followed, Standby};

/// What the role loop needs.
pub(super) struct Parts {
    pub(super) config: Config,
    pub(super) tenants: Vec<TenantConfig>,
    pub(super) quotas: Vec<QuotaConfig>,
    pub(super) root: RootKey,
    pub(super) incarnation: Incarnation,
    pub(super) registry: Registry,
    pub(super) addrs: Addrs,
    pub(super) zmq_feeds: zmq::Feeds,
    pub(super) role: watch::Sender<Role>,
    /// Where connections of other masters find who answers them.
    pub(super) desk: watch::Sender<Option<PeerDesk>>,
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

/// How a leader's time ended.
enum Led {
    /// The master is to stop.
    Stopped,
    /// Another one leads.
    Deposed(Box<Standby>),
}

impl Parts {
    /// Follows, leads, follows again, until the master is to stop.
    pub(super) async fn hold_roles(
        &self,
        events: &mut mpsc::Receiver<Event>,
        shutdown: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    ) -> Result<(), MasterError> {
        let mut shutdown = Shutdown {
            asked: shutdown,
            is_asked: false,
        };
        let folder = self.config.state_dir.join("oplog");
        // Locked as long as the volume lives: two masters on one folder would be two in one.
        let disk = StdDisk::open(folder).map_err(ConsensusError::from)?;
        let volume: Volume = Arc::new(move || Ok(Box::new(disk.share()?)));
        let (mut replica, mut standby) = self.start_replica(&volume).await?;
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
                    replica.wipe(&volume).await?;
                    (replica, standby) = self.start_replica(&volume).await?;
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

    async fn start_replica(&self, volume: &Volume) -> Result<(Replica, Standby), MasterError> {
        let config = &self.config;
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
            growth_bytes: config.oplog.snapshot_bytes,
            boot: boot_id()?,
            seed: SmallRng::from_os_rng().random(),
        };
        let transport = TcpTransport {
            credential: self.root.master_credential().to_vec(),
            name: config.name.clone(),
            incarnation: self.incarnation,
        };
        let clock = Arc::new(boot_ms);
        let volume = Arc::clone(volume);
        let started = Replica::start(settings, volume, transport, clock, Home::Thread).await?;
        self.desk.send_replace(Some(started.replica.desk().clone()));
        let standby = Standby::new(started.feed, started.state);
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
        // A log that has not begun.
        let mut begin_above = (state.generation() == 0).then_some(0);
        loop {
            if let Some(above) = begin_above.take() {
                let generation = above.max(state.generation()) + 1;
                if !log
                    .commit_alone(vec![Op::PoolBegun { generation }], &mut state)
                    .await?
                {
                    let standby = Standby::after(log.into_feed(), state, term);
                    return Ok(Led::Deposed(Box::new(standby)));
                }
                tracing::info!(generation, "the pool begins empty");
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
                Ended::StartOver { above } => begin_above = Some(above),
                Ended::Corrupt(corruption) => return Err(MasterError::Corrupt(corruption)),
                Ended::Log(crate::log::LogError::NotLeader) => {
                    tracing::warn!(term, "this master leads no longer");
                    let standby = Standby::after(log.into_feed(), state, term);
                    return Ok(Led::Deposed(Box::new(standby)));
                }
                Ended::Log(error) => return Err(MasterError::Log(error)),
            }
        }
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
        let rules = Rules {
            pool: config.pool.clone(),
            name: config.name.clone(),
            incarnation: self.incarnation,
            replica_factor: config.replica_factor,
            session_token_ms: config.session_token_ms,
            settings: config.settings(),
        };
        let metrics = MasterMetrics::new(self.registry.clone());
        let leading = Leading::new(term, state, rules, keys, log, metrics, PoolClock::start());
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
