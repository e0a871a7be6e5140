//! What a put without room may wait for, and the refusal when there is nothing.

use std::collections::BTreeMap;

use larder_types::{AgentId, OnExceed, PoolTime, Reason, SlabRef, TenantId, layout};

use super::{Outcome, refuse};
use crate::evict::{Budget, EvictionCause, Relief};
use crate::leader::Leader;
use crate::op::Op;
use crate::place::{Candidate, Need};
use crate::quota::Shortage;
use crate::reply::{Decision, Refusal, WaitOn};
use crate::segment::{Segment, SlabKey, SlabPhase};
use crate::state::State;

/// What a put lacks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lack {
    /// What there has to be room for in one piece, next.
    pub(super) need: Need,
    /// The whole of it, aligned.
    pub(super) asked_bytes: u64,
    /// How many slabs it would take with all of its replicas, if this one needs one.
    pub(super) slabs: u64,
}

/// Waits for space that others still hold.
const fn wait(ops: Vec<Op>, on: WaitOn) -> Decision {
    Decision::Wait {
        ops,
        on,
        for_space: true,
    }
}

impl Leader {
    /// The op that gives a free slab to a tenant under a fresh registration.
    pub(crate) fn give(
        &mut self,
        state: &State,
        (segment, index): SlabKey,
        tenant: &TenantId,
    ) -> Option<Op> {
        let agent = state.segment(segment)?.agent;
        let registration = larder_types::Registration(self.overlay.next.registration);
        self.overlay.next.registration = registration.0.checked_add(1)?;
        let slab = SlabRef {
            agent,
            segment,
            index,
            registration,
        };
        Some(Op::SlabGive {
            slab,
            tenant: tenant.clone(),
        })
    }

    /// No agent that is left has room. Waits for something that certainly comes and may help: a
    /// slab on its way back, an empty slab of another tenant, extents that are being released.
    /// Each has an agent that answers now; if that falls silent, its waiters are woken.
    pub(super) fn relieve(
        &mut self,
        state: &State,
        tenant: &TenantId,
        lack: Lack,
        ranked: &[Candidate<'_>],
        now: PoolTime,
    ) -> Outcome {
        let Lack {
            need,
            asked_bytes,
            slabs,
        } = lack;
        let without = || ranked.iter().filter(|candidate| candidate.room.is_none());
        let agents: Vec<AgentId> = without().map(|candidate| candidate.agent).collect();
        let may_take = self.may_take_slabs(state, tenant, slabs);
        if may_take && let Some(on) = self.taking(state, need, &agents) {
            return Ok(wait(Vec::new(), on));
        }
        if may_take && let Some(slab) = self.takeable(state, tenant, need, &agents) {
            let on = WaitOn::Slab(slab.segment, slab.index);
            return Ok(wait(vec![Op::SlabTake { slab }], on));
        }
        if self.releasing_helps(state, tenant, need, &agents) {
            return Ok(wait(Vec::new(), WaitOn::Space));
        }
        if !may_take {
            return self.relieve_borrower(state, tenant, need, now);
        }
        // What others made this tenant evict comes back to it first.
        if self.evict.leaving_bytes(tenant) >= need.bytes
            && let Some(on) = self.leaving_key(state, tenant)
        {
            return Ok(wait(Vec::new(), on));
        }
        let kept = match self.make_room(state, tenant, need, &agents, now) {
            Relief::Coming(ops) => return Ok(wait(ops, WaitOn::Space)),
            Relief::None(kept) => kept,
        };
        self.evict.refused(tenant);
        let own: u64 = without()
            .map(|candidate| candidate.own_bytes)
            .max()
            .unwrap_or(0);
        let hole: u64 = without()
            .map(|candidate| candidate.hole_bytes)
            .max()
            .unwrap_or(0);
        let reason = if own >= asked_bytes {
            Reason::Fragmented
        } else {
            Reason::NoSpace
        };
        let count = agents.len();
        let mut detail = format!(
            "asked {asked_bytes}, {count} agents have no room: at most {own} bytes free in slabs \
             of tenant {tenant}, longest hole {hole}, no free slab; {kept}"
        );
        let failed = &self.soft.failed;
        let failing = self
            .fitting(state, need, &agents)
            .filter(|s| failed.contains_key(&s.id));
        match failing.count() {
            0 => {}
            n => detail += &format!("; {n} segments failed to give a slab, see their agents' logs"),
        }
        refuse(reason, detail)
    }

    /// What is idle is kept for others: the tenant makes room among its own, or is refused.
    fn relieve_borrower(
        &mut self,
        state: &State,
        tenant: &TenantId,
        need: Need,
        now: PoolTime,
    ) -> Outcome {
        let detail = self.slab_refusal(tenant, need.bytes);
        let refusal = Refusal::new(Reason::QuotaBorrow, detail);
        let held = state.tenant(tenant).map(|held| held.policy.on_exceed);
        if held != Some(OnExceed::EvictOwn) {
            self.evict.refused(tenant);
            return Err(refusal.into());
        }
        let over = Shortage {
            bytes: need.bytes,
            objects: 0,
        };
        self.relieve_quota(state, tenant, over, refusal, now)
    }

    /// A put does not fit the limits of its tenant: has the coldest of the tenant go until it
    /// does, and waits for that; or refuses it with what was found.
    pub(super) fn relieve_quota(
        &mut self,
        state: &State,
        tenant: &TenantId,
        over: Shortage,
        refusal: Refusal,
        now: PoolTime,
    ) -> Outcome {
        if !self.settings.evict {
            self.evict.refused(tenant);
            return Err(refusal.into());
        }
        let leaving = self.evict.leaving_bytes(tenant);
        let mut budget = Budget::new(self.settings.max_touched_objects);
        if over.bytes > leaving || (over.objects > 0 && leaving == 0) {
            // An object of any size makes room for one: at least one goes.
            let want = over.bytes.saturating_sub(leaving).max(over.objects.min(1));
            let cause = EvictionCause::Quota;
            self.evict_own(state, tenant, want, cause, &mut budget, now);
        }
        // Its commit shows in the books; what was found before is on its way too.
        match self.leaving_key(state, tenant) {
            Some(on) => Ok(wait(budget.ops, on)),
            None => {
                self.evict.refused(tenant);
                let detail = format!("{}; {}", refusal.detail, budget.kept.detail());
                refuse(refusal.reason, detail)
            }
        }
    }

    /// A key of which an eviction is proposed.
    fn leaving_key(&self, state: &State, tenant: &TenantId) -> Option<WaitOn> {
        let id = self.evict.caches.get(tenant)?.one_leaving()?;
        let (key, _) = state.tenant(tenant)?.objects.by_id(id)?;
        Some(WaitOn::Key(tenant.clone(), key.to_key()))
    }

    /// The answer to a put that has waited for space as long as it may.
    #[must_use]
    pub fn space_refusal(&self, state: &State) -> Refusal {
        let bytes = state
            .releasing_bytes()
            .saturating_add(self.discarded_bytes());
        let slab_bytes = |slab: &SlabKey| state.segment(slab.0).map_or(0, |s| s.slab_bytes);
        let taking: u64 = self.soft.taking.iter().map(slab_bytes).sum();
        let mut detail = Vec::new();
        if bytes > 0 {
            detail.push(format!(
                "{bytes} bytes are removed but still held by readers or being erased"
            ));
        }
        if taking > 0 {
            detail.push(format!(
                "{taking} bytes of slabs are on their way back from tenants"
            ));
        }
        if detail.is_empty() {
            detail.push("others took the space that came back".to_owned());
        }
        Refusal::new(Reason::NoSpace, detail.join("; "))
    }

    /// The segments of these agents whose slabs are large enough and not being lost.
    fn fitting<'a>(
        &'a self,
        state: &'a State,
        need: Need,
        agents: &'a [AgentId],
    ) -> impl Iterator<Item = &'a Segment> {
        agents
            .iter()
            .filter_map(|id| state.agent(*id))
            .flat_map(|agent| self.segments_of(state, agent))
            .filter(move |segment| segment.slab_bytes >= need.bytes)
    }

    /// A slab that is on its way back.
    fn taking(&self, state: &State, need: Need, agents: &[AgentId]) -> Option<WaitOn> {
        self.fitting(state, need, agents).find_map(|segment| {
            let slabs = (segment.id, 0)..=(segment.id, u16::MAX);
            let (segment, index) = self.soft.taking.range(slabs).next()?;
            Some(WaitOn::Slab(*segment, *index))
        })
    }

    /// An empty slab that another tenant has used and can do without.
    fn takeable(
        &self,
        state: &State,
        tenant: &TenantId,
        need: Need,
        agents: &[AgentId],
    ) -> Option<SlabRef> {
        self.fitting(state, need, agents).find_map(|segment| {
            let slabs = (segment.id, 0)..=(segment.id, u16::MAX);
            self.soft
                .empty
                .range(slabs)
                .filter(|(slab, empty)| empty.used && !self.overlay.slabs.contains_key(slab))
                .filter_map(|((segment, index), _)| state.slab_at(*segment, *index))
                .find(|(_, slab)| slab.tenant != *tenant)
                .map(|(name, _)| name)
        })
    }

    /// Whether what is being released on these agents may make a hole in a slab of the tenant, or
    /// empty a slab of another one.
    fn releasing_helps(
        &self,
        state: &State,
        tenant: &TenantId,
        need: Need,
        agents: &[AgentId],
    ) -> bool {
        if state.releasing_bytes() == 0 && self.overlay.discarded.is_empty() {
            return false;
        }
        let discarded: BTreeMap<SlabKey, u64> = self.overlay.discarded_bytes();
        self.fitting(state, need, agents).any(|segment| {
            segment.slabs.iter().any(|(index, slab)| {
                let key = (segment.id, *index);
                let given_up = discarded.get(&key).copied().unwrap_or(0);
                if slab.releasing.is_empty() && given_up == 0 {
                    return false;
                }
                let Some(alloc) = self.overlay.alloc(state, key) else {
                    return false;
                };
                let aligned = |bytes| layout::reserved_bytes(bytes).unwrap_or(0);
                let erased: u64 = slab
                    .releasing
                    .values()
                    .map(|r| aligned(r.length_bytes))
                    .sum();
                let coming = erased.saturating_add(given_up);
                let then_free = alloc.free_bytes().saturating_add(coming);
                let wanted = if slab.tenant == *tenant {
                    need.bytes
                } else {
                    alloc.size_bytes()
                };
                slab.phase == SlabPhase::Ready && coming > 0 && then_free >= wanted
            })
        })
    }
}
