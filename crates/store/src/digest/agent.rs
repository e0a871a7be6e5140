//! The hash of an agent.

use larder_types::{AgentId, AgentName, Label, Labels};

use super::{Hash, Kind};
use crate::state::Agent;

pub(crate) fn of_agent(id: AgentId, agent: &Agent) -> u64 {
    let Agent {
        name,
        uid,
        incarnation,
        segments,
        draining,
        said,
        set,
    } = agent;
    let [high, low] = [(uid.0 >> 64) as u64, uid.0 as u64];
    let hash = Hash::new(Kind::Agent)
        .bytes(AgentName::as_str(name).as_bytes())
        .words([
            u64::from(id.0),
            high,
            low,
            incarnation.0,
            u64::from(*draining),
            segments.len() as u64,
        ]);
    let hash = segments
        .iter()
        .fold(hash, |hash, segment| hash.word(u64::from(segment.0)));
    hash.labels(said).labels(set).end()
}

impl Hash {
    fn labels(self, labels: &Labels) -> Self {
        let Labels {
            host,
            rack,
            zone,
            numa,
        } = labels;
        let hash = [host, rack, zone].into_iter().fold(self, |hash, label| {
            let text = label.as_ref().map_or("", Label::as_str);
            hash.bytes(text.as_bytes())
        });
        hash.option(numa.map(u64::from))
    }
}
