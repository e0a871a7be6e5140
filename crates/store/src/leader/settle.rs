//! What the soft state and the index of space learn from committed ops.

use larder_types::{AgentId, Extent, Key, PoolTime, SegmentId, TenantId};

use super::Leader;
use crate::objects::ObjectId;
use crate::op::Op;
use crate::segment::{SlabKey, SlabPhase, slab_key};
use crate::soft::{Contact, Empty};
use crate::state::State;

impl Leader {
    /// What the soft state learns from a committed op.
    pub(super) fn settle_soft(
        &mut self,
        state: &State,
        op: &Op,
        (lost_agent, placed): (Option<AgentId>, Option<ObjectId>),
        now: PoolTime,
    ) -> Result<(), String> {
        match op {
            Op::AgentMounted {
                agent, incarnation, ..
            } => {
                // New segments: no write of a former epoch names one of their slabs.
                self.soft
                    .contacts
                    .insert(*agent, Contact::mounted(*incarnation, true, now));
                self.unheard_until = PoolTime(0);
                self.roster.outdate();
                self.agent_answers();
            }
            Op::SegmentLost { segment, .. } => {
                self.roster.outdate();
                self.forget_segment(state, *segment, lost_agent);
            }
            Op::AgentForgotten { .. } => self.roster.outdate(),
            // Its agent may have returned, and gets replicas only now that none of its old ones
            // is noted any more.
            Op::SegmentSwept { segment, .. } if !state.lost.contains_key(segment) => {
                self.agent_answers();
            }
            Op::AgentLabels { .. } => {
                self.roster.outdate();
                // What found too few hosts may find them now.
                self.moves.wake();
                self.moves.queue.look();
            }
            Op::SlabReady { slab } => {
                let fresh = Empty {
                    since: now,
                    used: false,
                };
                self.soft.empty.insert(slab_key(*slab), fresh);
                self.holes_changed(state, slab_key(*slab));
            }
            Op::SlabReturned { slab } => drop(self.soft.taking.remove(&slab_key(*slab))),
            Op::ReplicaAdded { .. } | Op::ReplicaDropped { .. } => self.settle_replica(state, op),
            Op::AgentDrain { .. } => self.moves.queue.look(),
            Op::TaskCreated { task, .. } => self.new_task(*task, now),
            Op::Released { extents } => {
                for (extent, _) in extents {
                    self.freed(state, extent, now)?;
                }
            }
            Op::PutEnd {
                tenant, attributes, ..
            } => {
                if let Some(id) = placed {
                    self.leases.began(tenant, id, attributes.pin, now);
                    self.replicas_missing(state, tenant, id);
                    self.replicas_changed(state, tenant, id);
                }
            }
            Op::PinSet {
                tenant, key, pin, ..
            } => {
                if let Some(id) = place_of(state, tenant, key) {
                    self.leases.pinned(tenant, id, *pin, now);
                }
            }
            Op::TenantForgotten { tenant } => self.leases.forget(tenant),
            _ => {}
        }
        Ok(())
    }

    /// A segment is lost: nothing is known of its slabs any more, nor of an agent without others.
    pub(super) fn forget_segment(
        &mut self,
        state: &State,
        segment: SegmentId,
        lost_agent: Option<AgentId>,
    ) {
        let stays = |slab: &SlabKey| slab.0 != segment;
        self.soft.empty.retain(|slab, _| stays(slab));
        self.soft.taking.retain(stays);
        self.soft.closed.retain(|slab, _| stays(slab));
        self.soft.failed.remove(&segment);
        if let Some(agent) = lost_agent
            && state
                .agent(agent)
                .is_none_or(|agent| agent.segments.is_empty())
        {
            self.soft.contacts.remove(&agent);
        }
    }

    /// An extent came back: frees it in the overlay and notes when its slab has become empty.
    pub(crate) fn freed(
        &mut self,
        state: &State,
        extent: &Extent,
        now: PoolTime,
    ) -> Result<(), String> {
        self.overlay
            .free(extent)
            .map_err(|error| format!("{extent:?} in the overlay: {error}"))?;
        let slab = slab_key(extent.slab);
        self.holes_changed(state, slab);
        let alloc = self.overlay.alloc(state, slab);
        if alloc.is_some_and(|alloc| alloc.is_empty()) {
            self.soft.empty.insert(
                slab,
                Empty {
                    since: now,
                    used: true,
                },
            );
        }
        Ok(())
    }

    /// The holes of a ready slab are others than before: puts find it by them.
    pub(crate) fn holes_changed(&mut self, state: &State, slab: SlabKey) {
        let lost = self.overlay.segments_lost.contains(&slab.0);
        let closed = self.soft.closed.contains_key(&slab);
        if lost || closed || self.overlay.slabs.contains_key(&slab) {
            return;
        }
        let found = state.slab_at(slab.0, slab.1);
        let Some((name, found)) = found.filter(|(_, s)| s.phase == SlabPhase::Ready) else {
            return;
        };
        if let Some(alloc) = self.overlay.alloc(state, slab) {
            self.space.changes(slab, name.agent, &found.tenant, alloc);
        }
    }
}

/// Where the object of this key is.
pub(crate) fn place_of(state: &State, tenant: &TenantId, key: &Key) -> Option<ObjectId> {
    state.tenant(tenant)?.objects.id(key)
}
