//! The words by which a process is steered; `faults.c` has the same numbers.

use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

const HOLD: u64 = 1;
const SYNC_DELAY_MS: u64 = 2;
const WRITE_DELAY_MS: u64 = 3;
const IS_LIMITED: u64 = 4;
const ROOM_BYTES: u64 = 5;
const CLOCK_OFFSET_NS: u64 = 6;
const BOOT: u64 = 7;
const NETWORK_OF: u64 = 8;

const SYNCS: u64 = 16;
const WRITES: u64 = 17;
const REFUSED: u64 = 18;
const DELAYED: u64 = 19;
const CLOCK_READS: u64 = 20;
const BOOT_READS: u64 = 21;
const HELD_PID: u64 = 22;
const LAST_SYNC_NS: u64 = 23;
const IS_TABLE_FULL: u64 = 24;

const FOLDER_WORD: u64 = 32;
const TABLE_WORD: u64 = 128;
const SLOT_WORDS: u64 = 4;
const SLOTS: u64 = 1024;
const IS_LINKED: u64 = 1;

/// The length of a control file in words of 8 bytes.
pub const WORDS: u64 = TABLE_WORD + SLOT_WORDS * SLOTS;
/// The longest path of a watched folder.
const FOLDER_BYTES_MAX: usize = ((TABLE_WORD - FOLDER_WORD) * 8 - 1) as usize;
/// How long a process may take until it stands still at its start.
const PATIENCE: Duration = Duration::from_secs(60);

/// Steers one process over all of its lives.
#[derive(Debug)]
pub struct Control {
    file: std::fs::File,
}

/// What the process knows of a file of its disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its number in the file system.
    pub inode: u64,
    /// So many of its bytes are durable.
    pub synced_bytes: u64,
    /// Its name is.
    pub is_linked: bool,
}

impl Control {
    pub(super) fn create(path: &Path, watched: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.open(path)?;
        file.set_len(WORDS * 8)?;
        let watched = watched.as_os_str().as_bytes();
        ensure!(watched.len() <= FOLDER_BYTES_MAX, "too long: {watched:?}");
        file.write_all_at(watched, FOLDER_WORD * 8)?;
        Ok(Self { file })
    }

    fn word(&self, at: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at * 8)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn set(&self, at: u64, word: u64) -> Result<()> {
        Ok(self.file.write_all_at(&word.to_le_bytes(), at * 8)?)
    }

    /// Every sync of a watched file takes so much longer, and every write.
    ///
    /// # Errors
    /// If the file cannot be written; so too with all others here.
    pub fn slow_disk(&self, sync_ms: u64, write_ms: u64) -> Result<()> {
        self.set(SYNC_DELAY_MS, sync_ms)?;
        self.set(WRITE_DELAY_MS, write_ms)
    }

    /// The disk takes so many bytes more, and those of files that are removed.
    ///
    /// # Errors
    /// As above.
    pub fn limit_disk(&self, room_bytes: u64) -> Result<()> {
        self.set(ROOM_BYTES, room_bytes)?;
        self.set(IS_LIMITED, 1)
    }

    /// The disk has room again.
    ///
    /// # Errors
    /// As above.
    pub fn unlimit_disk(&self) -> Result<()> {
        self.set(IS_LIMITED, 0)
    }

    /// The wall clock is so many seconds away from the machine's. No other clock is touched, as
    /// when somebody sets the time.
    ///
    /// # Errors
    /// As above.
    pub fn shift_clock(&self, by_s: i64) -> Result<()> {
        let by_ns = by_s.saturating_mul(1_000_000_000);
        self.set(CLOCK_OFFSET_NS, u64::from_ne_bytes(by_ns.to_ne_bytes()))
    }

    /// From its next start on the process sees the boot id of this number.
    ///
    /// # Errors
    /// As above.
    pub fn set_boot(&self, number: u32) -> Result<()> {
        self.set(BOOT, u64::from(number))
    }

    /// From its next start on the process lives in the network namespace of that process.
    ///
    /// # Errors
    /// As above.
    pub fn set_network_of(&self, pid: u32) -> Result<()> {
        self.set(NETWORK_OF, u64::from(pid))
    }

    /// Its next start stands still before it does anything: the machine is off.
    ///
    /// # Errors
    /// As above.
    pub fn turn_off(&self) -> Result<()> {
        self.set(HELD_PID, 0)?;
        self.set(HOLD, 1)
    }

    /// The machine is on again.
    ///
    /// # Errors
    /// As above.
    pub fn turn_on(&self) -> Result<()> {
        self.set(HOLD, 0)
    }

    /// Waits until the next life of the process stands still at its start: then the one before is
    /// gone.
    ///
    /// # Errors
    /// If that takes too long.
    pub fn until_off(&self) -> Result<()> {
        let start = Instant::now();
        while self.word(HELD_PID)? == 0 {
            if start.elapsed() > PATIENCE {
                bail!("the process was not started again within {PATIENCE:?}");
            }
            // How finely it is looked; nothing is told when a process starts.
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// When the last sync of the log began that came to its end, in ns of CLOCK_MONOTONIC: all that
    /// was written before is durable.
    ///
    /// # Errors
    /// As above.
    pub fn last_sync_ns(&self) -> Result<u64> {
        self.word(LAST_SYNC_NS)
    }

    /// Calls that were seen so far: syncs, writes, refused and delayed ones, of the wall clock, of
    /// the boot id.
    ///
    /// # Errors
    /// As above.
    pub fn seen(&self) -> Result<[u64; 6]> {
        let at = [SYNCS, WRITES, REFUSED, DELAYED, CLOCK_READS, BOOT_READS];
        let mut seen = [0; 6];
        for (seen, at) in seen.iter_mut().zip(at) {
            *seen = self.word(at)?;
        }
        Ok(seen)
    }

    /// Every file that was opened or made in the watched folder and is still there.
    ///
    /// # Errors
    /// If there were too many.
    pub fn files(&self) -> Result<Vec<File>> {
        ensure!(self.word(IS_TABLE_FULL)? == 0, "more files than slots");
        let mut files = Vec::new();
        for slot in 0..SLOTS {
            let at = TABLE_WORD + SLOT_WORDS * slot;
            let inode = self.word(at)?;
            if inode != 0 {
                files.push(File {
                    inode,
                    synced_bytes: self.word(at + 2)?,
                    is_linked: self.word(at + 3)? & IS_LINKED != 0,
                });
            }
        }
        Ok(files)
    }
}
