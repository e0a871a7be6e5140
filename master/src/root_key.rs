//! The root of the pool's keys, from a file that nobody else may read.

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
        "the root key {} has mode {mode:04o}; make it readable by its owner only (chmod 600), \
         and make a new key if others may have read it",
        .path.display()
    )]
    Open {
        /// Which file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
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
    let mode = file.metadata().map_err(read)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(RootKeyError::Open {
            path: path.to_owned(),
            mode,
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
    fn hex_goes_into_bytes() {
        let text = format!("{}fF", "0a".repeat(31));
        let bytes = parse_hex(&text).expect("64 digits");
        assert_eq!((bytes[0], bytes[31]), (10, 255));
        assert_eq!(parse_hex(&text[1..]), None);
        assert_eq!(parse_hex(&text.replace('f', "g")), None);
        assert_eq!(parse_hex(&"ä".repeat(32)), None);
    }
}
