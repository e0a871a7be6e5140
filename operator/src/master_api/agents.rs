//! Agents as a master shows them: what they hold, where they stand, how far they are emptied.

use serde::{Deserialize, Serialize};

/// One entry of `GET /v1/agents`, as far as the operator needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AgentDocument {
    /// The agent's name: that of its node.
    pub name: String,
    /// Its mounted segments; empty once the master has lost it.
    pub segments: Vec<SegmentDocument>,
    /// Whether it is to be emptied.
    #[serde(default)]
    pub draining: bool,
    /// Where it stands; `None` from a master that does not know labels.
    #[serde(default)]
    pub labels: Option<AgentLabels>,
}

/// Where an agent stands, and the body of the call that says so. What is absent is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLabels {
    /// The machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The rack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// The zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// `GET /v1/agents/{name}/drain`, as far as the operator needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct DrainDocument {
    /// `active`, `draining` or `drained`.
    pub state: String,
    /// Slabs that belong to a tenant.
    pub slabs_left: u64,
    /// Bytes in them.
    pub bytes_left: u64,
    /// Pieces of objects in them.
    #[serde(default)]
    pub extents_left: Option<u64>,
    /// Objects that those belong to, unless they are too many to be counted.
    #[serde(default)]
    pub objects_left: Option<u64>,
    /// What is in the way.
    #[serde(default)]
    pub blocked: Option<String>,
}

impl DrainDocument {
    /// What the list of agents says of a drain.
    #[must_use]
    pub fn of(agent: Option<&AgentDocument>) -> Self {
        let is_draining = agent.is_some_and(|agent| agent.draining);
        let segments = agent.into_iter().flat_map(|agent| &agent.segments);
        let held = segments.map(|one| one.slabs.saturating_sub(one.free_slabs));
        Self {
            state: if is_draining { "draining" } else { "active" }.to_owned(),
            slabs_left: held.fold(0, u64::saturating_add),
            bytes_left: agent.map_or(0, AgentDocument::held_bytes),
            ..Self::default()
        }
    }

    /// Whether nothing new is put there.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.state != "active"
    }
}

/// One segment of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SegmentDocument {
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// Slabs.
    pub slabs: u64,
    /// Slabs that no tenant has.
    pub free_slabs: u64,
}

impl AgentDocument {
    /// Bytes of slabs that some tenant holds. A slab goes back when its last object is gone, so
    /// 0 means that nothing is stored here.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        let held = |segment: &SegmentDocument| {
            segment
                .slabs
                .saturating_sub(segment.free_slabs)
                .saturating_mul(segment.slab_bytes)
        };
        self.segments.iter().map(held).fold(0, u64::saturating_add)
    }
}
