//! The highest epoch that this agent has seen, kept over restarts: what fences leaders of the past.
//!
//! One line: `larder-epoch 1 <generation> <term> <checksum>`. The checksum is CRC-32C of what
//! stands before it, in hex: a file that lies about the epoch would unlock what it guards.

use std::io::ErrorKind;
use std::path::Path;

use larder_types::Epoch;

use crate::atomic_file;
use crate::state_dir::{StateError, failed};

/// Reads the epoch; a missing file is the lowest epoch.
///
/// # Errors
/// [`StateError::Damaged`], [`StateError::Io`].
pub fn load(path: &Path) -> Result<Epoch, StateError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Epoch::default()),
        Err(error) => return Err(failed("reading", path)(error)),
    };
    let damaged = |found: &str| StateError::Damaged {
        path: path.to_owned(),
        found: found.to_owned(),
    };
    let text = str::from_utf8(&bytes).map_err(|_| damaged("it is no text"))?;
    let line = text
        .strip_suffix('\n')
        .ok_or_else(|| damaged("its end is missing"))?;
    let (told, checksum) = line
        .rsplit_once(' ')
        .ok_or_else(|| damaged("it is too short"))?;
    if checksum != checksum_of(told) {
        return Err(damaged("its checksum does not match"));
    }
    let words: Vec<&str> = told.split(' ').collect();
    match words[..] {
        ["larder-epoch", "1", generation, term] => match (generation.parse(), term.parse()) {
            (Ok(generation), Ok(term)) => Ok(Epoch { generation, term }),
            _ => Err(damaged("its numbers do not parse")),
        },
        _ => Err(damaged("it is of another format")),
    }
}

/// Writes the epoch; on the disk when it returns. Blocks: not for a thread that has heartbeats.
///
/// # Errors
/// [`StateError::Io`].
pub fn save(path: &Path, epoch: Epoch) -> Result<(), StateError> {
    let told = format!("larder-epoch 1 {} {}", epoch.generation, epoch.term);
    let line = format!("{told} {}\n", checksum_of(&told));
    atomic_file::replace(path, line.as_bytes(), 0o600).map_err(failed("writing", path))
}

fn checksum_of(told: &str) -> String {
    format!("{:08x}", larder_wire::checksum::block_crc(told.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("epoch");
        assert_eq!(load(&path).expect("none yet"), Epoch::default());
        for epoch in [
            Epoch {
                generation: 1,
                term: 2,
            },
            Epoch {
                generation: u64::MAX,
                term: 0,
            },
        ] {
            save(&path, epoch).expect("saved");
            assert_eq!(load(&path).expect("loaded"), epoch);
        }
    }

    #[test]
    fn the_bytes_are_the_format() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("epoch");
        save(
            &path,
            Epoch {
                generation: 3,
                term: 14,
            },
        )
        .expect("saved");
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(text, "larder-epoch 1 3 14 9cd2fcdb\n");
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("epoch");
        save(
            &path,
            Epoch {
                generation: 12,
                term: 345,
            },
        )
        .expect("saved");
        let good = std::fs::read(&path).expect("bytes");
        for at in 0..good.len() {
            let mut changed = good.clone();
            changed[at] ^= 1;
            std::fs::write(&path, &changed).expect("written");
            assert!(
                matches!(load(&path), Err(StateError::Damaged { .. })),
                "byte {at} changed"
            );
            std::fs::write(&path, &good[..at]).expect("written");
            assert!(
                matches!(load(&path), Err(StateError::Damaged { .. })),
                "cut at {at}"
            );
        }
    }
}
