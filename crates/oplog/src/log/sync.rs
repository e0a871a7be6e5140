//! Making the log durable: at once, or on another thread while the log goes on.

use super::Log;
use crate::Position;
use crate::disk::{Disk, SyncDone, SyncWork};
use crate::error::LogError;
use crate::scan::segment_name;

/// How far the last segment is durable, as offsets in its file. Segments before it are.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Synced {
    /// Whether anything was written since the last sync was begun.
    pub(crate) is_unsynced: bool,
    /// All before this is durable.
    pub(crate) durable_end: u64,
    /// What the last mark says of that.
    pub(crate) marked_end: u64,
    /// Where the last entry or truncation ends.
    pub(crate) changed_end: u64,
    /// The sync that is under way.
    pub(crate) begun: Option<Begun>,
}

/// A sync that is under way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    /// What it makes durable; nothing if all of that is durable already, as all that shortens the
    /// log or begins a segment makes it.
    through: Option<Through>,
}

#[derive(Debug, Clone, Copy)]
struct Through {
    end: u64,
    last: Option<Position>,
}

impl Synced {
    /// A segment of which all `bytes` are durable.
    pub(crate) fn whole(bytes: u64, marked_end: u64, changed_end: u64) -> Self {
        Self {
            is_unsynced: false,
            durable_end: bytes,
            marked_end,
            changed_end,
            begun: None,
        }
    }

    /// Whether the segment does not yet say of itself what is durable of it.
    pub(crate) fn is_mark_due(&self) -> bool {
        self.changed_end > self.marked_end && self.durable_end > self.marked_end
    }
}

impl<D: Disk> Log<D> {
    /// Makes everything durable and returns the last entry that is. Many appends share one sync.
    ///
    /// If everything was durable already but the log does not say so, a mark is written.
    ///
    /// # Errors
    /// The disk failed: [`LogError::Unknown`]. The log stops, since the kernel may have dropped
    /// what it could not write, and reading it back proves nothing.
    pub fn sync(&mut self) -> Result<Option<Position>, LogError> {
        self.check_running()?;
        self.mark_if_idle()?;
        self.make_durable()?;
        Ok(self.durable)
    }

    /// Begins to make durable what was appended until now. The owner runs the work on a thread
    /// that may block, goes on with the log meanwhile, and gives the outcome to
    /// [`finish_sync`](Self::finish_sync). `None`: nothing is due, or a sync is
    /// [under way](Self::is_syncing).
    ///
    /// Whatever the log is asked meanwhile is right: what has to be durable at once is synced at
    /// once.
    ///
    /// # Errors
    /// The disk refused; nothing was begun, and [`sync`](Self::sync) may work.
    pub fn begin_sync(&mut self) -> Result<Option<SyncWork>, LogError> {
        self.check_running()?;
        if self.synced.begun.is_some() {
            return Ok(None);
        }
        self.mark_if_idle()?;
        let active = self.index.segments.back();
        let Some(active) = active.filter(|_| self.synced.is_unsynced) else {
            return Ok(None);
        };
        let work = self.disk.begin_sync(&segment_name(active.sequence))?;
        let through = Some(Through {
            end: active.bytes,
            last: self.index.last(),
        });
        self.synced.begun = Some(Begun { through });
        self.synced.is_unsynced = false;
        Ok(Some(work))
    }

    /// Ends the sync that is under way and returns the last entry that is durable: the last that
    /// was there when it was begun, or a later one.
    ///
    /// # Errors
    /// As those of [`sync`](Self::sync).
    pub fn finish_sync(&mut self, done: SyncDone) -> Result<Option<Position>, LogError> {
        self.check_running()?;
        let begun = self.synced.begun.take();
        if let Err(cause) = self.disk.finish_sync(done) {
            return Err(self.halt(cause));
        }
        if let Some(through) = begun.and_then(|begun| begun.through) {
            self.synced.durable_end = through.end;
            self.durable = through.last;
        }
        Ok(self.durable)
    }

    /// Whether a sync was begun and not finished.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.synced.begun.is_some()
    }

    /// When [`sync`](Self::sync) or [`begin_sync`](Self::begin_sync) is to be called next, if one
    /// was last called at `last_sync_ms`.
    #[must_use]
    pub fn next_sync_ms(&self, last_sync_ms: u64) -> Option<u64> {
        let policy = self.options.policy;
        let (is_unsynced, is_mark_due) = (self.synced.is_unsynced, self.synced.is_mark_due());
        policy.next_sync_ms(is_unsynced, is_mark_due, last_sync_ms)
    }

    /// Whether [`sync`](Self::sync) is due.
    #[must_use]
    pub fn wants_sync(&self, now_ms: u64, last_sync_ms: u64) -> bool {
        let next = self.next_sync_ms(last_sync_ms);
        next.is_some_and(|next| next <= now_ms)
    }

    /// Writes a mark if nothing else is there to be synced. It can wait until there is room.
    fn mark_if_idle(&mut self) -> Result<(), LogError> {
        let is_idle = !self.synced.is_unsynced && self.synced.begun.is_none();
        if !is_idle || !self.synced.is_mark_due() || self.is_segment_full() {
            return Ok(());
        }
        let batch = self.batch();
        match self.write(&batch) {
            Err(error) if !error.is_retryable() => Err(error),
            _ => Ok(()),
        }
    }

    pub(super) fn make_durable(&mut self) -> Result<(), LogError> {
        let Some(active) = self.index.segments.back() else {
            return Ok(());
        };
        let (name, end) = (segment_name(active.sequence), active.bytes);
        let is_begun = self
            .synced
            .begun
            .is_some_and(|begun| begun.through.is_some());
        let is_due = self.synced.is_unsynced || is_begun;
        if is_due && let Err(cause) = self.disk.sync(&name) {
            return Err(self.halt(cause));
        }
        self.synced.is_unsynced = false;
        self.synced.durable_end = end;
        if let Some(begun) = &mut self.synced.begun {
            begun.through = None;
        }
        self.durable = self.index.last();
        Ok(())
    }

    /// An entry or a truncation was written at the end.
    pub(super) fn note_change(&mut self) {
        if let Some(active) = self.index.segments.back() {
            self.synced.changed_end = active.bytes;
        }
    }
}
