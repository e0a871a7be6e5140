//! The log as openraft sees it: commands to the keeper, and the newest entries in memory.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::ops::{Bound, Range, RangeBounds};

use larder_oplog::LogError;
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AnyError, EntryPayload, ErrorSubject, ErrorVerb, LogState, OptionalSend, RaftLogReader,
    StorageIOError,
};
use tokio::sync::{mpsc, oneshot, watch};

use super::convert;
use super::keeper::Command;
use super::message::APPEND_BYTES_MAX;
use super::{LogId, RaftEntry, RaftVote, StorageError, Types};

/// Entries that are on their way to the disk stay in memory, and of the others as many as fit
/// into so many bytes: a standby that follows is never sent what has to be read.
const RECENT_BYTES_MAX: usize = 32 << 20;
/// What an entry takes besides its ops, in bytes.
const ENTRY_BYTES: usize = 128;

/// The newest entries, without a gap.
///
/// openraft clones readers into tasks of its own, so this is the one thing of a replica that
/// several tasks share: it lies in a watch, which nobody waits for.
#[derive(Debug, Default)]
struct Recent {
    entries: VecDeque<RaftEntry>,
    bytes: usize,
    /// Entries below this index are in the log's files.
    written: u64,
    /// Bytes of all entries that were written in this life.
    written_bytes: u64,
}

fn cost(entry: &RaftEntry) -> usize {
    let ops = match &entry.payload {
        EntryPayload::Normal(proposal) => proposal.ops.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    };
    ENTRY_BYTES + ops
}

impl Recent {
    fn first(&self) -> Option<u64> {
        self.entries.front().map(|entry| entry.log_id.index)
    }

    fn push(&mut self, entry: RaftEntry) {
        self.bytes += cost(&entry);
        self.entries.push_back(entry);
    }

    fn shrink(&mut self) {
        while self.bytes > RECENT_BYTES_MAX
            && self.first().is_some_and(|first| first < self.written)
            && let Some(entry) = self.entries.pop_front()
        {
            self.bytes -= cost(&entry);
        }
    }

    fn truncate(&mut self, from: u64) {
        while self
            .entries
            .back()
            .is_some_and(|entry| entry.log_id.index >= from)
            && let Some(entry) = self.entries.pop_back()
        {
            self.bytes -= cost(&entry);
        }
        self.written = self.written.min(from);
    }

    fn purge(&mut self, through: u64) {
        while self.first().is_some_and(|first| first <= through)
            && let Some(entry) = self.entries.pop_front()
        {
            self.bytes -= cost(&entry);
        }
    }

    /// The entries of a range, at most so many bytes but at least one; `None` if its first one is
    /// not here.
    fn get(&self, range: &Range<u64>, bytes_max: usize) -> Option<Vec<RaftEntry>> {
        let first = self.first().filter(|first| *first <= range.start)?;
        let skip = usize::try_from(range.start - first).ok()?;
        let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let wanted = self.entries.iter().skip(skip).take(count);
        let found: Vec<RaftEntry> = wanted
            .enumerate()
            .take_while(|(at, entry)| {
                bytes += cost(entry);
                *at == 0 || bytes <= bytes_max
            })
            .map(|(_, entry)| entry.clone())
            .collect();
        (!found.is_empty()).then_some(found)
    }
}

/// Where the keeper says what it has written.
#[derive(Clone, Debug, Default)]
pub(super) struct Written(watch::Sender<Recent>);

impl Written {
    /// All entries up to this index are in the log's files, so many bytes more than before.
    pub(super) fn through(&self, index: u64, bytes: u64) {
        self.0.send_modify(|recent| {
            recent.written = recent.written.max(index + 1);
            recent.written_bytes += bytes;
            recent.shrink();
        });
    }

    /// Ends when all entries through `index` are in the log's files.
    pub(super) async fn reach(&self, index: u64) {
        let mut recent = self.0.subscribe();
        // Never an error: the sender is `self`.
        drop(recent.wait_for(|recent| recent.written > index).await);
    }

    /// The last entry that was written in this life.
    pub(super) fn last(&self) -> Option<u64> {
        self.0.borrow().written.checked_sub(1)
    }

    /// Bytes of all entries that were written in this life, with those that it found.
    pub(super) fn bytes(&self) -> u64 {
        self.0.borrow().written_bytes
    }
}

/// What of the log stands in memory from its start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    pub(super) purged: Option<LogId>,
    pub(super) last: Option<LogId>,
    pub(super) vote: Option<RaftVote>,
    /// On the disk `vote` is committed, whatever stands here.
    pub(super) is_vote_committed: bool,
    pub(super) committed: Option<LogId>,
}

/// The log of a replica, for openraft's one core.
#[derive(Debug)]
pub(super) struct LogStore {
    reader: Reader,
    ends: Ends,
}

impl LogStore {
    pub(super) fn new(commands: mpsc::Sender<Command>, written: &Written, ends: Ends) -> Self {
        let recent = written.0.clone();
        let reader = Reader { commands, recent };
        Self { reader, ends }
    }
}

/// Reads entries; every task that sends them has its own.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    commands: mpsc::Sender<Command>,
    recent: watch::Sender<Recent>,
}

fn failed(verb: ErrorVerb, error: &dyn std::error::Error) -> StorageError {
    let text = larder_telemetry::error_chain(error);
    StorageIOError::new(ErrorSubject::Logs, verb, AnyError::error(text)).into()
}

/// The keeper is gone: the disk failed, or this master stops.
fn gone(verb: ErrorVerb) -> StorageError {
    let text = "the log takes no more commands; its disk failed or this master stops";
    StorageIOError::new(ErrorSubject::Logs, verb, AnyError::error(text)).into()
}

impl Reader {
    async fn ask<T>(
        &self,
        verb: ErrorVerb,
        command: impl FnOnce(oneshot::Sender<Result<T, LogError>>) -> Command,
    ) -> Result<T, StorageError> {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.send(command(answer)).await;
        sent.map_err(|_| gone(verb))?;
        let done = answered.await.map_err(|_| gone(verb))?;
        done.map_err(|error| failed(verb, &error))
    }

    /// The first entries of a range, from memory or from the disk.
    async fn some(&self, range: Range<u64>) -> Result<Vec<RaftEntry>, StorageError> {
        let recent = self.recent.borrow().get(&range, APPEND_BYTES_MAX);
        if let Some(entries) = recent {
            return Ok(entries);
        }
        let ask = |answer| Command::Read(range, APPEND_BYTES_MAX, answer);
        let read = self.ask(ErrorVerb::Read, ask).await?;
        let mut entries = Vec::with_capacity(read.len());
        for entry in read {
            let loaded = convert::loaded(entry.at, &entry.payload);
            entries.push(loaded.map_err(|error| failed(ErrorVerb::Read, &error))?);
        }
        Ok(entries)
    }
}

impl RaftLogReader<Types> for Reader {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<RaftEntry>, StorageError> {
        let mut start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(start) => start.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(end) => end.saturating_add(1),
            Bound::Excluded(end) => *end,
            // openraft always names the end; whoever does not gets what is in memory.
            Bound::Unbounded => u64::MAX,
        };
        let mut found = Vec::new();
        while start < end {
            let some = self.some(start..end).await?;
            let Some(last) = some.last() else { break };
            start = last.log_id.index + 1;
            found.extend(some);
        }
        Ok(found)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<RaftEntry>, StorageError> {
        if start >= end {
            return Ok(Vec::new());
        }
        self.some(start..end).await
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<RaftEntry>, StorageError> {
        self.reader.try_get_log_entries(range).await
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = Reader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError> {
        Ok(LogState {
            last_purged_log_id: self.ends.purged,
            last_log_id: self.ends.last.or(self.ends.purged),
        })
    }

    async fn get_log_reader(&mut self) -> Reader {
        self.reader.clone()
    }

    async fn save_vote(&mut self, vote: &RaftVote) -> Result<(), StorageError> {
        let saved = larder_oplog::Vote {
            term: vote.leader_id.term,
            voted_for: vote.leader_id.voted_for,
            committed: vote.committed,
        };
        let is_same = self
            .ends
            .vote
            .is_some_and(|had| had.leader_id == vote.leader_id);
        if !(is_same && self.ends.is_vote_committed) {
            let ask = |answer| Command::SaveVote(saved, answer);
            self.reader.ask(ErrorVerb::Write, ask).await?;
            self.ends.is_vote_committed = vote.committed;
        }
        self.ends.vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<RaftVote>, StorageError> {
        Ok(self.ends.vote)
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        if let Some(committed) = committed {
            self.ends.committed = Some(committed);
            let command = Command::Committed(convert::position(&committed));
            let sent = self.reader.commands.send(command).await;
            sent.map_err(|_| gone(ErrorVerb::Write))?;
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        Ok(self.ends.committed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: LogFlushed<Types>,
    ) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = RaftEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<RaftEntry> = entries.into_iter().collect();
        let stored = entries.iter().map(convert::stored).collect();
        if let Some(last) = entries.last() {
            self.ends.last = Some(last.log_id);
        }
        self.reader.recent.send_modify(|recent| {
            entries.into_iter().for_each(|entry| recent.push(entry));
        });
        let command = Command::Append {
            entries: stored,
            flushed,
        };
        let sent = self.reader.commands.send(command).await;
        sent.map_err(|_| gone(ErrorVerb::Write))
    }

    async fn truncate(&mut self, from: LogId) -> Result<(), StorageError> {
        let recent = &self.reader.recent;
        recent.send_modify(|recent| recent.truncate(from.index));
        let ask = |answer| Command::Truncate(from.index, answer);
        self.reader.ask(ErrorVerb::Write, ask).await?;
        // Who truncates appends next, so the term of the entry before is not asked for again; it
        // is read, as the truth of the log must not be guessed.
        self.ends.last = match from.index.checked_sub(1) {
            Some(index) if self.ends.purged.is_none_or(|purged| purged.index < index) => {
                let before = self.reader.some(index..index + 1).await?;
                before.first().map(|entry| entry.log_id)
            }
            _ => self.ends.purged,
        };
        Ok(())
    }

    async fn purge(&mut self, through: LogId) -> Result<(), StorageError> {
        let position = convert::position(&through);
        let ask = |answer| Command::Purge(position, answer);
        self.reader.ask(ErrorVerb::Delete, ask).await?;
        self.ends.purged = Some(through);
        let recent = &self.reader.recent;
        recent.send_modify(|recent| recent.purge(through.index));
        Ok(())
    }
}
