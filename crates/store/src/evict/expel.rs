//! Having objects go: who is next, what goes with it, and the ops that say so.

use std::collections::BTreeSet;

use larder_types::{Extent, PoolTime, SegmentId, TenantId};

use super::MAX_STEPS;
use super::cache::{Class, bytes_of};
use super::guard::{Guard, Kept};
use super::signals::EvictionCause;
use crate::leader::Leader;
use crate::objects::ObjectId;
use crate::op::{Op, RemovalCause};
use crate::state::State;

/// The objects that one turn evicts when little was put: turns follow each other with requests in
/// between, so small ones evict as fast as large ones, and nobody waits longer than for one, about
/// 100 us. When much was put in between, twice as many go as came.
const TURN_OBJECTS: usize = 32;
/// Entries that a turn looks at for each object that it evicts.
const TURN_STEPS: usize = 16;
/// The most bytes of keys in the ops of one turn: an entry of the log stays small.
const MAX_KEY_BYTES: usize = 512 * 1024;
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

    /// As [`Self::new`], for a turn that others wait for, after so many puts.
    pub(crate) fn of_a_turn(max_touched_objects: u32, puts: usize) -> Self {
        let whole = Self::new(max_touched_objects);
        let objects = TURN_OBJECTS.max(puts.saturating_mul(2)).min(whole.objects);
        let steps = u32::try_from(objects.max(TURN_OBJECTS) * TURN_STEPS).unwrap_or(MAX_STEPS);
        Self {
            steps: steps.min(MAX_STEPS),
            objects,
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
            leases,
            ..
        } = self;
        let terms = (aim.spares_soft_pins, aim.most_bytes);
        let mut guard = Guard::new(state, (overlay, soft, leases), aim.tenant, terms, now)?;
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
                key: key_of,
                version,
                agent,
            };
            (op, bytes)
        } else {
            let op = Op::Remove {
                tenant: tenant_id,
                key: key_of,
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
        budget.objects = budget.objects.saturating_sub(object.weight() as usize);
        budget.key_bytes = budget.key_bytes.saturating_sub(key.as_bytes().len());
        budget.ops.push(op);
        bytes
    }

    /// The rest of groups that were too large for a turn.
    pub(crate) fn evict_doomed(&mut self, state: &State, budget: &mut Budget, now: PoolTime) {
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
