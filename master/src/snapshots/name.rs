//! Names of snapshots.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes.
const BYTES_MAX: usize = 63;

/// The name of a snapshot: 1 to 63 of `a-z`, `0-9` and `-`, with none of the last at its ends. So
/// it is a name in Kubernetes, a file's name and a part of an object's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SnapshotName(String);

/// A name that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no name of a snapshot; it has 1 to 63 of a-z, 0-9 and -, and begins and ends with a \
     letter or a digit"
)]
pub struct BadName(String);

impl SnapshotName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`BadName`].
    pub fn new(text: impl Into<String>) -> Result<Self, BadName> {
        let text = text.into();
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let has_ends = matches!(
            (bytes.first(), bytes.last()),
            (Some(first), Some(last)) if is_plain(*first) && is_plain(*last)
        );
        let fits = bytes.len() <= BYTES_MAX && bytes.iter().all(|b| is_plain(*b) || *b == b'-');
        if has_ends && fits {
            return Ok(Self(text));
        }
        Err(BadName(text.chars().take(BYTES_MAX + 1).collect()))
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        Self::new(text)
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        let long = "a".repeat(63);
        for good in ["a", "0", "before-upgrade-2", &long] {
            assert_eq!(SnapshotName::new(good).expect(good).as_str(), good);
        }
        let too_long = "a".repeat(64);
        let bad = [
            "", "-a", "a-", "A", "a.b", "a/b", "..", "ä", "a b", &too_long,
        ];
        for bad in bad {
            let error = SnapshotName::new(bad).expect_err(bad).to_string();
            assert!(error.contains("1 to 63"), "{error}");
        }
    }
}
