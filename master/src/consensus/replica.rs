//! One replica of the log: opens its files, makes the state again, starts openraft and what goes
//! with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use larder_oplog::{BootId, Disk, Log, Options, Position, SyncPolicy, Trust, remove_snapshot, snapshots, wipe};
use larder_store::State;
use openraft::SnapshotPolicy;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::desk::{Heard, PeerDesk};
use super::doubt::{self, Doubt};
use super::feed::{FEED_LENGTH, Feed, ServerMetrics, Standing};
use super::keeper::{COMMANDS_LENGTH, Command, Syncs, keep};
use super::lease::Rounds;
use super::link::Transport;
use super::machine::Machine;
use super::network::Network;
use super::recover::{self, Recovered};
use super::snapshots::{AnyDisk, Snapshots, Volume};
use super::store::{Ends, LogStore, Written};
use super::{
    Clock, ConsensusError, Member, Raft, RaftLog, RaftVote, compaction, convert, election,
    formation, hand_over, identity,
};
use crate::flaw::{Flaw, Mistake};

/// How long a master may take to install a snapshot, in ms.
const INSTALL_MS: u64 = 120_000;
/// Masters that wait to be let in.
const JOINS_LENGTH: usize = 4;

/// What a replica is told.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaSettings {
    /// This master.
    pub(crate) me: Member,
    /// All masters of the pool, this one included.
    pub(crate) members: Vec<Member>,
    /// How often a leader says that it is there, in ms.
    pub(crate) heartbeat_ms: u64,
    /// How long a leader may be silent, in ms; its lease.
    pub(crate) election_ms: u64,
    pub(crate) log: Options,
    /// A snapshot is due when the log has grown by so many bytes.
    pub(crate) growth_bytes: u64,
    pub(crate) boot: BootId,
    /// For what is drawn: pauses before elections, the number of a new replica.
    pub(crate) seed: u64,
    pub(crate) flaw: Flaw,
}

/// Where the keeper of the log runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// On a thread of its own.
    Thread,
    /// On the caller's runtime: for tests, whose disks are memory.
    #[cfg_attr(
        not(any(test, feature = "sim")),
        expect(dead_code, reason = "tests keep all on one runtime")
    )]
    Task,
}

/// A running replica. Dropped, its tasks end as in a kill.
pub(crate) struct Replica {
    pub(super) raft: Raft,
    desk: PeerDesk,
    pub(super) metrics: ServerMetrics,
    rounds: watch::Sender<Rounds>,
    commands: mpsc::Sender<Command>,
    lease_ms: u64,
    flaw: Flaw,
    is_alone: bool,
    doubt: watch::Receiver<Doubt>,
    _tasks: JoinSet<()>,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica")
            .field("number", &self.desk.replica)
            .finish_non_exhaustive()
    }
}

/// A started replica, and what its owner goes on with.
pub(crate) struct Started {
    pub(crate) replica: Replica,
    pub(crate) feed: Feed,
    /// The state after the last entry that is known to be committed.
    pub(crate) state: State,
}

impl Replica {
    /// Opens the log in `volume` and takes part.
    ///
    /// # Errors
    /// [`ConsensusError`]; nothing may be served then.
    pub(crate) async fn start<T: Transport>(
        settings: ReplicaSettings,
        volume: Volume,
        transport: T,
        clock: Clock,
        home: Home,
    ) -> Result<Started, ConsensusError> {
        let mut disk = volume()?;
        let number = identity::load(&mut disk, settings.seed)?;
        let (mut log, opened) = Log::open(disk, settings.log, settings.boot)?;
        let mut is_doubtful = opened.trust != Trust::Whole;
        if let Some(torn) = &opened.torn {
            let (segment, bytes) = (&torn.segment, torn.bytes);
            tracing::warn!(
                segment,
                bytes,
                "the end of the log was cut: it was not written whole"
            );
        }
        let trusts_all = settings.flaw.is(Mistake::TailTrusted);
        if is_doubtful && (settings.members.len() == 1 || trusts_all) {
            // Nobody else could know more. A new term follows, so no version is given twice.
            tracing::warn!("this machine lost its power: puts of the last moment may be lost");
            log.settle_doubt()?;
            is_doubtful = false;
        }
        let recovered = recover::state(&volume)?;
        if let Some(applied) = recovered.applied
            && log.last().is_none_or(|last| last.index < applied.index)
        {
            // A snapshot that was durable before the entries that it stands for.
            log.purge_through(applied)?;
        }
        let is_formed = recovered.applied.is_some() || log.last().is_some() || log.vote().is_some();
        let ends = ends(&log);
        let written = Written::default();
        if let Some(last) = log.last() {
            written.through(last.index, log.size_bytes());
        }
        let (commands, received) = mpsc::channel(COMMANDS_LENGTH);
        let mut policy = settings.log.policy;
        if settings.flaw.is(Mistake::ToldBeforeDurable) {
            policy = SyncPolicy::Never;
        }
        spawn_keeper(home, log, policy, received, written.clone())?;
        let store = LogStore::new(commands.clone(), &written, ends);
        let now_ms = clock();
        // A replica that never took part has promised nothing.
        let promised = is_formed && !settings.flaw.is(Mistake::PromiseForgotten);
        let heard = Arc::new(Heard::new(if promised { now_ms } else { 0 }));
        let parts = Parts {
            settings,
            number,
            volume,
            transport,
            clock,
            is_doubtful,
            heard,
            commands,
            written,
        };
        parts.take_part(store, recovered).await
    }

    /// Who leads, as this replica sees it.
    pub(crate) fn standing(&self) -> Standing {
        Standing::of(&self.metrics)
    }

    /// Tells when that may have changed; closed when openraft has stopped.
    pub(crate) fn changes(&self) -> ServerMetrics {
        self.metrics.clone()
    }

    /// Why openraft has stopped.
    pub(crate) fn why_stopped(&self) -> ConsensusError {
        let state = self.raft.metrics().borrow().running_state.clone();
        let why = state.err().map(|why| why.to_string());
        ConsensusError::Stopped(why.unwrap_or_else(|| "it was stopped".to_owned()))
    }

    /// Whether it is the only master of its pool.
    pub(crate) const fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Answers other masters.
    pub(crate) const fn desk(&self) -> &PeerDesk {
        &self.desk
    }

    /// The log of this replica as the leader of `term`. The feed goes with it, until the leader
    /// gives it back. Never twice for one term.
    pub(crate) fn lead(&self, feed: Feed, term: u64) -> RaftLog {
        RaftLog::new(
            self.raft.clone(),
            feed,
            self.metrics.clone(),
            self.rounds.subscribe(),
            Arc::clone(&self.desk.clock),
            self.lease_ms,
            self.desk.replica,
            term,
            self.flaw,
        )
    }

    /// Ends when this replica has to join anew: after a loss of power, when the others have
    /// everything. Never ends otherwise.
    pub(crate) async fn must_join_anew(&self) {
        let mut doubt = self.doubt.clone();
        if doubt
            .wait_for(|doubt| *doubt == Doubt::JoinAnew)
            .await
            .is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Stops, and says so in the log: the next start trusts it whole.
    pub(crate) async fn close(self) {
        self.end(true).await;
    }

    /// Stops and empties the disk: the next start is another replica, which joins anew.
    ///
    /// # Errors
    /// The disk failed.
    pub(crate) async fn wipe(self, volume: &Volume) -> Result<(), ConsensusError> {
        self.end(false).await;
        let mut disk = volume()?;
        // The number first: a log that was half emptied must not be taken for that of the number.
        identity::forget(&mut disk)?;
        for at in snapshots(&mut disk)? {
            remove_snapshot(&mut disk, at)?;
        }
        Ok(wipe(&mut disk)?)
    }

    async fn end(self, is_clean: bool) {
        // Whatever fails here: the next start finds a log as after a kill.
        drop(self.raft.shutdown().await);
        let (closed, waits) = oneshot::channel();
        let close = Command::Close { is_clean, closed };
        if self.commands.send(close).await.is_ok() {
            drop(waits.await);
        }
    }
}

/// What the files say at the start.
fn ends<D: Disk>(log: &Log<D>) -> Ends {
    let vote = log.vote().map(|vote| {
        let mut ballot = super::message::Ballot {
            term: vote.term,
            candidate: vote.voted_for,
            committed: vote.committed,
        };
        // openraft would go on as the leader of the same term. But versions count from 1 in each
        // term of a leader, so it has to win another one.
        ballot.committed = false;
        convert::vote(&ballot)
    });
    let position = |at: Option<Position>| at.map(convert::log_id_of);
    Ends {
        purged: position(log.purged()),
        last: position(log.last().or(log.purged())),
        vote: vote as Option<RaftVote>,
        committed: position(log.committed()),
    }
}

fn spawn_keeper(
    home: Home,
    log: Log<AnyDisk>,
    policy: SyncPolicy,
    received: mpsc::Receiver<Command>,
    written: Written,
) -> Result<(), ConsensusError> {
    let syncs = match home {
        Home::Thread => Syncs::Beside,
        Home::Task => Syncs::Inline,
    };
    let keeping = async move {
        if let Err(error) = keep(log, (policy, syncs), received, written).await {
            let error = larder_telemetry::error_chain(&error);
            tracing::error!(error, "the log's disk failed; this master stops");
        }
    };
    if home == Home::Task {
        tokio::spawn(keeping);
        return Ok(());
    }
    let failed = |source: std::io::Error| ConsensusError::Stopped(source.to_string());
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().map_err(failed)?;
    let thread = std::thread::Builder::new().name("log".to_owned());
    // It ends when the last of those is gone that may write; nobody joins it.
    thread
        .spawn(move || runtime.block_on(keeping))
        .map_err(failed)?;
    Ok(())
}

/// What stands before openraft does.
struct Parts<T> {
    settings: ReplicaSettings,
    number: u64,
    volume: Volume,
    transport: T,
    clock: Clock,
    is_doubtful: bool,
    heard: Arc<Heard>,
    commands: mpsc::Sender<Command>,
    written: Written,
}

impl<T: Transport> Parts<T> {
    async fn take_part(
        self,
        store: LogStore,
        recovered: Recovered,
    ) -> Result<Started, ConsensusError> {
        let settings = &self.settings;
        let snapshots = Snapshots::new(Arc::clone(&self.volume));
        let (inputs, received) = mpsc::channel(FEED_LENGTH);
        let machine = Machine {
            inputs,
            applied: recovered.applied.map(convert::log_id_of),
            membership: recovered.membership,
            snapshots: snapshots.clone(),
        };
        let (rounds, _) = watch::channel(Rounds::default());
        let addrs = settings.members.iter();
        let addrs: BTreeMap<String, String> = addrs
            .map(|member| (member.name.clone(), member.addr.clone()))
            .collect();
        let network = Network {
            transport: self.transport,
            addrs: Arc::new(addrs),
            rounds: rounds.clone(),
            clock: Arc::clone(&self.clock),
            snapshots: snapshots.clone(),
        };
        let stopped = |error: &dyn fmt::Display| ConsensusError::Stopped(error.to_string());
        let config = raft_config(settings).map_err(|error| stopped(&error))?;
        let raft = Raft::new(self.number, config, network.clone(), store, machine);
        let raft = raft.await.map_err(|error| stopped(&error))?;
        let metrics = raft.server_metrics();
        let (joins, joining) = mpsc::channel(JOINS_LENGTH);
        let (hand_overs, handing_over) = mpsc::channel(1);
        let (floor, _) = watch::channel(None);
        let desk = PeerDesk {
            raft: raft.clone(),
            replica: self.number,
            me: settings.me.clone(),
            metrics: metrics.clone(),
            data: raft.data_metrics(),
            rounds: rounds.clone(),
            heard: self.heard,
            clock: self.clock,
            election_ms: settings.election_ms,
            is_doubtful: Arc::new(AtomicBool::new(self.is_doubtful)),
            floor,
            joins,
            hand_overs,
            snapshots,
        };
        let members = settings.members.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(election::stand(
            desk.clone(),
            network.clone(),
            settings.seed,
        ));
        let (doubt, doubt_seen) = watch::channel(Doubt::Settled);
        if self.is_doubtful {
            doubt.send_replace(Doubt::Open);
            let (desk, network, commands) = (desk.clone(), network.clone(), self.commands.clone());
            tasks.spawn(doubt::settle(
                desk,
                network,
                members.clone(),
                commands,
                doubt,
            ));
        }
        tasks.spawn(hand_over::serve(
            desk.clone(),
            network.clone(),
            handing_over,
        ));
        tasks.spawn(formation::form(desk.clone(), network, members.clone()));
        tasks.spawn(formation::admit(desk.clone(), members, joining));
        let growth_bytes = settings.growth_bytes;
        tasks.spawn(compaction::compact(
            raft.clone(),
            self.written,
            self.volume,
            growth_bytes,
        ));
        let replica = Replica {
            raft,
            desk,
            metrics,
            rounds,
            commands: self.commands,
            // Clocks of two machines may differ in rate: a tenth is far more than they do.
            lease_ms: settings.election_ms - settings.election_ms / 10,
            flaw: settings.flaw,
            is_alone: settings.members.len() == 1,
            doubt: doubt_seen,
            _tasks: tasks,
        };
        Ok(Started {
            replica,
            feed: Feed::new(received),
            state: recovered.state,
        })
    }
}

fn raft_config(settings: &ReplicaSettings) -> Result<Arc<openraft::Config>, openraft::ConfigError> {
    let config = openraft::Config {
        cluster_name: "larder".to_owned(),
        heartbeat_interval: settings.heartbeat_ms,
        election_timeout_min: settings.heartbeat_ms + 1,
        election_timeout_max: settings.election_ms,
        enable_elect: false,
        snapshot_policy: SnapshotPolicy::Never,
        // What goes behind a snapshot is decided where it is taken.
        max_in_snapshot_log_to_keep: u64::MAX / 2,
        // As long as the log has what a master lacks, the log is sent.
        replication_lag_threshold: u64::MAX / 2,
        max_payload_entries: 1_024,
        install_snapshot_timeout: INSTALL_MS,
        ..openraft::Config::default()
    };
    Ok(Arc::new(config.validate()?))
}
