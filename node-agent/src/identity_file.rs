//! Who this agent is: a random number that is made once and tells two agents of one name apart.

use std::io::ErrorKind;
use std::path::Path;

use larder_types::{AgentUid, Incarnation};
use rand::TryRngCore;
use rand::rngs::OsRng;

use crate::atomic_file;
use crate::state_dir::{StateError, failed};

/// Reads the number, or makes it. 32 hex digits and a newline.
///
/// # Errors
/// [`StateError`].
pub fn load_or_make(path: &Path) -> Result<AgentUid, StateError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return make(path),
        Err(error) => return Err(failed("reading", path)(error)),
    };
    let digits = text.trim_end();
    let number = u128::from_str_radix(digits, 16)
        .ok()
        .filter(|_| digits.len() == 32);
    number.map(AgentUid).ok_or_else(|| StateError::Damaged {
        path: path.to_owned(),
        found: "it is not 32 hex digits".to_owned(),
    })
}

fn make(path: &Path) -> Result<AgentUid, StateError> {
    let mut bytes = [0; 16];
    let filled = OsRng.try_fill_bytes(&mut bytes);
    filled.map_err(|error| {
        failed("drawing a random number for", path)(std::io::Error::other(error))
    })?;
    let uid = u128::from_le_bytes(bytes);
    let line = format!("{uid:032x}\n");
    atomic_file::replace(path, line.as_bytes(), 0o600).map_err(failed("writing", path))?;
    Ok(AgentUid(uid))
}

/// The number of this process, never zero, and a seed for what needs no secret.
///
/// # Errors
/// The system has no randomness.
pub fn new_incarnation() -> std::io::Result<(Incarnation, u64)> {
    let draw = || OsRng.try_next_u64().map_err(std::io::Error::other);
    Ok((Incarnation(draw()?.max(1)), draw()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_once_and_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("uid");
        let made = load_or_make(&path).expect("made");
        assert_eq!(load_or_make(&path).expect("read"), made);
        let other = load_or_make(&folder.path().join("other")).expect("made");
        assert_ne!(made, other);
    }

    #[test]
    fn a_damaged_number_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("uid");
        for text in ["", "12", "zz", &"0".repeat(33), &"x".repeat(32)] {
            std::fs::write(&path, text).expect("written");
            assert!(
                matches!(load_or_make(&path), Err(StateError::Damaged { .. })),
                "{text}"
            );
        }
    }
}
