//! Why a reconcile did not end, and how soon it is tried again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::child::ChildKey;
use crate::master_api::MasterError;
use crate::reasons::Reason;

/// First pause after a failure; it doubles up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two tries.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Most failing objects that are counted; more of them start at the first pause again.
const COUNTED_MAX: usize = 16_384;

/// Why a reconcile did not end.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server refused or did not answer.
    #[error("cannot {what} {object}; it is tried again")]
    Api {
        /// What was tried.
        what: &'static str,
        /// On what.
        object: String,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// The master refused or did not answer.
    #[error("the master of {pool} did not do what was asked; it is tried again")]
    Master {
        /// `<namespace>/<name>` of the pool.
        pool: String,
        /// What came back.
        source: MasterError,
    },
    /// Somebody else's object has a name that is needed.
    #[error("{0} was not made by larder-operator; remove or rename it")]
    NameTaken(ChildKey),
    /// An earlier life of the name is still being removed.
    #[error("{0} belongs to an earlier object of this name and is still being removed")]
    OldObjectsRemain(ChildKey),
    /// The system gave no random bytes.
    #[error("cannot draw a random key; check /dev/urandom of the operator's node")]
    Random,
}

impl ReconcileError {
    /// Reason and message of a condition, where people must deal with it.
    ///
    /// # Errors
    /// The error itself, where another try may cure it.
    pub fn for_people(self) -> Result<(Reason, String), Self> {
        match (&self, self.refusal()) {
            (Self::NameTaken(_), _) => Ok((Reason::NameTaken, self.to_string())),
            (Self::OldObjectsRemain(_), _) => Ok((Reason::OldObjectsRemain, self.to_string())),
            (_, Some(refusal)) => Ok((Reason::ApiRefused, refusal)),
            (_, None) => Err(self),
        }
    }

    /// An answer of the API server about `object`.
    pub(crate) fn api(
        what: &'static str,
        object: impl std::fmt::Display,
        source: kube::Error,
    ) -> Self {
        Self::Api {
            what,
            object: object.to_string(),
            source: Box::new(source),
        }
    }

    /// What the API server said where the same request fails until somebody changes something: a
    /// right that is missing, or an object that it does not take. Only what stays the same from
    /// try to try, since it becomes the message of a condition.
    fn refusal(&self) -> Option<String> {
        let Self::Api {
            what,
            object,
            source,
        } = self
        else {
            return None;
        };
        match source.as_ref() {
            kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Some(format!(
                "the API server refuses to {what} {object}: {}",
                status.message
            )),
            _ => None,
        }
    }

    /// The label of the metric: from a closed set.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Api { .. } => "api",
            Self::Master { .. } => "master",
            Self::NameTaken(_) => "name_taken",
            Self::OldObjectsRemain(_) => "old_objects",
            Self::Random => "random",
        }
    }
}

/// How often each object failed in a row. It belongs to the shell: what is decided never depends
/// on it, only when.
#[derive(Debug, Default)]
pub struct Failures(Mutex<BTreeMap<String, u32>>);

impl Failures {
    /// Counts a failure of `key` and returns the pause before the next try.
    pub fn count(&self, key: &str) -> Duration {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= COUNTED_MAX && !counts.contains_key(key) {
            return RETRY_FIRST;
        }
        let count = counts.entry(key.to_owned()).or_insert(0);
        let pause = RETRY_FIRST
            .saturating_mul(1 << (*count).min(6))
            .min(RETRY_MAX);
        *count = count.saturating_add(1);
        pause
    }

    /// Forgets the failures of `key`: it worked, or is gone.
    pub fn clear(&self, key: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let failures = Failures::default();
        let pauses: Vec<u64> = (0..9).map(|_| failures.count("a").as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(failures.count("b").as_secs(), 1);
        failures.clear("a");
        assert_eq!(failures.count("a").as_secs(), 1);
    }
}
