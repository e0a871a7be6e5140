//! All tenants as eviction sees them, and how it learns of what is committed and read.

use std::collections::{BTreeMap, BTreeSet};

use larder_types::{Key, PoolTime, SegmentId, TenantId};

use super::cache::{Cache, Place};
use super::fill::Fill;
use super::signals::{Counts, GHOST, HIT, MISS, PoolSignals, ROLL_MS};
use crate::leader::Leader;
use crate::objects::{ObjectId, ObjectRef};
use crate::op::Op;
use crate::state::State;

/// What lies on one segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Of all tenants, without what is proposed to go.
    pub(crate) live_bytes: u64,
    pub(crate) tenants: BTreeSet<TenantId>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evictor {
    pub(crate) caches: BTreeMap<TenantId, Cache>,
    pub(crate) loads: BTreeMap<SegmentId, Load>,
    /// What may have passed its high watermark since the last turn.
    pub(crate) grown: BTreeSet<SegmentId>,
    pub(crate) grown_tenants: BTreeSet<TenantId>,
    /// What has passed its high watermark and not come down to the low one.
    pub(crate) draining: BTreeSet<SegmentId>,
    pub(crate) draining_tenants: BTreeSet<TenantId>,
    /// Segments that are gone and of which entries are left: those are taken out in steps.
    pub(crate) gone: BTreeSet<SegmentId>,
    /// The next members of groups that are being evicted.
    pub(crate) doomed: BTreeSet<(TenantId, ObjectId)>,
    /// Entries looked at so far: what eviction costs.
    pub(crate) steps: u64,
    /// Puts that ended since the last turn.
    pub(crate) puts: usize,
    /// The last turn evicted something.
    pub(crate) is_busy: bool,
    rolled: PoolTime,
    /// What of the state is not taken in yet.
    pub(crate) fill: Option<Fill>,
}

/// What a committed op found and will not find any more.
pub(crate) struct Before {
    id: Option<ObjectId>,
}

impl Evictor {
    /// Knows the tenants of a state, and has all of their objects still to learn.
    pub(crate) fn new(state: &State) -> Self {
        let alive = state.tenants().filter(|(_, held)| !held.is_deleting());
        let ids: Vec<TenantId> = alive.map(|(id, _)| id.clone()).collect();
        Self {
            caches: ids
                .iter()
                .map(|id| (id.clone(), Cache::default()))
                .collect(),
            grown_tenants: ids.into_iter().collect(),
            fill: Some(Fill::default()),
            ..Self::default()
        }
    }

    /// An op is about to be applied.
    pub(crate) fn before(&self, state: &State, op: &Op) -> Before {
        let id = match op {
            // Else the key holds nothing, not even something that cannot be read.
            Op::PutEnd {
                tenant,
                key,
                replaces,
                ..
            } => state
                .tenant(tenant)
                .filter(|held| replaces.is_some() || held.objects.has_unreadable())
                .and_then(|held| held.objects.held_at(key))
                .map(|object| object.id()),
            Op::Remove { tenant, key, .. }
            | Op::ReplicaAdded { tenant, key, .. }
            | Op::ReplicaDropped { tenant, key, .. } => state
                .tenant(tenant)
                .and_then(|tenant| tenant.objects.held_at(key))
                .map(|object| object.id()),
            _ => None,
        };
        Before { id }
    }

    /// An op was applied.
    ///
    /// `placed` is where the object of an ended put is.
    pub(crate) fn after(
        &mut self,
        state: &State,
        op: &Op,
        (before, placed): (&Before, Option<ObjectId>),
        now: PoolTime,
    ) {
        match op {
            Op::PutEnd { tenant, key, .. } => {
                if let Some(id) = before.id {
                    self.take_out(tenant, id);
                }
                let held = state.tenant(tenant);
                if let (Some(held), Some(id)) = (held, placed)
                    && let Some((_, object)) = held.objects.by_id(id)
                {
                    // The place may have had an owner whose loss is still to be noticed.
                    self.take_out(tenant, id);
                    let hash = crate::digest::of_key(key.as_bytes());
                    let cache = self.caches.get_mut(tenant);
                    let again = cache.is_some_and(|cache| cache.ghost.forget(hash));
                    self.take_in(tenant, id, object, again, now.0);
                    self.grown_tenants.insert(tenant.clone());
                    self.puts += 1;
                }
            }
            Op::Remove { tenant, .. } => {
                if let Some(id) = before.id {
                    self.left(tenant, id);
                }
            }
            Op::ReplicaAdded { tenant, .. } | Op::ReplicaDropped { tenant, .. } => {
                if let Some(id) = before.id {
                    // What moves is used no later by that.
                    let cache = self.caches.get(tenant);
                    let known_ms = cache.map_or(0, |cache| cache.age_ms(id, now.0));
                    let age_ms = self.left(tenant, id).max(known_ms);
                    let object = state.tenant(tenant).and_then(|t| t.objects.by_id(id));
                    if let Some((_, object)) = object {
                        let used_ms = now.0.saturating_sub(age_ms);
                        self.take_in(tenant, id, object, false, used_ms);
                    }
                }
            }
            Op::SegmentLost { segment, .. } => {
                self.gone.insert(*segment);
                self.grown.remove(segment);
                self.draining.remove(segment);
            }
            Op::TenantDelete { tenant } => self.forget(tenant),
            Op::TenantSet { tenant, .. } => {
                self.caches.entry(tenant.clone()).or_default();
                self.grown_tenants.insert(tenant.clone());
            }
            _ => {}
        }
    }

    /// The tenant goes, with its signals.
    fn forget(&mut self, tenant: &TenantId) {
        if let Some(cache) = self.caches.remove(tenant) {
            for segment in cache.segments() {
                if let Some(load) = self.loads.get_mut(&segment) {
                    load.live_bytes = load.live_bytes.saturating_sub(cache.all_on(segment));
                    load.tenants.remove(tenant);
                }
                self.prune(segment);
            }
        }
        self.grown_tenants.remove(tenant);
        self.draining_tenants.remove(tenant);
        self.doomed.retain(|(of, _)| of != tenant);
    }

    /// An object is here now; `used_ms` is when it was used last.
    pub(crate) fn take_in(
        &mut self,
        tenant: &TenantId,
        id: ObjectId,
        object: ObjectRef<'_>,
        again: bool,
        used_ms: u64,
    ) {
        // A tenant that is to go has none.
        let Some(cache) = self.caches.get_mut(tenant) else {
            return;
        };
        cache.insert(id, object, again, used_ms);
        for (segment, bytes) in cache.listed(id) {
            let load = self.loads.entry(segment).or_default();
            load.live_bytes = load.live_bytes.saturating_add(bytes);
            if !load.tenants.contains(tenant) {
                load.tenants.insert(tenant.clone());
            }
            self.grown.insert(segment);
        }
    }

    /// An object is not here any more, or not as it was.
    pub(crate) fn take_out(&mut self, tenant: &TenantId, id: ObjectId) {
        if let Some(cache) = self.caches.get_mut(tenant) {
            let places = cache.remove(id);
            self.unload(tenant, &places);
        }
    }

    /// What is proposed for an object takes it out of the queues at once: it is counted no more.
    pub(crate) fn leaves(
        &mut self,
        tenant: &TenantId,
        id: ObjectId,
        bytes: u64,
        now: PoolTime,
    ) -> u64 {
        let Some(cache) = self.caches.get_mut(tenant) else {
            return 0;
        };
        let (places, age_ms) = cache.leaves(id, bytes, now.0);
        self.unload(tenant, &places);
        age_ms
    }

    /// Whatever was proposed for an object is committed; for how long it had not been used.
    fn left(&mut self, tenant: &TenantId, id: ObjectId) -> u64 {
        self.doomed.remove(&(tenant.clone(), id));
        self.take_out(tenant, id);
        let cache = self.caches.get_mut(tenant);
        cache.and_then(|cache| cache.left(id)).unwrap_or(0)
    }

    fn unload(&mut self, tenant: &TenantId, places: &[Place]) {
        for (segment, bytes) in places {
            let Some(load) = self.loads.get_mut(segment) else {
                continue;
            };
            load.live_bytes = load.live_bytes.saturating_sub(*bytes);
            let cache = self.caches.get_mut(tenant);
            if cache.is_none_or(|cache| cache.prune(*segment)) {
                load.tenants.remove(tenant);
            }
            self.prune(*segment);
        }
    }

    fn prune(&mut self, segment: SegmentId) {
        if self
            .loads
            .get(&segment)
            .is_some_and(|load| load.tenants.is_empty())
        {
            self.loads.remove(&segment);
        }
    }

    /// Lets the past of all counts decay, now and then.
    pub(crate) fn roll(&mut self, now: PoolTime) {
        if now.since_ms(self.rolled) >= ROLL_MS {
            self.rolled = now;
            let caches = self.caches.values_mut();
            caches.for_each(|cache| cache.counts.roll(now.0));
        }
    }

    /// A get found an object.
    pub(crate) fn hit(&mut self, tenant: &TenantId, id: ObjectId, now: PoolTime) {
        if let Some(cache) = self.caches.get_mut(tenant) {
            cache.counts.lookups[HIT] += 1;
            self.steps += cache.touch(id, now.0);
        }
    }

    /// Gets or probes found none of these keys.
    pub(crate) fn missed<'a>(&mut self, tenant: &TenantId, keys: impl Iterator<Item = &'a Key>) {
        let mut keys = keys.peekable();
        if keys.peek().is_none() {
            return;
        }
        if let Some(cache) = self.caches.get_mut(tenant) {
            for key in keys {
                cache.counts.lookups[MISS] += 1;
                let hash = crate::digest::of_key(key.as_bytes());
                cache.counts.lookups[GHOST] += u64::from(cache.ghost.contains(hash));
            }
        }
    }

    /// A put was refused for want of space or quota.
    pub(crate) fn refused(&mut self, tenant: &TenantId) {
        if let Some(cache) = self.caches.get_mut(tenant) {
            cache.counts.refused_puts += 1;
        }
    }

    /// What a tenant has on a segment, without what is proposed to go, in bytes.
    pub(crate) fn held_on(&self, tenant: &TenantId, segment: SegmentId) -> u64 {
        let cache = self.caches.get(tenant);
        cache.map_or(0, |cache| cache.all_on(segment))
    }

    /// Bytes of a tenant that go with proposed evictions.
    pub(crate) fn leaving_bytes(&self, tenant: &TenantId) -> u64 {
        self.caches.get(tenant).map_or(0, Cache::leaving_bytes)
    }

    /// What lies on a segment, without what is proposed to go, in bytes.
    pub(crate) fn live_bytes(&self, segment: SegmentId) -> u64 {
        self.loads.get(&segment).map_or(0, |load| load.live_bytes)
    }
}

impl Leader {
    /// What is counted for autoscaling, of all tenants and of each. To be asked when a page is.
    #[must_use]
    pub fn signals(&self, state: &State) -> PoolSignals {
        let mut all = Counts::default();
        let mut tenants = Vec::with_capacity(self.evict.caches.len());
        for (id, cache) in &self.evict.caches {
            all.add(&cache.counts);
            tenants.push((id.clone(), cache.counts.signals()));
        }
        let fullness = |segment: &crate::segment::Segment| {
            let filled = u128::from(self.filled_bytes(segment.id));
            filled * 1000 / u128::from(segment.capacity_bytes().max(1))
        };
        let pressure = state.segments().map(fullness).max().unwrap_or(0);
        PoolSignals {
            all: all.signals(),
            pressure_per_mille: u64::try_from(pressure).unwrap_or(u64::MAX),
            tenants,
        }
    }

    /// How many entries eviction has looked at since this leader began.
    #[must_use]
    pub const fn eviction_steps(&self) -> u64 {
        self.evict.steps
    }

    /// Objects of the state that eviction has not learned of yet, if any are left: until then it
    /// can only evict what it knows.
    #[must_use]
    pub const fn learns_objects(&self) -> bool {
        self.evict.fill.is_some()
    }
}
