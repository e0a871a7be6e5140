//! The root of the pool's keys, from a file that nobody else may read.
//!
//! Its owner may, and a group that this process is in: a pod that is not root gets its Secrets so
//! (`fsGroup`), and nobody but the processes of that pod is in that group.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use larder_wire::RootKey;

/// 64 digits, a newline, and one byte to see that there is more.
const READ_BYTES: u64 = 66;

/// Why there is no root key.
#[derive(Debug, thiserror::Error)]
pub enum RootKeyError {
    /// The file cannot be read.
    #[error("cannot read the root key {}; check root_key_file", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others may read it, so it is no secret.
    #[error(
        "the root key {} has mode {mode:04o} and group {group}; make it readable by its owner only \
         (chmod 600), or also by a group of this process (chmod 640), and make a new key if others \
         may have read it",
        .path.display()
    )]
    Open {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The number of its group.
        group: u32,
    },
    /// It does not hold a key.
    #[error("the root key {} must hold exactly 64 hexadecimal digits", .path.display())]
    Shape {
        /// Which file.
        path: PathBuf,
    },
}

/// Reads the root key.
///
/// # Errors
/// [`RootKeyError`]; what the file holds never stands in it.
pub fn load(path: &Path) -> Result<RootKey, RootKeyError> {
    let read = |source| RootKeyError::Read {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(read)?;
    // Of the open file, not of the path: the two could differ.
    let facts = file.metadata().map_err(read)?;
    let (mode, group) = (facts.mode() & 0o7777, facts.gid());
    if !is_secret(mode, || is_own_group(group)) {
        return Err(RootKeyError::Open {
            path: path.to_owned(),
            mode,
            group,
        });
    }
    let mut text = String::new();
    file.take(READ_BYTES)
        .read_to_string(&mut text)
        .map_err(read)?;
    let bytes = parse_hex(text.trim_end()).ok_or(RootKeyError::Shape {
        path: path.to_owned(),
    })?;
    Ok(RootKey::new(bytes))
}

/// Whether only the owner and, at most, a group of ours may read, and only the owner write.
fn is_secret(mode: u32, is_own_group: impl FnOnce() -> bool) -> bool {
    match mode & 0o077 {
        0 => true,
        0o040 => is_own_group(),
        _ => false,
    }
}

/// Whether this process is in a group, by its first one or by any other.
fn is_own_group(group: u32) -> bool {
    let is_it = |own: rustix::process::Gid| own.as_raw() == group;
    // Without an answer of the system only the first group counts.
    is_it(rustix::process::getegid())
        || rustix::process::getgroups().is_ok_and(|groups| groups.into_iter().any(is_it))
}

/// 32 bytes from 64 hexadecimal digits.
pub(crate) fn parse_hex(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (hex_digit(pair[0])?, hex_digit(pair[1])?);
        *byte = high << 4 | low;
    }
    Some(bytes)
}

const fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_may_read_if_it_is_ours_and_nobody_else_may_anything() {
        for mode in [0o400, 0o600, 0o700] {
            assert!(is_secret(mode, || false), "{mode:o}");
        }
        for mode in [0o440, 0o640] {
            assert!(is_secret(mode, || true), "{mode:o}");
            assert!(!is_secret(mode, || false), "{mode:o}");
        }
        for mode in [0o444, 0o660, 0o620, 0o604, 0o602, 0o601, 0o650, 0o610] {
            assert!(!is_secret(mode, || true), "{mode:o}");
        }
    }

    #[test]
    fn the_group_of_the_file_decides() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let path = std::env::temp_dir().join(format!("larder-root-key-{}", std::process::id()));
        std::fs::write(&path, "5c".repeat(32)).expect("written");
        let own = rustix::process::getegid().as_raw();
        chown(&path, None, Some(own)).expect("an own group");
        let with = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("an own file");
            load(&path)
        };
        assert!(with(0o440).is_ok() && with(0o640).is_ok());
        let error = with(0o444).expect_err("others").to_string();
        assert!(error.contains("0444") && error.contains("chmod"), "{error}");
        // Only root gives files away; to anybody else the rest has nothing to show.
        if chown(&path, None, Some(54_321)).is_ok() {
            let error = with(0o640).expect_err("another group").to_string();
            assert!(error.contains("54321"), "{error}");
            assert!(with(0o600).is_ok());
        }
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn hex_goes_into_bytes() {
        let text = format!("{}fF", "0a".repeat(31));
        let bytes = parse_hex(&text).expect("64 digits");
        assert_eq!((bytes[0], bytes[31]), (10, 255));
        assert_eq!(parse_hex(&text[1..]), None);
        assert_eq!(parse_hex(&text.replace('f', "g")), None);
        assert_eq!(parse_hex(&"ä".repeat(32)), None);
    }
}
