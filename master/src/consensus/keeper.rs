//! The one owner of the log's files: takes writes in order, syncs when it is time.
//!
//! In a master it runs on a thread of its own, so that a slow disk holds up nobody but those who
//! wait for it. What it is told comes over a bounded channel: who writes more than the disk takes,
//! waits.

use std::future::pending;
use std::ops::Range;
use std::time::Duration;

use larder_oplog::{Disk, Entry, Log, LogError, Position, SyncPolicy, Vote};
use openraft::storage::LogFlushed;
use tokio::sync::{mpsc, oneshot};
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
    /// Sync, say that the stop was clean, and end.
    Close(oneshot::Sender<()>),
}

/// Owns the log until the channel is closed or it is told to close. Fatal errors of the disk end
/// it too: whoever still writes hears that nobody listens.
pub(super) async fn keep<D: Disk>(
    log: Log<D>,
    policy: SyncPolicy,
    mut commands: mpsc::Receiver<Command>,
    written: Written,
) -> Result<(), LogError> {
    let mut keeper = Keeper {
        log,
        policy,
        written,
        flushed: Vec::new(),
        start: Instant::now(),
        last_sync_ms: 0,
    };
    while let Some(command) = keeper.next(&mut commands).await? {
        let mut next = Some(command);
        for _ in 0..COMMANDS_AT_ONCE {
            match next.take() {
                Some(Command::Close(closed)) => {
                    keeper.log.mark_clean()?;
                    keeper.report(None);
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
        keeper.sync_if_due()?;
    }
    // Nobody is left who could be told more. The log is as after a kill: nothing is lost.
    Ok(())
}

struct Keeper<D> {
    log: Log<D>,
    policy: SyncPolicy,
    written: Written,
    /// Who waits for a sync.
    flushed: Vec<LogFlushed<Types>>,
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
            let due = due.map(|at_ms| self.start + Duration::from_millis(at_ms));
            let wait = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                command = commands.recv() => return Ok(command),
                () = wait => self.sync_if_due()?,
            }
        }
    }

    fn sync_if_due(&mut self) -> Result<(), LogError> {
        let now_ms = self.now_ms();
        if self.log.wants_sync(now_ms, self.last_sync_ms) {
            let synced = self.log.sync();
            self.last_sync_ms = self.now_ms();
            self.report(synced.as_ref().err());
            synced?;
        }
        Ok(())
    }

    /// Tells those who waited for a sync.
    fn report(&mut self, error: Option<&LogError>) {
        for flushed in self.flushed.drain(..) {
            flushed.log_io_completed(error.map_or(Ok(()), |error| Err(as_io(error))));
        }
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
            Command::SaveVote(vote, answer) => drop(answer.send(self.log.save_vote(vote))),
            Command::Committed(at) => self.log.note_committed(at),
            Command::Read(range, bytes_max, answer) => {
                drop(answer.send(self.log.read(range, bytes_max)));
            }
            // Taken by the loop.
            Command::Close(_) => {}
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
            self.written.through(last.at.index);
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
