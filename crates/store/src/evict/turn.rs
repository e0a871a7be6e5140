//! What a turn evicts: what is over a watermark, coldest first, until it is below the low one.
//!
//! Marks are kept for each segment and each tenant with a limit. A node is the sum of its segments:
//! it is over a mark only if one of them is, and that one drains.
//!
//! On a segment those lose first who hold most beyond what is guaranteed to them, and nobody loses
//! what is guaranteed. Replicas beyond the first go before objects do.

use std::collections::BTreeSet;

use larder_types::{Extent, PoolTime, SegmentId, TenantId};

use super::MAX_STEPS;
use super::cache::{Class, bytes_of};
use super::guard::{Guard, Kept};
use super::signals::EvictionCause;
use crate::leader::Leader;
use crate::objects::ObjectId;
use crate::op::{Op, RemovalCause};
use crate::quota;
use crate::state::State;

/// The most objects that one turn evicts, and the most entries that it looks at for them. While
/// there is more to evict, turns follow each other with requests in between: small ones evict as
/// fast as large ones, and nobody waits longer than for one, about 100 us.
const TURN_OBJECTS: usize = 64;
const TURN_STEPS: u32 = 512;
/// The most bytes of keys in the ops of one turn: an entry of the log stays small.
const MAX_KEY_BYTES: usize = 512 * 1024;
/// After this part of what is to go it is looked again at who holds most.
const BATCH_PART: u64 = 8;

/// What a turn may still do.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) steps: u32,
    objects: usize,
    key_bytes: usize,
    /// What was looked at and stays.
    pub(crate) kept: Kept,
    pub(crate) ops: Vec<Op>,
}

impl Budget {
    pub(crate) fn new(max_touched_objects: u32) -> Self {
        Self {
            steps: MAX_STEPS,
            objects: max_touched_objects as usize,
            key_bytes: MAX_KEY_BYTES,
            kept: Kept::default(),
            ops: Vec::new(),
        }
    }

    /// As [`Self::new`], for a turn that others wait for.
    fn of_a_turn(max_touched_objects: u32) -> Self {
        let whole = Self::new(max_touched_objects);
        Self {
            steps: TURN_STEPS,
            objects: whole.objects.min(TURN_OBJECTS),
            ..whole
        }
    }

    pub(crate) const fn is_spent(&self) -> bool {
        self.steps == 0 || self.objects == 0 || self.key_bytes == 0
    }
}

/// Whose objects go, from where, and how many of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) segment: SegmentId,
    pub(crate) class: Class,
    pub(crate) want_bytes: u64,
    /// No more than this may go.
    pub(crate) most_bytes: u64,
    pub(crate) cause: EvictionCause,
    pub(crate) spares_soft_pins: bool,
}

impl Leader {
    /// What is over its watermarks, in ops.
    pub(crate) fn evict_turn(&mut self, state: &State, now: PoolTime) -> Vec<Op> {
        let most = self.settings.max_touched_objects as usize;
        self.evict.fill(state, most, now);
        self.evict.sweep(state, most, now);
        self.evict.roll(now);
        let crowded = self.overlay.in_flight >= self.settings.max_in_flight_ops;
        self.evict.is_busy = false;
        if !self.settings.evict || crowded {
            return Vec::new();
        }
        let mut budget = Budget::of_a_turn(self.settings.max_touched_objects);
        self.closed_slabs(state, &mut budget, now);
        self.evict_doomed(state, &mut budget, now);
        for tenant in std::mem::take(&mut self.evict.grown_tenants) {
            if self.over_limit(state, &tenant, self.settings.high_watermark) > 0 {
                self.evict.draining_tenants.insert(tenant);
            }
        }
        for segment in std::mem::take(&mut self.evict.grown) {
            if self.over_capacity(state, segment, self.settings.high_watermark) > 0 {
                self.evict.draining.insert(segment);
            }
        }
        for tenant in self.evict.draining_tenants.clone() {
            self.drain_tenant(state, &tenant, &mut budget, now);
        }
        for segment in self.evict.draining.clone() {
            self.drain_segment(state, segment, &mut budget, now);
        }
        self.evict.is_busy = !budget.ops.is_empty();
        budget.ops
    }

    /// Whether the next turn has something to do and should not wait for its time: objects to
    /// evict, or to learn of.
    #[must_use]
    pub fn turn_goes_on(&self) -> bool {
        self.evict.is_busy || self.evict.fill.is_some() || !self.evict.gone.is_empty()
    }

    /// By how many bytes a tenant is over this share of its limit, what is proposed to go not
    /// counted.
    pub(crate) fn over_limit(&self, state: &State, tenant: &TenantId, per_mille: u32) -> u64 {
        let held = state.tenant(tenant).filter(|held| !held.is_deleting());
        let limit = held.and_then(|held| held.policy.limit_bytes);
        let Some(limit) = limit else {
            return 0;
        };
        self.charged_bytes(state, tenant)
            .saturating_sub(share(limit, per_mille))
    }

    /// What a tenant is charged and has reserved, without what is proposed to go.
    pub(crate) fn charged_bytes(&self, state: &State, tenant: &TenantId) -> u64 {
        let used = state.tenant(tenant).map_or(0, |held| held.used_bytes);
        used.saturating_add(self.overlay.reserved(tenant).bytes)
            .saturating_sub(self.evict.leaving_bytes(tenant))
    }

    /// What a tenant holds beyond what is guaranteed to it.
    pub(crate) fn excess_bytes(&self, state: &State, tenant: &TenantId) -> u64 {
        let guaranteed = state
            .tenant(tenant)
            .map_or(0, |held| quota::guaranteed_bytes(&held.policy));
        self.charged_bytes(state, tenant).saturating_sub(guaranteed)
    }

    /// By how many bytes a segment is over this share of its capacity: what lies there and is not
    /// proposed to go, and what is reserved. What is being released is on its way out already.
    pub(crate) fn over_capacity(&self, state: &State, segment: SegmentId, per_mille: u32) -> u64 {
        let lost = self.overlay.segments_lost.contains(&segment);
        let Some(found) = state.segment(segment).filter(|_| !lost) else {
            return 0;
        };
        self.filled_bytes(segment)
            .saturating_sub(share(found.capacity_bytes(), per_mille))
    }

    pub(crate) fn filled_bytes(&self, segment: SegmentId) -> u64 {
        let reserved = self.overlay.reserved_on.get(&segment).copied();
        self.evict
            .live_bytes(segment)
            .saturating_add(reserved.unwrap_or(0))
    }

    fn drain_tenant(
        &mut self,
        state: &State,
        tenant: &TenantId,
        budget: &mut Budget,
        now: PoolTime,
    ) {
        let want = self.over_limit(state, tenant, self.settings.low_watermark);
        self.evict_own(state, tenant, want, EvictionCause::Quota, budget, now);
        if self.over_limit(state, tenant, self.settings.low_watermark) == 0 {
            self.evict.draining_tenants.remove(tenant);
        }
    }

    /// Evicts the coldest of one tenant wherever they lie, the fullest places first.
    pub(crate) fn evict_own(
        &mut self,
        state: &State,
        tenant: &TenantId,
        want_bytes: u64,
        cause: EvictionCause,
        budget: &mut Budget,
        now: PoolTime,
    ) -> u64 {
        let mut got = 0;
        for (spares_soft_pins, class) in self.passes() {
            let Some(cache) = self.evict.caches.get(tenant) else {
                break;
            };
            let mut places: Vec<(u64, SegmentId)> = cache
                .segments()
                .map(|segment| (cache.bytes_on(segment, class), segment))
                .filter(|(bytes, _)| *bytes > 0)
                .collect();
            places.sort_unstable_by(|a, b| b.cmp(a));
            let all: u64 = places.iter().map(|(bytes, _)| bytes).sum();
            let wanted = want_bytes.saturating_sub(got);
            for (bytes, segment) in places {
                if budget.is_spent() || got >= want_bytes {
                    return got;
                }
                // Each place gives its part, so that none is emptied of its warm ones.
                let part = u128::from(wanted) * u128::from(bytes) / u128::from(all.max(1));
                let part = u64::try_from(part).unwrap_or(wanted).max(1);
                let aim = Aim {
                    tenant,
                    segment,
                    class,
                    want_bytes: part.min(want_bytes - got),
                    most_bytes: u64::MAX,
                    cause,
                    spares_soft_pins,
                };
                got += self.evict_some(state, aim, budget, now);
            }
        }
        got
    }

    /// Soft pins go when nothing else is left; in both turns replicas go first.
    pub(crate) fn passes(&self) -> impl Iterator<Item = (bool, Class)> + use<> {
        let pins: &[bool] = if self.settings.evict_soft_pinned {
            &[true, false]
        } else {
            &[true]
        };
        pins.iter()
            .flat_map(|spares| [(*spares, Class::Surplus), (*spares, Class::Last)])
    }

    fn drain_segment(
        &mut self,
        state: &State,
        segment: SegmentId,
        budget: &mut Budget,
        now: PoolTime,
    ) {
        let low = self.settings.low_watermark;
        for (spares_soft_pins, class) in self.passes() {
            let mut spared = BTreeSet::new();
            loop {
                let over = self.over_capacity(state, segment, low);
                if over == 0 {
                    self.evict.draining.remove(&segment);
                    return;
                }
                if budget.is_spent() {
                    return;
                }
                let Some((tenant, excess)) = self.loser(state, segment, class, &spared) else {
                    break;
                };
                let aim = Aim {
                    tenant: &tenant,
                    segment,
                    class,
                    // A part of it, and then it is looked again at who holds most.
                    want_bytes: (over / BATCH_PART).max(1).min(excess),
                    most_bytes: excess,
                    cause: EvictionCause::Watermark,
                    spares_soft_pins,
                };
                if self.evict_some(state, aim, budget, now) == 0 {
                    spared.insert(tenant);
                }
            }
        }
    }

    /// Who loses next on a segment: of those that hold more there than is guaranteed to them, the
    /// one that holds most beyond it; and how much that is.
    pub(crate) fn loser(
        &self,
        state: &State,
        segment: SegmentId,
        class: Class,
        spared: &BTreeSet<TenantId>,
    ) -> Option<(TenantId, u64)> {
        let load = self.evict.loads.get(&segment)?;
        load.tenants
            .iter()
            .filter(|tenant| !spared.contains(tenant))
            .filter(|tenant| {
                let cache = self.evict.caches.get(tenant);
                cache.is_some_and(|cache| cache.bytes_on(segment, class) > 0)
            })
            .map(|tenant| (self.excess_bytes(state, tenant), tenant))
            .filter(|(excess, _)| *excess > 0)
            .max()
            .map(|(excess, tenant)| (tenant.clone(), excess))
    }

    /// Evicts the coldest of a queue until enough goes; how many bytes go.
    pub(crate) fn evict_some(
        &mut self,
        state: &State,
        aim: Aim<'_>,
        budget: &mut Budget,
        now: PoolTime,
    ) -> u64 {
        let mut got = 0;
        while got < aim.want_bytes && !budget.is_spent() {
            let most_bytes = aim.most_bytes - got.min(aim.most_bytes);
            let (aim, tried) = (Aim { most_bytes, ..aim }, BTreeSet::new());
            let Some(id) = self.next_victim(state, aim, &tried, budget, now) else {
                break;
            };
            let place = (aim.tenant, id);
            got += self.expel_unit(state, place, aim.segment, aim.cause, budget, now);
        }
        got
    }

    /// Has an object go with its group, or its replica on a segment if it has another one; how
    /// many bytes go.
    pub(crate) fn expel_unit(
        &mut self,
        state: &State,
        (tenant, id): (&TenantId, ObjectId),
        segment: SegmentId,
        cause: EvictionCause,
        budget: &mut Budget,
        now: PoolTime,
    ) -> u64 {
        let held = state.tenant(tenant).and_then(|held| held.objects.by_id(id));
        if held.is_some_and(|(_, object)| Class::of(object) == Class::Surplus) {
            return self.expel(state, (tenant, id), Some(segment), cause, budget, now);
        }
        let cache = self.evict.caches.get(tenant);
        let members = cache.and_then(|cache| cache.companions(id)).cloned();
        let mut got = self.expel(state, (tenant, id), None, cause, budget, now);
        for member in members.into_iter().flatten().filter(|member| *member != id) {
            if budget.is_spent() {
                self.evict.doomed.insert((tenant.clone(), member));
            } else {
                got += self.expel(state, (tenant, member), None, cause, budget, now);
            }
        }
        got
    }

    pub(crate) fn next_victim(
        &mut self,
        state: &State,
        aim: Aim<'_>,
        tried: &BTreeSet<ObjectId>,
        budget: &mut Budget,
        now: PoolTime,
    ) -> Option<ObjectId> {
        let Self {
            evict,
            overlay,
            soft,
            ..
        } = self;
        let terms = (aim.spares_soft_pins, aim.most_bytes);
        let mut guard = Guard::new(state, (overlay, soft), aim.tenant, terms, now)?;
        let cache = evict.caches.get_mut(aim.tenant)?;
        let class = aim.class;
        let mut may = |id, members: Option<&BTreeSet<ObjectId>>| {
            !tried.contains(&id) && guard.may(id, class, members)
        };
        let before = budget.steps;
        let found = cache.victim(aim.segment, class, &mut budget.steps, &mut may);
        evict.steps += u64::from(before - budget.steps);
        budget.kept.add(guard.kept);
        found
    }

    /// Has an object go, or its replicas on the agent of a segment; how many bytes go.
    pub(crate) fn expel(
        &mut self,
        state: &State,
        (tenant, id): (&TenantId, ObjectId),
        replica_on: Option<SegmentId>,
        cause: EvictionCause,
        budget: &mut Budget,
        now: PoolTime,
    ) -> u64 {
        let held = state.tenant(tenant).and_then(|held| held.objects.by_id(id));
        let Some((key, object)) = held else {
            self.evict.take_out(tenant, id);
            return 0;
        };
        let agent = replica_on.and_then(|segment| Some(state.segment(segment)?.agent));
        let replicas = object.replicas();
        let on_agent = |replica: &&Vec<Extent>| {
            let mut extents = replica.iter();
            extents.any(|extent| Some(extent.slab.agent) == agent)
        };
        let going = replicas.iter().filter(on_agent).count();
        let spared = agent.filter(|_| going > 0 && going < replicas.len());
        let (tenant_id, key_of, version) = (tenant.clone(), key.to_key(), object.version());
        let (op, bytes) = if let Some(agent) = spared {
            let bytes = replicas
                .iter()
                .filter(on_agent)
                .flatten()
                .map(bytes_of)
                .sum();
            let op = Op::ReplicaDropped {
                tenant: tenant_id,
                key: key_of.to_key(),
                version,
                agent,
            };
            (op, bytes)
        } else {
            let op = Op::Remove {
                tenant: tenant_id,
                key: key_of.to_key(),
                version,
                cause: RemovalCause::Evicted,
            };
            (op, object.charge_bytes().unwrap_or(0))
        };
        let is_object = spared.is_none();
        let age_ms = self.evict.leaves(tenant, id, bytes, now);
        if let Some(cache) = self.evict.caches.get_mut(tenant) {
            cache.counts.evict(cause, bytes, is_object, age_ms);
            if is_object {
                let live = cache.len();
                cache
                    .ghost
                    .note(crate::digest::of_key(key.as_bytes()), live);
            }
        }
        budget.objects = budget.objects.saturating_sub(1);
        budget.key_bytes = budget.key_bytes.saturating_sub(key.as_bytes().len());
        budget.ops.push(op);
        bytes
    }

    /// The rest of groups that were too large for a turn.
    fn evict_doomed(&mut self, state: &State, budget: &mut Budget, now: PoolTime) {
        while !budget.is_spent() {
            let Some((tenant, id)) = self.evict.doomed.pop_first() else {
                return;
            };
            budget.steps -= 1;
            let terms = (false, u64::MAX);
            let guard = Guard::of(self, state, &tenant, terms, now);
            if guard.is_some_and(|mut guard| guard.may_alone(id, false)) {
                let cause = EvictionCause::Watermark;
                self.expel(state, (&tenant, id), None, cause, budget, now);
            }
        }
    }
}

/// This share of a number, per mille.
fn share(of: u64, per_mille: u32) -> u64 {
    let share = u128::from(of) * u128::from(per_mille) / 1000;
    u64::try_from(share).unwrap_or(u64::MAX)
}
