//! Starting and stopping an agent: probe, check, bind, then one thread for each owner.
//!
//! ```text
//! control   master, heartbeats, commands        owns AgentState
//! data      both data listeners                 owns Segments
//! make-n    memory for the slabs of segment n
//! metrics   /metrics /healthz /readyz
//! node      the CacheNode of this node, in Kubernetes
//! ```
//!
//! Between them are bounded channels. The control thread waits for none of them.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use larder_telemetry::{Component, Registry, error_chain};
use larder_types::{AgentName, Epoch, Incarnation};
use tokio::sync::{mpsc, watch};

use crate::advertise::advertised;
use crate::cache_node::{self, Member};
use crate::config::Config;
use crate::error::AgentError;
use crate::inventory::limits::{self, Needs, Verdict};
use crate::inventory::{Inventory, SystemRoot};
use crate::listeners::{Listeners, listen};
use crate::maker::{self, SlabMaker};
use crate::master_link::{Caller, read_token};
use crate::membership::{self, Facts, Parting};
use crate::ready_file::ReadyFile;
use crate::segment_plan::{PlannedSegment, plan};
use crate::socket::{self, ServedSocket};
use crate::state_dir::StateDir;
use crate::step::{AgentState, Settings, Status};
use crate::{control, data, http, identity_file, metrics, open_files};

/// Orders in the channel to the data thread; more wait in the control thread's own queue.
const DATA_MESSAGES_MAX: usize = 1_024;
/// Batches of outcomes on their way back.
const OUTCOMES_MAX: usize = 16;
/// Made slabs on their way to the control thread.
const MADE_MAX: usize = 16;
/// Probes that wait for the control thread; as many as the metrics port has connections.
const PINGS_MAX: usize = 64;

/// An agent that runs in threads of this process.
#[derive(Debug)]
pub struct RunningAgent {
    data_addr: SocketAddr,
    advertised: String,
    metrics_addr: SocketAddr,
    socket: ServedSocket,
    ready_file: Option<PathBuf>,
    threads: Threads,
    state_dir: StateDir,
}

/// The threads and what ends them.
#[derive(Debug)]
struct Threads {
    status: watch::Receiver<Status>,
    stop: watch::Sender<bool>,
    http_stop: watch::Sender<bool>,
    control: JoinHandle<Result<(), AgentError>>,
    data: JoinHandle<io::Result<()>>,
    http: JoinHandle<io::Result<()>>,
    node: Option<JoinHandle<Parting>>,
}

/// All that is checked and read before anything runs.
#[derive(Debug)]
struct Prepared {
    inventory: Inventory,
    /// How many the limits allow.
    connections: u64,
    /// How many extents memory lets it describe.
    records: Option<u64>,
    state_dir: StateDir,
    epoch: Epoch,
    incarnation: Incarnation,
    seed: u64,
    advertised: String,
    segments: Vec<PlannedSegment>,
    settings: Settings,
    name: AgentName,
}

/// Starts an agent whose slabs come from `maker`. Returns when it listens; it mounts when a
/// master is there.
///
/// # Errors
/// [`AgentError`]: nothing of it is left running, and no file but the state folder.
pub fn start(config: &Config, maker: Arc<dyn SlabMaker>) -> Result<RunningAgent, AgentError> {
    start_member(config, maker, None)
}

/// Starts an agent that shows its state in a CacheNode, if it is given one. When it stops it asks
/// there whether the node still belongs to the pool, and removes its folders if not.
///
/// # Errors
/// As [`start`].
pub fn start_member(
    config: &Config,
    maker: Arc<dyn SlabMaker>,
    member: Option<Member>,
) -> Result<RunningAgent, AgentError> {
    config.check()?;
    let name = config.agent_name()?.clone();
    let (inventory, verdict) = probe(config)?;
    let state_dir = StateDir::open(&config.state_dir)?;
    read_token(&config.token_file).map_err(|error| AgentError::Token(error_chain(&error)))?;
    let listeners = listen(config)?;
    let bound = listeners.data_addr;
    let prepared = prepare(config, name, inventory, &verdict, state_dir, bound)?;
    if let Some(path) = &config.ready_file {
        remove_stale(path)?;
    }
    let (data_addr, metrics_addr) = (listeners.data_addr, listeners.metrics_addr);
    let (unix, socket) = socket::bind(&config.socket_path)?;
    let threads = match launch(config, &maker, &prepared, listeners, unix, member) {
        Ok(threads) => threads,
        Err(error) => {
            socket.remove()?;
            return Err(AgentError::Start(error));
        }
    };
    tracing::info!(
        pool = config.pool,
        name = %prepared.name,
        data = prepared.advertised,
        socket = %config.socket_path.display(),
        metrics = %metrics_addr,
        "the agent listens"
    );
    Ok(RunningAgent {
        data_addr,
        advertised: prepared.advertised,
        metrics_addr,
        socket,
        ready_file: config.ready_file.clone(),
        threads,
        state_dir: prepared.state_dir,
    })
}

fn prepare(
    config: &Config,
    name: AgentName,
    inventory: Inventory,
    verdict: &Verdict,
    state_dir: StateDir,
    bound: SocketAddr,
) -> Result<Prepared, AgentError> {
    let (uid, epoch) = (state_dir.uid()?, state_dir.epoch()?);
    let (incarnation, seed) = identity_file::new_incarnation().map_err(AgentError::Start)?;
    let advertised = advertised(config.advertise_addr.as_deref(), bound, config.single_node)?;
    let segments = plan(&inventory, config.slabs());
    let settings = Settings {
        name: name.clone(),
        uid,
        incarnation,
        data_addr: advertised.clone(),
        masters: config.masters.clone(),
        segments: segments.iter().map(|segment| segment.shape).collect(),
        slab_bytes: config.slab_bytes,
        labels: config.labels.clone(),
    };
    Ok(Prepared {
        inventory,
        connections: verdict.connections,
        records: verdict.records,
        state_dir,
        epoch,
        incarnation,
        seed,
        advertised,
        segments,
        settings,
        name,
    })
}

/// Starts the threads. If one cannot be started, the others end, since their channels are gone.
fn launch(
    config: &Config,
    maker: &Arc<dyn SlabMaker>,
    prepared: &Prepared,
    listeners: Listeners,
    unix: UnixListener,
    member: Option<Member>,
) -> io::Result<Threads> {
    let registry = Registry::new(Component::Agent);
    metrics::show_inventory(&registry, &prepared.inventory, config.slabs_bytes());
    let (data_sender, messages) = mpsc::channel(DATA_MESSAGES_MAX);
    let (outcome_sender, outcomes) = mpsc::channel(OUTCOMES_MAX);
    let (made_sender, made) = mpsc::channel(MADE_MAX);
    let (status_sender, status) = watch::channel(Status::default());
    let (stop, stopped) = watch::channel(false);
    let (http_stop, http_stopped) = watch::channel(false);
    let makers = maker::spawn_all(&prepared.segments, maker, &made_sender)?;
    let metrics_addr = listeners.metrics_addr.to_string();
    let (data, load) = data::spawn(data::DataStart {
        name: prepared.name.clone(),
        incarnation: prepared.incarnation,
        epoch: prepared.epoch,
        tcp: listeners.data,
        unix,
        connections: usize::try_from(prepared.connections).unwrap_or(1),
        records: prepared.records,
        view_bytes: config.view_bytes,
        registry: registry.clone(),
        messages,
        outcomes: outcome_sender,
        stop: stopped.clone(),
    })?;
    let (ping_sender, pings) = mpsc::channel(PINGS_MAX);
    let page = http::Page::new(&registry, &status, &data_sender, ping_sender);
    let http = http::spawn(listeners.metrics, page, http_stopped)?;
    let control = control::spawn(control::ControlStart {
        state: AgentState::new(prepared.settings.clone(), prepared.epoch, prepared.seed),
        caller: Caller {
            name: prepared.name.clone(),
            incarnation: prepared.incarnation,
            token_file: config.token_file.clone(),
        },
        slab_bytes: config.slab_bytes,
        epoch_path: prepared.state_dir.epoch_path(),
        ready: config.ready_file.as_deref().map(|path| {
            let (name, socket) = (prepared.name.as_str(), &config.socket_path);
            ReadyFile::new(path, name, &prepared.advertised, socket, &metrics_addr)
        }),
        registry,
        makers,
        made,
        data: data_sender,
        load,
        outcomes,
        status: status_sender,
        pings,
        stop: stopped.clone(),
    })?;
    let node = report(config, member, prepared, &status, stopped)?;
    Ok(Threads {
        status,
        stop,
        http_stop,
        control,
        data,
        http,
        node,
    })
}

/// Starts the thread that keeps the CacheNode up to date, if there is one.
fn report(
    config: &Config,
    member: Option<Member>,
    prepared: &Prepared,
    status: &watch::Receiver<Status>,
    stop: watch::Receiver<bool>,
) -> io::Result<Option<JoinHandle<Parting>>> {
    let Some(member) = member else {
        return Ok(None);
    };
    let facts = Facts {
        inventory: &prepared.inventory,
        incarnation: prepared.incarnation,
        address: &prepared.advertised,
        segments: prepared.segments.len(),
        slab_bytes: config.slab_bytes,
        total_bytes: config.slabs_bytes(),
    };
    // Of the same draw, but not the same numbers.
    let seed = !prepared.seed;
    cache_node::spawn(member, &facts, seed, status.clone(), stop).map(Some)
}

/// Reads what the machine has and whether the configuration fits; raises what may be raised.
fn probe(config: &Config) -> Result<(Inventory, Verdict), AgentError> {
    let inventory = Inventory::read(&SystemRoot::new(&config.system_root), config.slabs_bytes());
    inventory.log();
    let needs = Needs {
        dram_bytes: config.slabs_bytes(),
        slabs: u64::from(config.slabs()),
        connections: u64::from(config.max_connections),
    };
    let verdict = limits::check(needs, inventory.memory.as_ref().ok(), &inventory.limits)?;
    for warning in &verdict.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(files) = verdict.raise_open_files {
        open_files::raise(files);
    }
    let unused = config.dram_bytes - config.slabs_bytes();
    if unused > 0 {
        let slab_bytes = config.slab_bytes;
        tracing::warn!("{unused} of dram_bytes are below one slab of {slab_bytes} and not used");
    }
    Ok((inventory, verdict))
}

/// A file of an earlier life would say that this one is ready.
fn remove_stale(path: &Path) -> Result<(), AgentError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(AgentError::Start(error)),
        _ => Ok(()),
    }
}

impl RunningAgent {
    /// What the data listener is bound to.
    #[must_use]
    pub const fn data_addr(&self) -> SocketAddr {
        self.data_addr
    }

    /// `host:port` of the data listener as masters tell it to clients.
    #[must_use]
    pub fn advertised_addr(&self) -> &str {
        &self.advertised
    }

    /// Where metrics are.
    #[must_use]
    pub const fn metrics_addr(&self) -> SocketAddr {
        self.metrics_addr
    }

    /// The Unix socket.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        self.socket.path()
    }

    /// The control side's state; the channel closes when it ends.
    #[must_use]
    pub fn status(&self) -> watch::Receiver<Status> {
        self.threads.status.clone()
    }

    /// Asks the agent to stop: no new connection is accepted, the segments are unmounted at the
    /// master, then everything ends. [`Self::join`] waits for that.
    pub fn stop(&self) {
        self.threads.stop.send_replace(true);
    }

    /// Waits until the agent has ended, and removes socket and ready file; and its folders, if the
    /// node does not belong to the pool any more.
    ///
    /// # Errors
    /// [`AgentError`] if it did not end because it was asked to.
    pub fn join(self) -> Result<(), AgentError> {
        let control = self
            .threads
            .control
            .join()
            .unwrap_or(Err(AgentError::Ended("control")));
        // Where the control side failed, the others are still up.
        self.threads.stop.send_replace(true);
        let parting = match self.threads.node.map(JoinHandle::join) {
            None => Parting::Stays,
            Some(parting) => parting.unwrap_or(Parting::Unknown),
        };
        self.threads.http_stop.send_replace(true);
        let http = self
            .threads
            .http
            .join()
            .map_err(|_| AgentError::Ended("metrics"));
        let data = self
            .threads
            .data
            .join()
            .map_err(|_| AgentError::Ended("data"));
        if let Some(path) = &self.ready_file {
            remove_stale(path)?;
        }
        let socket_path = self.socket.path().to_owned();
        self.socket.remove()?;
        membership::remove_folders(parting, &socket_path, &self.state_dir);
        control?;
        http?.map_err(AgentError::Start)?;
        data?.map_err(AgentError::Start)
    }
}
