//! The table of one slab: its records and what was erased, in memory and in the file beside it.

use std::collections::BTreeMap;

use larder_types::{TenantId, Version};

use super::range::Span;
use crate::record::{Record, RecordState};
use crate::record_file::{RecordFile, RecordFileError, SlotId};

#[derive(Debug)]
struct Row {
    span: Span,
    record: Record,
    slot: SlotId,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    end: u64,
    version: Version,
    /// `None`: the file had no room for it. The mark counts all the same in this process; what
    /// it erased is gone from the file in any case.
    slot: Option<SlotId>,
}

/// Records and erasure marks of one slab.
///
/// Records do not overlap each other, and marks do not overlap each other, so there is at most one
/// of each for every 256-byte unit. A mark may lie over an older record: it refuses its version
/// without taking away what is there.
#[derive(Debug)]
pub(super) struct RecordTable {
    tenant: TenantId,
    records: BTreeMap<u64, Row>,
    marks: BTreeMap<u64, Mark>,
    file: RecordFile,
    written_bytes: u64,
    file_failures: u64,
}

impl RecordTable {
    pub(super) fn new(tenant: TenantId) -> Result<Self, RecordFileError> {
        Ok(Self {
            tenant,
            records: BTreeMap::new(),
            marks: BTreeMap::new(),
            file: RecordFile::create()?,
            written_bytes: 0,
            file_failures: 0,
        })
    }

    /// The record of exactly this span.
    pub(super) fn get(&self, span: Span) -> Option<&Record> {
        self.records
            .get(&span.start)
            .filter(|row| row.span == span)
            .map(|row| &row.record)
    }

    /// The highest version that a record or a mark names for any byte of `span`.
    pub(super) fn highest(&self, span: Span) -> Option<Version> {
        let records = self.records_over(span).map(|row| row.record.version);
        let marks = self.marks_over(span).map(|(_, mark)| mark.version);
        records.chain(marks).max()
    }

    /// Puts a record in state `writing` in the place of all older ones that it overlaps.
    pub(super) fn begin(&mut self, span: Span, record: Record) -> Result<(), RecordFileError> {
        // First the new one: if that fails nothing has changed, and a reader of the file who
        // finds both goes by the higher version.
        let slot = self.file.insert(&record)?;
        let older: Vec<u64> = self.records_over(span).map(|row| row.span.start).collect();
        for start in older {
            if let Some(old) = self.take_record(start) {
                // What sticks out keeps refusing the old version.
                self.mark(old.span, old.record.version);
            }
        }
        self.cut_marks(span);
        self.records.insert(span.start, Row { span, record, slot });
        Ok(())
    }

    /// As [`Self::begin`] for a copy: also in the place of newer records, and all that was refused
    /// in `span` stays refused. A reader of the file who goes by the highest version takes such a
    /// record for erased, which loses a copy and no more.
    pub(super) fn begin_copy(&mut self, span: Span, record: Record) -> Result<(), RecordFileError> {
        let slot = self.file.insert(&record)?;
        let others: Vec<u64> = self.records_over(span).map(|row| row.span.start).collect();
        for start in others {
            if let Some(other) = self.take_record(start) {
                self.mark(other.span, other.record.version);
            }
        }
        self.records.insert(span.start, Row { span, record, slot });
        Ok(())
    }

    /// Sets the record of this span to `written`.
    pub(super) fn finish(&mut self, span: Span, block_crcs: &[u32]) -> Result<(), RecordFileError> {
        let Some(row) = self.records.get_mut(&span.start) else {
            return Err(RecordFileError::NoSlot);
        };
        let mut written = row.record.clone();
        written.state = RecordState::Written;
        written.block_crcs = block_crcs.into();
        self.file.update(row.slot, &written)?;
        self.written_bytes += written.length_bytes;
        row.record = written;
        Ok(())
    }

    /// Takes away the records of this version in `span` and refuses the version, and all lower
    /// ones, from now on. Records of other versions stay.
    pub(super) fn erase(&mut self, span: Span, version: Version) {
        let meant: Vec<u64> = self
            .records_over(span)
            .filter(|row| row.record.version == version)
            .map(|row| row.span.start)
            .collect();
        self.mark(span, version);
        for start in meant {
            if let Some(row) = self.take_record(start) {
                self.mark(row.span, version);
            }
        }
    }

    /// Every record and mark as the file should hold them.
    pub(super) fn rows(&self) -> impl Iterator<Item = Record> {
        let marks = self.marks.iter().map(|(start, mark)| {
            self.mark_record(
                Span {
                    start: *start,
                    end: mark.end,
                },
                mark.version,
            )
        });
        self.records
            .values()
            .map(|row| row.record.clone())
            .chain(marks)
    }

    /// The records from `offset_bytes` on, in order.
    pub(super) fn records_from(&self, offset_bytes: u64) -> impl Iterator<Item = &Record> {
        let rows = self.records.range(offset_bytes..);
        rows.map(|(_, row)| &row.record)
    }

    /// Whether a record has a byte of `span`.
    pub(super) fn has_record_over(&self, span: Span) -> bool {
        self.records_over(span).next().is_some()
    }

    pub(super) const fn file(&self) -> &RecordFile {
        &self.file
    }

    pub(super) fn records(&self) -> usize {
        self.records.len()
    }

    pub(super) fn marks(&self) -> usize {
        self.marks.len()
    }

    pub(super) const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    pub(super) const fn file_failures(&self) -> u64 {
        self.file_failures
    }

    /// The rows that overlap `span`, from the highest down. Rows do not overlap each other, so
    /// the first that ends too early ends the search.
    fn records_over(&self, span: Span) -> impl Iterator<Item = &Row> {
        let below = self.records.range(..span.end).rev().map(|(_, row)| row);
        below.take_while(move |row| row.span.end > span.start)
    }

    fn marks_over(&self, span: Span) -> impl Iterator<Item = (u64, Mark)> {
        let below = self
            .marks
            .range(..span.end)
            .rev()
            .map(|(start, mark)| (*start, *mark));
        below.take_while(move |(_, mark)| mark.end > span.start)
    }

    fn take_record(&mut self, start: u64) -> Option<Row> {
        let row = self.records.remove(&start)?;
        if row.record.state == RecordState::Written {
            self.written_bytes = self.written_bytes.saturating_sub(row.record.length_bytes);
        }
        self.free(row.slot);
        Some(row)
    }

    /// Refuses `version` in all of `span`, but where a higher one is refused or stands already.
    fn mark(&mut self, span: Span, version: Version) {
        let mut kept: Vec<Span> = self
            .marks_over(span)
            .filter(|(_, mark)| mark.version >= version)
            .map(|(start, mark)| Span {
                start,
                end: mark.end,
            })
            .collect();
        kept.extend(
            self.records_over(span)
                .filter(|row| row.record.version > version)
                .map(|row| row.span),
        );
        kept.sort_unstable();
        let mut start = span.start;
        for stays in kept.into_iter().chain([Span {
            start: span.end,
            end: span.end,
        }]) {
            if stays.start > start {
                self.set_mark(
                    Span {
                        start,
                        end: stays.start,
                    },
                    version,
                );
            }
            start = start.max(stays.end);
        }
    }

    fn set_mark(&mut self, span: Span, version: Version) {
        self.cut_marks(span);
        let record = self.mark_record(span, version);
        let slot = self.note(|file| file.insert(&record));
        self.marks.insert(
            span.start,
            Mark {
                end: span.end,
                version,
                slot,
            },
        );
    }

    /// Takes marks off `span`; what sticks out on either side stays.
    fn cut_marks(&mut self, span: Span) {
        let over: Vec<(u64, Mark)> = self.marks_over(span).collect();
        for (start, mark) in over {
            let left = Span {
                start,
                end: span.start.min(mark.end),
            };
            let right = Span {
                start: span.end.max(start),
                end: mark.end,
            };
            self.marks.remove(&start);
            let mut slot = mark.slot;
            for part in [left, right] {
                if part.start >= part.end {
                    continue;
                }
                let record = self.mark_record(part, mark.version);
                // The first part keeps the slot of the whole.
                let kept = match slot.take() {
                    Some(id) => self.note(|file| file.update(id, &record)).map(|()| id),
                    None => self.note(|file| file.insert(&record)),
                };
                self.marks.insert(
                    part.start,
                    Mark {
                        end: part.end,
                        slot: kept,
                        ..mark
                    },
                );
            }
            if let Some(id) = slot {
                self.free(id);
            }
        }
    }

    fn mark_record(&self, span: Span, version: Version) -> Record {
        Record {
            offset_bytes: span.start,
            length_bytes: span.bytes(),
            version,
            state: RecordState::Erased,
            tenant: self.tenant.clone(),
            key: [].into(),
            part: 0,
            parts: 0,
            object_bytes: 0,
            block_crcs: [].into(),
            stripe: 0,
            wanted: 0,
            attributes: None,
        }
    }

    fn free(&mut self, slot: SlotId) {
        self.note(|file| file.remove(slot));
    }

    /// Changes the file; a failure is counted and told once a slab, for the table goes on.
    fn note<T>(
        &mut self,
        change: impl FnOnce(&mut RecordFile) -> Result<T, RecordFileError>,
    ) -> Option<T> {
        match change(&mut self.file) {
            Ok(value) => Some(value),
            Err(error) => {
                self.file_failures += 1;
                if self.file_failures == 1 {
                    let error = larder_telemetry::error_chain(&error);
                    tracing::error!(%error, "a record could not be noted beside its slab");
                }
                None
            }
        }
    }
}
