//! Making folders with the mode that is meant, whatever the umask of the process is.

use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Makes a folder and those above it that are missing, each with this mode. One that is there
/// keeps its own: it may be a person's.
pub(crate) fn make(path: &Path, mode: u32) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        make(above, mode)?;
    }
    match std::fs::DirBuilder::new().mode(mode).create(path) {
        Ok(()) => std::fs::set_permissions(path, Permissions::from_mode(mode)),
        // Somebody else was quicker, and sets its mode.
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_holds_for_what_is_made_and_for_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |path: &Path| {
            let metadata = std::fs::metadata(path).expect("there");
            metadata.permissions().mode() & 0o7777
        };
        let before = mode(folder.path());
        let below = folder.path().join("a/b");
        make(&below, 0o751).expect("made");
        assert_eq!(
            (mode(&below), mode(&folder.path().join("a"))),
            (0o751, 0o751)
        );
        make(&below, 0o700).expect("there");
        assert_eq!((mode(&below), mode(folder.path())), (0o751, before));
        std::fs::write(folder.path().join("file"), "").expect("written");
        assert!(make(&folder.path().join("file/c"), 0o700).is_err());
    }
}
