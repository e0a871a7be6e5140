//! Writing a small file so that a reader, or a restart, finds the old or the new one, whole.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What the name of a file ends with until it is whole.
pub(crate) const UNFINISHED: &str = ".new";

/// Replaces `path` by a file with these bytes and this mode; on the disk when it returns.
///
/// # Errors
/// What the system said; the old file is then still there.
pub(crate) fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(UNFINISHED);
    let temporary = Path::new(&temporary);
    // Left over from a crash, possibly with another mode.
    match std::fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(temporary, path)?;
    // The name is on the disk when the folder is.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
