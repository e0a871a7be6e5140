//! Reading a log without changing anything: while its owner writes it, or when it has none.

use std::ops::Range;

use crate::disk::ReadDisk;
use crate::error::LogError;
use crate::format::{Flaw, Header, SEGMENT_HEADER_BYTES};
use crate::meta::Meta;
use crate::open::{check_end, list, load};
use crate::scan::{Scan, read, segment_name};
use crate::{Entry, Position, Restart, Torn, Trust, Vote};

/// How often a scan begins anew because its owner purged what was about to be read. Purges are
/// minutes apart.
const RESTARTS_MAX: usize = 8;

/// A log that is only read. Nothing is repaired, cut or locked.
///
/// It has what was written when it was opened, up to the first record that is not whole: an owner
/// that writes at the same time has always one. What its owner truncates later it still has, so
/// ask it only for what is committed if that matters. What is purged later cannot be read any more.
#[derive(Debug)]
pub struct LogScan<D> {
    disk: D,
    meta: Meta,
    scan: Scan,
    segments: Vec<SegmentFacts>,
    /// What is not read yet, the next last.
    unread: Vec<u64>,
    found: Option<Found>,
    restarts: usize,
}

/// A segment as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFacts {
    /// The file.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// The index of the first entry that it can hold.
    pub first_index: u64,
}

/// Why a log was not read to the end of its files. Entries before that are there.
#[derive(Debug, thiserror::Error)]
pub enum Found {
    /// Its last record is not whole. A process that died leaves that, and so does one that writes
    /// at this moment; its owner cuts it off when it opens the log.
    #[error(
        "the end of {} is torn at byte {}: {} bytes of no whole record; the master cuts them off \
         when it starts", .0.segment, .0.offset, .0.bytes
    )]
    Torn(Torn),
    /// A segment is not there, and those behind it cannot follow.
    #[error(
        "{file} is missing; keep a copy of the folder, then empty it, so that the replica joins \
         anew and copies the log from the others"
    )]
    MissingSegment {
        /// The file.
        file: String,
    },
    /// Bytes that were durable are not what was written, or a newer program wrote them.
    #[error(transparent)]
    Damaged(LogError),
}

impl Found {
    /// Whether something is wrong: an end that is torn is not.
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        !matches!(self, Self::Torn(_))
    }
}

impl<D: ReadDisk> LogScan<D> {
    /// Reads the whole log of a folder.
    ///
    /// # Errors
    /// [`LogError::NoLog`], a state that is damaged or newer, or the disk failed.
    pub fn open(disk: D) -> Result<Self, LogError> {
        let mut log = Self::begin(disk)?;
        while log.step()? {}
        Ok(log)
    }

    /// Begins to read the log of a folder, of which it has no entry yet.
    ///
    /// # Errors
    /// As those of [`open`](Self::open).
    pub fn begin(mut disk: D) -> Result<Self, LogError> {
        let (meta, unread) = begin(&mut disk)?;
        Ok(Self {
            disk,
            meta,
            scan: Scan::default(),
            segments: Vec::new(),
            unread,
            found: None,
            restarts: 0,
        })
    }

    /// Reads the next segment, whose bytes are in memory meanwhile; whether there are more.
    ///
    /// # Errors
    /// The disk failed.
    pub fn step(&mut self) -> Result<bool, LogError> {
        if self.found.is_some() {
            return Ok(false);
        }
        let Some(sequence) = self.unread.pop() else {
            return Ok(false);
        };
        match self.segment(sequence) {
            Ok(()) => {}
            Err(LogError::Disk(error)) if error.is_missing() && self.restarts < RESTARTS_MAX => {
                let restarts = self.restarts + 1;
                let (meta, unread) = begin(&mut self.disk)?;
                (self.meta, self.unread) = (meta, unread);
                (self.scan, self.segments) = (Scan::default(), Vec::new());
                self.restarts = restarts;
                return Ok(true);
            }
            Err(LogError::Disk(error)) => return Err(error.into()),
            Err(damaged) => self.found = Some(Found::Damaged(damaged)),
        }
        if self.found.is_none() && !self.unread.is_empty() {
            return Ok(true);
        }
        self.end();
        Ok(false)
    }

    fn segment(&mut self, sequence: u64) -> Result<(), LogError> {
        let file = segment_name(sequence);
        let is_first = self.scan.index.segments.is_empty();
        let follows = self.scan.index.segments.back();
        let wanted = follows.map_or(self.meta.first_sequence, |last| last.sequence + 1);
        if sequence != wanted {
            let file = segment_name(wanted);
            self.found = Some(Found::MissingSegment { file });
            return Ok(());
        }
        let is_last = self.unread.is_empty();
        let bytes = load(&mut self.disk, sequence)?;
        let header = match Header::parse(&bytes, sequence) {
            Ok(header) => header,
            // Its owner is about to begin it, or a loss of power kept it from that.
            Err(_) if is_last && !is_first && bytes.len() as u64 <= SEGMENT_HEADER_BYTES => {
                self.found = Some(Found::Torn(Torn {
                    segment: file,
                    offset: 0,
                    bytes: bytes.len() as u64,
                    records_behind: 0,
                }));
                return Ok(());
            }
            Err(Flaw::Short) => {
                let what = "the file ends in its header";
                return Err(LogError::damaged(&file, 0, what));
            }
            Err(Flaw::Bad(what)) => return Err(LogError::damaged(&file, 0, what)),
            Err(Flaw::Newer(version)) => return Err(LogError::newer(&file, version)),
        };
        let begun = self.scan.begin(header);
        begun.map_err(|what| LogError::damaged(&file, 0, what))?;
        self.segments.push(SegmentFacts {
            file: file.clone(),
            bytes: bytes.len() as u64,
            first_index: header.previous.map_or(0, |previous| previous.index + 1),
        });
        // Which run of the machine wrote it is not known here, so its end may be torn in any way.
        let restart = match self.meta.clean_end {
            Some(_) => Restart::Clean,
            None => Restart::PowerLost,
        };
        let torn = self
            .scan
            .records(&bytes, sequence, is_last.then_some(restart))?;
        self.found = torn.map(|torn| {
            Found::Torn(Torn {
                segment: file,
                offset: torn.offset,
                bytes: bytes.len() as u64 - torn.offset,
                records_behind: torn.behind.records,
            })
        });
        Ok(())
    }

    /// What is left to judge when the last segment was read.
    fn end(&mut self) {
        if self.found.as_ref().is_none_or(|found| !found.is_damage())
            && let Err(damaged) = check_end(&self.scan, &self.meta)
        {
            self.found = Some(Found::Damaged(damaged));
        }
        if let Some(purged) = self.meta.purged
            && purged.index < self.scan.index.next()
            && purged.index >= self.scan.index.first()
        {
            self.scan.index.purge(purged);
        }
    }

    /// Entries from the start of `range` on, as [`Log::read`](crate::Log::read) does.
    ///
    /// # Errors
    /// The first is purged, or bytes are not what was written when the log was opened.
    pub fn read(&mut self, range: Range<u64>, bytes_max: usize) -> Result<Vec<Entry>, LogError> {
        read(&mut self.disk, &self.scan.index, range, bytes_max)
    }

    /// The file in which an entry stands.
    #[must_use]
    pub fn file_of(&self, index: u64) -> Option<String> {
        let (sequence, _) = self.scan.index.find(index)?;
        Some(segment_name(sequence))
    }

    /// Why it was not read to the end of its files, if it was not.
    #[must_use]
    pub fn found(&self) -> Option<&Found> {
        self.found.as_ref()
    }

    /// The segments that were read.
    #[must_use]
    pub fn segments(&self) -> &[SegmentFacts] {
        &self.segments
    }

    /// The last entry, or the last that was purged if there is none behind it.
    #[must_use]
    pub fn last(&self) -> Option<Position> {
        self.scan.index.last()
    }

    /// The first entry.
    #[must_use]
    pub fn first(&self) -> Option<Position> {
        let index = &self.scan.index;
        index.position(index.first())
    }

    /// The index of the first entry, or of the next if there is none.
    #[must_use]
    pub fn first_index(&self) -> u64 {
        self.scan.index.first()
    }

    /// The index behind the last entry.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.scan.index.next()
    }

    /// Entries.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.scan.index.count()
    }

    /// The term of an entry, or of the last one that was purged.
    #[must_use]
    pub fn term_of(&self, index: u64) -> Option<u64> {
        let position = self.scan.index.position(index);
        position.map(|position| position.term)
    }

    /// The last entry that is noted as committed; later ones may be.
    #[must_use]
    pub fn committed(&self) -> Option<Position> {
        self.scan.committed.min(self.last())
    }

    /// The last entry that was purged.
    #[must_use]
    pub fn purged(&self) -> Option<Position> {
        self.meta.purged
    }

    /// The vote.
    #[must_use]
    pub fn vote(&self) -> Option<Vote> {
        self.meta.vote
    }

    /// Whether it was stopped cleanly. A log that its owner has open is not.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.meta.clean_end.is_some()
    }

    /// What its replica may stand for, as far as it is noted: a loss of power since the last start
    /// shows at the next one.
    #[must_use]
    pub fn trust(&self) -> Trust {
        let doubt = self.meta.doubt;
        doubt.map_or(Trust::Whole, Trust::Through)
    }

    /// The disk.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// The disk, when the log is done with.
    pub fn into_disk(self) -> D {
        self.disk
    }
}

/// What the state says, and the segments to be read, the first one last.
fn begin(disk: &mut impl ReadDisk) -> Result<(Meta, Vec<u64>), LogError> {
    let meta = Meta::load(disk)?.filter(|meta| !meta.is_wiping);
    let Some(meta) = meta else {
        return Err(LogError::NoLog);
    };
    let mut unread = list(disk)?;
    unread.retain(|sequence| *sequence >= meta.first_sequence);
    unread.reverse();
    if unread.is_empty() {
        let file = segment_name(meta.first_sequence);
        return Err(LogError::damaged(&file, 0, "the file is gone"));
    }
    Ok((meta, unread))
}
