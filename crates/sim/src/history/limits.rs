//! How much a check may use, and what becomes of a key that needs more.

use std::fmt;

/// How much a check may use for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most configurations at one moment, some 200 bytes each.
    pub configurations_max: usize,
    /// The most steps in all, 8 bytes each.
    pub steps_max: usize,
}

impl Default for Limits {
    /// At most 40 MB and, at some million steps a second, a few seconds a key.
    fn default() -> Self {
        Self {
            configurations_max: 50_000,
            steps_max: 4_000_000,
        }
    }
}

/// A key that could not be judged. That is no "yes".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    /// The key.
    pub key: String,
    /// What it would have needed.
    pub why: Why,
}

/// What a key needs more of than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// More operations are pending at one time than [`super::SLOTS`].
    Pending,
    /// [`Limits::configurations_max`].
    Configurations,
    /// [`Limits::steps_max`].
    Steps,
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.why {
            Why::Pending => "too many operations are pending at one time",
            Why::Configurations => "too many orders are possible at one moment",
            Why::Steps => "the search took too many steps",
        };
        write!(
            f,
            "key {:?} is undecided: {why}; use more keys or fewer clients",
            self.key
        )
    }
}
