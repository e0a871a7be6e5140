//! Which faults there were.

use std::collections::BTreeMap;
use std::fmt;

use super::faults::Class;

/// How often each kind of fault was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<Class, u64>,
}

impl Coverage {
    /// Counts a fault that was really made.
    pub fn count(&mut self, class: Class) {
        *self.counts.entry(class).or_default() += 1;
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        for (class, count) in &other.counts {
            *self.counts.entry(*class).or_default() += count;
        }
    }

    /// How many faults of this kind there were.
    #[must_use]
    pub fn of(&self, class: Class) -> u64 {
        self.counts.get(&class).copied().unwrap_or(0)
    }

    /// How many faults there were.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (class, count)) in self.counts.iter().enumerate() {
            let gap = if at == 0 { "" } else { ", " };
            write!(f, "{gap}{} {count}", class.name())?;
        }
        Ok(())
    }
}
