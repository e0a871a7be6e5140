//! The hello: who speaks, which protocol, and the session that comes of it.

use larder_types::{Epoch, Incarnation, PoolTime, Principal, SessionId};
use serde::{Deserialize, Serialize};

use crate::limit::MAX_ADDR_BYTES;

/// What the speaker wants of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Purpose {
    /// Calls of a client, to a master or to an agent.
    Client,
    /// An agent's control connection to a master.
    Agent,
    /// A master's connection to another master of its pool.
    Master,
    /// An engine that reads and writes another engine's buffers.
    Engine,
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
    /// The master follows another one, or none is chosen; see [`Refused::leader_addr`].
    NotLeader,
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
            Self::NotLeader => "not_leader",
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
    /// With [`RefusedReason::NotLeader`]: `host:port` where the leader serves clients and agents,
    /// if the listener knows it, of at most [`MAX_ADDR_BYTES`]. `None` with every other reason.
    /// It is a hint and proves nothing: no credential goes to an address on its word alone.
    pub leader_addr: Option<String>,
}

impl Refused {
    /// A refusal that names no leader.
    pub fn new(reason: RefusedReason, detail: impl Into<String>) -> Self {
        Self {
            reason,
            detail: detail.into(),
            leader_addr: None,
        }
    }

    /// The listener is a master that does not lead. A longer `leader_addr` than
    /// [`MAX_ADDR_BYTES`] is left out.
    pub fn not_leader(leader_addr: Option<String>) -> Self {
        let detail = match &leader_addr {
            Some(addr) => format!("another master leads, at {addr}"),
            None => "this master does not lead, and knows of none that does".to_owned(),
        };
        Self {
            leader_addr: leader_addr.filter(|addr| addr.len() <= MAX_ADDR_BYTES),
            ..Self::new(RefusedReason::NotLeader, detail)
        }
    }

    /// The hint, if this refusal may carry one and it keeps to its bound. A receiver uses this
    /// and not the field.
    #[must_use]
    pub fn leader_hint(&self) -> Option<&str> {
        let hint = self.leader_addr.as_deref()?;
        (self.reason == RefusedReason::NotLeader && hint.len() <= MAX_ADDR_BYTES).then_some(hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_master_that_does_not_lead_gives_a_hint_and_a_short_one() {
        let hinted = Refused::not_leader(Some("m-1:7400".to_owned()));
        assert_eq!(hinted.leader_hint(), Some("m-1:7400"));
        assert!(hinted.to_string().contains("m-1:7400"));
        assert_eq!(Refused::not_leader(None).leader_hint(), None);
        let long = "x".repeat(MAX_ADDR_BYTES + 1);
        assert_eq!(Refused::not_leader(Some(long.clone())).leader_addr, None);
        for (reason, leader_addr) in [
            (RefusedReason::NotLeader, long),
            (RefusedReason::Busy, "m-1:7400".to_owned()),
        ] {
            let refused = Refused {
                leader_addr: Some(leader_addr),
                ..Refused::new(reason, "")
            };
            assert_eq!(refused.leader_hint(), None, "{reason:?}");
        }
    }
}
