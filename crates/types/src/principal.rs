//! Principals: what a credential proves.

use std::fmt;

use crate::id::{AgentName, TenantId};

/// What a tenant may do with its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Access {
    /// Put, get and remove.
    #[default]
    ReadWrite,
    /// Get only.
    ReadOnly,
    /// Put and remove only.
    WriteOnly,
}

impl Access {
    /// Whether it allows gets.
    #[must_use]
    pub const fn reads(self) -> bool {
        !matches!(self, Self::WriteOnly)
    }

    /// Whether it allows puts and removes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::ReadOnly)
    }
}

/// Who speaks on a connection, as its credential proved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Principal {
    /// An engine: sees and changes this tenant's objects only.
    Tenant(TenantId),
    /// The agent of this name.
    Agent(AgentName),
    /// Another master of the pool.
    Master,
    /// The operator: tenants, limits, nodes.
    Operator,
    /// A person with administrator's rights.
    Admin,
}

/// A principal without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Role {
    /// See [`Principal::Tenant`].
    Tenant,
    /// See [`Principal::Agent`].
    Agent,
    /// See [`Principal::Master`].
    Master,
    /// See [`Principal::Operator`].
    Operator,
    /// See [`Principal::Admin`].
    Admin,
}

impl Principal {
    /// The role of this principal.
    #[must_use]
    pub const fn role(&self) -> Role {
        match self {
            Self::Tenant(_) => Role::Tenant,
            Self::Agent(_) => Role::Agent,
            Self::Master => Role::Master,
            Self::Operator => Role::Operator,
            Self::Admin => Role::Admin,
        }
    }

    /// The tenant, where it is one.
    #[must_use]
    pub const fn tenant(&self) -> Option<&TenantId> {
        match self {
            Self::Tenant(tenant) => Some(tenant),
            _ => None,
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tenant(tenant) => write!(f, "tenant {tenant}"),
            Self::Agent(agent) => write!(f, "agent {agent}"),
            Self::Master => f.write_str("master"),
            Self::Operator => f.write_str("operator"),
            Self::Admin => f.write_str("admin"),
        }
    }
}
