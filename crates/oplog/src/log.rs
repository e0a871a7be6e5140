//! The log while it is open: one owner, every call returns when it is done.

mod shorten;
mod sync;
mod tail;

use std::ops::Range;

use crate::disk::Disk;
use crate::error::LogError;
use crate::format::{ENTRY_BYTES_MAX, Kind, RECORD_HEADER_BYTES};
use crate::index::Index;
use crate::meta::Meta;
use crate::options::BATCH_BYTES_MAX;
use crate::scan::read;
use crate::{Entry, Options, Position, Vote};

pub(crate) use sync::Synced;
pub(crate) use tail::create_segment;

/// The log of one replica.
#[derive(Debug)]
pub struct Log<D> {
    pub(crate) disk: D,
    pub(crate) options: Options,
    pub(crate) meta: Meta,
    pub(crate) index: Index,
    pub(crate) committed: Option<Position>,
    /// Whether `committed` has risen since it was last written.
    pub(crate) is_committed_due: bool,
    /// How far the last segment is durable.
    pub(crate) synced: Synced,
    /// The last entry that is durable.
    pub(crate) durable: Option<Position>,
    /// Segments that hold nothing and are not yet removed.
    pub(crate) obsolete: Vec<u64>,
    pub(crate) halted: Option<&'static str>,
}

impl<D: Disk> Log<D> {
    /// Writes entries behind the last one: all of them, or none if this fails. They are not
    /// durable before [`sync`](Self::sync).
    ///
    /// # Errors
    /// They do not follow, are too large, or there is no room ([`LogError::is_retryable`]).
    pub fn append(&mut self, entries: &[Entry]) -> Result<(), LogError> {
        self.check_running()?;
        let bytes = self.judge(entries)?;
        if entries.is_empty() {
            return Ok(());
        }
        let size_bytes = self.index.bytes();
        let count = self.index.count();
        if size_bytes.saturating_add(bytes) > self.options.bytes_max
            || count.saturating_add(entries.len() as u64) > self.options.entries_max
        {
            return Err(LogError::Full {
                entries: count,
                size_bytes,
            });
        }
        self.make_room()?;
        let mut batch = self.batch();
        let mut offsets = Vec::with_capacity(entries.len());
        for entry in entries {
            offsets.push(batch.push(Kind::Entry, entry.at, &entry.payload));
        }
        self.write(&batch)?;
        self.note_change();
        for (entry, offset) in entries.iter().zip(offsets) {
            let payload_bytes = entry.payload.len() as u32;
            self.index.push(entry.at, offset, payload_bytes);
        }
        Ok(())
    }

    /// The bytes of entries that follow the log and each other and are not too large.
    fn judge(&self, entries: &[Entry]) -> Result<u64, LogError> {
        let mut last = self.index.last();
        let mut bytes = 0;
        for entry in entries {
            let at = entry.at;
            if !Index::admits(last, at) {
                let last = last.map_or("the start of the log".to_owned(), |last| last.to_string());
                return Err(LogError::OutOfOrder {
                    term: at.term,
                    index: at.index,
                    last,
                });
            }
            last = Some(at);
            bytes += RECORD_HEADER_BYTES + entry.payload.len() as u64;
            let is_large = entry.payload.len() > ENTRY_BYTES_MAX;
            if is_large || bytes > BATCH_BYTES_MAX as u64 {
                return Err(LogError::TooLarge {
                    index: at.index,
                    size_bytes: bytes,
                });
            }
        }
        Ok(bytes)
    }

    /// The last entry that is durable.
    #[must_use]
    pub fn durable(&self) -> Option<Position> {
        self.durable
    }

    /// Entries from the start of `range` on, at least one if the log has it, and then as many as
    /// fit `bytes_max` with 32 bytes more each. Ends where the log does.
    ///
    /// # Errors
    /// The first is purged, or bytes are not what was written.
    pub fn read(&mut self, range: Range<u64>, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        self.check_running()?;
        read(&mut self.disk, &self.index, range, bytes_max)
    }

    /// Keeps a vote, durably.
    ///
    /// # Errors
    /// It goes back: an older term, another candidate in the same term that no quorum chose, or not
    /// committed after it was. Or the disk failed.
    pub fn save_vote(&mut self, vote: Vote) -> Result<(), LogError> {
        self.check_running()?;
        if let Some(saved) = self.meta.vote {
            if vote == saved {
                return Ok(());
            }
            if !vote.follows(saved) {
                return Err(LogError::VoteBehind {
                    term: vote.term,
                    saved: saved.term,
                });
            }
        }
        self.store(Meta {
            vote: Some(vote),
            ..self.meta
        })
    }

    /// The vote that is durable.
    #[must_use]
    pub fn vote(&self) -> Option<Vote> {
        self.meta.vote
    }

    /// Notes that the entries through `committed` are committed. It goes to disk with the next
    /// entries, mark or clean stop; after a crash an older note is found.
    pub fn note_committed(&mut self, committed: Position) {
        if self.committed.is_none_or(|old| old.index < committed.index) {
            self.committed = Some(committed);
            self.is_committed_due = true;
        }
    }

    /// The last entry that is noted as committed.
    #[must_use]
    pub fn committed(&self) -> Option<Position> {
        self.committed
    }

    /// The last entry, or the last that was purged if there is none behind it.
    #[must_use]
    pub fn last(&self) -> Option<Position> {
        self.index.last()
    }

    /// The first entry that is in the log.
    #[must_use]
    pub fn first(&self) -> Option<Position> {
        self.index.position(self.index.first())
    }

    /// The index of the entry that can be appended next. An empty log begins with 0.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.index.next()
    }

    /// The last entry that was purged.
    #[must_use]
    pub fn purged(&self) -> Option<Position> {
        self.meta.purged
    }

    /// The term of an entry, or of the last one that was purged.
    #[must_use]
    pub fn term_of(&self, index: u64) -> Option<u64> {
        self.index.position(index).map(|position| position.term)
    }

    /// Entries in the log.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.index.count()
    }

    /// Bytes of its segments.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.index.bytes()
    }

    /// Says that the doubt after a loss of power is settled: nothing that this replica
    /// acknowledged before counts any more, or its log has become the base of a new generation.
    /// That its end may be lost stays known, see [`Log::is_tail_lost`].
    ///
    /// # Errors
    /// The disk failed.
    pub fn settle_doubt(&mut self) -> Result<(), LogError> {
        self.check_running()?;
        if self.meta.doubt.is_none() {
            return Ok(());
        }
        self.store(Meta {
            doubt: None,
            is_tail_lost: true,
            ..self.meta
        })
    }

    /// Whether a doubt was settled and [`Log::tail_is_sought`] has not been called since, over any
    /// number of restarts.
    #[must_use]
    pub fn is_tail_lost(&self) -> bool {
        self.meta.is_tail_lost
    }

    /// Says that those are being asked who may know what the end of the log lacks.
    ///
    /// # Errors
    /// The disk failed.
    pub fn tail_is_sought(&mut self) -> Result<(), LogError> {
        self.check_running()?;
        if !self.meta.is_tail_lost {
            return Ok(());
        }
        self.store(Meta {
            is_tail_lost: false,
            ..self.meta
        })
    }

    /// Makes everything durable and notes that it is. The log takes no more calls then.
    ///
    /// # Errors
    /// The disk failed; the next start counts as one after a kill or a loss of power.
    pub fn mark_clean(&mut self) -> Result<(), LogError> {
        self.check_running()?;
        if (self.is_committed_due || self.synced.is_mark_due()) && !self.is_segment_full() {
            let batch = self.batch();
            self.write(&batch)?;
        }
        self.make_durable()?;
        let end = self.index.segments.back();
        self.store(Meta {
            clean_end: end.map(|segment| (segment.sequence, segment.bytes)),
            ..self.meta
        })?;
        self.halted = Some("it was stopped cleanly");
        Ok(())
    }

    /// The disk, when the log is done with it.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// The disk, to inject faults. Files of the log must not be changed through it.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    fn check_running(&self) -> Result<(), LogError> {
        match self.halted {
            Some(why) => Err(LogError::Halted { why }),
            None => Ok(()),
        }
    }
}
