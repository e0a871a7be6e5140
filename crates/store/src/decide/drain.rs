//! Deciding what administrators say of agents: whether one is to be emptied, and where it is.

use larder_types::{AgentId, Labels, Reason};

use super::{Outcome, Stop, refuse};
use crate::leader::Leader;
use crate::op::Op;
use crate::reply::{Reply, WaitOn};
use crate::state::State;

impl Leader {
    /// Answers when it is noted; [`Leader::drain_status`] says how far it is.
    pub(super) fn drain(&mut self, state: &State, agent: AgentId, on: bool) -> Outcome {
        if self.overlay.agents.contains_key(&agent) {
            return Err(Stop::Wait(WaitOn::Agent(agent)));
        }
        let Some(known) = state.agent(agent) else {
            return refuse(Reason::AgentUnknown, format!("agent {agent}"));
        };
        if known.draining == on {
            return Ok(self.answer(Reply::Done));
        }
        let op = Op::AgentDrain {
            agent,
            draining: on,
        };
        Ok(self.answer_with(vec![op], Reply::Done))
    }

    /// Answers when it is noted. One such op at a time: what it changes is seen in the state.
    pub(super) fn labels_set(&mut self, state: &State, agent: AgentId, labels: &Labels) -> Outcome {
        let overlay = &self.overlay;
        if overlay.agents.contains_key(&agent) || overlay.labelled.contains(&agent) {
            return Err(Stop::Wait(WaitOn::Agent(agent)));
        }
        let Some(known) = state.agent(agent) else {
            return refuse(Reason::AgentUnknown, format!("agent {agent}"));
        };
        if known.set == *labels {
            return Ok(self.answer(Reply::Done));
        }
        let labels = labels.clone();
        Ok(self.answer_with(vec![Op::AgentLabels { agent, labels }], Reply::Done))
    }
}
