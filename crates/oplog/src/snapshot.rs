//! Snapshots on a disk: one file each, which is whole or not there.
//!
//! A snapshot stands for all entries through a position. It has a few bytes *about* it, such as
//! who the members are, and then blocks of at most [`BLOCK_BYTES_MAX`] bytes in order; what blocks
//! say, [`crate::decode_parts`] knows. It is written beside the others under another name and gets
//! its own only when all of it is durable, so a crash leaves at most rubbish, which the next
//! [`SnapshotWriter::begin`] removes.
//!
//! `snapshot-<index, 20 digits>-<term, 20 digits>`; numbers are little-endian, checksums CRC-32C,
//! unused bytes zero.
//!
//! | bytes | header |
//! |---|---|
//! | 0..8 | `LARDRSNP` |
//! | 8..10 | version of the format, 1 |
//! | 16..32 | term and index of the last entry that it stands for |
//! | 60..64 | checksum of 0..60 |
//!
//! | bytes | block |
//! |---|---|
//! | 0..4 | bytes of the payload |
//! | 4..8 | checksum of: number of the block as 8 bytes, 0..4, 8..16, payload |
//! | 8 | kind: 1 about, 2 block, 3 end |
//! | 16.. | payload; of the end nothing |
//!
//! A block's number is part of its checksum, so that no block is missing, twice or at another
//! place without being noticed; the end is one, so that none is missing behind.

use crate::disk::{Disk, DiskError, ReadDisk};
use crate::format::{u32_at, u64_at};
use crate::{FORMAT_VERSION, Position};

/// The most bytes of a block, and about a snapshot.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;

const MAGIC: [u8; 8] = *b"LARDRSNP";
const HEADER_BYTES: usize = 64;
const BLOCK_HEADER_BYTES: usize = 16;
/// What is being written.
const NEW: &str = "snapshot.new";

/// Why a snapshot was not written or read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file operation failed.
    #[error("the snapshot was not written or read, because the disk refused; see the cause")]
    Disk(#[from] DiskError),
    /// A block is too large.
    #[error(
        "a block of {size_bytes} bytes is too large; a snapshot has blocks of at most \
         {BLOCK_BYTES_MAX}"
    )]
    TooLarge {
        /// Its size, in bytes.
        size_bytes: usize,
    },
    /// Bytes are not what was written.
    #[error(
        "{file} is damaged at byte {offset}: {what}; remove it, then an older snapshot or another \
         replica's is used"
    )]
    Damaged {
        /// The file.
        file: String,
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A newer Larder wrote it.
    #[error(
        "{file} has format {version}, this program knows {FORMAT_VERSION}; run the newer program \
         again"
    )]
    Newer {
        /// The file.
        file: String,
        /// Its version.
        version: u16,
    },
}

impl SnapshotError {
    /// What it says does not fit.
    pub(crate) fn damaged(at: Position, what: &'static str) -> Self {
        let file = snapshot_file_name(at);
        Self::Damaged {
            file,
            offset: 0,
            what,
        }
    }

    /// Whether the same call can work later: there was no room on the disk.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Disk(error) if error.is_full())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    About = 1,
    Block = 2,
    End = 3,
}

/// The name of the file of a snapshot that stands for all entries through `at`.
#[must_use]
pub fn snapshot_file_name(at: Position) -> String {
    format!("snapshot-{:020}-{:020}", at.index, at.term)
}

fn position_of(name: &str) -> Option<Position> {
    let (index, term) = name.strip_prefix("snapshot-")?.split_once('-')?;
    let is_number = |text: &str| text.len() == 20 && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(index) || !is_number(term) {
        return None;
    }
    Some(Position {
        term: term.parse().ok()?,
        index: index.parse().ok()?,
    })
}

/// What snapshots there are, the latest last.
///
/// # Errors
/// The folder cannot be read.
pub fn snapshots(disk: &mut impl ReadDisk) -> Result<Vec<Position>, SnapshotError> {
    let names = disk.list()?;
    let mut found: Vec<Position> = names.iter().filter_map(|name| position_of(name)).collect();
    found.sort_unstable_by_key(|at| (at.index, at.term));
    Ok(found)
}

/// The size of a snapshot, in bytes.
///
/// # Errors
/// There is none.
pub fn snapshot_bytes(disk: &mut impl ReadDisk, at: Position) -> Result<u64, SnapshotError> {
    Ok(disk.length(&snapshot_file_name(at))?)
}

/// Removes a snapshot. One that is not there is removed already.
///
/// # Errors
/// The disk refuses.
pub fn remove_snapshot(disk: &mut impl Disk, at: Position) -> Result<(), SnapshotError> {
    match disk.remove(&snapshot_file_name(at)) {
        Err(error) if !error.is_missing() => Err(error.into()),
        _ => Ok(disk.sync_folder()?),
    }
}

fn checksum(number: u64, header: &[u8; BLOCK_HEADER_BYTES], payload: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&number.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &header[..4]);
    let sum = crc32c::crc32c_append(sum, &header[8..]);
    crc32c::crc32c_append(sum, payload)
}

/// A snapshot that is being written.
#[derive(Debug)]
pub struct SnapshotWriter {
    at: Position,
    blocks: u64,
}

impl SnapshotWriter {
    /// Begins one that stands for all entries through `at`. Another that was being written is gone.
    ///
    /// # Errors
    /// The disk refuses, or there is too much to say about it.
    pub fn begin(disk: &mut impl Disk, at: Position, about: &[u8]) -> Result<Self, SnapshotError> {
        match disk.remove(NEW) {
            Err(error) if !error.is_missing() => return Err(error.into()),
            _ => {}
        }
        disk.create(NEW)?;
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(&MAGIC);
        header[8..10].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        header[16..24].copy_from_slice(&at.term.to_le_bytes());
        header[24..32].copy_from_slice(&at.index.to_le_bytes());
        let sum = crc32c::crc32c(&header[..60]);
        header[60..].copy_from_slice(&sum.to_le_bytes());
        disk.append(NEW, &header)?;
        let mut writer = Self { at, blocks: 0 };
        writer.put(disk, Kind::About, about)?;
        Ok(writer)
    }

    /// Writes the next block.
    ///
    /// # Errors
    /// It is too large, or the disk refuses; then this snapshot must be begun anew.
    pub fn write(&mut self, disk: &mut impl Disk, block: &[u8]) -> Result<(), SnapshotError> {
        self.put(disk, Kind::Block, block)
    }

    /// Ends it. It is durable and found by [`snapshots`] when this returns.
    ///
    /// # Errors
    /// The disk refuses; then there is no such snapshot, or after a failed sync of the folder
    /// perhaps one.
    pub fn finish(mut self, disk: &mut impl Disk) -> Result<(), SnapshotError> {
        self.put(disk, Kind::End, &[])?;
        disk.sync(NEW)?;
        disk.rename(NEW, &snapshot_file_name(self.at))?;
        disk.sync_folder()?;
        Ok(())
    }

    fn put(
        &mut self,
        disk: &mut impl Disk,
        kind: Kind,
        payload: &[u8],
    ) -> Result<(), SnapshotError> {
        let size_bytes = payload.len();
        let length = u32::try_from(size_bytes).ok();
        let Some(length) = length.filter(|_| size_bytes <= BLOCK_BYTES_MAX) else {
            return Err(SnapshotError::TooLarge { size_bytes });
        };
        let mut header = [0; BLOCK_HEADER_BYTES];
        header[..4].copy_from_slice(&length.to_le_bytes());
        header[8] = kind as u8;
        let sum = checksum(self.blocks, &header, payload);
        header[4..8].copy_from_slice(&sum.to_le_bytes());
        disk.append(NEW, &[&header, payload].concat())?;
        self.blocks += 1;
        Ok(())
    }
}

/// A snapshot that is being read. Every block is verified before it is handed out.
#[derive(Debug)]
pub struct SnapshotReader {
    file: String,
    offset: u64,
    blocks: u64,
    is_over: bool,
}

impl SnapshotReader {
    /// Opens the snapshot at a position; with it what stands about it.
    ///
    /// # Errors
    /// There is none, it is damaged, or newer than this program.
    pub fn open(disk: &mut impl ReadDisk, at: Position) -> Result<(Self, Vec<u8>), SnapshotError> {
        let mut reader = Self {
            file: snapshot_file_name(at),
            offset: 0,
            blocks: 0,
            is_over: false,
        };
        let mut header = [0; HEADER_BYTES];
        reader.read(disk, &mut header)?;
        if header[..8] != MAGIC {
            return reader.damaged("it does not begin as a snapshot");
        }
        let version = u16::from_le_bytes([header[8], header[9]]);
        if crc32c::crc32c(&header[..60]) != u32_at(&header, 60) {
            return reader.damaged("the checksum of its header is wrong");
        }
        if version > FORMAT_VERSION {
            let file = reader.file;
            return Err(SnapshotError::Newer { file, version });
        }
        if (u64_at(&header, 16), u64_at(&header, 24)) != (at.term, at.index) {
            return reader.damaged("it stands for other entries than its name says");
        }
        match reader.take(disk)? {
            (Kind::About, about) => Ok((reader, about)),
            _ => reader.damaged("it does not say what it is about"),
        }
    }

    /// The next block; `None` behind the last.
    ///
    /// # Errors
    /// It is damaged, or the disk refuses.
    pub fn next(&mut self, disk: &mut impl ReadDisk) -> Result<Option<Vec<u8>>, SnapshotError> {
        if self.is_over {
            return Ok(None);
        }
        match self.take(disk)? {
            (Kind::Block, block) => Ok(Some(block)),
            (Kind::End, end) if end.is_empty() => {
                self.is_over = true;
                let length = disk.length(&self.file)?;
                if length == self.offset {
                    return Ok(None);
                }
                self.damaged("something follows its end")
            }
            _ => self.damaged("a block is of another kind"),
        }
    }

    fn take(&mut self, disk: &mut impl ReadDisk) -> Result<(Kind, Vec<u8>), SnapshotError> {
        let mut header = [0; BLOCK_HEADER_BYTES];
        let start = self.offset;
        self.read(disk, &mut header)?;
        let length = u32_at(&header, 0) as usize;
        let kind = match header[8] {
            1 => Kind::About,
            2 => Kind::Block,
            3 => Kind::End,
            _ => return self.damaged("a block is of no known kind"),
        };
        if length > BLOCK_BYTES_MAX {
            return self.damaged("a block is too long");
        }
        let mut payload = vec![0; length];
        self.read(disk, &mut payload)?;
        if checksum(self.blocks, &header, &payload) != u32_at(&header, 4) {
            self.offset = start;
            return self.damaged("the checksum of a block is wrong");
        }
        self.blocks += 1;
        Ok((kind, payload))
    }

    fn read(&mut self, disk: &mut impl ReadDisk, into: &mut [u8]) -> Result<(), SnapshotError> {
        match disk.read_at(&self.file, self.offset, into) {
            Ok(()) => {
                self.offset += into.len() as u64;
                Ok(())
            }
            Err(error) if error.is_short() => self.damaged("it ends in the middle"),
            Err(error) => Err(error.into()),
        }
    }

    fn damaged<T>(&self, what: &'static str) -> Result<T, SnapshotError> {
        Err(SnapshotError::Damaged {
            file: self.file.clone(),
            offset: self.offset,
            what,
        })
    }
}
