//! How an endpoint behaves, and how a transfer is asked for.

use larder_types::{Incarnation, TenantId};
use tokio::time::Instant;

use super::trust::Trust;
use crate::engine::class::Class;
use crate::engine::core::CoreLimits;
use crate::engine::queue::QueueLimits;

/// How an endpoint behaves.
#[derive(Clone, Debug)]
pub struct EndpointOptions {
    /// For people and logs; proves nothing.
    pub name: String,
    /// This process: another number each time that it starts.
    pub incarnation: Incarnation,
    /// What this process shows to peers.
    pub credential: Vec<u8>,
    /// Whose peers are served here.
    pub trust: Trust,
    /// Connections to each peer over which its transfers are spread; at least 1.
    pub lanes: usize,
    /// The most connections of peers that are served.
    pub connections_max: usize,
    /// How long connecting may take, in ms.
    pub connect_timeout_ms: u64,
    /// A connection with something under way on which nothing moves for so long is given up, and
    /// its slices go another way, in ms.
    pub stall_ms: u64,
    /// The most notices that wait here.
    pub notices_max: usize,
    /// What is held at most.
    pub limits: CoreLimits,
    /// How much the kernel takes of what a peer does not read, in bytes. Tests only: its own
    /// choice is best.
    #[cfg(test)]
    pub(super) send_buffer_bytes: Option<usize>,
}

impl EndpointOptions {
    /// Options for peers of one tenant that share a secret.
    #[must_use]
    pub fn new(name: &str, incarnation: Incarnation, tenant: TenantId, secret: Vec<u8>) -> Self {
        Self {
            name: name.to_owned(),
            incarnation,
            credential: secret.clone(),
            trust: Trust::shared_secret(tenant, secret),
            lanes: 4,
            connections_max: 1_024,
            connect_timeout_ms: 2_000,
            stall_ms: 2_000,
            notices_max: 1_024,
            limits: CoreLimits {
                buffers: 1 << 20,
                peer_buffers: 1 << 20,
                requests: 16_384,
                transfers: 16_384,
                queue: QueueLimits {
                    entries: 16_384,
                    bytes: 1 << 40,
                    tenant_entries: 16_384,
                },
            },
            #[cfg(test)]
            send_buffer_bytes: None,
        }
    }
}

/// How a transfer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its class of service.
    pub class: Class,
    /// Whose it is, as the owner of the endpoint numbers tenants.
    pub tenant: u32,
    /// When the caller gives up.
    pub deadline: Instant,
}

impl Asked {
    /// In the foreground, until then.
    #[must_use]
    pub const fn by(deadline: Instant) -> Self {
        Self {
            class: Class::Foreground,
            tenant: 0,
            deadline,
        }
    }
}
