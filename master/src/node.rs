//! The role of this master over its life: starting, leading, stopping; one day standing by.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;

use larder_store::Corruption;
use larder_telemetry::{Component, Metric, Registry};
use larder_types::{Epoch, Incarnation, Reason};
use larder_wire::{CallError, RootKey, SessionSigner, TokenError};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use crate::admin::{self, Admin};
use crate::clock::PoolClock;
use crate::config::{Config, ConfigError, QuotaConfig, TenantConfig};
use crate::connection::Shared;
use crate::event::Event;
use crate::events::{Events, zmq};
use crate::generation::{self, GenerationError};
use crate::identity::{self, Identity};
use crate::leader::{Ended, Keys, Leading, Rules};
use crate::listener::Listener;
use crate::log::{LogError, VolatileLog};
use crate::metrics::MasterMetrics;
use crate::ready_file::{self, Addrs};
use crate::root_key::{self, RootKeyError};

/// Events that wait for the leader. Each holds at most one body of 1 MiB, and usually a
/// thousandth of it; connections that find it full wait, and then hear `Overloaded`.
const EVENTS_LENGTH: usize = 1024;
/// The only term while there is one master: its generation rises instead.
const TERM: u64 = 1;

/// What this master does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is not yet able to serve.
    Starting,
    /// It follows another master and applies what that one commits.
    Standby,
    /// It serves.
    Leading,
    /// It serves no longer.
    Stopping,
}

impl Role {
    /// The name, as it stands in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Leading => "leader",
            Self::Stopping => "stopping",
        }
    }

    /// What a caller hears that needs a leader.
    pub(crate) const fn refusal(self) -> Reason {
        match self {
            Self::Standby => Reason::NotLeader,
            Self::Starting | Self::Leading | Self::Stopping => Reason::Starting,
        }
    }
}

/// Why a master did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum MasterError {
    /// A configuration or a file that it names.
    #[error("the configuration is not usable")]
    Config(#[from] ConfigError),
    /// The root of the keys.
    #[error("there is no root key")]
    RootKey(#[from] RootKeyError),
    /// The keys that are made from it.
    #[error("no session key can be made from the root key")]
    SessionKey(#[from] TokenError),
    /// The generation.
    #[error("no generation can begin")]
    Generation(#[from] GenerationError),
    /// A listener.
    #[error("`{key}`: {}", cannot_listen(.addr, .source))]
    Listen {
        /// The address as configured.
        addr: String,
        /// Its key.
        key: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The ready file.
    #[error("cannot write the ready file {}", .path.display())]
    ReadyFile {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A tenant of the tenants file, or a quota of the quotas file.
    #[error("a tenant of the tenants file or a quota of the quotas file was refused")]
    Tenant(#[source] CallError),
    /// The state does not fit its log.
    #[error("the state of the pool is broken; restart this master: the pool starts empty")]
    Corrupt(#[source] Corruption),
    /// The log is gone.
    #[error("the log takes no more entries")]
    Log(#[source] LogError),
    /// The runtime or the signals.
    #[error("the process cannot be set up")]
    Process(#[source] io::Error),
    /// Logging.
    #[error("logging cannot be set up")]
    Trace(#[from] larder_telemetry::trace::TraceError),
}

impl MasterError {
    /// Whether a file has to be put right before another start can succeed.
    #[must_use]
    pub const fn is_invalid_input(&self) -> bool {
        matches!(
            self,
            Self::Config(_) | Self::RootKey(_) | Self::Tenant(_) | Self::Trace(_)
        )
    }
}

/// A master that is bound to its addresses and does not serve yet.
#[derive(Debug)]
pub struct Master {
    config: Config,
    tenants: Vec<TenantConfig>,
    quotas: Vec<QuotaConfig>,
    root: RootKey,
    incarnation: Incarnation,
    identity: Arc<dyn Identity>,
    registry: Registry,
    client_listener: TcpListener,
    admin_listener: TcpListener,
    client_addr: SocketAddr,
    admin_addr: SocketAddr,
    zmq: zmq::Sockets,
}

impl Master {
    /// Reads what the configuration names and binds both listeners.
    ///
    /// # Errors
    /// [`MasterError`], before anything was changed.
    pub async fn bind(config: Config) -> Result<Self, MasterError> {
        let registry = Registry::new(Component::Master);
        let (tenants, quotas, root, identity) = read_files(&config, &registry).await?;
        if let Some(path) = &config.ready_file {
            ready_file::remove(path)?;
        }
        let (client_listener, client_addr) = listen("client_addr", &config.client_addr).await?;
        let (admin_listener, admin_addr) = listen("admin_addr", &config.admin_addr).await?;
        let zmq = bind_zmq(&config).await?;
        Ok(Self {
            zmq,
            tenants,
            quotas,
            root,
            // Never 0: that means nobody.
            incarnation: Incarnation(SmallRng::from_os_rng().random_range(1..=u64::MAX)),
            identity,
            registry,
            client_listener,
            admin_listener,
            client_addr,
            admin_addr,
            config,
        })
    }

    /// Where clients and agents connect.
    #[must_use]
    pub const fn client_addr(&self) -> SocketAddr {
        self.client_addr
    }

    /// Where metrics, probes and administration are.
    #[must_use]
    pub const fn admin_addr(&self) -> SocketAddr {
        self.admin_addr
    }

    /// Serves until `shutdown` ends. To be run on a runtime of its own with one thread: the
    /// leader, its connections and the admin port share it.
    ///
    /// # Errors
    /// [`MasterError`]; everybody connected was told that the master stops.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), MasterError> {
        let (sender, mut events) = mpsc::channel(EVENTS_LENGTH);
        let (role, role_seen) = watch::channel(Role::Starting);
        let Self {
            identity, registry, ..
        } = &self;
        let shared = Arc::new(Shared {
            identity: Arc::clone(identity),
            events: sender.clone(),
            registry: registry.clone(),
        });
        let admin = Admin {
            pool: self.config.pool.clone(),
            name: self.config.name.clone(),
            identity: Arc::clone(identity),
            events: sender,
            registry: registry.clone(),
            role: role_seen.clone(),
        };
        let zmq_addrs = self.zmq.addrs();
        let parts = Parts {
            zmq_feeds: self.zmq.start(&self.registry),
            addrs: Addrs {
                client: self.client_addr,
                admin: self.admin_addr,
                zmq: zmq_addrs,
            },
            config: self.config,
            tenants: self.tenants,
            quotas: self.quotas,
            root: self.root,
            incarnation: self.incarnation,
            registry: self.registry,
        };
        let admin = tokio::spawn(admin::serve(
            self.admin_listener,
            admin,
            until_stop(role_seen),
        ));
        let mut listener =
            Listener::new(self.client_listener, shared, parts.config.max_connections);
        let mut shutdown = pin!(shutdown);
        let ended = tokio::select! {
            () = listener.accept() => Ok(()),
            ended = parts.hold_roles(&role, &mut events, shutdown.as_mut()) => ended,
        };
        role.send_replace(Role::Stopping);
        parts.registry.set(Metric::MasterReady, &[], 0);
        // From here on nobody hears events: connections that ask are told that it stops.
        drop(events);
        listener.finish().await;
        admin.abort();
        ended
    }
}

/// Tenants and quotas from the start, the root of keys, and who proves identities.
type Files = (
    Vec<TenantConfig>,
    Vec<QuotaConfig>,
    RootKey,
    Arc<dyn Identity>,
);

/// What a configuration names, read and checked.
pub(crate) async fn read_files(config: &Config, registry: &Registry) -> Result<Files, MasterError> {
    config.check()?;
    let tenants = config.load_tenants()?;
    let quotas = config.load_quotas()?;
    let root = root_key::load(&config.root_key_file)?;
    let identity = identity::load(config, registry).await?;
    Ok((tenants, quotas, root, identity))
}

/// What the role loop needs.
struct Parts {
    config: Config,
    tenants: Vec<TenantConfig>,
    quotas: Vec<QuotaConfig>,
    root: RootKey,
    incarnation: Incarnation,
    registry: Registry,
    addrs: Addrs,
    zmq_feeds: zmq::Feeds,
}

impl Parts {
    /// One role after another. With several masters a standby's turn stands between starting and
    /// leading, and a leader that is deposed comes back to it.
    async fn hold_roles(
        &self,
        role: &watch::Sender<Role>,
        events: &mut mpsc::Receiver<Event>,
        mut shutdown: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
    ) -> Result<(), MasterError> {
        let mut floor = 0;
        loop {
            role.send_replace(Role::Starting);
            self.registry.set(Metric::MasterReady, &[], 0);
            let leading = self.start_over(floor)?;
            if let Some(path) = &self.config.ready_file {
                ready_file::write(path, &self.config.name, &self.addrs)?;
            }
            self.registry.set(Metric::MasterReady, &[], 1);
            role.send_replace(Role::Leading);
            match leading.run(events, shutdown.as_mut()).await {
                Ended::Stopped => return Ok(()),
                Ended::StartOver { above } => floor = above,
                Ended::Corrupt(corruption) => return Err(MasterError::Corrupt(corruption)),
                Ended::Log(error) => return Err(MasterError::Log(error)),
            }
        }
    }

    /// An empty pool in a generation above `floor` and above every one that this folder knows.
    fn start_over(&self, floor: u64) -> Result<Leading<VolatileLog>, MasterError> {
        let generation = generation::begin(&self.config.state_dir, floor)?;
        let epoch = Epoch {
            generation,
            term: TERM,
        };
        tracing::info!(pool = self.config.pool, %epoch, "leading an empty pool");
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
        let log = VolatileLog::default();
        let mut leading = Leading::new(epoch, rules, keys, log, metrics, PoolClock::start());
        if let Some(events) = &config.events {
            let (feeds, registry) = (self.zmq_feeds.clone(), self.registry.clone());
            leading = leading.with_events(Events::new(epoch, events, feeds, registry));
        }
        leading
            .make_tenants(self.tenants.clone(), self.quotas.clone())
            .map_err(MasterError::Tenant)?;
        Ok(leading)
    }
}

async fn listen(key: &'static str, addr: &str) -> Result<(TcpListener, SocketAddr), MasterError> {
    let failed = |source| MasterError::Listen {
        addr: addr.to_owned(),
        key,
        source,
    };
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn bind_zmq(config: &Config) -> Result<zmq::Sockets, MasterError> {
    let configs = config.events.as_ref().map_or(&[][..], |events| &events.zmq);
    let failed = |(key, addr, source)| MasterError::Listen { addr, key, source };
    zmq::Sockets::bind(configs).await.map_err(failed)
}

async fn until_stop(mut role: watch::Receiver<Role>) {
    // An error means that the sender is gone: stopped all the same.
    drop(role.wait_for(|role| *role == Role::Stopping).await);
}

/// What a failed bind means: with port 0 no port can be the wrong one.
fn cannot_listen(addr: &str, source: &io::Error) -> String {
    if addr.ends_with(":0") && source.kind() == io::ErrorKind::AddrInUse {
        return format!("no free port on {addr}; close some of the connections of this machine");
    }
    format!("cannot listen on {addr}; choose a free address of this machine")
}
