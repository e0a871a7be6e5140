//! The hello: who speaks, which protocol, and the session that comes of it.

use larder_types::{Epoch, Incarnation, PoolTime, Principal, SessionId};
use serde::{Deserialize, Serialize};

/// What the speaker wants of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// Calls of a client, to a master or to an agent.
    Client,
    /// An agent's control connection to a master.
    Agent,
}

/// The first frame of every connection, on every listener.
#[derive(Clone, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest protocol that the speaker can do.
    pub protocol_min: u16,
    /// The newest protocol that the speaker can do.
    pub protocol_max: u16,
    /// Optional features, one bit each; none are given out yet.
    pub features: u64,
    /// To a master: token or ServiceAccount token. To an agent: the session token that a master
    /// issued ([`crate::SessionToken`]).
    pub credential: Vec<u8>,
    /// What the speaker wants.
    pub purpose: Purpose,
    /// For logs; proves nothing.
    pub name: String,
    /// The speaker's process.
    pub incarnation: Incarnation,
}

/// A hello's credential is a secret: it never shows in logs.
impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello")
            .field("protocol", &(self.protocol_min..=self.protocol_max))
            .field("purpose", &self.purpose)
            .field("name", &self.name)
            .field("incarnation", &self.incarnation)
            .finish_non_exhaustive()
    }
}

/// The hello was accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The protocol that both will speak.
    pub protocol: u16,
    /// Features that both can do.
    pub features: u64,
    /// The session of this connection.
    pub session: SessionId,
    /// What the credential proved.
    pub principal: Principal,
    /// The listener's process.
    pub incarnation: Incarnation,
    /// The highest epoch that the listener knows.
    pub epoch: Epoch,
    /// Pool time at the listener.
    pub pool_time: PoolTime,
    /// From a master to a client: what agents want to see. Empty from agents.
    pub session_token: Vec<u8>,
    /// How long the session token lasts, in ms.
    pub session_token_ms: u64,
    /// The listener's own name, of at most [`crate::limit::MAX_NAME_BYTES`]: for people, and to
    /// recognise this node's agent. Proves nothing.
    pub name: String,
}

/// Why a hello, or a connection, was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RefusedReason {
    /// No protocol in common.
    Protocol,
    /// The credential proves nothing here.
    Credential,
    /// The session token is too old; ask a master for a new one.
    Expired,
    /// The principal may not do that on this listener.
    Role,
    /// A frame broke the rules; see the detail.
    Frame,
    /// Too many connections.
    Busy,
    /// The listener is stopping.
    Stopping,
}

impl RefusedReason {
    /// The name as a metric label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Protocol => "protocol",
            Self::Credential => "credential",
            Self::Expired => "expired",
            Self::Role => "role",
            Self::Frame => "frame",
            Self::Busy => "busy",
            Self::Stopping => "stopping",
        }
    }
}

/// The listener is about to close the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("refused ({}): {detail}", .reason.label())]
pub struct Refused {
    /// Why.
    pub reason: RefusedReason,
    /// One sentence for people, without secrets.
    pub detail: String,
}
