//! A master: bound, then served until it is to stop.

pub(crate) mod roles;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use larder_store::Corruption;
use larder_telemetry::{Component, Metric, Registry};
use larder_types::Incarnation;
use larder_wire::{CallError, RootKey, TokenError};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use roles::{Ground, Parts};

use crate::admin::{self, Admin};
use crate::config::{Config, ConfigError, QuotaConfig, TenantConfig};
use crate::connection::Shared;
use crate::consensus::ConsensusError;
use crate::events::zmq;
use crate::identity::{self, Identity};
use crate::listener::Listener;
use crate::log::LogError;
use crate::ready_file::{self, Addrs};
use crate::role::Role;
use crate::root_key::{self, RootKeyError};
use crate::snapshots::{self, RestoreError, StoreError};

/// Events that wait for the leader. Each holds at most one body of 1 MiB, and usually a
/// thousandth of it; connections that find it full wait, and then hear `Overloaded`.
pub(crate) const EVENTS_LENGTH: usize = 1024;

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
    /// The log and the other masters.
    #[error("this master cannot take part in the log of the pool")]
    Consensus(#[from] ConsensusError),
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
    #[error(
        "the state of the pool does not fit its log; `larder inspect` on state_dir says more, and \
         another master takes over"
    )]
    Corrupt(#[source] Corruption),
    /// Where snapshots are kept.
    #[error("the place where snapshots are kept cannot be used")]
    Snapshots(#[source] StoreError),
    /// The snapshot that the pool begins from.
    #[error("the pool cannot begin from the snapshot in `bootstrap.from_snapshot`")]
    Restore(#[from] RestoreError),
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
    pub fn is_invalid_input(&self) -> bool {
        match self {
            Self::Config(_) | Self::RootKey(_) | Self::Tenant(_) | Self::Trace(_) => true,
            Self::Snapshots(error) => !error.is_retryable(),
            Self::Restore(error) => !error.is_retryable(),
            _ => false,
        }
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
        let ground = Ground::of_machine(&self.config, &self.root, self.incarnation)?;
        let (sender, mut events) = mpsc::channel(EVENTS_LENGTH);
        let (role, role_seen) = watch::channel(Role::Starting);
        let (desk, desk_seen) = watch::channel(None);
        let Self {
            identity, registry, ..
        } = &self;
        let shared = Arc::new(Shared {
            identity: Arc::clone(identity),
            events: sender.clone(),
            registry: registry.clone(),
            master_credential: self.root.master_credential(),
            desk: desk_seen.clone(),
        });
        let admin = Admin {
            pool: self.config.pool.clone(),
            name: self.config.name.clone(),
            identity: Arc::clone(identity),
            events: sender,
            registry: registry.clone(),
            role: role_seen.clone(),
            desk: desk_seen,
            snapshots: snapshots::start(&self.config)
                .await
                .map_err(MasterError::Snapshots)?,
        };
        let zmq_addrs = self.zmq.addrs();
        let addrs = Addrs {
            client: self.client_addr,
            admin: self.admin_addr,
            zmq: zmq_addrs,
        };
        let parts = Parts {
            ground,
            zmq_feeds: self.zmq.start(&self.registry),
            addrs,
            config: self.config,
            tenants: self.tenants,
            quotas: self.quotas,
            root: self.root,
            incarnation: self.incarnation,
            registry: self.registry,
            role,
            desk,
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
            ended = parts.hold_roles(&mut events, shutdown.as_mut()) => ended,
        };
        parts.role.send_replace(Role::Stopping);
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
