//! What a loss of power leaves of a folder of files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::control::Control;
use crate::chaos::Dice;

/// What was cut off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Files that lost bytes at their end.
    pub files: u32,
    /// How many bytes.
    pub bytes: u64,
    /// Files that are gone, since the folder was not synced after they were made.
    pub gone: u32,
}

/// Takes from each file of a folder what was not durable; the process must be off. Every second
/// time, by the dice, some bytes behind the last durable one are left: a torn write.
///
/// A file that was renamed over another keeps its new content, and a removed one stays removed:
/// a disk may lose these too, but then what it shows is a state that a kill could leave as well.
///
/// # Errors
/// If the files cannot be changed.
pub fn cut(control: &Control, folder: &Path, dice: &mut Dice) -> Result<Cut> {
    let known = control.files()?;
    let known: BTreeMap<u64, _> = known.iter().map(|file| (file.inode, file)).collect();
    let mut done = Cut::default();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let found = entry.metadata()?;
        let Some(file) = known.get(&found.ino()).filter(|_| found.is_file()) else {
            continue;
        };
        if !file.is_linked {
            fs::remove_file(entry.path())?;
            done.gone += 1;
        } else if file.synced_bytes < found.len() {
            let beyond = found.len() - file.synced_bytes;
            let torn = match dice.below(2) {
                0 => 0,
                _ => dice.below(beyond),
            };
            let length = file.synced_bytes + torn;
            let open = fs::OpenOptions::new().write(true).open(entry.path())?;
            open.set_len(length)?;
            done.files += 1;
            done.bytes += found.len() - length;
        }
    }
    Ok(done)
}
