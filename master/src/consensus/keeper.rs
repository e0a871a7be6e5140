//! The one owner of the log's files: takes writes in order, syncs when it is time.
//!
//! In a master it runs on a thread of its own, so that a slow disk holds up nobody but those who
//! wait for it. What it is told comes over a bounded channel: who writes more than the disk takes,
//! waits.

use std::future::pending;
use std::ops::Range;
use std::time::Duration;

use larder_oplog::{Disk, Entry, Log, LogError, Position, SyncDone, SyncPolicy, SyncWork, Vote};
use larder_telemetry::metrics::CounterHandle;
use openraft::storage::LogFlushed;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until};

use super::Types;
use super::store::Written;

/// Commands that wait for the disk. An append has at most one entry of a megabyte or several
/// small ones; with the bound on proposals that makes 64 MiB at the most.
pub(super) const COMMANDS_LENGTH: usize = 64;
/// So many commands are taken before it is looked whether a sync is due.
const COMMANDS_AT_ONCE: usize = 64;
/// How long a full disk is left alone before the same is tried again.
const FULL_PAUSE: Duration = Duration::from_millis(50);

/// The answer to a command.
pub(super) type Answer<T> = oneshot::Sender<Result<T, LogError>>;

/// What the keeper is told.
pub(super) enum Command {
    /// Append entries; `flushed` hears when they count.
    Append {
        entries: Vec<Entry>,
        flushed: LogFlushed<Types>,
    },
    /// Remove all entries from this index on.
    Truncate(u64, Answer<()>),
    /// Remove all entries up to this one.
    Purge(Position, Answer<()>),
    SaveVote(Vote, Answer<()>),
    /// This entry is committed. Needs no sync.
    Committed(Position),
    /// Entries of a range, at most so many bytes but at least one.
    Read(Range<u64>, usize, Answer<Vec<Entry>>),
    /// What was in doubt after a loss of power is settled.
    Settle(Answer<()>),
    /// Agents are asked for what the end of the log lacks.
    TailIsSought(Answer<()>),
    /// End; if `is_clean`, sync and say so: the next start trusts the log whole.
    Close {
        is_clean: bool,
        closed: oneshot::Sender<()>,
    },
}

/// Who runs the slow part of a sync.
pub(super) enum Syncs {
    /// Another thread, while entries are appended on.
    Beside,
    /// Another task, when the time has passed that it takes; at once if that is none. For disks
    /// in memory.
    #[cfg(any(test, feature = "sim"))]
    Played(SyncPause),
}

/// How long a sync takes that is begun now.
#[cfg(any(test, feature = "sim"))]
pub(crate) type SyncPause = std::sync::Arc<dyn Fn() -> Duration + Send + Sync>;

/// Owns the log until the channel is closed or it is told to close. Fatal errors of the disk end
/// it too: whoever still writes hears that nobody listens.
pub(super) async fn keep<D: Disk>(
    log: Log<D>,
    (policy, syncs, synced): (SyncPolicy, Syncs, CounterHandle),
    mut commands: mpsc::Receiver<Command>,
    written: Written,
) -> Result<(), LogError> {
    let mut keeper = Keeper {
        log,
        policy,
        syncs,
        synced,
        syncing: None,
        written,
        flushed: Vec::new(),
        flushing: Vec::new(),
        start: Instant::now(),
        last_sync_ms: 0,
    };
    while let Some(command) = keeper.next(&mut commands).await? {
        let mut next = Some(command);
        for _ in 0..COMMANDS_AT_ONCE {
            match next.take() {
                Some(Command::Close { is_clean, closed }) => {
                    if is_clean {
                        keeper.end_sync().await?;
                        keeper.log.mark_clean()?;
                    }
                    // Whoever closes may not wait for it.
                    let _ = closed.send(());
                    return Ok(());
                }
                Some(command) => keeper.take(command).await?,
                None => break,
            }
            next = commands.try_recv().ok();
        }
        if let Some(command) = next {
            keeper.take(command).await?;
        }
        keeper.sync_if_due().await?;
    }
    // Nobody is left who could be told more. The log is as after a kill: nothing is lost.
    Ok(())
}

struct Keeper<D> {
    log: Log<D>,
    policy: SyncPolicy,
    syncs: Syncs,
    /// Counts them.
    synced: CounterHandle,
    written: Written,
    /// A sync on another thread.
    syncing: Option<JoinHandle<SyncDone>>,
    /// Who waits for a sync that is not begun.
    flushed: Vec<LogFlushed<Types>>,
    /// Who waits for the one that is under way.
    flushing: Vec<LogFlushed<Types>>,
    start: Instant,
    last_sync_ms: u64,
}

impl<D: Disk> Keeper<D> {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The next command; syncs meanwhile when it is time. `None`: all who could write are gone.
    async fn next(
        &mut self,
        commands: &mut mpsc::Receiver<Command>,
    ) -> Result<Option<Command>, LogError> {
        loop {
            let due = self.log.next_sync_ms(self.last_sync_ms);
            let due = due.filter(|_| self.syncing.is_none());
            let due = due.map(|at_ms| self.start + Duration::from_millis(at_ms));
            let wait = async {
                match (&mut self.syncing, due) {
                    (Some(syncing), _) => Some(syncing.await),
                    (None, Some(at)) => {
                        sleep_until(at).await;
                        None
                    }
                    (None, None) => pending().await,
                }
            };
            let waited = tokio::select! {
                biased;
                command = commands.recv() => return Ok(command),
                waited = wait => waited,
            };
            match waited {
                Some(done) => self.finish_sync(done)?,
                None => self.sync_if_due().await?,
            }
        }
    }

    /// Begins a sync when it is time, and takes the end of one that is over.
    async fn sync_if_due(&mut self) -> Result<(), LogError> {
        if self.syncing.as_ref().is_some_and(JoinHandle::is_finished) {
            self.end_sync().await?;
        }
        if self.syncing.is_some() || !self.log.wants_sync(self.now_ms(), self.last_sync_ms) {
            return Ok(());
        }
        self.last_sync_ms = self.now_ms();
        self.flushing.append(&mut self.flushed);
        let begun = self.log.begin_sync();
        self.synced.inc(u64::from(matches!(begun, Ok(Some(_)))));
        match begun {
            Ok(Some(work)) => self.run_sync(work),
            Ok(None) => self.report(Ok(())),
            Err(error) => self.report(Err(error)),
        }
    }

    fn run_sync(&mut self, work: SyncWork) -> Result<(), LogError> {
        if matches!(self.syncs, Syncs::Beside) {
            self.syncing = Some(spawn_blocking(|| work.run()));
            return Ok(());
        }
        let pause = self.own_pause();
        if pause.is_zero() {
            return self.finish_sync(Ok(work.run()));
        }
        self.syncing = Some(tokio::spawn(async move {
            sleep(pause).await;
            work.run()
        }));
        Ok(())
    }

    /// How long the keeper itself is busy with a sync; of a real disk the call says it.
    fn own_pause(&self) -> Duration {
        match &self.syncs {
            Syncs::Beside => Duration::ZERO,
            #[cfg(any(test, feature = "sim"))]
            Syncs::Played(pause) => pause(),
        }
    }

    /// Waits for the sync that is under way.
    async fn end_sync(&mut self) -> Result<(), LogError> {
        match self.syncing.take() {
            Some(syncing) => {
                let done = syncing.await;
                self.finish_sync(done)
            }
            None => Ok(()),
        }
    }

    fn finish_sync(&mut self, done: Result<SyncDone, JoinError>) -> Result<(), LogError> {
        self.syncing = None;
        let done = match done {
            Ok(done) => self.log.finish_sync(done).map(|_| ()),
            // The thread died: what it synced nobody knows, so it is done again and waited for.
            Err(_) => self.log.sync().map(|_| ()),
        };
        self.report(done)
    }

    /// Tells those who waited for the sync that is over.
    fn report(&mut self, done: Result<(), LogError>) -> Result<(), LogError> {
        for flushed in self.flushing.drain(..) {
            flushed.log_io_completed(done.as_ref().map_err(as_io).copied());
        }
        done
    }

    async fn take(&mut self, command: Command) -> Result<(), LogError> {
        // Whoever asked may be gone: then nobody wants the answer.
        match command {
            Command::Append { entries, flushed } => self.append(&entries, flushed).await?,
            Command::Truncate(from, answer) => {
                drop(answer.send(self.log.truncate_from(from)));
            }
            Command::Purge(through, answer) => {
                drop(answer.send(self.log.purge_through(through)));
            }
            Command::SaveVote(vote, answer) => {
                let pause = self.own_pause();
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                drop(answer.send(self.log.save_vote(vote)));
            }
            Command::Committed(at) => self.log.note_committed(at),
            Command::Read(range, bytes_max, answer) => {
                drop(answer.send(self.log.read(range, bytes_max)));
            }
            Command::Settle(answer) => drop(answer.send(self.log.settle_doubt())),
            Command::TailIsSought(answer) => drop(answer.send(self.log.tail_is_sought())),
            // Taken by the loop.
            Command::Close { .. } => {}
        }
        Ok(())
    }

    async fn append(
        &mut self,
        entries: &[Entry],
        flushed: LogFlushed<Types>,
    ) -> Result<(), LogError> {
        let mut is_told = false;
        let appended = loop {
            match self.log.append(entries) {
                // A full disk, or a log that is full until a snapshot lets it be purged. Nothing
                // was written, so the same is tried again; who proposes more waits meanwhile.
                Err(error) if error.is_retryable() => {
                    if !is_told {
                        let error = larder_telemetry::error_chain(&error);
                        tracing::warn!(error, "the log takes no entries; it is tried again");
                        is_told = true;
                    }
                    sleep(FULL_PAUSE).await;
                }
                done => break done,
            }
        };
        if let Err(error) = &appended {
            flushed.log_io_completed(Err(as_io(error)));
            return appended;
        }
        if let Some(last) = entries.last() {
            let bytes = entries.iter().map(|entry| entry.payload.len() as u64).sum();
            self.written.through(last.at.index, bytes);
        }
        if self.policy == SyncPolicy::Always {
            // Every entry is to be durable before it counts: one sync for all that came together.
            self.flushed.push(flushed);
        } else {
            flushed.log_io_completed(Ok(()));
        }
        Ok(())
    }
}

fn as_io(error: &LogError) -> std::io::Error {
    std::io::Error::other(larder_telemetry::error_chain(error))
}
