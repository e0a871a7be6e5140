//! What each op touches when it is decided, and lets go when it is committed.

use larder_types::{AgentId, Key, Pin, SegmentId, TenantId};

use super::{Overlay, SlabOp, TenantOp};
use crate::effects::{Discard, Effects};
use crate::moves::Phase;
use crate::op::Op;
use crate::reply::WaitOn;
use crate::segment::slab_key;
use crate::state::State;

impl Overlay {
    /// An op is decided: from now on everybody sees it.
    pub(crate) fn touch(&mut self, state: &State, op: &Op, effects: &mut Effects) {
        self.in_flight += 1;
        match op {
            Op::AgentMounted { agent, name, .. } => {
                self.names.insert(name.clone(), *agent);
                self.touch_agent(*agent);
            }
            Op::AgentAdopted { .. } => self.touch_adopted(op),
            Op::AgentForgotten { agent } => self.touch_agent(*agent),
            Op::SegmentLost { segment, .. } => {
                if let Some(lost) = state.segment(*segment) {
                    self.touch_agent(lost.agent);
                }
                self.lose(*segment, effects);
            }
            Op::SlabGive { slab, .. } => drop(self.slabs.insert(slab_key(*slab), SlabOp::Give)),
            Op::SlabReady { slab } => drop(self.slabs.insert(slab_key(*slab), SlabOp::Ready)),
            Op::SlabTake { slab } => drop(self.slabs.insert(slab_key(*slab), SlabOp::Take)),
            Op::SlabReturned { slab } => drop(self.slabs.insert(slab_key(*slab), SlabOp::Return)),
            Op::TenantSet { tenant, .. } => self.touch_tenant(tenant, TenantOp::Set),
            Op::TenantDelete { tenant } => {
                self.touch_tenant(tenant, TenantOp::Delete);
                for version in self.pending_versions(|id, _| id == tenant) {
                    self.discard(version, Discard::TenantDeleted, effects);
                }
            }
            Op::TenantPurge { tenant, .. } => self.touch_tenant(tenant, TenantOp::Purge),
            Op::TenantForgotten { tenant } => self.touch_tenant(tenant, TenantOp::Forget),
            Op::PutEnd { tenant, key, .. } => {
                let entry = self.tenants.entry(tenant.clone()).or_default();
                entry.touched.insert(key.clone());
                if let Some(put) = entry.puts.get_mut(key) {
                    put.ending = true;
                }
            }
            Op::Remove { tenant, key, .. } | Op::ReplicaDropped { tenant, key, .. } => {
                self.touch_key(tenant, key);
            }
            Op::PinSet {
                tenant, key, pin, ..
            } => self.touch_pin(state, (tenant, key), *pin),
            Op::Released { extents } => {
                let places = extents
                    .iter()
                    .map(|(e, _)| (slab_key(e.slab), e.offset_bytes));
                self.released.extend(places);
            }
            Op::SegmentSwept { segment, .. } => drop(self.sweeping.insert(*segment)),
            Op::ReplicaAdded { tenant, key, .. } => {
                self.touch_key(tenant, key);
                if let Some(copy) = self.copies.of(tenant, key)
                    && let Some(copy) = self.copies.by_id.get_mut(&copy)
                {
                    copy.phase = Phase::Ending;
                }
            }
            Op::AgentDrain { agent, .. } => self.touch_agent(*agent),
            Op::AgentLabels { agent, .. } => drop(self.labelled.insert(*agent)),
            Op::TaskCreated { .. } => self.tasks_created += 1,
            Op::TaskEnded { .. } => {}
            Op::QuotaSet { quota, .. } | Op::QuotaDelete { quota } => {
                self.quotas.insert(quota.clone());
            }
            // Never decided, and whoever leads gets a new overlay with it.
            Op::PoolBegun { .. } | Op::PoolRebuilding { .. } => {}
            // Nothing stands in their way when these are decided.
            Op::SlabAdopted { .. } | Op::ExtentFound { .. } => {}
            Op::PoolRebuilt | Op::PoolVersion { .. } => {}
        }
    }

    /// An op is committed: the state shows it now.
    pub(crate) fn settle(&mut self, op: &Op, lost_agent: Option<AgentId>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        match op {
            Op::AgentMounted { agent, name, .. } | Op::AgentAdopted { agent, name, .. } => {
                self.names.remove(name);
                self.settle_agent(*agent);
            }
            Op::AgentForgotten { agent } => self.settle_agent(*agent),
            Op::SegmentLost { segment, .. } => {
                self.segments_lost.remove(segment);
                self.allocs.retain(|slab, _| slab.0 != *segment);
                if let Some(agent) = lost_agent {
                    self.settle_agent(agent);
                }
            }
            Op::SlabGive { slab, .. } | Op::SlabReady { slab } => {
                self.slabs.remove(&slab_key(*slab));
            }
            Op::SlabTake { slab } | Op::SlabReturned { slab } => {
                self.slabs.remove(&slab_key(*slab));
                self.allocs.remove(&slab_key(*slab));
            }
            Op::TenantSet { tenant, .. }
            | Op::TenantDelete { tenant }
            | Op::TenantPurge { tenant, .. } => self.settle_tenant(tenant),
            Op::TenantForgotten { tenant } => {
                self.settle_tenant(tenant);
                self.forget(tenant);
            }
            Op::PutEnd {
                tenant,
                key,
                version,
                ..
            } => {
                if let Some(entry) = self.tenants.get_mut(tenant) {
                    entry.touched.remove(key);
                }
                self.close(*version);
            }
            Op::Remove { tenant, key, .. }
            | Op::ReplicaAdded { tenant, key, .. }
            | Op::ReplicaDropped { tenant, key, .. } => self.settle_key(tenant, key),
            Op::PinSet { tenant, key, .. } => {
                if let Some(entry) = self.tenants.get_mut(tenant) {
                    entry.touched.remove(key);
                    let bytes = entry.pins.remove(key).unwrap_or(0);
                    entry.pinning_bytes = entry.pinning_bytes.saturating_sub(bytes);
                }
            }
            Op::Released { extents } => {
                for (extent, _) in extents {
                    self.released
                        .remove(&(slab_key(extent.slab), extent.offset_bytes));
                }
            }
            Op::SegmentSwept { segment, .. } => drop(self.sweeping.remove(segment)),
            Op::AgentDrain { agent, .. } => self.settle_agent(*agent),
            Op::AgentLabels { agent, .. } => drop(self.labelled.remove(agent)),
            Op::TaskCreated { .. } => self.tasks_created = self.tasks_created.saturating_sub(1),
            Op::QuotaSet { quota, .. } | Op::QuotaDelete { quota } => {
                self.quotas.remove(quota);
            }
            Op::TaskEnded { .. } | Op::PoolBegun { .. } | Op::PoolRebuilding { .. } => {}
            Op::SlabAdopted { .. } | Op::ExtentFound { .. } => {}
            Op::PoolRebuilt | Op::PoolVersion { .. } => {}
        }
    }

    /// A segment is about to be lost: puts that lie on it cannot end any more, and what was to be
    /// erased there is gone.
    fn lose(&mut self, segment: SegmentId, effects: &mut Effects) {
        self.segments_lost.insert(segment);
        let hit = self.pending_versions(|_, put| {
            put.replicas
                .iter()
                .flatten()
                .any(|extent| extent.slab.segment == segment)
        });
        for version in hit {
            self.discard(version, Discard::AgentLost, effects);
        }
        self.lose_copies(segment, effects);
        self.discarded.retain(|version, discarded| {
            discarded
                .extents
                .retain(|extent| extent.slab.segment != segment);
            if discarded.extents.is_empty() {
                effects.wake(WaitOn::Erased(*version));
            }
            !discarded.extents.is_empty()
        });
    }

    /// Numbers with which an agent comes back are not given to others.
    fn touch_adopted(&mut self, op: &Op) {
        let Op::AgentAdopted {
            agent,
            name,
            segments,
            ..
        } = op
        else {
            return;
        };
        self.names.insert(name.clone(), *agent);
        self.touch_agent(*agent);
        let next = &mut self.next;
        next.agent = next.agent.max(agent.0.saturating_add(1));
        for segment in segments {
            next.segment = next.segment.max(segment.id.0.saturating_add(1));
        }
    }

    fn touch_key(&mut self, tenant: &TenantId, key: &Key) {
        let entry = self.tenants.entry(tenant.clone()).or_default();
        entry.touched.insert(key.clone());
    }

    fn touch_pin(&mut self, state: &State, (tenant, key): (&TenantId, &Key), pin: Pin) {
        self.touch_key(tenant, key);
        let object = state.object(tenant, key);
        let object = object.filter(|object| object.attributes().pin != Pin::Hard);
        if let (Some(object), Pin::Hard) = (object, pin) {
            let bytes = object.charge_bytes().unwrap_or(u64::MAX);
            self.pin(tenant, key, bytes);
        }
    }

    fn settle_key(&mut self, tenant: &TenantId, key: &Key) {
        if let Some(entry) = self.tenants.get_mut(tenant) {
            entry.touched.remove(key);
        }
    }

    fn touch_agent(&mut self, agent: AgentId) {
        *self.agents.entry(agent).or_insert(0) += 1;
    }

    fn settle_agent(&mut self, agent: AgentId) {
        if let Some(count) = self.agents.get_mut(&agent) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.agents.remove(&agent);
            }
        }
    }

    fn settle_tenant(&mut self, tenant: &TenantId) {
        if let Some(entry) = self.tenants.get_mut(tenant) {
            entry.op = None;
        }
    }

    fn touch_tenant(&mut self, tenant: &TenantId, op: TenantOp) {
        self.tenants.entry(tenant.clone()).or_default().op = Some(op);
    }
}
