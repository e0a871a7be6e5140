//! Opening a log: what is there, what of it is whole, and what of it can be trusted.

use crate::disk::{Disk, DiskError, ReadDisk};
use crate::error::LogError;
use crate::format::{Flaw, Header, SEGMENT_HEADER_BYTES};
use crate::log::{Log, Synced, create_segment};
use crate::meta::{META, META_NEW, Meta};
use crate::options::{BATCH_BYTES_MAX, SEGMENT_BYTES_MAX};
use crate::reserve;
use crate::scan::{Scan, TornAt, segment_name, sequence_of};
use crate::{BootId, Opened, Options, Position, Restart, SyncPolicy, Torn, Trust};

impl<D: Disk> Log<D> {
    /// Opens the log in a folder, or begins one in an empty folder. Every byte is verified. `boot`
    /// names this run of the machine's kernel.
    ///
    /// One segment at a time is in memory while it is read.
    ///
    /// # Errors
    /// [`LogError::Damaged`]: bytes that were durable are not what was written.
    /// [`LogError::Newer`]: a newer program wrote them. Else the disk failed.
    pub fn open(mut disk: D, options: Options, boot: BootId) -> Result<(Self, Opened), LogError> {
        options.check()?;
        let mut found = Meta::load(&mut disk)?;
        if found.is_some_and(|meta| meta.is_wiping) {
            finish_wipe(&mut disk)?;
            found = None;
        }
        match found {
            Some(meta) => recover(disk, options, boot, meta),
            None => begin(disk, options, boot),
        }
    }
}

/// Empties a folder durably, damaged or not, so that the next [`Log::open`] begins a new log. If
/// it is cut short the next `open` finishes it: a part of a log is never taken for the whole.
///
/// # Errors
/// The disk failed.
pub fn wipe(disk: &mut impl Disk) -> Result<(), LogError> {
    let meta = Meta {
        is_wiping: true,
        ..Meta::new(BootId([0; 16]), SyncPolicy::Always)
    };
    meta.store(disk)?;
    finish_wipe(disk)
}

fn finish_wipe(disk: &mut impl Disk) -> Result<(), LogError> {
    for name in disk.list()? {
        if sequence_of(&name).is_some() {
            disk.remove(&name)?;
        }
    }
    // The segments first: without the file that says so they would be a damaged log.
    disk.sync_folder().map_err(LogError::Unknown)?;
    disk.remove(META)?;
    disk.sync_folder().map_err(LogError::Unknown)
}

/// Begins a log where there is none. A segment's header alone was left by a start cut short.
fn begin<D: Disk>(
    mut disk: D,
    options: Options,
    boot: BootId,
) -> Result<(Log<D>, Opened), LogError> {
    let sequences = list(&mut disk)?;
    for sequence in sequences {
        let name = segment_name(sequence);
        if sequence > 0 || disk.length(&name)? > SEGMENT_HEADER_BYTES {
            let what = "the log's state is gone, but its segments are there";
            return Err(LogError::damaged(META, 0, what));
        }
        disk.remove(&name)?;
        disk.sync_folder().map_err(LogError::Unknown)?;
    }
    let header = Header {
        sequence: 0,
        previous: None,
        starts_over: false,
    };
    create_segment(&mut disk, header)?;
    let mut scan = Scan::default();
    scan.index.begin(0, None, false);
    scan.marked_end = SEGMENT_HEADER_BYTES;
    scan.changed_end = SEGMENT_HEADER_BYTES;
    let meta = Meta::new(boot, options.policy);
    finish(disk, options, meta, scan, Restart::Fresh, None)
}

fn recover<D: Disk>(
    mut disk: D,
    options: Options,
    boot: BootId,
    old: Meta,
) -> Result<(Log<D>, Opened), LogError> {
    let restart = match old.clean_end {
        Some(_) => Restart::Clean,
        None if old.boot == boot => Restart::Killed,
        None => Restart::PowerLost,
    };
    let sequences = segments(&mut disk, &old)?;
    let mut scan = Scan::default();
    let mut torn = None;
    for (nth, sequence) in sequences.iter().enumerate() {
        let is_last = nth + 1 == sequences.len();
        let file = load(&mut disk, *sequence)?;
        let name = segment_name(*sequence);
        let header = match Header::parse(&file, *sequence) {
            Ok(header) => header,
            Err(flaw) if is_last && nth > 0 && was_never_begun(flaw, &file, restart) => {
                disk.remove(&name)?;
                disk.sync_folder().map_err(LogError::Unknown)?;
                break;
            }
            Err(Flaw::Short) => {
                let what = "the file ends in its header";
                return Err(LogError::damaged(&name, 0, what));
            }
            Err(Flaw::Bad(what)) => return Err(LogError::damaged(&name, 0, what)),
            Err(Flaw::Newer(version)) => return Err(LogError::newer(&name, version)),
        };
        scan.begin(header)
            .map_err(|what| LogError::damaged(&name, 0, what))?;
        let end = scan.records(&file, *sequence, is_last.then_some(restart))?;
        torn = end.map(|end| (*sequence, end, file.len() as u64));
    }
    check_end(&scan, &old)?;
    let torn = cut(&mut disk, torn)?;
    let meta = settle(&scan, old, restart, boot, options);
    if let Some(purged) = meta.purged {
        scan.index.purge(purged);
    }
    finish(disk, options, meta, scan, restart, torn)
}

/// The last part of opening: all that is there is durable then, and the new boot is noted.
fn finish<D: Disk>(
    mut disk: D,
    options: Options,
    meta: Meta,
    scan: Scan,
    restart: Restart,
    torn: Option<Torn>,
) -> Result<(Log<D>, Opened), LogError> {
    if let Some(active) = scan.index.segments.back() {
        disk.sync(&segment_name(active.sequence))
            .map_err(LogError::Unknown)?;
    }
    meta.store(&mut disk)?;
    reserve::keep(&mut disk);
    let last = scan.index.last();
    let end = scan.index.segments.back().map_or(0, |active| active.bytes);
    let opened = Opened {
        restart,
        // The log may have been truncated since the doubt arose.
        trust: meta
            .doubt
            .map_or(Trust::Whole, |through| Trust::Through(through.min(last))),
        torn,
    };
    let log = Log {
        disk,
        options,
        meta,
        index: scan.index,
        committed: scan.committed.min(last),
        is_committed_due: false,
        synced: Synced::whole(end, scan.marked_end, scan.changed_end),
        durable: last,
        obsolete: Vec::new(),
        halted: None,
    };
    Ok((log, opened))
}

/// The numbers of the segments, of which none is missing. Older ones are removed.
fn segments(disk: &mut impl Disk, meta: &Meta) -> Result<Vec<u64>, LogError> {
    let mut sequences = list(disk)?;
    for sequence in sequences.extract_if(.., |one| *one < meta.first_sequence) {
        disk.remove(&segment_name(sequence))?;
    }
    if disk.list()?.iter().any(|name| name == META_NEW) {
        disk.remove(META_NEW)?;
    }
    let newest = sequences.last().copied().unwrap_or(0);
    for (nth, wanted) in (meta.first_sequence..=newest.max(meta.first_sequence)).enumerate() {
        if sequences.get(nth) != Some(&wanted) {
            let what = "the file is gone";
            return Err(LogError::damaged(&segment_name(wanted), 0, what));
        }
    }
    Ok(sequences)
}

pub(crate) fn list(disk: &mut impl ReadDisk) -> Result<Vec<u64>, LogError> {
    let names = disk.list()?;
    let mut sequences: Vec<u64> = names.iter().filter_map(|name| sequence_of(name)).collect();
    sequences.sort_unstable();
    Ok(sequences)
}

/// The bytes of a segment.
pub(crate) fn load(disk: &mut impl ReadDisk, sequence: u64) -> Result<Vec<u8>, LogError> {
    let name = segment_name(sequence);
    let length = disk.length(&name)?;
    if length > SEGMENT_BYTES_MAX + 2 * BATCH_BYTES_MAX as u64 {
        let what = "the file is larger than a segment can be";
        return Err(LogError::damaged(&name, 0, what));
    }
    let mut bytes = vec![0; length as usize];
    disk.read_at(&name, 0, &mut bytes)?;
    Ok(bytes)
}

/// Whether a segment's bad header is one that was not yet durable: no record is written before it
/// is, and a process that dies leaves a part of it, but no wrong bytes.
fn was_never_begun(flaw: Flaw, file: &[u8], restart: Restart) -> bool {
    match restart {
        Restart::Killed => flaw == Flaw::Short,
        Restart::PowerLost => file.len() as u64 <= SEGMENT_HEADER_BYTES,
        Restart::Fresh | Restart::Clean => false,
    }
}

/// Whether the log begins and ends where its state says.
pub(crate) fn check_end(scan: &Scan, old: &Meta) -> Result<(), LogError> {
    let segments = &scan.index.segments;
    let (Some(oldest), Some(newest)) = (segments.front(), segments.back()) else {
        return Err(LogError::damaged(META, 0, "the log has no segment"));
    };
    let next_index = |position: Option<Position>| {
        position.map_or(0, |position| position.index.saturating_add(1))
    };
    // A segment that starts over holds a purge that the state may not yet know.
    let base = scan.index.base();
    let begins = next_index(base);
    if begins > next_index(old.purged) && !scan.has_started_over {
        let what = "entries before it are neither there nor purged";
        return Err(LogError::damaged(&segment_name(oldest.sequence), 0, what));
    }
    let name = segment_name(newest.sequence);
    if scan.index.next() < next_index(old.purged) {
        let what = "the log ends before what was purged";
        return Err(LogError::damaged(&name, newest.bytes, what));
    }
    if old
        .clean_end
        .is_some_and(|end| end != (newest.sequence, newest.bytes))
    {
        let what = "the log does not end where it did at its clean stop";
        return Err(LogError::damaged(&name, newest.bytes, what));
    }
    Ok(())
}

/// Cuts off a torn end, durably.
fn cut(disk: &mut impl Disk, torn: Option<(u64, TornAt, u64)>) -> Result<Option<Torn>, LogError> {
    let Some((sequence, end, length)) = torn else {
        return Ok(None);
    };
    let segment = segment_name(sequence);
    let shorten = |disk: &mut dyn Disk| -> Result<(), DiskError> {
        disk.truncate(&segment, end.offset)?;
        disk.sync(&segment)
    };
    shorten(disk).map_err(LogError::Unknown)?;
    Ok(Some(Torn {
        segment,
        offset: end.offset,
        bytes: length - end.offset,
        records_behind: end.behind.records,
    }))
}

/// The state to go on with. A doubt stays until the owner settles it, also if this process dies
/// before it could.
fn settle(scan: &Scan, old: Meta, restart: Restart, boot: BootId, options: Options) -> Meta {
    let base = scan.index.base();
    let purged = match (old.purged, base) {
        (Some(purged), Some(base)) if base.index <= purged.index => Some(purged),
        (Some(purged), None) => Some(purged),
        (_, base) => base,
    };
    let lost_power = restart == Restart::PowerLost && !old.acknowledges_synced;
    let trusted = || {
        let index = scan.durable_end.checked_sub(1)?;
        scan.index.position(index).max(purged)
    };
    Meta {
        purged,
        boot,
        clean_end: None,
        doubt: old.doubt.or_else(|| lost_power.then(trusted)),
        acknowledges_synced: options.policy == SyncPolicy::Always,
        ..old
    }
}
