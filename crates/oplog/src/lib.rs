//! The durable bytes of one replica: its log, and the records that entries and snapshots consist
//! of. Who agreed on an entry is for others. To the log it has a position (term, index) and a
//! payload; what the payload says, [`Payload`], [`decode_ops`] and [`decode_parts`] know.
//!
//! A [`Log`] is synchronous and has one owner. It reads no clock and starts no thread: the owner
//! calls [`Log::sync`] when [`Log::next_sync_ms`] says so, or [`Log::begin_sync`] to have the slow
//! part on another thread while it goes on. All files go through a [`Disk`]:
//! [`StdDisk`] is a folder, [`FakeDisk`] loses power from a seed.
//!
//! # What is promised
//!
//! * What [`Log::sync`] returned is there after any crash, with its bytes, unless it was truncated
//!   or purged since. What is read is a beginning of what was appended, never with a gap, and every
//!   read verifies its checksum.
//! * A vote, a truncation and a purge are durable when their call returns. A truncated entry never
//!   comes back then, a vote never goes back.
//! * Bytes that were durable and have changed are [`LogError::Damaged`], at the start or when they
//!   are read, and never served. One case cannot be told from a torn write: after a loss of power,
//!   within what was written since the sync before the last one. See below.
//! * A failed append leaves the log as it was. A failed sync stops the log: the kernel may drop
//!   pages that it could not write and report it once, so a later sync that works proves nothing.
//!
//! What each [`SyncPolicy`] promises stands there.
//!
//! # Files
//!
//! All numbers are little-endian, all checksums are CRC-32C. Unused bytes are zero.
//!
//! `segment-<sequence, 20 digits>.log`: a header, then records without a gap. Segments are numbered
//! from 0 without a gap; those below the first number in `meta` are rubbish of a purge. Only the
//! last one is written. The one before is durable before the next is made, so only the last can
//! be torn.
//!
//! | bytes | segment's header |
//! |---|---|
//! | 0..8 | `LARDRLOG` |
//! | 8..10 | version of the format, 1 |
//! | 10 | 1: starts over, 2: has a previous entry |
//! | 16..24 | sequence |
//! | 24..40 | term and index of the entry before the first that may stand here |
//! | 60..64 | checksum of 0..60 |
//!
//! | bytes | record |
//! |---|---|
//! | 0..4 | bytes of the payload, at most 16 MiB |
//! | 4..8 | checksum of: sequence and offset of the record as 8 bytes each, 0..4, 8..32 |
//! | 8..12 | checksum of the payload |
//! | 12 | kind |
//! | 16..32 | term and index |
//! | 32.. | payload |
//!
//! | kind | record | position |
//! |---|---|---|
//! | 1 | entry | its own |
//! | 2 | mark: all of the segment before an offset is durable | term 0, offset |
//! | 3 | truncate: entries from the index on are gone | term 0, index |
//! | 4 | committed | last committed entry |
//!
//! Only an entry has a payload. That a record's place is part of its checksum keeps old bytes of a
//! recycled block, and payloads that look like records, from being taken for records.
//!
//! `meta`: 144 bytes, replaced as a whole (written as `meta.new`, synced, renamed, folder synced).
//!
//! | bytes | meta |
//! |---|---|
//! | 0..8 | `LARDRMET` |
//! | 8..10 | version of the format, 1 |
//! | 10..12 | flags |
//! | 16..32 | vote: term, candidate |
//! | 32..48 | purged through: term, index |
//! | 48..56 | first segment |
//! | 56..72 | boot id |
//! | 72..88 | where a clean stop ended: sequence, offset |
//! | 88..104 | trusted through: term, index |
//! | 140..144 | checksum of 0..140 |
//!
//! Flags: 1 has a vote, 2 voted for someone, 4 committed, 8 has purged, 16 clean, 32 doubted,
//! 64 trusts something, 128 acknowledges only what is synced, 256 is being wiped, 512 a doubt was
//! settled and what the end lacked is not sought yet.
//!
//! `reserve`: 16 KiB that mean nothing. They are given free when a vote or a purge finds the disk
//! full, and set aside again after a purge and at a start.
//!
//! Every later version keeps magic, version and the place of the checksum in both headers, so that
//! an older program can tell a newer file from a damaged one.
//!
//! # Reading it
//!
//! [`LogScan`] reads a log beside its owner or without one, and changes nothing. [`Rebuild`] makes
//! a state of the newest snapshot that can be used and the log behind it, or says what is in the
//! way; [`MakeSnapshot`] does that on a thread of its own and writes the state as the next
//! snapshot.
//!
//! # Truncation
//!
//! A truncation is a record, not a cut of files: it stands before the entries that replace the
//! truncated ones, in the same file, so no crash can lose it and keep them. Cutting files would
//! need a sync of the folder per removed segment to come to the same. The dead bytes go with a
//! purge.
//!
//! # After a crash
//!
//! What [`Opened::restart`] says decides what a bad record at the end of the last segment is:
//!
//! * *Clean stop*: damage. The log must end exactly where it did.
//! * *Killed* (same boot id): the kernel had all bytes, so only a record that the file's end cuts
//!   short is torn. A complete record with another checksum is damage.
//! * *Power lost* (another boot id): file systems write back in any order, so of what was not yet
//!   synced any part may be missing, also in the middle. A bad record with a mark behind it was
//!   durable, so it is damage. Without one it belongs to what was written since the last mark, and
//!   the log is cut there. Good records behind it prove nothing; they are counted in
//!   [`Torn::records_behind`]. Refusing there was rejected: every loss of power under load could
//!   stop every replica.
//!
//! The price is a blind spot: a mark that says "synced" is written with the first batch after the
//! sync (or alone, if the log is idle for [`SETTLE_MS`]), so a byte that rots in the last synced
//! batches just when the power fails looks torn. To write the mark durably with each sync would
//! double the syncs.
//!
//! [`Opened::trust`] says what the replica may stand for. [`Trust::Whole`] after a clean stop, a
//! kill, or with [`SyncPolicy::Always`] (whatever is missing was not acknowledged). Else, after a
//! loss of power, [`Trust::Through`] the last entry that was durable for sure: all before the last
//! mark or segment's header. Later entries are there as appended, but some behind them may be
//! missing that this replica had acknowledged, so it must not vote or count as if it had them. It
//! joins anew as a learner (after [`wipe`]), or its log is the base of a new generation; then
//! [`Log::settle_doubt`]. The doubt stays over any number of restarts until then, and that the end
//! may be lost until [`Log::tail_is_sought`]. A failed sync
//! leaves the same doubt behind, if the disk still takes it; on a disk that does not, wipe the
//! folder before the replica starts again on the same boot.

mod about;
mod batch;
mod disk;
mod error;
mod format;
mod index;
mod log;
mod log_scan;
mod meta;
mod open;
mod options;
mod payload;
mod rebuild;
mod record;
mod reserve;
mod scan;
mod snapshot;

use std::fmt;

pub use about::About;
pub use disk::{
    Disk, DiskError, FakeDisk, Operation, ReadDisk, StdDisk, StdReadDisk, SyncDone, SyncWork,
};
pub use error::LogError;
pub use format::{ENTRY_BYTES_MAX, FORMAT_VERSION, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES};
pub use log::Log;
pub use log_scan::{Found, LogScan, SegmentFacts};
pub use open::wipe;
pub use options::{BATCH_BYTES_MAX, Options, SEGMENT_BYTES_MAX, SETTLE_MS, SyncPolicy};
pub use payload::{PAYLOAD_OVERHEAD_BYTES, Payload};
pub use rebuild::{
    Made, MakeSnapshot, Progress, Rebuild, RebuildError, Rebuilt, SNAPSHOTS_KEPT, Through,
    Unusable, read_snapshot, write_snapshot,
};
pub use record::{RecordError, decode_ops, decode_parts, encode_ops, encode_parts};
pub use snapshot::{
    BLOCK_BYTES_MAX, SnapshotError, SnapshotReader, SnapshotWriter, remove_snapshot,
    snapshot_bytes, snapshot_file_name, snapshots,
};

/// Where an entry stands in the log. Terms never fall, indexes rise by one from 0 on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The Raft term in which it was proposed; it has one leader.
    pub term: u64,
    /// Its number.
    pub index: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {} in term {}", self.index, self.term)
    }
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub at: Position,
    /// At most [`ENTRY_BYTES_MAX`] bytes that mean nothing here.
    pub payload: Vec<u8>,
}

/// What a replica promised to whom. One candidate a term, as Raft has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vote {
    /// The term.
    pub term: u64,
    /// The candidate; none if only the term is known.
    pub voted_for: Option<u64>,
    /// Whether a quorum voted so, which makes the candidate the leader.
    pub committed: bool,
}

impl Vote {
    /// Whether this vote may be given after `saved`.
    ///
    /// Within a term that is another candidate only if a quorum chose it: a replica that voted for
    /// itself and lost learns so who leads. It gives no second vote by that, since a committed one
    /// is never followed by one that is not.
    #[must_use]
    pub fn follows(&self, saved: Self) -> bool {
        let is_same_candidate = saved.voted_for.is_none() || saved.voted_for == self.voted_for;
        let is_chosen = self.committed && !saved.committed && self.voted_for.is_some();
        self.term > saved.term
            || (self.term == saved.term
                && (is_chosen || is_same_candidate)
                && (self.committed || !saved.committed))
    }
}

/// Names one run of a machine's kernel: the bytes of its boot id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootId(pub [u8; 16]);

/// What opening a log found. The rest the [`Log`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// How it was left.
    pub restart: Restart,
    /// What the replica may stand for.
    pub trust: Trust,
    /// What was cut off its end.
    pub torn: Option<Torn>,
}

/// How a log was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restart {
    /// There was none.
    Fresh,
    /// By [`Log::mark_clean`].
    Clean,
    /// Its process died; the machine did not.
    Killed,
    /// The machine stopped without a clean stop of the log.
    PowerLost,
}

/// What of its log a replica may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Nothing that it acknowledged is missing.
    Whole,
    /// What it acknowledged behind this entry may be missing. `None`: any of it.
    Through(Option<Position>),
}

/// What was cut off the end of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The file.
    pub segment: String,
    /// Where the log ends now.
    pub offset: u64,
    /// How many bytes were cut off.
    pub bytes: u64,
    /// How many good records were among them.
    pub records_behind: u64,
}
