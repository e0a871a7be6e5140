//! The document of `GET /v1/agents`.

use larder_store::{Agent, Health, Segment, Slab};
use larder_types::{AgentId, Label};
use serde_json::{Value, json};

use super::Leading;
use crate::log::Log;
use crate::metrics::health_name;

impl<L: Log> Leading<L> {
    pub(super) fn agents(&self) -> Value {
        let agents = self.core.state.agents();
        let documents: Vec<Value> = agents.map(|(id, agent)| self.agent(id, agent)).collect();
        json!({ "agents": documents })
    }

    fn agent(&self, id: AgentId, agent: &Agent) -> Value {
        let core = &self.core;
        let segments = || {
            let ids = agent.segments().iter();
            ids.filter_map(|id| core.state.segment(*id))
        };
        let labels = agent.labels();
        let health = core.leader.health(id);
        json!({
            "name": agent.name().as_str(),
            "id": id.0,
            "uid": format!("{:032x}", agent.uid().0),
            "incarnation": format!("{:016x}", agent.incarnation().0),
            "health": health_name(health),
            "online": health == Health::Alive,
            "draining": agent.is_draining(),
            "labels": {
                "host": agent.host(),
                "rack": labels.rack.as_ref().map(Label::as_str),
                "zone": labels.zone.as_ref().map(Label::as_str),
                "numa": labels.numa,
            },
            "load_permille": core.leader.load_permille(id),
            "data_addr": self.agents.get(id).map(|entry| entry.data_addr.as_str()),
            "used_bytes": segments().map(used_bytes).fold(0, u64::saturating_add),
            "capacity_bytes": segments()
                .map(Segment::capacity_bytes)
                .fold(0, u64::saturating_add),
            "segments": segments().map(segment).collect::<Vec<_>>(),
        })
    }
}

fn segment(segment: &Segment) -> Value {
    json!({
        "segment": segment.id().0,
        "ordinal": segment.ordinal(),
        "numa": segment.numa(),
        "slab_bytes": segment.slab_bytes(),
        "slabs": segment.slab_count(),
        "free_slabs": segment.free_slabs(),
        "capacity_bytes": segment.capacity_bytes(),
    })
}

/// What objects, and extents that are being released, take of a segment, in bytes.
fn used_bytes(segment: &Segment) -> u64 {
    let used = |slab: &Slab| {
        let alloc = slab.alloc();
        alloc.size_bytes().saturating_sub(alloc.free_bytes())
    };
    segment.slabs().values().map(used).sum()
}
