//! Making a pool again from what its agents hold, after its log was lost.
//!
//! Ops are decided only over a state in which everything before is applied: pages wait for each
//! other, so that none has to look through an overlay. What the leader otherwise knows beside the
//! state is made anew when the pool is whole.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{
    AgentId, Digest, Extent, Key, Memo, PoolTime, Reason, SegmentId, TenantId, Version,
};

use super::Leader;
use crate::decide::room::Room;
use crate::effects::Effects;
use crate::op::Op;
use crate::reply::{Refusal, WaitOn};
use crate::request::Request;
use crate::soft::Contact;
use crate::state::{Agent, State};

/// An agent that says nothing more for so long, in ms, is not waited for.
const STALL_MS: u64 = 5_000;
/// The most extents that one turn gives up.
const MAX_GIVEN_UP: usize = 1024;

/// Names a replica of several extents.
pub(crate) type StripeName = (TenantId, Key, Version, u32);

/// A replica of several extents of which not all are found.
#[derive(Clone, Debug)]
pub(crate) struct Stripe {
    pub(crate) parts: u16,
    pub(crate) size_bytes: u64,
    pub(crate) memo: Memo,
    /// By their position. At most as many as an answer to a put has room for.
    pub(crate) found: BTreeMap<u16, (Extent, Digest)>,
}

/// What is known while a pool is made again. Lost with the leader: agents tell the next one anew.
#[derive(Debug)]
pub(crate) struct Rebuild {
    since: PoolTime,
    wait_ms: u64,
    /// Agents that a former log knew and that were not heard yet.
    expected: BTreeSet<AgentId>,
    /// Whether nobody else is to come.
    knew_agents: bool,
    /// Agents that have not said everything, and when they last said something.
    pub(crate) reporting: BTreeMap<AgentId, PoolTime>,
    /// Numbers of segments with which agents came back.
    pub(crate) claimed: BTreeSet<SegmentId>,
    /// At most one for each extent of a replica of several that an agent holds.
    pub(crate) stripes: BTreeMap<StripeName, Stripe>,
}

impl Rebuild {
    pub(super) fn new(state: &State, wait_ms: u64, now: PoolTime) -> Self {
        let expected: BTreeSet<AgentId> = state.agents().map(|(id, _)| id).collect();
        Self {
            since: now,
            wait_ms,
            knew_agents: state.knows_agents,
            expected,
            reporting: BTreeMap::new(),
            claimed: BTreeSet::new(),
            stripes: BTreeMap::new(),
        }
    }

    /// An agent begins to tell what it holds.
    pub(crate) fn begins(&mut self, agent: AgentId, segments: &[SegmentId], now: PoolTime) {
        self.reporting.insert(agent, now);
        self.claimed.extend(segments);
    }

    /// An agent has nothing, or nothing more to tell.
    pub(crate) fn is_heard(&mut self, agent: AgentId) {
        self.expected.remove(&agent);
        self.reporting.remove(&agent);
    }

    fn is_over(&self, now: PoolTime) -> bool {
        let tells = |last: &PoolTime| now.since_ms(*last) < STALL_MS;
        let all = self.knew_agents && self.expected.is_empty() && self.reporting.is_empty();
        all || (now.since_ms(self.since) >= self.wait_ms && !self.reporting.values().any(tells))
    }
}

/// Whether a request has to wait until everything is found.
pub(crate) const fn waits(request: &Request) -> bool {
    !matches!(
        request,
        Request::Mount { .. }
            | Request::Inventory { .. }
            | Request::Unmount { .. }
            | Request::Heartbeat { .. }
            | Request::AgentGone { .. }
            | Request::SlabReady { .. }
            | Request::SlabReturned { .. }
            | Request::SlabFailed { .. }
            | Request::Released { .. }
            | Request::TenantSet { .. }
            | Request::TenantDelete { .. }
            | Request::QuotaSet { .. }
            | Request::QuotaDelete { .. }
            | Request::SessionClosed { .. }
            | Request::CopyFailed { .. }
            | Request::Drain { .. }
            | Request::LabelsSet { .. }
    )
}

/// Whether the answer may be that something is not there.
pub(crate) const fn is_told_what_is_missing(request: &Request) -> bool {
    matches!(
        request,
        Request::Get { .. }
            | Request::Exists { .. }
            | Request::Remove { .. }
            | Request::RemovePrefix { .. }
            | Request::List { .. }
            | Request::ListStats { .. }
            | Request::Stat { .. }
            | Request::PinSet { .. }
    )
}

/// What such a request hears.
pub(crate) fn not_yet() -> Refusal {
    let detail = "the pool waits for its agents, to hear what they hold";
    Refusal::new(Reason::Starting, detail)
}

impl Leader {
    /// While the pool is made again, how many agents have told everything that they hold.
    #[must_use]
    pub fn agents_told(&self, state: &State) -> Option<usize> {
        let rebuild = self.rebuild.as_deref()?;
        let has_told = |(id, agent): &(AgentId, &Agent)| {
            !agent.segments().is_empty() && !rebuild.reporting.contains_key(id)
        };
        Some(state.agents().filter(has_told).count())
    }

    /// What [`Leader::tick`] does meanwhile: nothing but to look whether all is found.
    pub(crate) fn rebuild_tick(&mut self, state: &State, now: PoolTime) -> Vec<Op> {
        let mut ops = self.lost_agents(state, now);
        let is_over = |rebuild: &Rebuild| rebuild.is_over(now);
        if !self.rebuild.as_deref().is_some_and(is_over)
            || self.overlay.in_flight > 0
            || !ops.is_empty()
        {
            self.touch(state, &ops);
            return ops;
        }
        ops = self.give_up(state);
        if ops.is_empty() {
            // Who has not said everything starts from nothing, as does who comes later.
            let stalled: Vec<AgentId> = self
                .rebuild
                .iter()
                .flat_map(|rebuild| rebuild.reporting.keys().copied())
                .collect();
            for agent in stalled {
                ops.extend(self.lost_segments(state, agent));
            }
            ops.push(Op::PoolRebuilt);
        }
        self.touch(state, &ops);
        ops
    }

    /// Extents of replicas that will not become whole: their agents are to erase them.
    fn give_up(&mut self, state: &State) -> Vec<Op> {
        let mut ops = Vec::new();
        let Some(rebuild) = self.rebuild.as_deref_mut() else {
            return ops;
        };
        let mut room = Room::new(state);
        while ops.len() < MAX_GIVEN_UP
            && let Some(((_, _, version, _), stripe)) = rebuild.stripes.pop_first()
        {
            let left = stripe.found.into_values().map(|(extent, _)| extent);
            // A segment may have been lost meanwhile, and what came later may have the place.
            let left = left.filter(|extent| room.reserve(extent));
            ops.extend(left.map(|extent| Op::ExtentFound { extent, version }));
        }
        ops
    }

    /// As [`Leader::committed`] while the pool is made again.
    pub(super) fn committed_rebuilding(
        &mut self,
        state: &mut State,
        op: &Op,
        now: PoolTime,
    ) -> Effects {
        let lost_agent = match op {
            Op::SegmentLost { segment, .. } => state.segment(*segment).map(|lost| lost.agent),
            _ => None,
        };
        let mut effects = crate::apply(state, op);
        self.overlay.settle(op, lost_agent);
        match op {
            Op::AgentMounted {
                agent, incarnation, ..
            } => {
                let contact = Contact::mounted(*incarnation, true, now);
                self.soft.contacts.insert(*agent, contact);
            }
            // Writes of former epochs are over when its first heartbeat says so.
            Op::AgentAdopted {
                agent, incarnation, ..
            } => {
                let contact = Contact::mounted(*incarnation, false, now);
                self.soft.contacts.insert(*agent, contact);
            }
            Op::SegmentLost { segment, .. } => self.forget_segment(state, *segment, lost_agent),
            Op::PoolRebuilt => self.rebuilt(state, now),
            _ => {}
        }
        if self.overlay.in_flight == 0 {
            effects.wake(WaitOn::Inventory);
        }
        effects.append(self.take_effects());
        effects
    }

    /// Looks at the whole state as a new leader does. Agents stay known, and so do ops that were
    /// decided since.
    fn rebuilt(&mut self, state: &State, now: PoolTime) {
        let fresh = Self::new(state, self.epoch, self.settings.clone(), now);
        let former = std::mem::replace(self, fresh);
        let Self {
            overlay,
            soft,
            effects,
            committed_index,
            next_counter,
            proposed,
            ..
        } = former;
        for segment in &overlay.segments_lost {
            self.space.loses(*segment);
        }
        self.overlay = overlay;
        self.soft.contacts.extend(soft.contacts);
        self.effects = effects;
        self.committed_index = committed_index;
        self.next_counter = next_counter;
        self.proposed = proposed;
    }
}
