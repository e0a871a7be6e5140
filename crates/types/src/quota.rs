//! How a tenant is held to its quota.

use crate::code::Reason;

/// Whether memory beyond a guarantee may be used while nobody needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Borrowing {
    /// Up to the limit, of what other tenants' unused guarantees leave.
    #[default]
    Allowed,
    /// Not at all: the guarantee is the limit.
    Forbidden,
}

/// What a put beyond the quota does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum OnExceed {
    /// The tenant's own coldest objects go first; it is refused when that does not help.
    #[default]
    EvictOwn,
    /// It is refused.
    Refuse,
}

/// What bounds a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum BoundKind {
    /// Its own limit of bytes.
    Bytes,
    /// Its own limit of objects.
    Objects,
    /// The limit of bytes that it shares with its cohort.
    CohortBytes,
    /// The limit of objects that it shares with its cohort.
    CohortObjects,
    /// Its guarantee, and idle memory that is not kept for the guarantees of others.
    Memory,
}

impl BoundKind {
    /// Whether it counts objects, not bytes.
    #[must_use]
    pub const fn counts_objects(self) -> bool {
        matches!(self, Self::Objects | Self::CohortObjects)
    }

    /// Why a put beyond it is refused.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Bytes | Self::CohortBytes => Reason::QuotaBytes,
            Self::Objects | Self::CohortObjects => Reason::QuotaObjects,
            Self::Memory => Reason::QuotaBorrow,
        }
    }
}
