//! The file of records beside a slab: slots in a growing memory file, never passed to clients.
//!
//! The table in memory ([`crate::segments`]) is what decides; this file is what outlives a fault
//! of the process while somebody keeps its descriptor, and what an inventory reads.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::memory::{MemoryError, create_growing};
use crate::record::{MIN_SLOT_BYTES, Record, RecordError, STATE_AT, STATE_FREE};

/// Free space that is not worth a compaction, in bytes.
const SLACK_BYTES: u64 = 1024 * 1024;

/// Why the file of records could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum RecordFileError {
    /// The memory file could not be made.
    #[error("no memory file for records could be made")]
    Create(#[from] MemoryError),
    /// The memory file could not be read or written.
    #[error("the memory file of records could not be read or written")]
    Io(#[from] io::Error),
    /// A record is not valid.
    #[error("the record in the slot at byte {at_bytes} cannot be used")]
    Record {
        /// Where the slot starts, in bytes.
        at_bytes: u64,
        /// What is wrong.
        source: RecordError,
    },
    /// The slot does not exist or is free; a fault of the caller.
    #[error("no record lies in that slot")]
    NoSlot,
}

/// Where a record lies in its file. Stays the same through compactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(u32);

#[derive(Clone, Copy, Debug)]
struct Slot {
    at: u64,
    bytes: u32,
}

/// The records of one slab.
///
/// Bound: each record describes at least one 256-byte unit of its slab, so there are at most
/// `slab_bytes / 256` records and as many erasures; free slots never take more than the others
/// and 1 MiB together, for then the file is written afresh.
#[derive(Debug)]
pub struct RecordFile {
    file: File,
    end: u64,
    slots: Vec<Option<Slot>>,
    unused_ids: Vec<u32>,
    /// Free slots by length, in bytes.
    free: BTreeMap<u32, Vec<u64>>,
    live_bytes: u64,
    free_bytes: u64,
}

impl RecordFile {
    /// Makes an empty file.
    ///
    /// # Errors
    /// [`RecordFileError::Create`].
    pub fn create() -> Result<Self, RecordFileError> {
        Ok(Self {
            file: create_growing("larder-records")?,
            end: 0,
            slots: Vec::new(),
            unused_ids: Vec::new(),
            free: BTreeMap::new(),
            live_bytes: 0,
            free_bytes: 0,
        })
    }

    /// Length of the file, in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.end
    }

    /// Adds a record in a slot in which it also fits when its checksums are known.
    ///
    /// # Errors
    /// [`RecordFileError`]; the file is as before.
    pub fn insert(&mut self, record: &Record) -> Result<SlotId, RecordFileError> {
        let bytes = record.slot_bytes();
        let reused = self
            .free
            .get(&bytes)
            .and_then(|slots| slots.last().copied());
        let at = reused.unwrap_or(self.end);
        let encoded = encode(record, Slot { at, bytes })?;
        self.file.write_all_at(&encoded, at)?;
        if reused.is_some() {
            if let Some(slots) = self.free.get_mut(&bytes) {
                slots.pop();
            }
            self.free_bytes -= u64::from(bytes);
        } else {
            self.end += u64::from(bytes);
        }
        self.live_bytes += u64::from(bytes);
        let slot = Some(Slot { at, bytes });
        if let Some(id) = self.unused_ids.pop() {
            if let Some(place) = self.slots.get_mut(id as usize) {
                *place = slot;
            }
            return Ok(SlotId(id));
        }
        // 2^32 slots of 128 bytes would be 512 GiB of records for one slab of at most 16 GiB.
        let id = u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        self.slots.push(slot);
        Ok(SlotId(id))
    }

    /// Writes a record over the one in its slot.
    ///
    /// # Errors
    /// [`RecordFileError`].
    pub fn update(&mut self, id: SlotId, record: &Record) -> Result<(), RecordFileError> {
        let slot = self.slot(id)?;
        let encoded = encode(record, slot)?;
        self.file.write_all_at(&encoded, slot.at)?;
        Ok(())
    }

    /// Frees a slot. The record is gone as soon as this returns.
    ///
    /// # Errors
    /// [`RecordFileError`]; the record is still there then.
    pub fn remove(&mut self, id: SlotId) -> Result<(), RecordFileError> {
        let slot = self.slot(id)?;
        self.file.write_all_at(&[STATE_FREE], slot.at + STATE_AT)?;
        if let Some(place) = self.slots.get_mut(id.0 as usize) {
            *place = None;
        }
        self.unused_ids.push(id.0);
        self.free.entry(slot.bytes).or_default().push(slot.at);
        self.live_bytes -= u64::from(slot.bytes);
        self.free_bytes += u64::from(slot.bytes);
        if self.free_bytes > self.live_bytes + SLACK_BYTES
            && let Err(error) = self.compact()
        {
            // The old file goes on; the next removal tries again.
            let error = larder_telemetry::error_chain(&error);
            tracing::warn!(%error, "the file of records could not be written afresh");
        }
        Ok(())
    }

    /// Reads all records back, in the order of the file.
    ///
    /// # Errors
    /// [`RecordFileError`] at the first slot that cannot be used.
    pub fn scan(&self) -> Result<Vec<Record>, RecordFileError> {
        let mut records = Vec::new();
        let mut at = 0;
        while at < self.end {
            let mut length = [0; 4];
            self.file.read_exact_at(&mut length, at)?;
            let bytes = u32::from_le_bytes(length);
            let fits = bytes.is_power_of_two()
                && bytes >= MIN_SLOT_BYTES
                && at + u64::from(bytes) <= self.end;
            if !fits {
                return Err(RecordFileError::Record {
                    at_bytes: at,
                    source: RecordError::Field("slot length"),
                });
            }
            let slot = self.read(Slot { at, bytes })?;
            let found = Record::decode(&slot).map_err(|source| RecordFileError::Record {
                at_bytes: at,
                source,
            })?;
            records.extend(found);
            at += u64::from(bytes);
        }
        Ok(records)
    }

    fn slot(&self, id: SlotId) -> Result<Slot, RecordFileError> {
        self.slots
            .get(id.0 as usize)
            .copied()
            .flatten()
            .ok_or(RecordFileError::NoSlot)
    }

    fn read(&self, slot: Slot) -> Result<Vec<u8>, RecordFileError> {
        let mut bytes = vec![0; slot.bytes as usize];
        // The last slot of the file need not be written to its end.
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], slot.at + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }

    /// Copies the live slots to a new file. The old one stays whole until the new one is, so that
    /// a fault in between loses nothing.
    fn compact(&mut self) -> Result<(), RecordFileError> {
        let file = create_growing("larder-records")?;
        let mut end = 0;
        let mut moved = self.slots.clone();
        for slot in moved.iter_mut().flatten() {
            file.write_all_at(&self.read(*slot)?, end)?;
            slot.at = end;
            end += u64::from(slot.bytes);
        }
        self.file = file;
        self.slots = moved;
        self.end = end;
        self.free.clear();
        self.free_bytes = 0;
        Ok(())
    }
}

fn encode(record: &Record, slot: Slot) -> Result<Vec<u8>, RecordFileError> {
    record
        .encode(slot.bytes)
        .map_err(|source| RecordFileError::Record {
            at_bytes: slot.at,
            source,
        })
}

#[cfg(test)]
mod tests;
