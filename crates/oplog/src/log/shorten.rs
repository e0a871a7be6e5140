//! Taking entries off the end of the log and off its beginning.

use super::Log;
use crate::Position;
use crate::disk::Disk;
use crate::error::LogError;
use crate::format::Kind;
use crate::meta::Meta;
use crate::reserve;
use crate::scan::segment_name;

impl<D: Disk> Log<D> {
    /// Drops the entries from `index` on, durably. They never come back, whatever is appended
    /// then and whenever the power fails.
    ///
    /// # Errors
    /// The entries are purged, or the disk failed.
    pub fn truncate_from(&mut self, index: u64) -> Result<(), LogError> {
        self.check_running()?;
        let first = self.index.first();
        if index < first {
            return Err(LogError::Purged { index, first });
        }
        if index >= self.index.next() {
            return Ok(());
        }
        self.make_room()?;
        let mut batch = self.batch();
        batch.push(Kind::Truncate, Position { term: 0, index }, &[]);
        self.write(&batch)?;
        self.note_change();
        self.index.truncate(index);
        self.durable = self.durable.min(self.index.last());
        self.make_durable()
    }

    /// Drops the entries through `through`, durably, and removes the segments that hold no other.
    /// The log may end before it, as when a snapshot was taken over: it goes on behind it.
    ///
    /// # Errors
    /// The disk failed. The purge may be done in part then, up to files that could not be
    /// removed; a repeated call finishes it.
    pub fn purge_through(&mut self, through: Position) -> Result<(), LogError> {
        self.check_running()?;
        let is_new = self.meta.purged.is_none_or(|old| old.index < through.index);
        if is_new {
            self.purge(through)?;
        }
        while let Some(sequence) = self.obsolete.last() {
            match self.disk.remove(&segment_name(*sequence)) {
                Err(error) if !error.is_missing() => return Err(error.into()),
                _ => {}
            }
            self.obsolete.pop();
        }
        reserve::keep(&mut self.disk);
        Ok(())
    }

    fn purge(&mut self, through: Position) -> Result<(), LogError> {
        let last = self.index.last();
        let is_beyond = last.is_none_or(|last| last.index < through.index);
        let known = self.index.position(through.index);
        if through.index == u64::MAX || (!is_beyond && known != Some(through)) {
            return Err(LogError::OutOfOrder {
                term: through.term,
                index: through.index,
                last: known.map_or("anything".to_owned(), |known| known.to_string()),
            });
        }
        // What is purged must be durable, or else a log could end before its own beginning.
        if is_beyond {
            match self.begin_segment(Some(through), true) {
                Err(LogError::Disk(cause))
                    if cause.is_full() && reserve::release(&mut self.disk) =>
                {
                    self.begin_segment(Some(through), true)?;
                }
                other => other?,
            }
        } else {
            self.make_durable()?;
        }
        let obsolete = self.index.obsolete(through);
        let oldest = self.index.segments.get(obsolete);
        let meta = Meta {
            purged: Some(through),
            first_sequence: oldest.map_or(0, |segment| segment.sequence),
            ..self.meta
        };
        self.store(meta)?;
        self.index.purge(through);
        let gone = self.index.segments.drain(..obsolete);
        self.obsolete.extend(gone.map(|segment| segment.sequence));
        Ok(())
    }
}
