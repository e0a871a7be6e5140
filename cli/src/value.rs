//! The bytes of an object on this side: read from a file or standard input, written into a file.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, open};

use crate::bytes_text::show_bytes;
use crate::error::CliError;

/// The most bytes of a value: all of it is read into memory before the put.
const VALUE_MAX_BYTES: u64 = 1 << 30;
/// Links that are followed from one to the next, as many as the kernel does.
const LINKS_MAX: usize = 40;

/// Reads the value of a put, from standard input if no file is given.
pub(crate) fn read_value(file: Option<&Path>) -> Result<Bytes, CliError> {
    match file.filter(|path| *path != Path::new("-")) {
        Some(path) => {
            let wrong = |source| CliError::file("read", path, source);
            let file = File::open(path).map_err(wrong)?;
            let facts = file.metadata().map_err(wrong)?;
            if facts.is_file() && facts.len() > VALUE_MAX_BYTES {
                return Err(too_large(path, VALUE_MAX_BYTES));
            }
            let value = read_capped(file, VALUE_MAX_BYTES).map_err(wrong)?;
            value.ok_or_else(|| too_large(path, VALUE_MAX_BYTES))
        }
        None => read_capped(io::stdin().lock(), VALUE_MAX_BYTES)
            .map_err(|source| CliError::System {
                action: "read standard input",
                source,
            })?
            .ok_or_else(|| too_large(Path::new("standard input"), VALUE_MAX_BYTES)),
    }
}

/// Reads to the end; `None` if there are more bytes than `max`. What has no end is not read to it.
fn read_capped(from: impl Read, max: u64) -> io::Result<Option<Bytes>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= max).then(|| bytes.into()))
}

fn too_large(from: &Path, max: u64) -> CliError {
    CliError::Usage(format!(
        "{} is too large: an object has at most {}, the largest slab that a pool can have; put it \
         in parts under several keys",
        from.display(),
        show_bytes(max)
    ))
}

/// Writes a file that is whole or not there. One that is there keeps its mode, and links to it.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let wrong = |source| CliError::file("write", path, source);
    let target = resolve(path).map_err(wrong)?;
    match fs::metadata(&target) {
        // A device or pipe cannot be replaced by a file of its name.
        Ok(facts) if !facts.is_file() => fs::write(&target, bytes).map_err(wrong),
        Ok(facts) => replace(&target, bytes, Some(&facts)).map_err(wrong),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            replace(&target, bytes, None).map_err(wrong)
        }
        Err(error) => Err(wrong(error)),
    }
}

/// Where a path leads when the links at its end are followed, also to what is not there yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            // From the folder of the link; an absolute one replaces it.
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(path),
        }
    }
    Err(rustix::io::Errno::LOOP.into())
}

/// Puts a new file in the place of what is there.
fn replace(path: &Path, bytes: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(name);
    // A new file is as open as the user's umask says; another never more than it was.
    let mode = old.map_or(0o666, |_| 0o600);
    let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let written = match open(folder, flags, Mode::from_raw_mode(mode)) {
        // Without a name nothing stays of it, however this process ends.
        Ok(file) => {
            let file = File::from(file);
            fill(&file, bytes, old).and_then(|()| {
                let own = format!("/proc/self/fd/{}", file.as_raw_fd());
                Ok(linkat(CWD, own, CWD, &part, AtFlags::SYMLINK_FOLLOW)?)
            })
        }
        // Not every file system has files without a name; what else is wrong shows again.
        Err(_) => OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&part)
            .and_then(|file| fill(&file, bytes, old)),
    };
    let placed = written.and_then(|()| fs::rename(&part, path));
    if placed.is_err() {
        // What could not be placed must not stay; the first error is the one to tell.
        let _ = fs::remove_file(&part);
    }
    placed
}

/// Writes the bytes, with the owner and mode of the file that is replaced.
fn fill(mut file: &File, bytes: &[u8], old: Option<&Metadata>) -> io::Result<()> {
    file.write_all(bytes)?;
    let Some(old) = old else { return Ok(()) };
    let now = file.metadata()?;
    let same = (now.uid(), now.gid()) == (old.uid(), old.gid());
    let owned = same || fchown(file, Some(old.uid()), Some(old.gid())).is_ok();
    // What another group could do is nothing for ours.
    let kept = if owned { 0o777 } else { 0o700 };
    file.set_permissions(fs::Permissions::from_mode(old.permissions().mode() & kept))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        assert_eq!(read_capped(io::repeat(7), 4096).expect("bytes"), None);
        let most = read_capped(io::repeat(7).take(4096), 4096).expect("bytes");
        assert_eq!(most.map(|bytes| bytes.len()), Some(4096));
    }

    #[test]
    fn a_file_is_whole_or_not_there() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("out");
        write_file(&path, b"one").expect("room");
        write_file(&path, b"two").expect("room");
        assert_eq!(fs::read(&path).expect("there"), b"two");
        let error = write_file(&place.path().join("no/such"), b"x").expect_err("no folder");
        assert!(error.to_string().contains("no/such"), "{error}");
        assert_eq!(fs::read_dir(place.path()).expect("there").count(), 1);
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_new_one_is_as_the_umask_says() {
        let place = tempfile::tempdir().expect("a folder");
        let (path, other) = (place.path().join("out"), place.path().join("other"));
        File::create(&other).expect("room");
        write_file(&path, b"one").expect("room");
        assert_eq!(mode(&path), mode(&other));
        for kept in [0o600, 0o640, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).expect("ours");
            write_file(&path, b"two").expect("room");
            assert_eq!(mode(&path), kept);
        }
    }

    #[test]
    fn links_are_written_through() {
        let place = tempfile::tempdir().expect("a folder");
        let at = |name: &str| place.path().join(name);
        fs::create_dir(at("far")).expect("room");
        symlink("far/file", at("middle")).expect("room");
        symlink(at("middle"), at("link")).expect("room");
        for value in [b"one", b"two"] {
            write_file(&at("link"), value).expect("room");
            assert_eq!(fs::read(at("far/file")).expect("there"), value);
            assert!(at("link").is_symlink() && at("middle").is_symlink());
        }
        symlink("round", at("round")).expect("room");
        write_file(&at("round"), b"x").expect_err("it leads nowhere");
        assert_eq!(fs::read_dir(at("far")).expect("there").count(), 1);
    }
}
