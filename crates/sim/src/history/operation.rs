//! The words of a history: what was asked, what was told, and when.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Names what was written: a digest of the bytes, or a number that the writer made. The more
/// writes have values of their own, the more a check finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Value(pub u64);

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Write unless the key holds something.
    Put(Value),
    /// Write whatever the key holds.
    Upsert(Value),
    /// Read.
    Get,
    /// Take away.
    Remove,
    /// Ask whether the key holds something.
    Exists,
}

/// What was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Of a put, upsert or remove: it worked.
    Done,
    /// Of a put: the key holds something already.
    AlreadyExists,
    /// Of a get: this value.
    Got(Value),
    /// Of a get, remove or exists: the key holds nothing.
    Missing,
    /// Of an exists: the key holds something.
    Present,
    /// Of a get: bytes that are no value at all, torn or of somebody else. Never right.
    Garbled,
    /// A typed error that promises that nothing was done and nothing will be.
    Failed,
    /// Anything else: the operation may take effect at any time after its call, or never.
    Unknown,
    /// Of a put or upsert: it took effect before its end, or never. No client is told so: it stands
    /// for what a cache may bring back by itself, as after a loss of power.
    Maybe,
}

/// One operation of one client on one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// Who asked.
    pub client: u32,
    /// Of which key.
    pub key: String,
    /// What was asked.
    pub call: Call,
    /// When, in nanoseconds of a clock that all clients share.
    pub invoked_ns: u64,
    /// When the answer came or the client gave up, on the same clock.
    pub ended_ns: Option<u64>,
    /// What was told.
    pub outcome: Outcome,
}

/// Operations of any clients and keys, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    operations: Vec<Operation>,
}

/// A history that cannot be recorded, kept or read.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The recorder holds as much as it may.
    #[error("the history holds {operations_max} operations; finish it, or give it a higher bound")]
    Full {
        /// The bound.
        operations_max: usize,
    },
    /// The outcome is none of this call, or ends before it begins.
    #[error("{operation} cannot be; correct whoever recorded it")]
    Misfit {
        /// The operation.
        operation: Box<Operation>,
    },
    /// An end without a begin.
    #[error("this recorder began no operation {index} that is open; end it where it began")]
    NotBegun {
        /// The place of the operation.
        index: usize,
    },
    /// The file cannot be read or written.
    #[error("cannot read or write the history; see the cause")]
    Io(#[from] std::io::Error),
    /// A line is not what this version writes.
    #[error("line {line} of the history is not readable; see the cause")]
    Line {
        /// The line, from 1.
        line: usize,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// The file is of another version.
    #[error("the history has version {version}; read it with the program that wrote it")]
    Version {
        /// Its version.
        version: u32,
    },
    /// A line has no end within its bound.
    #[error("line {line} of the history is longer than {bytes_max} bytes; it is no history")]
    LongLine {
        /// The line, from 1.
        line: usize,
        /// The bound.
        bytes_max: u64,
    },
}

impl Operation {
    /// What a register holds after this operation, if it held `held` before; `None` if the
    /// operation cannot have ended so, or (of unknown outcome) would have changed nothing.
    pub(super) fn after(&self, held: Option<Value>) -> Option<Option<Value>> {
        let is_held = held.is_some();
        match (self.call, self.outcome) {
            (Call::Put(value), Outcome::Done | Outcome::Unknown | Outcome::Maybe) => {
                (!is_held).then_some(Some(value))
            }
            (Call::Upsert(value), _) => Some(Some(value)),
            (Call::Remove, Outcome::Done | Outcome::Unknown) => is_held.then_some(None),
            (_, Outcome::AlreadyExists | Outcome::Present) => is_held.then_some(held),
            (_, Outcome::Missing) => (!is_held).then_some(None),
            (_, Outcome::Got(value)) => (held == Some(value)).then_some(held),
            _ => None,
        }
    }

    /// Whether nobody can tell if it took effect.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Unknown | Outcome::Maybe)
    }

    /// Whether it can take no effect after its end.
    pub(super) fn expires(&self) -> bool {
        self.outcome == Outcome::Maybe
    }

    /// Whether it changes nothing, whatever it was told.
    pub(super) fn only_looks(&self) -> bool {
        let told = matches!(
            self.outcome,
            Outcome::AlreadyExists | Outcome::Missing | Outcome::Garbled
        );
        told || matches!(self.call, Call::Get | Call::Exists)
    }

    /// Whether it says anything about the register at all.
    pub(super) fn matters(&self) -> bool {
        match self.outcome {
            Outcome::Failed => false,
            Outcome::Unknown | Outcome::Maybe => !self.only_looks(),
            _ => true,
        }
    }

    /// Whether the outcome is one of the call and the times are in order.
    pub(super) fn fits(&self) -> bool {
        let told = match self.outcome {
            Outcome::Done => matches!(self.call, Call::Put(_) | Call::Upsert(_) | Call::Remove),
            Outcome::AlreadyExists => matches!(self.call, Call::Put(_)),
            Outcome::Got(_) | Outcome::Garbled => self.call == Call::Get,
            Outcome::Missing => matches!(self.call, Call::Get | Call::Remove | Call::Exists),
            Outcome::Present => self.call == Call::Exists,
            Outcome::Failed | Outcome::Unknown => true,
            Outcome::Maybe => matches!(self.call, Call::Put(_) | Call::Upsert(_)),
        };
        let ends = self
            .ended_ns
            .map_or(self.outcome == Outcome::Unknown, |ended_ns| {
                ended_ns >= self.invoked_ns
            });
        told && ends
    }
}

impl History {
    /// A history of these operations, in any order.
    ///
    /// # Errors
    /// [`HistoryError::Misfit`].
    pub fn new(operations: Vec<Operation>) -> Result<Self, HistoryError> {
        match operations.iter().find(|one| !one.fits()) {
            Some(misfit) => Err(HistoryError::Misfit {
                operation: Box::new(misfit.clone()),
            }),
            None => Ok(Self { operations }),
        }
    }

    /// The operations, as they were given.
    #[must_use]
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The same operations, to be changed.
    #[must_use]
    pub fn into_operations(self) -> Vec<Operation> {
        self.operations
    }

    /// How many puts and upserts were acknowledged.
    #[must_use]
    pub fn acknowledged_writes(&self) -> usize {
        let is_write = |one: &&Operation| {
            one.outcome == Outcome::Done && matches!(one.call, Call::Put(_) | Call::Upsert(_))
        };
        self.operations.iter().filter(is_write).count()
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put(value) => write!(f, "put {value}"),
            Self::Upsert(value) => write!(f, "upsert {value}"),
            Self::Get => f.write_str("get"),
            Self::Remove => f.write_str("remove"),
            Self::Exists => f.write_str("exists"),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::AlreadyExists => f.write_str("already exists"),
            Self::Got(value) => write!(f, "{value}"),
            Self::Missing => f.write_str("missing"),
            Self::Present => f.write_str("present"),
            Self::Garbled => f.write_str("garbled"),
            Self::Failed => f.write_str("failed"),
            Self::Unknown => f.write_str("unknown"),
            Self::Maybe => f.write_str("maybe"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, key, .. } = self;
        write!(
            f,
            "client {client}: {} {key:?} -> {}",
            self.call, self.outcome
        )?;
        match self.ended_ns {
            Some(ended_ns) => write!(f, " [{}..{ended_ns} ns]", self.invoked_ns),
            None => write!(f, " [{} ns..]", self.invoked_ns),
        }
    }
}
