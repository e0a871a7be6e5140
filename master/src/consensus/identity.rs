//! The number of a replica: drawn once for each life of its disk.

use std::path::PathBuf;

use larder_oplog::{Disk, DiskError};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::ConsensusError;

const FILE: &str = "replica";
const FILE_NEW: &str = "replica.new";
/// 16 digits and a newline.
const FILE_BYTES: usize = 17;

/// The number on the disk, or a new one. A disk that was emptied gets another: what the old one
/// had acknowledged, the new one does not have.
pub(super) fn load(disk: &mut impl Disk, seed: u64) -> Result<u64, ConsensusError> {
    let length = match disk.length(FILE) {
        Ok(length) => length,
        Err(error) if error.is_missing() => return Ok(draw(disk, seed)?),
        Err(error) => return Err(error.into()),
    };
    let mut bytes = [0; FILE_BYTES];
    let mut number = None;
    if length == FILE_BYTES as u64 {
        disk.read_at(FILE, 0, &mut bytes)?;
        let text = std::str::from_utf8(&bytes).unwrap_or_default();
        number = u64::from_str_radix(text.trim_end(), 16).ok();
    }
    number.ok_or_else(|| ConsensusError::Number {
        path: PathBuf::from(FILE),
    })
}

fn draw(disk: &mut impl Disk, seed: u64) -> Result<u64, DiskError> {
    // Never 0, which openraft takes for nobody.
    let number = SmallRng::seed_from_u64(seed).random_range(1..=u64::MAX);
    match disk.remove(FILE_NEW) {
        Err(error) if !error.is_missing() => return Err(error),
        _ => {}
    }
    disk.create(FILE_NEW)?;
    disk.append(FILE_NEW, format!("{number:016x}\n").as_bytes())?;
    disk.sync(FILE_NEW)?;
    disk.rename(FILE_NEW, FILE)?;
    disk.sync_folder()?;
    Ok(number)
}

/// Forgets the number: the next start is another replica.
pub(super) fn forget(disk: &mut impl Disk) -> Result<(), DiskError> {
    match disk.remove(FILE) {
        Err(error) if !error.is_missing() => Err(error),
        _ => disk.sync_folder(),
    }
}
