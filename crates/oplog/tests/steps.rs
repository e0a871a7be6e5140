//! Small steps that the suites share: boots, entries, opening.

use larder_oplog::{BootId, Disk, Entry, Log, LogError, Opened, Options, Position, SyncPolicy};

/// One run of the machine.
pub(crate) const BOOT: BootId = BootId([1; 16]);
/// The next one.
pub(crate) const NEXT_BOOT: BootId = BootId([2; 16]);

/// Small segments, so that a few entries need several.
pub(crate) fn options(policy: SyncPolicy) -> Options {
    Options {
        segment_bytes: 4_096,
        policy,
        ..Options::default()
    }
}

pub(crate) const INTERVAL: SyncPolicy = SyncPolicy::Interval { ms: 20 };

pub(crate) fn at(term: u64, index: u64) -> Position {
    Position { term, index }
}

/// An entry with a payload of its own.
pub(crate) fn entry(term: u64, index: u64, size_bytes: usize) -> Entry {
    let seed = (term * 31 + index) as u8;
    Entry {
        at: at(term, index),
        payload: (0..size_bytes).map(|nth| seed ^ nth as u8).collect(),
    }
}

pub(crate) fn entries(term: u64, indexes: std::ops::Range<u64>, size_bytes: usize) -> Vec<Entry> {
    indexes
        .map(|index| entry(term, index, size_bytes))
        .collect()
}

pub(crate) fn open<D: Disk>(disk: D, boot: BootId) -> (Log<D>, Opened) {
    try_open(disk, boot).expect("a log")
}

pub(crate) fn try_open<D: Disk>(disk: D, boot: BootId) -> Result<(Log<D>, Opened), LogError> {
    Log::open(disk, options(INTERVAL), boot)
}

/// All entries of the log.
pub(crate) fn all<D: Disk>(log: &mut Log<D>) -> Vec<Entry> {
    let next = log.next_index();
    let first = log.first().map_or(next, |first| first.index);
    log.read(first..next, usize::MAX).expect("entries")
}

pub(crate) fn indexes(entries: &[Entry]) -> Vec<u64> {
    entries.iter().map(|entry| entry.at.index).collect()
}
