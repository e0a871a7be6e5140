//! Deciding whether an agent that outlived the log comes back with what it holds.

use std::collections::BTreeSet;

use larder_types::{AgentId, AgentName, AgentUid, Incarnation, Labels, PoolTime, SegmentId};

use super::mount::numbered_as;
use crate::leader::Leader;
use crate::op::Op;
use crate::reply::{Decision, Reply};
use crate::request::SegmentOffer;
use crate::state::State;

impl Leader {
    /// Whether an agent that says it has this number cannot have it from the log that made this
    /// state. One that was forgotten has: its number is not given again.
    #[must_use]
    pub fn is_of_another_log(&self, state: &State, name: &AgentName, agent: AgentId) -> bool {
        let is_given = agent.0 < state.next.agent && state.agent(agent).is_none();
        state.agent_named(name).is_none() && !is_given
    }

    /// Whether an agent that outlived the log can have the numbers again that it had.
    pub(super) fn may_adopt(
        &self,
        state: &State,
        known: Option<AgentId>,
        (agent, name): (AgentId, &AgentName),
        segments: &[SegmentId],
        offers: &[SegmentOffer],
    ) -> bool {
        let Some(rebuild) = &self.rebuild else {
            return false;
        };
        let is_free = |id: &SegmentId| {
            state.segment(*id).is_none()
                && !state.lost.contains_key(id)
                && !rebuild.claimed.contains(id)
        };
        let own = state.agent(agent);
        let names = state.agents.len() + self.overlay.names.len();
        (own.is_some() || names < self.settings.max_agents)
            && known.is_none_or(|known| known == agent)
            && !self.overlay.agents.contains_key(&agent)
            && own.is_none_or(|own| own.name == *name && own.segments.is_empty())
            && segments.len() == offers.len()
            && segments.iter().collect::<BTreeSet<_>>().len() == segments.len()
            && segments.iter().all(is_free)
    }

    pub(super) fn adopt(
        &mut self,
        agent: AgentId,
        (name, uid, incarnation, labels): (&AgentName, AgentUid, Incarnation, &Labels),
        segments: &[SegmentId],
        offers: &[SegmentOffer],
        now: PoolTime,
    ) -> Decision {
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.begins(agent, segments, now);
        }
        let numbered = segments.iter().zip(offers);
        let op = Op::AgentAdopted {
            agent,
            name: name.clone(),
            uid,
            incarnation,
            segments: numbered
                .map(|(id, offer)| numbered_as(*id, offer))
                .collect(),
            labels: labels.clone(),
        };
        let reply = Reply::Mounted {
            agent,
            segments: segments.to_vec(),
            outstanding: Vec::new(),
            wants_inventory: true,
        };
        self.answer_with(vec![op], reply)
    }
}
