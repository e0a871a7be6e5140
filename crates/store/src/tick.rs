//! What time brings: agents fall silent, puts expire, empty slabs go back, tenants are purged,
//! what is over its watermark is evicted, and copies between agents begin.
//!
//! Each turn touches a bounded number of objects, slabs and puts; what is left comes next.

use larder_types::{AgentId, PoolTime, SegmentId, SlabRef, TenantId};

use crate::effects::Discard;
use crate::leader::Leader;
use crate::op::Op;
use crate::state::State;

/// The most puts that one turn discards.
const MAX_DISCARDED: usize = 4096;
/// The most slabs that one turn takes back.
const MAX_TAKEN: usize = 256;

impl Leader {
    /// Ops that time brings; to be proposed like those of a decision. To be called a few times
    /// within `agent_suspect_ms`: an agent is lost only when earlier calls saw it suspect, so that
    /// a leader which was itself paused hears the heartbeats that wait for it first.
    pub fn tick(&mut self, state: &State, now: PoolTime) -> Vec<Op> {
        if self.rebuild.is_some() {
            return self.rebuild_tick(state, now);
        }
        let mut ops = self.lost_agents(state, now);
        self.touch(state, &ops);
        self.expired_puts(now);
        self.soft.failed.retain(|_, until| *until > now);
        self.leases.sweep(now);
        let more: Vec<Op> = self
            .idle_slabs(state, now)
            .into_iter()
            .chain(self.sweeps_and_purges(state))
            .collect();
        self.touch(state, &more);
        ops.extend(more);
        ops.extend(self.evict(state, now));
        self.moves.wake();
        ops.extend(self.moves(state, now));
        ops
    }

    pub(crate) fn lost_agents(&mut self, state: &State, now: PoolTime) -> Vec<Op> {
        let mut silent = Vec::new();
        let mut lost = Vec::new();
        for (id, contact) in &mut self.soft.contacts {
            let quiet = now.since_ms(contact.last_heard) >= self.settings.agent_suspect_ms;
            if contact.is_lost(&self.settings, now) {
                lost.push(*id);
            } else if quiet && contact.suspect_since.is_none() {
                contact.suspect_since = Some(now);
                silent.push(*id);
            }
        }
        silent
            .into_iter()
            .for_each(|agent| self.wake_waiters_of(state, agent));
        let mut ops = Vec::new();
        for id in lost
            .into_iter()
            .filter(|id| !self.is_leaving(id))
            .collect::<Vec<AgentId>>()
        {
            let gone = self.lost_segments(state, id);
            if gone.is_empty() {
                self.soft.contacts.remove(&id);
            }
            ops.extend(gone);
        }
        ops
    }

    fn is_leaving(&self, agent: &AgentId) -> bool {
        self.overlay.agents.contains_key(agent)
    }

    /// Old puts are given up, so that they hold neither space nor quota of a client that is gone.
    fn expired_puts(&mut self, now: PoolTime) {
        let discard_ms = self.settings.put_discard_ms;
        let expired: Vec<_> = self
            .overlay
            .by_version
            .iter()
            .take_while(|(_, (tenant, key))| {
                let put = self.overlay.pending(tenant, key);
                put.is_some_and(|put| now.since_ms(put.since) >= discard_ms)
            })
            .map(|(version, _)| *version)
            .take(MAX_DISCARDED)
            .collect();
        expired
            .into_iter()
            .for_each(|version| self.discard_unless_ending(version, Discard::Expired));
    }

    /// Slabs that were empty for long, and those of tenants that are to go.
    fn idle_slabs(&self, state: &State, now: PoolTime) -> Vec<Op> {
        let idle_ms = self.settings.slab_idle_ms;
        self.soft
            .empty
            .iter()
            .filter(|(slab, _)| {
                !self.overlay.slabs.contains_key(slab)
                    && !self.overlay.segments_lost.contains(&slab.0)
            })
            .filter(|((segment, index), empty)| {
                let draining = state.segment(*segment).map(|s| state.is_draining(s.agent));
                let emptied = self.moves.sparse.contains(&(*segment, *index));
                now.since_ms(empty.since) >= idle_ms || draining == Some(true) || emptied || {
                    let slab = state.slab_at(*segment, *index);
                    let tenant = slab.and_then(|(_, slab)| state.tenant(&slab.tenant));
                    tenant.is_none_or(|tenant| tenant.deleting)
                }
            })
            .filter_map(|((segment, index), _)| state.slab_ref(*segment, *index))
            .take(MAX_TAKEN)
            .map(|slab: SlabRef| Op::SlabTake { slab })
            .collect()
    }

    /// What is noted on lost segments; objects of tenants that are to go, then the tenants
    /// themselves.
    fn sweeps_and_purges(&self, state: &State) -> Vec<Op> {
        let mut left = self.settings.max_touched_objects;
        let mut ops = Vec::new();
        let lost = state.lost.keys();
        // One after the other: each may have as much as a turn can take.
        let idle = |id: &SegmentId| !self.overlay.sweeping.contains(id);
        if let Some(segment) = lost.copied().find(idle) {
            // Objects of a segment lie anywhere in the table, those of a purge side by side.
            ops.push(Op::SegmentSwept {
                segment,
                objects_max: left.div_ceil(2),
            });
            left = 0;
        }
        for (id, tenant) in state.tenants().filter(|(_, tenant)| tenant.deleting) {
            if self.overlay.tenant_op(id).is_some() {
                continue;
            }
            let objects = u32::try_from(tenant.objects.len()).unwrap_or(u32::MAX);
            let trims = u32::from(!tenant.objects.is_trimmed());
            let objects_max = objects.max(trims).min(left);
            let tenant_id: TenantId = id.clone();
            if objects == 0 && trims == 0 && tenant.slabs.is_empty() {
                ops.push(Op::TenantForgotten { tenant: tenant_id });
            } else if objects_max > 0 {
                left -= objects_max;
                ops.push(Op::TenantPurge {
                    tenant: tenant_id,
                    objects_max,
                });
            }
        }
        ops
    }
}
