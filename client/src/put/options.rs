//! What a put may say of its object besides the bytes, and what it hears.

use larder_types::{AgentName, Attributes};
use larder_wire::master::PutMode;

use crate::ObjectInfo;

/// What a put says besides key and bytes. The default creates an object as the pool and the
/// client say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutOptions {
    /// What to do with a key that holds an object.
    pub mode: PutMode,
    /// How many replicas; `None` = as the client or else the pool says.
    pub replicas: Option<u8>,
    /// Fail if there cannot be that many, instead of making fewer.
    pub strict: bool,
    /// Agents that should hold replicas, best first; without any, the agent on this node.
    pub preferred: Vec<AgentName>,
    /// Its pin, group and data type.
    pub attributes: Attributes,
}

impl PutOptions {
    /// Options of a put that replaces what the key holds.
    #[must_use]
    pub fn upsert() -> Self {
        Self {
            mode: PutMode::Upsert { if_unleased: false },
            ..Self::default()
        }
    }
}

/// What came of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutInfo {
    /// The object.
    pub object: ObjectInfo,
    /// How many replicas were written.
    pub replicas: u8,
    /// How many were asked for. The pool makes the others when it can.
    pub wanted: u8,
    /// Some of the agents that were preferred, and could have had a replica each, got none.
    pub preference_ignored: bool,
}
