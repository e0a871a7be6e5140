//! The snapshots of a replica: made, sent, received and loaded.

use std::fmt;
use std::sync::Arc;

use larder_oplog::{
    About, Disk, DiskError, Made, MakeSnapshot, Position, Rebuild, RebuildError, RecordError,
    SnapshotError, SnapshotReader, SnapshotWriter, Through, read_snapshot, snapshots,
    write_snapshot,
};
use larder_store::State;
use openraft::{Snapshot, SnapshotMeta};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::convert;
use super::message::{At, SentMembers};
use super::{Member, StoredMembership, Types};

/// Opens the folder of a replica's log; as often as somebody needs it.
pub(crate) type Volume = Arc<dyn Fn() -> Result<AnyDisk, DiskError> + Send + Sync>;
/// A disk of whatever kind.
pub(crate) type AnyDisk = Box<dyn Disk + Send + Sync>;

/// A piece that is sent has at most so many bytes.
const PIECE_BYTES_MAX: usize = 512 * 1024;
/// The bytes of a block that were received, at most: what a snapshot's file allows.
const BLOCK_BYTES_MAX: usize = larder_oplog::BLOCK_BYTES_MAX;

/// Why a snapshot was not made, read or taken.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotsError {
    #[error("the folder of the log cannot be used")]
    Disk(#[from] DiskError),
    #[error("a snapshot's file cannot be used")]
    File(#[from] SnapshotError),
    #[error("a snapshot does not decode")]
    Record(#[from] RecordError),
    #[error("what stands about a snapshot does not decode")]
    About,
    #[error("a piece of a snapshot is missing; it is sent again from the start")]
    Gap,
    #[error("another snapshot is being made or received")]
    Busy,
    #[error("the state of the log could not be made again")]
    Rebuild(#[from] RebuildError),
    #[error("a block of a snapshot is longer than any may be")]
    Block,
    #[error("nothing is committed yet that a snapshot could be taken of")]
    Empty,
    #[error("the thread that makes snapshots ended")]
    Thread(#[from] tokio::task::JoinError),
}

impl SnapshotsError {
    /// Whether the same can work later: there was no room on the disk, or others were at it.
    pub(super) fn is_retryable(&self) -> bool {
        match self {
            Self::File(error) => error.is_retryable(),
            Self::Rebuild(error) => error.is_retryable(),
            Self::Disk(error) => error.is_full(),
            Self::Busy => true,
            _ => false,
        }
    }
}

/// A snapshot as openraft hands it around: only where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SnapshotFile {
    pub(super) at: Position,
}

/// The snapshots in the folder of a replica.
#[derive(Clone)]
pub(crate) struct Snapshots {
    volume: Volume,
    /// Held by whoever writes one: there is one unfinished file.
    writing: Arc<Semaphore>,
}

impl fmt::Debug for Snapshots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Snapshots")
    }
}

/// A snapshot that another master sends.
pub(crate) struct Incoming {
    at: At,
    next_piece: u64,
    /// What has come of the present block.
    block: Vec<u8>,
    disk: AnyDisk,
    writer: SnapshotWriter,
    members: SentMembers,
    _writing: OwnedSemaphorePermit,
}

/// A piece of a snapshot on its way to another master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piece {
    /// Counts from 0.
    pub(super) number: u64,
    pub(super) bytes: Vec<u8>,
    /// The block ends with it.
    pub(super) ends_block: bool,
    /// The snapshot ends with it.
    pub(super) is_last: bool,
}

/// The pieces of one that is being sent.
pub(super) struct Pieces {
    disk: AnyDisk,
    reader: SnapshotReader,
    number: u64,
    /// What is left of the present block.
    block: Vec<u8>,
    next: Option<Vec<u8>>,
}

impl Pieces {
    /// The next piece. Not called after the last.
    pub(super) fn next(&mut self) -> Result<Piece, SnapshotsError> {
        if self.block.is_empty() {
            self.block = self.next.take().unwrap_or_default();
            self.next = self.reader.next(&mut self.disk)?;
        }
        let rest = self.block.split_off(self.block.len().min(PIECE_BYTES_MAX));
        let bytes = std::mem::replace(&mut self.block, rest);
        let ends_block = self.block.is_empty();
        let piece = Piece {
            number: self.number,
            bytes,
            ends_block,
            is_last: ends_block && self.next.is_none(),
        };
        self.number += 1;
        Ok(piece)
    }
}

impl Snapshots {
    pub(super) fn new(volume: Volume) -> Self {
        let writing = Arc::new(Semaphore::new(1));
        Self { volume, writing }
    }

    /// The newest one.
    pub(super) fn newest(&self) -> Result<Option<Snapshot<Types>>, SnapshotsError> {
        let mut disk = (self.volume)()?;
        let Some(at) = snapshots(&mut disk)?.pop() else {
            return Ok(None);
        };
        let (_, about) = SnapshotReader::open(&mut disk, at)?;
        let membership = membership_of(&About::decode(&about)?)?;
        Ok(Some(snapshot(at, &membership)))
    }

    /// Opens one for sending.
    pub(super) fn read(&self, at: Position) -> Result<Pieces, SnapshotsError> {
        let mut disk = (self.volume)()?;
        let (mut reader, _) = SnapshotReader::open(&mut disk, at)?;
        let next = reader.next(&mut disk)?;
        Ok(Pieces {
            disk,
            reader,
            number: 0,
            block: Vec::new(),
            next,
        })
    }

    /// Takes a piece that another master sent; the snapshot when it was the last.
    pub(super) fn take(
        &self,
        incoming: &mut Option<Incoming>,
        at: At,
        members: SentMembers,
        piece: Piece,
    ) -> Result<Option<Snapshot<Types>>, SnapshotsError> {
        if piece.number == 0 {
            // The one before gives up its place first.
            *incoming = None;
            *incoming = Some(self.begin(at, members)?);
        }
        let Some(open) = incoming else {
            return Err(SnapshotsError::Gap);
        };
        if (open.at, open.next_piece) != (at, piece.number) {
            *incoming = None;
            return Err(SnapshotsError::Gap);
        }
        open.next_piece += 1;
        open.block.extend(piece.bytes);
        if open.block.len() > BLOCK_BYTES_MAX {
            *incoming = None;
            return Err(SnapshotsError::Block);
        }
        if piece.ends_block {
            open.writer.write(&mut open.disk, &open.block)?;
            open.block.clear();
        }
        if !piece.is_last {
            return Ok(None);
        }
        let Some(mut done) = incoming.take() else {
            return Ok(None);
        };
        done.writer.finish(&mut done.disk)?;
        let membership = convert::stored_membership(&done.members);
        Ok(Some(snapshot(position(at), &membership)))
    }

    fn begin(&self, at: At, members: SentMembers) -> Result<Incoming, SnapshotsError> {
        let writing = Arc::clone(&self.writing).try_acquire_owned();
        let writing = writing.map_err(|_| SnapshotsError::Busy)?;
        let mut disk = (self.volume)()?;
        let about = About {
            members: convert::encode_members(&members.members),
            members_at: members.at.map(position),
        };
        Ok(Incoming {
            at,
            next_piece: 0,
            block: Vec::new(),
            writer: SnapshotWriter::begin(&mut disk, position(at), &about.encode())?,
            disk,
            members,
            _writing: writing,
        })
    }

    /// The state of a snapshot, verified.
    pub(super) async fn load(&self, at: Position) -> Result<State, SnapshotsError> {
        let volume = Arc::clone(&self.volume);
        // A large state takes seconds, and others want to be served.
        let loaded = tokio::task::spawn_blocking(move || {
            Ok::<_, SnapshotsError>(read_snapshot(&mut volume()?, at)?.0)
        });
        loaded.await?
    }

    /// Makes one of everything through `at`, by building the state a second time from the files,
    /// on another thread: nobody waits for it, and what it took is given back at its end.
    pub(super) async fn make(&self, at: Position) -> Result<Snapshot<Types>, SnapshotsError> {
        let writing = Arc::clone(&self.writing).acquire_owned().await;
        let volume = Arc::clone(&self.volume);
        let made = tokio::task::spawn_blocking(move || {
            let made = MakeSnapshot::begin(volume()?, at.index)?.run();
            drop(writing);
            made.map_err(SnapshotsError::from)
        });
        let made = made.await??;
        let (objects, digest) = (made.at, format!("{:016x}", made.digest));
        tracing::info!(at = %objects, digest, "a snapshot was taken");
        Ok(snapshot(made.at, &membership_of(&made.about)?))
    }

    /// Makes one of everything through `through`, as [`make`](Self::make) does, on a disk of its
    /// own that `open` opens: those of the replica, and what of its log goes behind them, know
    /// nothing of it. Meanwhile no other is made, which could take away what this one reads.
    pub(super) async fn make_apart(
        &self,
        through: u64,
        open: impl FnOnce() -> Result<AnyDisk, DiskError> + Send + 'static,
    ) -> Result<Made, SnapshotsError> {
        let writing = Arc::clone(&self.writing).acquire_owned().await;
        let volume = Arc::clone(&self.volume);
        let made = tokio::task::spawn_blocking(move || {
            let (rebuilt, log) = Rebuild::begin(volume()?, Through::Index(through))?.run()?;
            drop(log);
            let made = write_snapshot(open()?, rebuilt)?;
            drop(writing);
            Ok::<_, SnapshotsError>(made)
        });
        made.await?
    }
}

fn position(at: At) -> Position {
    Position {
        term: at.term,
        index: at.index,
    }
}

/// The membership that stands about a state.
pub(super) fn membership_of(about: &About) -> Result<StoredMembership, SnapshotsError> {
    if about.members_at.is_none() {
        return Ok(StoredMembership::default());
    }
    let members = convert::decode_members(&about.members).ok_or(SnapshotsError::About)?;
    let at = about.members_at.map(convert::at_of);
    Ok(convert::stored_membership(&SentMembers { at, members }))
}

fn snapshot(at: Position, membership: &StoredMembership) -> Snapshot<Types> {
    Snapshot {
        meta: SnapshotMeta::<u64, Member> {
            last_log_id: Some(convert::log_id_of(at)),
            last_membership: membership.clone(),
            snapshot_id: format!("{}-{}", at.term, at.index),
        },
        snapshot: Box::new(SnapshotFile { at }),
    }
}
