//! One replica of the log: opens its files, makes the state again, starts openraft and what goes
//! with it.

use std::fmt;
use std::sync::Arc;

use larder_oplog::{
    BootId, Disk, Log, Options, Position, SyncPolicy, Trust, remove_snapshot, snapshots, wipe,
};
use larder_store::State;
use larder_telemetry::metrics::CounterHandle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinSet, spawn_blocking};

use super::assembly::Parts;
use super::desk::{Heard, PeerDesk};
use super::doubt::Doubt;
use super::feed::{Feed, ServerMetrics, Standing};
#[cfg(any(test, feature = "sim"))]
use super::keeper::SyncPause;
use super::keeper::{COMMANDS_LENGTH, Command, Syncs, keep};
use super::lease::Rounds;
use super::link::Transport;
use super::message::Ballot;
use super::recover::{self, Recovered};
use super::snapshots::{AnyDisk, SnapshotsError, Volume};
use super::store::{Ends, LogStore, Written};
use super::{Clock, ConsensusError, Member, Raft, RaftLog, convert, identity};
use crate::flaw::{Flaw, Mistake};

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
    /// Counts syncs of the log.
    pub(crate) synced: CounterHandle,
    /// A snapshot is due when the log has grown by so many bytes.
    pub(crate) growth_bytes: u64,
    pub(crate) boot: BootId,
    /// What this program knows to do; see [`super::release`].
    pub(crate) release: u32,
    /// For what is drawn: pauses before elections, the number of a new replica.
    pub(crate) seed: u64,
    pub(crate) flaw: Flaw,
}

/// Where the keeper of the log runs.
#[derive(Clone)]
pub(crate) enum Home {
    /// On a thread of its own.
    Thread,
    /// On the caller's runtime: for tests, whose disks are memory. A sync takes so long.
    #[cfg(any(test, feature = "sim"))]
    Task(SyncPause),
}

/// A running replica. Dropped, its tasks end as in a kill.
pub(crate) struct Replica {
    pub(super) raft: Raft,
    pub(super) desk: PeerDesk,
    pub(super) metrics: ServerMetrics,
    pub(super) rounds: watch::Sender<Rounds>,
    pub(super) commands: mpsc::Sender<Command>,
    pub(super) lease_ms: u64,
    pub(super) flaw: Flaw,
    /// No other master is configured.
    pub(super) is_single: bool,
    pub(super) doubt: watch::Receiver<Doubt>,
    pub(super) agreed: watch::Receiver<u32>,
    pub(super) _tasks: JoinSet<()>,
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
        mut settings: ReplicaSettings,
        volume: Volume,
        transport: T,
        clock: Clock,
        home: Home,
    ) -> Result<Started, ConsensusError> {
        if settings.flaw.is(Mistake::ToldBeforeDurable) {
            settings.log.policy = SyncPolicy::Never;
        }
        let opening = {
            let (settings, volume) = (settings.clone(), Arc::clone(&volume));
            move || open(&settings, &volume)
        };
        // A large pool takes a while, and probes want to be answered meanwhile.
        let opened = match home {
            Home::Thread => spawn_blocking(opening)
                .await
                .map_err(SnapshotsError::from)?,
            #[cfg(any(test, feature = "sim"))]
            Home::Task(_) => opening(),
        };
        let Open {
            number,
            log,
            recovered,
            is_doubtful,
            lost_tail,
        } = opened?;
        let is_formed = recovered.applied.is_some() || log.last().is_some() || log.vote().is_some();
        let ends = ends(&log, settings.flaw);
        let written = Written::default();
        if let Some(last) = log.last() {
            written.through(last.index, log.size_bytes());
        }
        let (commands, received) = mpsc::channel(COMMANDS_LENGTH);
        let (policy, synced) = (settings.log.policy, settings.synced.clone());
        spawn_keeper(home, log, (policy, synced), received, written.clone())?;
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
            lost_tail,
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

    /// Whether it lacks more than the latest entries; true until a leader has said otherwise.
    pub(crate) fn behind(&self) -> watch::Receiver<bool> {
        self.desk.behind.subscribe()
    }

    /// Why openraft has stopped.
    pub(crate) fn why_stopped(&self) -> ConsensusError {
        let state = self.raft.metrics().borrow().running_state.clone();
        let why = state.err().map(|why| why.to_string());
        // Who stops it by intention asks nobody why; a task that panicked could not say so.
        ConsensusError::Stopped(why.unwrap_or_else(|| "its task panicked".to_owned()))
    }

    /// Whether it is the only master of its pool: no other one is configured, and none that was
    /// votes still.
    pub(crate) fn is_alone(&self) -> bool {
        let metrics = self.metrics.borrow();
        let mut voters = metrics.membership_config.membership().voter_ids();
        self.is_single && voters.all(|voter| voter == metrics.id)
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
        .with_release(self.agreed.clone())
        .with_resigning(self.desk.resigning.subscribe())
    }

    /// Whether the log may lack the end of what was acknowledged.
    pub(crate) fn lost_tail(&self) -> bool {
        self.desk.lost_tail()
    }

    /// What this program knows to do.
    pub(crate) const fn release(&self) -> u32 {
        self.desk.release
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

/// A replica's files, opened and read.
struct Open {
    number: u64,
    log: Log<AnyDisk>,
    recovered: Recovered,
    is_doubtful: bool,
    /// The term as of which the end of the log may be lost.
    lost_tail: Option<u64>,
}

/// Opens the log and makes the state of it. Blocks for as long as that takes.
fn open(settings: &ReplicaSettings, volume: &Volume) -> Result<Open, ConsensusError> {
    let mut disk = volume()?;
    let number = identity::load(&mut disk, settings.seed)?;
    let (mut log, opened) = Log::open(disk, settings.log, settings.boot)?;
    let mut is_doubtful = opened.trust != Trust::Whole;
    if let Some(torn) = &opened.torn {
        let (segment, bytes) = (&torn.segment, torn.bytes);
        let what = "the end of the log was cut: it was not written whole";
        tracing::warn!(segment, bytes, "{what}");
    }
    let trusts_all = settings.flaw.is(Mistake::TailTrusted);
    let recovered = recover::state(volume)?;
    let mut voters = recovered.membership.membership().voter_ids();
    let is_alone = settings.members.len() == 1 && voters.all(|voter| voter == number);
    if is_doubtful && (is_alone || trusts_all) {
        // No other master could know more, but agents do. A new term follows, so no version is
        // given twice.
        tracing::warn!("this machine lost its power: agents are asked for puts of the last moment");
        log.settle_doubt()?;
        is_doubtful = false;
    }
    if trusts_all {
        log.tail_is_sought()?;
    }
    let lost_tail = log.is_tail_lost();
    let lost_tail = lost_tail.then(|| log.vote().map_or(0, |vote| vote.term));
    if let Some(applied) = recovered.applied
        && log.last().is_none_or(|last| last.index < applied.index)
    {
        // A snapshot that was durable before the entries that it stands for.
        log.purge_through(applied)?;
    }
    Ok(Open {
        number,
        log,
        recovered,
        is_doubtful,
        lost_tail,
    })
}

/// What the files say at the start.
fn ends<D: Disk>(log: &Log<D>, flaw: Flaw) -> Ends {
    let vote = log.vote().map(|vote| {
        convert::vote(&Ballot {
            term: vote.term,
            candidate: vote.voted_for,
            // openraft would go on as the leader of the same term, or name one that may be long
            // gone. But versions count from 1 in each term of a leader, so it has to win another.
            committed: vote.committed && flaw.is(Mistake::TermLivedTwice),
        })
    });
    let position = |at: Option<Position>| at.map(convert::log_id_of);
    Ends {
        purged: position(log.purged()),
        last: position(log.last().or(log.purged())),
        vote,
        is_vote_committed: log.vote().is_some_and(|vote| vote.committed),
        committed: position(log.committed()),
    }
}

fn spawn_keeper(
    home: Home,
    log: Log<AnyDisk>,
    (policy, synced): (SyncPolicy, CounterHandle),
    received: mpsc::Receiver<Command>,
    written: Written,
) -> Result<(), ConsensusError> {
    let syncs = match &home {
        Home::Thread => Syncs::Beside,
        #[cfg(any(test, feature = "sim"))]
        Home::Task(pause) => Syncs::Played(Arc::clone(pause)),
    };
    let keeping = async move {
        if let Err(error) = keep(log, (policy, syncs, synced), received, written).await {
            let error = larder_telemetry::error_chain(&error);
            tracing::error!(error, "the log's disk failed; this master stops");
        }
    };
    #[cfg(any(test, feature = "sim"))]
    if matches!(home, Home::Task(_)) {
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
