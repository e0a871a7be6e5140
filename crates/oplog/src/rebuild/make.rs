//! Making a snapshot by replay: a state of its own is rebuilt from the last snapshot and the log,
//! and written.
//!
//! The owner of the live state takes no part in it, so that taking a snapshot never stops service
//! and needs no state that can be copied while it is written. The price is a second state in
//! memory while it runs, and that what was logged since the last snapshot is read and applied once
//! more: both were preferred to holding the only live state back.

use larder_store::State;
use larder_store::snapshot::{Part, Walk};

use super::{Progress, Rebuild, RebuildError, Rebuilt, Through, Unusable};
use crate::disk::Disk;
use crate::snapshot::{SnapshotError, remove_snapshot, snapshots};
use crate::{About, BLOCK_BYTES_MAX, Position, SnapshotWriter, encode_parts};

/// Snapshots that stay when a new one is durable: it and the one before, in case it is damaged.
pub const SNAPSHOTS_KEPT: usize = 2;
/// Parts that are tried as one block. An object has a key of at most 4 KiB and mostly one to three
/// extents of 20 bytes; a block that becomes too large is halved.
const BLOCK_PARTS: usize = 256;

/// A snapshot that was made.
#[derive(Debug)]
pub struct Made {
    /// The entries that it stands for.
    pub at: Position,
    /// What it says beside its state.
    pub about: About,
    /// The digest of its state.
    pub digest: u64,
    /// The generation of its state.
    pub generation: u64,
    /// The objects in it.
    pub objects: u64,
    /// Whether it was there already.
    pub was_there: bool,
    /// Entries through here can be purged and both snapshots that are kept still make a whole
    /// state: that of the older one. `None` if there is only one.
    pub purge_through: Option<Position>,
}

/// A snapshot while it is made. To be run on a thread of its own, with a
/// [shared](crate::StdDisk::share) disk; one at a time, and not while a snapshot of another
/// replica is written to the same folder.
#[derive(Debug)]
pub struct MakeSnapshot<D> {
    phase: Phase<D>,
}

#[derive(Debug)]
enum Phase<D> {
    Rebuild(Box<Rebuild<D>>),
    Write(Box<Writing<D>>),
    Done(Made),
    /// A step failed.
    Failed,
}

#[derive(Debug)]
struct Writing<D> {
    disk: D,
    at: Position,
    about: About,
    state: State,
    walk: Walk,
    writer: SnapshotWriter,
}

impl<D: Disk> MakeSnapshot<D> {
    /// Begins one that stands for the entries through `through`, which is committed.
    ///
    /// # Errors
    /// As those of [`Rebuild::begin`].
    pub fn begin(disk: D, through: u64) -> Result<Self, RebuildError> {
        let rebuild = Rebuild::begin(disk, Through::Index(through))?;
        Ok(Self {
            phase: Phase::Rebuild(Box::new(rebuild)),
        })
    }

    /// Does a part of the work; see [`Rebuild::step`]. Of a state that is written, one block.
    ///
    /// # Errors
    /// [`RebuildError`]: no snapshot was made, and it must be begun anew. What there was is there.
    pub fn step(&mut self, ops_max: usize) -> Result<Progress, RebuildError> {
        let phase = std::mem::replace(&mut self.phase, Phase::Failed);
        self.phase = match phase {
            Phase::Rebuild(mut rebuild) => match rebuild.step(ops_max)? {
                Progress::More => Phase::Rebuild(rebuild),
                Progress::Done => begin_writing(*rebuild)?,
            },
            Phase::Write(mut writing) => {
                if writing.next_block().map_err(failed)? {
                    Phase::Write(writing)
                } else {
                    Phase::Done(writing.finish().map_err(failed)?)
                }
            }
            done => done,
        };
        match self.phase {
            Phase::Done(_) => Ok(Progress::Done),
            Phase::Failed => Err(RebuildError::Unfinished),
            _ => Ok(Progress::More),
        }
    }

    /// What was made, once a step was [`Progress::Done`].
    ///
    /// # Errors
    /// [`RebuildError::Unfinished`] before that.
    pub fn finish(self) -> Result<Made, RebuildError> {
        match self.phase {
            Phase::Done(made) => Ok(made),
            _ => Err(RebuildError::Unfinished),
        }
    }

    /// All steps at once.
    ///
    /// # Errors
    /// As those of [`step`](Self::step).
    pub fn run(mut self) -> Result<Made, RebuildError> {
        while self.step(usize::MAX)? == Progress::More {}
        self.finish()
    }
}

/// What failed while a snapshot was written.
enum WriteError {
    Snapshot(SnapshotError),
    Record(crate::RecordError),
}

fn failed(error: WriteError) -> RebuildError {
    match error {
        WriteError::Snapshot(error) => RebuildError::Snapshots(error),
        WriteError::Record(error) => RebuildError::Unwritten(error),
    }
}

fn begin_writing<D: Disk>(rebuild: Rebuild<D>) -> Result<Phase<D>, RebuildError> {
    let (rebuilt, log) = rebuild.finish()?;
    let mut disk = log.into_disk();
    let Rebuilt {
        state,
        applied,
        about,
        snapshot,
        unusable,
    } = rebuilt;
    // Entries are counted from 0, so there is one through any index.
    let at = applied.ok_or(RebuildError::Unfinished)?;
    if snapshot == Some(at) {
        let made = Made {
            at,
            about,
            digest: state.digest(),
            generation: state.generation(),
            objects: state.objects(),
            was_there: true,
            purge_through: purgeable(&mut disk).map_err(RebuildError::Snapshots)?,
        };
        return Ok(Phase::Done(made));
    }
    // What a newer program wrote, or the disk cannot read today, may be of use to somebody.
    let is_damaged = |one: &&Unusable| matches!(one.why, SnapshotError::Damaged { .. });
    for one in unusable.iter().filter(is_damaged) {
        remove_snapshot(&mut disk, one.at).map_err(RebuildError::Snapshots)?;
    }
    let writing = Writing::begin(disk, at, about, state);
    Ok(Phase::Write(Box::new(writing.map_err(failed)?)))
}

/// Writes what was rebuilt as a snapshot on another disk, all at once: one that is kept apart from
/// those of the replica. Of more than [`SNAPSHOTS_KEPT`] there the oldest are removed.
///
/// # Errors
/// The disk refuses, or nothing was rebuilt; no snapshot was made then.
pub fn write_snapshot(disk: impl Disk, rebuilt: Rebuilt) -> Result<Made, RebuildError> {
    let at = rebuilt.applied.ok_or(RebuildError::Unfinished)?;
    let writing = Writing::begin(disk, at, rebuilt.about, rebuilt.state);
    let mut writing = writing.map_err(failed)?;
    while writing.next_block().map_err(failed)? {}
    writing.finish().map_err(failed)
}

impl<D: Disk> Writing<D> {
    fn begin(mut disk: D, at: Position, about: About, state: State) -> Result<Self, WriteError> {
        let writer = SnapshotWriter::begin(&mut disk, at, &about.encode());
        Ok(Self {
            writer: writer.map_err(WriteError::Snapshot)?,
            disk,
            at,
            about,
            state,
            walk: Walk::default(),
        })
    }

    /// Writes a block; whether there was one to write.
    fn next_block(&mut self) -> Result<bool, WriteError> {
        let parts = self.walk.next(&self.state, BLOCK_PARTS);
        if parts.is_empty() {
            return Ok(false);
        }
        self.write(parts)?;
        Ok(true)
    }

    fn write(&mut self, mut parts: Vec<Part>) -> Result<(), WriteError> {
        let block = encode_parts(parts.clone()).map_err(WriteError::Record)?;
        if block.len() > BLOCK_BYTES_MAX && parts.len() > 1 {
            let rest = parts.split_off(parts.len() / 2);
            self.write(parts)?;
            return self.write(rest);
        }
        let written = self.writer.write(&mut self.disk, &block);
        written.map_err(WriteError::Snapshot)
    }

    /// Ends it, and removes those that are too many once it is durable.
    fn finish(self) -> Result<Made, WriteError> {
        let Self {
            mut disk,
            at,
            about,
            state,
            writer,
            ..
        } = self;
        writer.finish(&mut disk).map_err(WriteError::Snapshot)?;
        let mut tidy = || {
            let mut all = snapshots(&mut disk)?;
            let many = all.len().saturating_sub(SNAPSHOTS_KEPT);
            for old in all.drain(..many) {
                remove_snapshot(&mut disk, old)?;
            }
            purgeable(&mut disk)
        };
        Ok(Made {
            at,
            about,
            digest: state.digest(),
            generation: state.generation(),
            objects: state.objects(),
            was_there: false,
            purge_through: tidy().map_err(WriteError::Snapshot)?,
        })
    }
}

/// What the older of the snapshots that are kept stands for.
fn purgeable(disk: &mut impl Disk) -> Result<Option<Position>, SnapshotError> {
    let all = snapshots(disk)?;
    let older = all.len().checked_sub(SNAPSHOTS_KEPT);
    Ok(older.and_then(|nth| all.get(nth).copied()))
}
