//! Deciding what concerns agents: mount, unmount, heartbeat, connection closed.

use larder_types::{
    AgentId, AgentName, AgentUid, Incarnation, Labels, PoolTime, Reason, SegmentId, layout,
};

use super::{Outcome, Stop, refuse};
use crate::leader::Leader;
use crate::op::{MountedSegment, Op};
use crate::reply::{Decision, Reply, WaitOn};
use crate::request::{MAX_SEGMENTS, Request, SegmentOffer};
use crate::soft::Contact;
use crate::state::{Agent, State};

impl Leader {
    pub(super) fn mount(&mut self, state: &State, request: &Request, now: PoolTime) -> Outcome {
        let Request::Mount {
            name,
            uid,
            incarnation,
            segments: offers,
            highest_epoch,
            labels,
            kept,
        } = request
        else {
            return refuse(Reason::Internal, "not a mount");
        };
        if *highest_epoch > self.epoch {
            let detail = format!(
                "the agent saw epoch {highest_epoch}, this is {}",
                self.epoch
            );
            return refuse(Reason::StaleEpoch, detail);
        }
        validate(state, offers)?;
        let known = state
            .agent_named(name)
            .or_else(|| self.overlay.names.get(name).copied());
        if let Some(id) = known {
            if self.overlay.agents.contains_key(&id) {
                return Err(Stop::Wait(WaitOn::Agent(id)));
            }
            if let Some(agent) = state.agent(id) {
                self.refuse_double(id, agent, *uid, now)?;
                if is_same(state, agent, (*uid, *incarnation), offers) {
                    let acknowledged = *highest_epoch == self.epoch;
                    return Ok(self.reattach(state, (id, agent), acknowledged, now));
                }
            }
        }
        let who = (name, *uid, *incarnation, labels);
        if let Some((agent, segments)) = kept
            && self.may_adopt(state, known, (*agent, name), segments, offers)
        {
            return Ok(self.adopt(*agent, who, segments, offers, now));
        }
        let mounted = self.mount_anew(state, known, who, offers)?;
        if let (Some(rebuild), Some(id)) = (&mut self.rebuild, known) {
            // It holds nothing that anybody could find.
            rebuild.is_heard(id);
        }
        Ok(mounted)
    }

    /// Two live agents of one name would take each other's segments away in turn.
    fn refuse_double(
        &self,
        id: AgentId,
        agent: &Agent,
        uid: AgentUid,
        now: PoolTime,
    ) -> Result<(), Stop> {
        let ttl_ms = self.settings.agent_ttl_ms;
        let silent_ms = self
            .soft
            .contacts
            .get(&id)
            .map(|c| now.since_ms(c.last_heard));
        match silent_ms {
            Some(silent_ms) if agent.uid != uid && silent_ms < ttl_ms => refuse(
                Reason::BadArgument,
                format!(
                    "an agent of the name {} with another uid was heard {silent_ms} ms ago; stop \
                     it, or try again when it was silent for {ttl_ms} ms",
                    agent.name
                ),
            ),
            _ => Ok(()),
        }
    }

    /// The same process offers the same bytes again: nothing is lost.
    fn reattach(
        &mut self,
        state: &State,
        (id, agent): (AgentId, &Agent),
        acknowledged: bool,
        now: PoolTime,
    ) -> Decision {
        let contact = Contact::mounted(agent.incarnation, acknowledged, now);
        self.soft.contacts.insert(id, contact);
        self.effects.wake(WaitOn::Space);
        self.agent_answers();
        let outstanding = self.outstanding(state, id);
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.begins(id, &agent.segments, now);
        }
        self.answer(Reply::Mounted {
            agent: id,
            segments: agent.segments.clone(),
            outstanding,
            wants_inventory: self.rebuild.is_some(),
        })
    }

    /// Whatever the name offered before is lost before the new segments are mounted.
    fn mount_anew(
        &mut self,
        state: &State,
        known: Option<AgentId>,
        (name, uid, incarnation, labels): (&AgentName, AgentUid, Incarnation, &Labels),
        offers: &[SegmentOffer],
    ) -> Outcome {
        let mut ops = Vec::new();
        let agent = match known {
            Some(id) => {
                ops.extend(self.lost_segments(state, id));
                id
            }
            None => {
                ops.extend(self.room_for_a_name(state)?);
                let id = AgentId(self.overlay.next.agent);
                self.overlay.next.agent = id.0.saturating_add(1);
                id
            }
        };
        let mut segments = Vec::new();
        for offer in offers {
            let id = SegmentId(self.overlay.next.segment);
            self.overlay.next.segment = id.0.saturating_add(1);
            segments.push(numbered_as(id, offer));
        }
        let ids = segments.iter().map(|segment| segment.id).collect();
        ops.push(Op::AgentMounted {
            agent,
            name: name.clone(),
            uid,
            incarnation,
            segments,
            labels: labels.clone(),
        });
        let outstanding = self.outstanding(state, agent);
        let tenants_only = outstanding
            .into_iter()
            .filter(|command| matches!(command, crate::effects::Command::TenantGone { .. }))
            .collect();
        let reply = Reply::Mounted {
            agent,
            segments: ids,
            outstanding: tenants_only,
            wants_inventory: false,
        };
        Ok(self.answer_with(ops, reply))
    }

    /// The ops that lose all segments of an agent.
    pub(crate) fn lost_segments(&self, state: &State, id: AgentId) -> Vec<Op> {
        state
            .agent(id)
            .into_iter()
            .flat_map(|agent| self.segments_of(state, agent))
            .map(|lost| Op::SegmentLost {
                segment: lost.id,
                generation: lost.generation,
            })
            .collect()
    }

    /// When as many names are known as may be, one that is lost is forgotten for a new one.
    fn room_for_a_name(&self, state: &State) -> Result<Option<Op>, Stop> {
        let (held, most) = (
            state.agents.len() + self.overlay.names.len(),
            self.settings.max_agents,
        );
        if held < most {
            return Ok(None);
        }
        let lost = state.agents().find(|(id, agent)| {
            agent.segments.is_empty()
                && !self.soft.contacts.contains_key(id)
                && !self.overlay.agents.contains_key(id)
        });
        match lost {
            Some((agent, _)) => Ok(Some(Op::AgentForgotten { agent })),
            None => refuse(
                Reason::Overloaded,
                format!("{held} agents are known, at most {most}"),
            ),
        }
    }

    pub(super) fn unmount(&mut self, state: &State, agent: AgentId) -> Outcome {
        if self.overlay.agents.contains_key(&agent) {
            return Err(Stop::Wait(WaitOn::Agent(agent)));
        }
        let ops = self.lost_segments(state, agent);
        if ops.is_empty() {
            self.soft.contacts.remove(&agent);
        }
        Ok(self.answer_with(ops, Reply::Done))
    }

    pub(super) fn heartbeat(
        &mut self,
        (agent, incarnation): (AgentId, Incarnation),
        load_permille: u16,
        now: PoolTime,
    ) -> Outcome {
        let leaving = self.overlay.agents.contains_key(&agent);
        let contact = self.soft.contacts.get_mut(&agent);
        let Some(contact) =
            contact.filter(|c| c.attached && c.incarnation == incarnation && !leaving)
        else {
            return refuse(
                Reason::SessionUnknown,
                format!("agent {agent} has to mount again"),
            );
        };
        let was_alive = contact.is_alive();
        contact.last_heard = now;
        contact.acknowledged = true;
        contact.suspect_since = None;
        contact.load_permille = load_permille;
        if !was_alive {
            self.effects.wake(WaitOn::Space);
            self.agent_answers();
        }
        Ok(self.answer(Reply::Done))
    }

    pub(super) fn agent_gone(
        &mut self,
        state: &State,
        agent: AgentId,
        incarnation: Incarnation,
        now: PoolTime,
    ) -> Decision {
        let contact = self.soft.contacts.get_mut(&agent);
        if let Some(contact) = contact.filter(|c| c.incarnation == incarnation) {
            contact.attached = false;
            contact.suspect_since.get_or_insert(now);
            self.wake_waiters_of(state, agent);
        }
        self.answer(Reply::Done)
    }
}

pub(super) fn numbered_as(id: SegmentId, offer: &SegmentOffer) -> MountedSegment {
    let SegmentOffer {
        ordinal,
        generation,
        slabs,
        slab_bytes,
        numa,
    } = *offer;
    MountedSegment {
        id,
        ordinal,
        generation,
        slabs,
        slab_bytes,
        numa,
    }
}

/// Whether a mount is the same process with the same bytes as before.
fn is_same(
    state: &State,
    agent: &Agent,
    (uid, incarnation): (AgentUid, Incarnation),
    offers: &[SegmentOffer],
) -> bool {
    let same_segments = agent.segments.len() == offers.len()
        && agent.segments.iter().zip(offers).all(|(id, offer)| {
            state.segment(*id).is_some_and(|held| {
                held.ordinal == offer.ordinal
                    && held.generation == offer.generation
                    && held.slab_count == offer.slabs
                    && held.slab_bytes == offer.slab_bytes
            })
        });
    agent.uid == uid && agent.incarnation == incarnation && same_segments
}

/// Whether the offers are in range, and the pool can count them.
fn validate(state: &State, offers: &[SegmentOffer]) -> Result<(), Stop> {
    if offers.len() > MAX_SEGMENTS {
        let got = offers.len();
        return refuse(
            Reason::BadArgument,
            format!("{got} segments, at most {MAX_SEGMENTS}"),
        );
    }
    let mut capacity = Some(state.capacity_bytes());
    let mut ordinals = std::collections::BTreeSet::new();
    for offer in offers {
        let SegmentOffer {
            ordinal,
            slabs,
            slab_bytes,
            ..
        } = *offer;
        if !ordinals.insert(ordinal) {
            return refuse(
                Reason::BadArgument,
                format!("segment {ordinal} is offered twice"),
            );
        }
        if slabs == 0 || slabs > layout::MAX_SLABS {
            let most = layout::MAX_SLABS;
            let detail = format!("segment {ordinal} has {slabs} slabs, it must have 1 to {most}");
            return refuse(Reason::BadArgument, detail);
        }
        let sizes = layout::MIN_SLAB_BYTES..=layout::MAX_SLAB_BYTES;
        if !slab_bytes.is_power_of_two() || !sizes.contains(&slab_bytes) {
            let (least, most) = sizes.into_inner();
            let detail = format!(
                "segment {ordinal} has slabs of {slab_bytes} bytes, a slab must be a power of two \
                 from {least} to {most}"
            );
            return refuse(Reason::BadArgument, detail);
        }
        capacity = u64::from(slabs)
            .checked_mul(slab_bytes)
            .and_then(|bytes| capacity?.checked_add(bytes));
    }
    match capacity {
        Some(_) => Ok(()),
        None => refuse(
            Reason::BadArgument,
            "the pool would be larger than 2^64 bytes",
        ),
    }
}
