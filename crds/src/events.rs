//! Cache events of a pool, and the ZMQ endpoints that publish them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// Most endpoints; must equal the limit of the master.
pub(crate) const MAX_ENDPOINTS: usize = 64;
/// Ports of a master that are taken: its clients' and its administration's.
pub(crate) const MASTER_PORTS: [u16; 2] = [7400, 7401];
/// Ports that a process without privileges may open.
pub(crate) const MIN_PORT: u16 = 1024;
/// Most messages for a subscriber, and most batches that can be repeated.
pub(crate) const MAX_MESSAGES: u32 = 100_000;
/// Least and most events that are kept.
pub(crate) const CAPACITY: [u32; 2] = [8_192, 1 << 24];
/// About 500 bytes for each event of the default capacity.
const DEFAULT_MAX_BYTES: &str = "32Mi";

// Of the ports of all endpoints: a PUB socket and a ROUTER socket cannot share one, and neither
// can two of a kind.
/// What is kept of cache events, and who is told. Absent means that there are none.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Events {
    /// Most events that are kept for subscribers who come late, of all tenants together.
    #[serde(default = "capacity")]
    #[schemars(range(min = 8192, max = 16_777_216))]
    pub capacity: u32,
    /// Most memory of a master for them, keys included.
    #[serde(default = "max_bytes")]
    #[x_kube(validation = Rule::new("quantity(self).compareTo(quantity('1Mi')) >= 0")
        .message("must be at least 1Mi"))]
    pub max_bytes: Quantity,
    /// Endpoints on which the events of a tenant are published in vLLM's KV-event schema. ZMQ asks
    /// nobody for a credential: whoever reaches the port reads hashes of the tenant's keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_ENDPOINTS))]
    #[x_kube(
        validation = Rule::new(
            "self.all(e, self.exists_one(f, f.port == e.port) && \
             !self.exists(f, has(f.replayPort) && f.replayPort == e.port))"
        )
        .message("must give each socket a port of its own, port and replayPort alike"),
        validation = Rule::new(
            "self.all(e, !has(e.replayPort) || \
             self.exists_one(f, has(f.replayPort) && f.replayPort == e.replayPort))"
        )
        .message("must give each replayPort to one endpoint only")
    )]
    pub zmq: Vec<ZmqEndpoint>,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            capacity: capacity(),
            max_bytes: max_bytes(),
            zmq: Vec::new(),
        }
    }
}

/// One endpoint, for one tenant, on the master that leads.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.port != 7400 && self.port != 7401")
        .message("must not be 7400 or 7401, where masters serve clients and administration")
        .field_path(".port"),
    validation = Rule::new(
        "!has(self.replayPort) || (self.replayPort != 7400 && self.replayPort != 7401)"
    )
    .message("must not be one of the masters' own ports, 7400 and 7401")
    .field_path(".replayPort")
)]
pub struct ZmqEndpoint {
    /// Id of the tenant whose events are published, as in its spec.tenantId. One that does not
    /// exist yet is published once it does.
    #[schemars(
        regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"),
        length(min = 1, max = 128)
    )]
    pub tenant: String,
    /// Port of the PUB socket, on the master's pod and its Service.
    #[schemars(range(min = MIN_PORT))]
    pub port: u16,
    /// Port of the ROUTER socket that repeats batches. Absent means that none are repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = MIN_PORT))]
    pub replay_port: Option<u16>,
    /// First frame of each message, which subscribers select by. Absent means the tenant's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[ -~]*$"), length(max = 255))]
    pub topic: Option<String>,
    /// How an event stands in a message.
    #[serde(default)]
    pub schema: ZmqSchema,
    /// What subscribers are told about where the blocks are.
    #[serde(default = "medium")]
    #[schemars(regex(pattern = "^[ -~]+$"), length(min = 1, max = 64))]
    pub medium: String,
    /// Most messages that wait for one subscriber; what comes on top it misses.
    #[serde(default = "high_water")]
    #[schemars(range(min = 1, max = MAX_MESSAGES))]
    pub high_water: u32,
    /// Most batches that can be repeated.
    #[serde(default = "replay_batches")]
    #[schemars(range(min = 1, max = MAX_MESSAGES))]
    pub replay_batches: u32,
}

/// How an event stands in a message on ZMQ.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZmqSchema {
    /// An array, as vLLM sent it until mid 2026; every router reads it.
    #[default]
    Array,
    /// A map, as vLLM sends it since.
    Map,
}

const fn capacity() -> u32 {
    65_536
}

fn max_bytes() -> Quantity {
    Quantity::new(DEFAULT_MAX_BYTES)
}

fn medium() -> String {
    "EXTERNAL".to_owned()
}

const fn high_water() -> u32 {
    1_000
}

const fn replay_batches() -> u32 {
    10_000
}
