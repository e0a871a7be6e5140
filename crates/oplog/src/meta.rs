//! The small file beside the segments: vote, what is purged, boot, and how the log was left.

use crate::disk::{Disk, DiskError, ReadDisk};
use crate::error::LogError;
use crate::format::{FORMAT_VERSION, u32_at, u64_at};
use crate::reserve;
use crate::{BootId, Position, SyncPolicy, Vote};

/// The file's name.
pub(crate) const META: &str = "meta";
/// What is written first and then takes its place.
pub(crate) const META_NEW: &str = "meta.new";
const MAGIC: [u8; 8] = *b"LARDRMET";
/// The length of the file in bytes.
pub(crate) const META_BYTES: usize = 144;

const HAS_VOTE: u16 = 1;
const HAS_VOTED_FOR: u16 = 1 << 1;
const IS_COMMITTED: u16 = 1 << 2;
const HAS_PURGED: u16 = 1 << 3;
const IS_CLEAN: u16 = 1 << 4;
const IS_DOUBTED: u16 = 1 << 5;
const HAS_TRUSTED: u16 = 1 << 6;
const ACKNOWLEDGES_SYNCED: u16 = 1 << 7;
const IS_WIPING: u16 = 1 << 8;
const IS_TAIL_LOST: u16 = 1 << 9;
const ALL_FLAGS: u16 = (1 << 10) - 1;

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) vote: Option<Vote>,
    pub(crate) purged: Option<Position>,
    /// Segments with lower numbers are rubbish.
    pub(crate) first_sequence: u64,
    pub(crate) boot: BootId,
    /// Set by a clean stop: where the log ended, as segment and offset.
    pub(crate) clean_end: Option<(u64, u64)>,
    /// Set from a loss of power on until the owner said that it has settled it: the last entry
    /// that surely was durable, if any.
    pub(crate) doubt: Option<Option<Position>>,
    /// Whether nothing is acknowledged before it is synced: policy `Always`.
    pub(crate) acknowledges_synced: bool,
    /// The log is being emptied.
    pub(crate) is_wiping: bool,
    /// A doubt was settled, and nobody has been asked yet for what the end of the log lacked.
    pub(crate) is_tail_lost: bool,
}

impl Meta {
    pub(crate) fn new(boot: BootId, policy: SyncPolicy) -> Self {
        Self {
            vote: None,
            purged: None,
            first_sequence: 0,
            boot,
            clean_end: None,
            doubt: None,
            acknowledges_synced: policy == SyncPolicy::Always,
            is_wiping: false,
            is_tail_lost: false,
        }
    }

    pub(crate) fn encode(&self) -> [u8; META_BYTES] {
        let mut bytes = [0; META_BYTES];
        let mut put = |at: usize, number: u64| {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        };
        let mut flags = 0;
        if let Some(vote) = self.vote {
            flags |= HAS_VOTE;
            put(16, vote.term);
            if let Some(voted_for) = vote.voted_for {
                flags |= HAS_VOTED_FOR;
                put(24, voted_for);
            }
            flags |= if vote.committed { IS_COMMITTED } else { 0 };
        }
        if let Some(purged) = self.purged {
            flags |= HAS_PURGED;
            put(32, purged.term);
            put(40, purged.index);
        }
        put(48, self.first_sequence);
        if let Some((sequence, offset)) = self.clean_end {
            flags |= IS_CLEAN;
            put(72, sequence);
            put(80, offset);
        }
        if let Some(trusted) = self.doubt {
            flags |= IS_DOUBTED;
            if let Some(trusted) = trusted {
                flags |= HAS_TRUSTED;
                put(88, trusted.term);
                put(96, trusted.index);
            }
        }
        flags |= if self.acknowledges_synced {
            ACKNOWLEDGES_SYNCED
        } else {
            0
        };
        flags |= if self.is_wiping { IS_WIPING } else { 0 };
        flags |= if self.is_tail_lost { IS_TAIL_LOST } else { 0 };
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[10..12].copy_from_slice(&flags.to_le_bytes());
        bytes[56..72].copy_from_slice(&self.boot.0);
        let crc = crc32c::crc32c(&bytes[..META_BYTES - 4]);
        bytes[META_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub(crate) fn parse(file: &[u8]) -> Result<Self, LogError> {
        let damaged = |what| LogError::damaged(META, 0, what);
        let bytes: &[u8; META_BYTES] = file
            .try_into()
            .map_err(|_| damaged("it has another length"))?;
        if bytes[..8] != MAGIC {
            return Err(damaged("it does not start like the state of a log"));
        }
        if crc32c::crc32c(&bytes[..META_BYTES - 4]) != u32_at(bytes, META_BYTES - 4) {
            return Err(damaged("it has another checksum"));
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version > FORMAT_VERSION {
            return Err(LogError::newer(META, version));
        }
        let flags = u16::from_le_bytes([bytes[10], bytes[11]]);
        let is_zero = |range: &[u8]| range.iter().all(|byte| *byte == 0);
        let spare = is_zero(&bytes[12..16]) && is_zero(&bytes[104..META_BYTES - 4]);
        if version == 0 || flags & !ALL_FLAGS != 0 || !spare {
            return Err(damaged("it has fields of no version"));
        }
        let has = |flag: u16| flags & flag != 0;
        let at = |at: usize| u64_at(bytes, at);
        let position = |start: usize| Position {
            term: at(start),
            index: at(start + 8),
        };
        let mut boot = [0; 16];
        boot.copy_from_slice(&bytes[56..72]);
        Ok(Self {
            vote: has(HAS_VOTE).then(|| Vote {
                term: at(16),
                voted_for: has(HAS_VOTED_FOR).then(|| at(24)),
                committed: has(IS_COMMITTED),
            }),
            purged: has(HAS_PURGED).then(|| position(32)),
            first_sequence: at(48),
            boot: BootId(boot),
            clean_end: has(IS_CLEAN).then(|| (at(72), at(80))),
            doubt: has(IS_DOUBTED).then(|| has(HAS_TRUSTED).then(|| position(88))),
            acknowledges_synced: has(ACKNOWLEDGES_SYNCED),
            is_wiping: has(IS_WIPING),
            is_tail_lost: has(IS_TAIL_LOST),
        })
    }

    /// Reads the file, if there is one.
    pub(crate) fn load(disk: &mut impl ReadDisk) -> Result<Option<Self>, LogError> {
        let length = match disk.length(META) {
            Ok(length) => length,
            Err(error) if error.is_missing() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // One byte more than it may have is enough to see that it is too long.
        let mut bytes = vec![0; (length as usize).min(META_BYTES + 1)];
        disk.read_at(META, 0, &mut bytes)?;
        Self::parse(&bytes).map(Some)
    }

    /// Writes the file durably: beside the old one, whose place it then takes.
    pub(crate) fn store(&self, disk: &mut impl Disk) -> Result<(), StoreError> {
        let begin = |disk: &mut dyn Disk| {
            match disk.remove(META_NEW) {
                Err(error) if !error.is_missing() => return Err(error),
                _ => {}
            }
            disk.create(META_NEW)?;
            disk.append(META_NEW, &self.encode())
        };
        begin(disk)
            .or_else(|cause| match cause.is_full() && reserve::release(disk) {
                true => begin(disk),
                false => Err(cause),
            })
            .map_err(StoreError::Unchanged)?;
        let mut finish = || {
            disk.sync(META_NEW)?;
            disk.rename(META_NEW, META)?;
            disk.sync_folder()
        };
        finish().map_err(StoreError::Unknown)
    }
}

/// Why the file was not written.
#[derive(Debug)]
pub(crate) enum StoreError {
    /// The old one is still there.
    Unchanged(DiskError),
    /// Either may be there after a loss of power.
    Unknown(DiskError),
}

impl From<StoreError> for LogError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unchanged(cause) => Self::Disk(cause),
            StoreError::Unknown(cause) => Self::Unknown(cause),
        }
    }
}

#[cfg(test)]
mod tests;
