//! Why a history cannot be true, for people.

use std::fmt;

use super::operation::{Call, Operation, Outcome, Value};

/// How many operations of an order, or of what is pending, are shown.
pub(super) const SHOWN_MAX: usize = 16;

/// A guess at what went wrong, from the operation that could not be explained. The verdict does
/// not rest on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A get returned bytes that are no value.
    Garbled,
    /// A get returned what nobody had begun to write to this key.
    NeverWritten,
    /// A get returned a value whose time was over, or had not come.
    Stale,
    /// Something acknowledged was not there.
    Lost,
    /// A put worked although the key held something.
    PutTwice,
    /// A removal worked although the key held nothing.
    RemovedTwice,
    /// The key was said to hold something when nothing can have been there.
    Ghost,
}

/// The shortest beginning of a key's history that no order explains.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The key.
    pub key: String,
    /// A guess at what went wrong.
    pub fault: Fault,
    /// The operation whose answer has no explanation.
    pub operation: Operation,
    /// How many operations of the key were called until that answer; the rest is not to blame.
    pub prefix: usize,
    /// What the key can have held just before, under every order that explains the rest.
    pub held: Vec<Option<Value>>,
    /// The end of one order that explains all answers before, at most 16 operations.
    pub order: Vec<Operation>,
    /// How long that order is.
    pub order_length: usize,
    /// What was called and not yet in that order, at most 16 operations.
    pub pending: Vec<Operation>,
}

impl Fault {
    /// From the operation and all that had been called on the key until its answer.
    pub(super) fn guess<'a>(
        operation: &Operation,
        mut called: impl Iterator<Item = &'a Operation>,
    ) -> Self {
        let mut writes = |value: Value| {
            called.any(|one| one.call == Call::Put(value) || one.call == Call::Upsert(value))
        };
        match (operation.call, operation.outcome) {
            (_, Outcome::Garbled) => Self::Garbled,
            (_, Outcome::Got(value)) if !writes(value) => Self::NeverWritten,
            (_, Outcome::Got(_)) => Self::Stale,
            (_, Outcome::Missing) => Self::Lost,
            (Call::Remove, _) => Self::RemovedTwice,
            (Call::Put(_), Outcome::Done) => Self::PutTwice,
            _ => Self::Ghost,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Garbled => "a get returned bytes that are no value",
            Self::NeverWritten => "a get returned what nobody wrote to this key",
            Self::Stale => "a get returned a value at the wrong time",
            Self::Lost => "something acknowledged was not there",
            Self::PutTwice => "a put worked although the key held something",
            Self::RemovedTwice => "a removal worked although the key held nothing",
            Self::Ghost => "the key held something when nothing can have been there",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "key {:?}: {}", self.key, self.fault)?;
        writeln!(f, "  no order explains  {}", self.operation)?;
        write!(
            f,
            "  among the first {} operations. Before, the key held",
            self.prefix
        )?;
        for (at, held) in self.held.iter().enumerate() {
            f.write_str(if at == 0 { " " } else { " or " })?;
            match held {
                Some(value) => write!(f, "{value}")?,
                None => f.write_str("nothing")?,
            }
        }
        let left_out = self.order_length.saturating_sub(self.order.len());
        writeln!(
            f,
            ".\n  One order of what came before, {left_out} left out:"
        )?;
        for operation in &self.order {
            writeln!(f, "    {operation}")?;
        }
        if !self.pending.is_empty() {
            writeln!(f, "  Called, and not in that order:")?;
        }
        for operation in &self.pending {
            writeln!(f, "    {operation}")?;
        }
        Ok(())
    }
}
