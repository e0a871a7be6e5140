//! A state out of one snapshot.

use larder_store::State;
use larder_store::snapshot::Builder;

use crate::disk::ReadDisk;
use crate::snapshot::{SnapshotError, SnapshotReader};
use crate::{About, Position, decode_parts};

/// Reads a whole snapshot: all of it is verified, its digest too. It takes as long as the snapshot
/// is large; [`Rebuild`](crate::Rebuild) does it in steps.
///
/// # Errors
/// There is none, it is damaged or newer than this program, or the disk refuses.
pub fn read_snapshot(
    disk: &mut impl ReadDisk,
    at: Position,
) -> Result<(State, About), SnapshotError> {
    let mut from = FromSnapshot::open(disk, at)?;
    while from.next(disk)? {}
    from.finish()
}

/// A snapshot that is being read.
#[derive(Debug)]
pub(super) struct FromSnapshot {
    at: Position,
    reader: SnapshotReader,
    about: About,
    builder: Builder,
}

impl FromSnapshot {
    pub(super) fn open(disk: &mut impl ReadDisk, at: Position) -> Result<Self, SnapshotError> {
        let (reader, about) = SnapshotReader::open(disk, at)?;
        let what = "what it says about itself cannot be read";
        Ok(Self {
            at,
            reader,
            about: About::decode(&about).map_err(|_| SnapshotError::damaged(at, what))?,
            builder: Builder::default(),
        })
    }

    pub(super) fn at(&self) -> Position {
        self.at
    }

    /// Takes a block; whether there was one.
    pub(super) fn next(&mut self, disk: &mut impl ReadDisk) -> Result<bool, SnapshotError> {
        let at = self.at;
        let Some(block) = self.reader.next(disk)? else {
            return Ok(false);
        };
        let parts = decode_parts(&block)
            .map_err(|_| SnapshotError::damaged(at, "a block is of no known parts"))?;
        for part in parts {
            let taken = self.builder.take(part);
            taken.map_err(|_| SnapshotError::damaged(at, "a part does not fit those before"))?;
        }
        Ok(true)
    }

    /// The state, when there is no block left.
    pub(super) fn finish(self) -> Result<(State, About), SnapshotError> {
        let what = "its parts do not make a whole state";
        let state = self.builder.finish();
        let state = state.map_err(|_| SnapshotError::damaged(self.at, what))?;
        Ok((state, self.about))
    }
}
