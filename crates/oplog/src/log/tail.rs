//! The end of the log: batches, syncs, the next segment, and stopping when the disk fails.

use super::{Log, Synced};
use crate::Position;
use crate::batch::Batch;
use crate::disk::{Disk, DiskError};
use crate::error::LogError;
use crate::format::{Header, Kind, SEGMENT_HEADER_BYTES};
use crate::meta::{Meta, StoreError};
use crate::options::{BATCH_BYTES_MAX, SEGMENT_BYTES_MAX};
use crate::scan::segment_name;

impl<D: Disk> Log<D> {
    /// Stops the log, and tries to leave a note that its unsynced end is not to be trusted even
    /// if this machine stays up: what the kernel shows of it may be on no disk.
    pub(super) fn halt(&mut self, cause: DiskError) -> LogError {
        self.halted = Some("its disk failed, and it is not known what is durable");
        let meta = Meta {
            doubt: self.meta.doubt.or(Some(self.durable)),
            ..self.meta
        };
        // If this fails too there is no place left to note it; the cause is reported anyway.
        let _ = meta.store(&mut self.disk);
        LogError::Unknown(cause)
    }

    pub(super) fn store(&mut self, meta: Meta) -> Result<(), LogError> {
        match meta.store(&mut self.disk) {
            Ok(()) => {
                self.meta = meta;
                Ok(())
            }
            Err(StoreError::Unchanged(cause)) => Err(cause.into()),
            Err(StoreError::Unknown(cause)) => {
                // What was to be stored may be: a note on top of it must not take that back.
                self.meta = meta;
                Err(self.halt(cause))
            }
        }
    }

    pub(super) fn is_segment_full(&self) -> bool {
        let active = self.index.segments.back();
        active.is_none_or(|segment| segment.bytes >= self.options.segment_bytes)
    }

    /// A batch that starts with what is due: a mark, and what is committed.
    pub(super) fn batch(&self) -> Batch {
        let active = self.index.segments.back();
        let (sequence, offset) = active.map_or((0, 0), |one| (one.sequence, one.bytes));
        let mut batch = Batch::new(sequence, offset);
        if self.synced.is_mark_due() {
            let end = self.synced.durable_end;
            let at = Position {
                term: 0,
                index: end,
            };
            batch.push(Kind::Mark, at, &[]);
            batch.marks = Some(end);
        }
        if let Some(committed) = self.committed
            && self.is_committed_due
        {
            batch.push(Kind::Committed, committed, &[]);
            batch.has_committed = true;
        }
        batch
    }

    /// Writes a batch at the end, or leaves the segment as it was.
    pub(super) fn write(&mut self, batch: &Batch) -> Result<(), LogError> {
        let name = segment_name(batch.sequence);
        if let Err(cause) = self.disk.append(&name, &batch.bytes) {
            return match self.disk.truncate(&name, batch.offset) {
                Ok(()) => Err(cause.into()),
                Err(_) => Err(self.halt(cause)),
            };
        }
        if let Some(segment) = self.index.segments.back_mut() {
            segment.bytes += batch.bytes.len() as u64;
        }
        self.synced.is_unsynced = true;
        self.is_committed_due &= !batch.has_committed;
        self.synced.marked_end = batch.marks.unwrap_or(self.synced.marked_end);
        Ok(())
    }

    pub(super) fn make_room(&mut self) -> Result<(), LogError> {
        if self.is_segment_full() {
            self.begin_segment(self.index.last(), false)?;
        }
        Ok(())
    }

    /// Begins the next segment, after all before it is durable: only the last one can be torn.
    pub(super) fn begin_segment(
        &mut self,
        previous: Option<Position>,
        starts_over: bool,
    ) -> Result<(), LogError> {
        self.make_durable()?;
        let active = self.index.segments.back();
        let header = Header {
            sequence: active.map_or(0, |segment| segment.sequence + 1),
            previous,
            starts_over,
        };
        create_segment(&mut self.disk, header).map_err(|error| match error {
            StoreError::Unchanged(cause) => cause.into(),
            StoreError::Unknown(cause) => self.halt(cause),
        })?;
        self.index.begin(header.sequence, previous, starts_over);
        let begun = self.synced.begun;
        let header = SEGMENT_HEADER_BYTES;
        self.synced = Synced {
            begun,
            ..Synced::whole(header, header, header)
        };
        self.durable = self.index.last();
        Ok(())
    }
}

/// Makes a segment file durably, or leaves none.
pub(crate) fn create_segment(disk: &mut impl Disk, header: Header) -> Result<(), StoreError> {
    let name = segment_name(header.sequence);
    let begin = |disk: &mut dyn Disk| {
        disk.create(&name)?;
        disk.append(&name, &header.encode())
    };
    if let Err(cause) = begin(disk) {
        // A file that stayed would say that all of the segment before it is durable.
        let undone = match disk.remove(&name) {
            Err(error) if !error.is_missing() => Err(error),
            _ => disk.sync_folder(),
        };
        return Err(match undone {
            Ok(()) => StoreError::Unchanged(cause),
            Err(_) => StoreError::Unknown(cause),
        });
    }
    let mut finish = || {
        disk.sync(&name)?;
        disk.sync_folder()
    };
    finish().map_err(StoreError::Unknown)
}

const _: () = assert!(
    SEGMENT_HEADER_BYTES + SEGMENT_BYTES_MAX + 2 * BATCH_BYTES_MAX as u64 <= u32::MAX as u64,
    "offsets in a segment fit 32 bits"
);
