//! Ids: names that people chose and numbers that the leader gave out.

use std::fmt;
use std::sync::Arc;

/// Why a name was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdError {
    /// The name is empty or longer than `max_bytes`.
    Length {
        /// What kind of name it is.
        what: &'static str,
        /// The longest that is allowed, in bytes.
        max_bytes: usize,
    },
    /// The name holds a byte that is not allowed, or starts with one that is reserved.
    Character {
        /// What kind of name it is.
        what: &'static str,
    },
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { what, max_bytes } => {
                write!(f, "{what} must have 1 to {max_bytes} bytes")
            }
            Self::Character { what } => write!(
                f,
                "{what} may hold letters, digits, '.', '-' and '_' and must start with a letter or \
                 digit"
            ),
        }
    }
}

impl std::error::Error for IdError {}

fn checked(what: &'static str, text: &str, max_bytes: usize) -> Result<Arc<str>, IdError> {
    if text.is_empty() || text.len() > max_bytes {
        return Err(IdError::Length { what, max_bytes });
    }
    let first = text.as_bytes()[0].is_ascii_alphanumeric();
    let rest = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if first && rest {
        Ok(Arc::from(text))
    } else {
        Err(IdError::Character { what })
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
        pub struct $name(Arc<str>);

        impl $name {
            /// The longest name, in bytes.
            pub const MAX_BYTES: usize = $max;

            /// Checks and takes a name.
            ///
            /// # Errors
            /// [`IdError`] if it is empty, too long, or holds a byte outside `[A-Za-z0-9._-]`.
            pub fn new(text: &str) -> Result<Self, IdError> {
                checked($what, text, Self::MAX_BYTES).map(Self)
            }

            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

name!(
    /// Who owns objects: proven by a credential, never asserted.
    TenantId, "a tenant id", 128
);
name!(
    /// The name of an agent: its node's name in Kubernetes, `<pool>-<n>` under `larder up`.
    AgentName, "an agent's name", 253
);

name!(
    /// Objects of one tenant that are of use only together, such as the blocks of one prefix.
    GroupId, "a group id", 128
);

name!(
    /// Where an agent is, in one respect: the name of a host, rack or zone. As long as the value
    /// of a label in Kubernetes may be.
    Label, "a label", 63
);

name!(
    /// Limits that several tenants share. As long as the name of an object in Kubernetes may be.
    QuotaName, "the name of a quota", 253
);

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

number!(
    /// A known agent's number within one pool. Given by the leader at the first mount of a name
    /// and kept for that name, so that extents stay small.
    AgentId(u32)
);
number!(
    /// What tells two agents of one name apart: the uid of its pod, or a random number that
    /// stands in its state folder.
    AgentUid(u128)
);
number!(
    /// One life of one process. Random, never zero; names connections.
    Incarnation(u64)
);
number!(
    /// One life of the bytes of a segment; names replicas.
    SegmentGeneration(u64)
);
number!(
    /// A segment's number within one pool; given by the leader at mount and never used again.
    SegmentId(u32)
);
number!(
    /// One giving of one slab to one tenant. Counts up over the whole pool, so a slab that
    /// changes its tenant gets a number that no capability of its former life carries.
    Registration(u64)
);
number!(
    /// One connection's session at the master; not kept over a reconnect.
    SessionId(u64)
);
number!(
    /// One task that somebody asked for: a copy or a move of an object. Counts up over the pool.
    TaskId(u64)
);
