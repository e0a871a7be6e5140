//! What a turn evicts: what is over a watermark, coldest first, until it is below the low one.
//!
//! Marks are kept for each segment and each tenant with a limit. A node is the sum of its segments:
//! it is over a mark only if one of them is, and that one drains.
//!
//! On a segment those lose first who hold most beyond what is guaranteed to them, and nobody loses
//! what is guaranteed. Replicas beyond the first go before objects do.

use std::collections::BTreeSet;

use larder_types::{OnExceed, PoolTime, SegmentId, TenantId};

use super::cache::Class;
use super::expel::{Aim, Budget};
use super::guard::Kept;
use super::signals::EvictionCause;
use crate::leader::Leader;
use crate::op::Op;
use crate::request::TenantPolicy;
use crate::state::State;

/// After this part of what is to go it is looked again at who holds most.
const BATCH_PART: u64 = 8;

impl Leader {
    /// The part of [`Leader::tick`] that need not wait for its time while
    /// [`Leader::turn_goes_on`]: what is over its watermarks, in ops to propose.
    pub fn evict(&mut self, state: &State, now: PoolTime) -> Vec<Op> {
        // What is guaranteed is spared, as of the latest op.
        self.refresh_books(state);
        let ops = self.evict_turn(state, now);
        self.touch(state, &ops);
        ops
    }

    fn evict_turn(&mut self, state: &State, now: PoolTime) -> Vec<Op> {
        let most = self.settings.max_touched_objects as usize;
        self.evict.fill(state, most, now);
        self.evict.sweep(state, most, now);
        self.evict.roll(now);
        let crowded = self.overlay.in_flight >= self.settings.max_in_flight_ops;
        self.evict.is_busy = false;
        if !self.settings.evict || crowded {
            return Vec::new();
        }
        let mut budget = Budget::of_a_turn(
            self.settings.max_touched_objects,
            std::mem::take(&mut self.evict.puts),
        );
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

    /// Whether eviction has something to do and should not wait for the next tick: objects that
    /// are over a watermark, or to learn of.
    #[must_use]
    pub fn turn_goes_on(&self) -> bool {
        self.evict.is_busy || self.evict.fill.is_some() || !self.evict.gone.is_empty()
    }

    /// By how many bytes a tenant is over this share of its limit, what is proposed to go not
    /// counted.
    pub(crate) fn over_limit(&self, state: &State, tenant: &TenantId, per_mille: u32) -> u64 {
        let held = state.tenant(tenant).filter(|held| !held.is_deleting());
        // Whose puts are refused at the limit loses nothing for it.
        let evicts = |policy: &TenantPolicy| policy.on_exceed == OnExceed::EvictOwn;
        let policy = held
            .map(|held| &held.policy)
            .filter(|policy| evicts(policy));
        let limit = policy.and_then(|policy| policy.limit_bytes);
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
        let charged = self.charged_bytes(state, tenant);
        self.books.excess_bytes(tenant, charged)
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

    /// Whether a segment stays at its low watermark with `bytes` more: what is copied there to
    /// make up for something must not push out what is there, or the two would go on for ever.
    pub(crate) fn has_slack(&self, state: &State, segment: SegmentId, bytes: u64) -> bool {
        self.stays_below(state, segment, bytes, self.settings.low_watermark)
    }

    /// Whether a segment is no fuller than a watermark with `bytes` more.
    pub(crate) fn stays_below(
        &self,
        state: &State,
        segment: SegmentId,
        bytes: u64,
        per_mille: u32,
    ) -> bool {
        let most = state
            .segment(segment)
            .map_or(0, |s| share(s.capacity_bytes(), per_mille));
        !self.settings.evict || self.filled_bytes(segment).saturating_add(bytes) <= most
    }

    /// The same for what a tenant with a limit is charged.
    pub(crate) fn fits_tenant(&self, state: &State, tenant: &TenantId, bytes: u64) -> bool {
        let limit = state
            .tenant(tenant)
            .and_then(|held| held.policy.limit_bytes);
        let low = if self.settings.evict {
            self.settings.low_watermark
        } else {
            1_000
        };
        let charged = self.charged_bytes(state, tenant).saturating_add(bytes);
        limit.is_none_or(|limit| charged <= share(limit, low))
            && self.books.admits(state, tenant, bytes)
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
            if class == Class::Surplus {
                // What stays is counted once: the last pass sees all of it.
                budget.kept = Kept::default();
            }
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
}

/// This share of a number, per mille.
fn share(of: u64, per_mille: u32) -> u64 {
    let share = u128::from(of) * u128::from(per_mille) / 1000;
    u64::try_from(share).unwrap_or(u64::MAX)
}
