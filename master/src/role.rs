//! What a master does at the moment.

use larder_types::Reason;

/// What this master does at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is not yet able to serve.
    Starting,
    /// It follows another master and applies what that one commits.
    Standby,
    /// It serves.
    Leading,
    /// It serves no longer.
    Stopping,
}

impl Role {
    /// The name, as it stands in documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Standby => "standby",
            Self::Leading => "leader",
            Self::Stopping => "stopping",
        }
    }

    /// What a caller hears that needs a leader.
    pub(crate) const fn refusal(self) -> Reason {
        match self {
            Self::Standby => Reason::NotLeader,
            Self::Starting | Self::Leading | Self::Stopping => Reason::Starting,
        }
    }
}
