//! What guarantees and limits come to in the pool as it is: a function of the state alone, so
//! that every replica and every leader counts the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use larder_types::{QuotaName, TenantId};

use crate::state::State;

/// What a policy comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// What may be charged whatever others do, in bytes.
    pub guaranteed_bytes: u64,
    /// What the limit comes to, in bytes: not more than the pool has. `None` is no limit. For
    /// people and for what is derived from it: puts are held to the limit itself, and to space.
    pub limit_bytes: Option<u64>,
    /// The most that hard pins may hold, in bytes.
    pub limit_pinned_bytes: u64,
}

/// What all policies come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effective {
    /// All mounted segments, in bytes.
    pub capacity_bytes: u64,
    /// The guarantees that tenants and quotas ask for, in whole slabs; those of tenants within a
    /// quota's are counted once.
    pub requested_bytes: u64,
    /// The size of a slab, in bytes: the largest, where segments differ; 0 without segments.
    pub slab_bytes: u64,
    /// Each tenant that is not being deleted.
    pub tenants: BTreeMap<TenantId, Share>,
    /// Each quota.
    pub quotas: BTreeMap<QuotaName, Share>,
}

impl Effective {
    /// Guarantees a quota so much, and its tenants their parts of that.
    fn guarantee_cohort(&mut self, name: &QuotaName, granted: u64, cohort: &[(&TenantId, u64)]) {
        if let Some(share) = self.quotas.get_mut(name) {
            share.guaranteed_bytes = granted;
        }
        let wishes: Vec<u64> = cohort.iter().map(|(_, wish)| *wish).collect();
        let parts = split_slabs(granted, &wishes, self.slab_bytes);
        for ((id, _), part) in cohort.iter().zip(parts) {
            self.guarantee(id, part);
        }
    }

    /// Whether more is guaranteed than the pool has. A pool that nobody has mounted yet has
    /// promised nothing too much.
    #[must_use]
    pub const fn is_overcommitted(&self) -> bool {
        self.capacity_bytes > 0 && self.requested_bytes > self.capacity_bytes
    }
}

/// Who has a guarantee of the pool: a quota with its tenants, or a tenant without one.
#[derive(Clone, Copy)]
enum Unit<'a> {
    Quota(&'a QuotaName),
    Tenant(&'a TenantId),
}

/// Counts everything. Reads all policies and segments, no object; to be kept until one of them
/// changes.
#[must_use]
pub fn effective(state: &State) -> Effective {
    let capacity_bytes = state.capacity_bytes();
    let slab_bytes = state.segments().map(|segment| segment.slab_bytes).max();
    let slab_bytes = slab_bytes.unwrap_or(0);
    let slabs = |bytes: u64| whole_slabs(bytes, slab_bytes);
    let mut members: BTreeMap<&QuotaName, Vec<(&TenantId, u64)>> =
        state.quotas.keys().map(|name| (name, Vec::new())).collect();
    let mut units = Vec::new();
    let mut result = Effective {
        capacity_bytes,
        slab_bytes,
        ..Effective::default()
    };
    for (id, tenant) in state.tenants().filter(|(_, tenant)| !tenant.deleting) {
        let policy = &tenant.policy;
        let share = share(
            policy.limit_bytes,
            policy.limit_pinned_bytes,
            capacity_bytes,
        );
        result.tenants.insert(id.clone(), share);
        let wish = slabs(policy.guaranteed_bytes);
        match policy
            .cohort
            .as_ref()
            .and_then(|name| members.get_mut(name))
        {
            Some(cohort) => cohort.push((id, wish)),
            None => units.push((Unit::Tenant(id), wish)),
        }
    }
    for (name, policy) in &state.quotas {
        let share = share(
            policy.limit_bytes,
            policy.limit_pinned_bytes,
            capacity_bytes,
        );
        result.quotas.insert(name.clone(), share);
        let within = members
            .get(name)
            .into_iter()
            .flatten()
            .map(|(_, wish)| *wish);
        let within = within.fold(0, u64::saturating_add);
        units.push((
            Unit::Quota(name),
            slabs(policy.guaranteed_bytes).max(within),
        ));
    }
    let wishes: Vec<u64> = units.iter().map(|(_, wish)| *wish).collect();
    result.requested_bytes = wishes.iter().copied().fold(0, u64::saturating_add);
    let granted = split_slabs(capacity_bytes, &wishes, slab_bytes);
    for ((unit, _), granted) in units.iter().zip(granted) {
        match unit {
            Unit::Tenant(id) => result.guarantee(id, granted),
            Unit::Quota(name) => {
                let cohort = members.get(name).map(Vec::as_slice).unwrap_or_default();
                result.guarantee_cohort(name, granted, cohort);
            }
        }
    }
    result
}

impl Effective {
    fn guarantee(&mut self, tenant: &TenantId, bytes: u64) {
        if let Some(share) = self.tenants.get_mut(tenant) {
            share.guaranteed_bytes = bytes;
        }
    }
}

fn share(limit_bytes: Option<u64>, pinned_bytes: Option<u64>, capacity_bytes: u64) -> Share {
    // A pool that nobody has mounted yet scales nothing: its size is not known.
    let limit_bytes = match (limit_bytes, capacity_bytes) {
        (limit, 0) => limit,
        (limit, capacity) => limit.map(|limit| limit.min(capacity)),
    };
    // A quarter: pins that fill a tenant's share would leave nothing to evict, and every put of
    // it would be refused.
    let quarter = limit_bytes.unwrap_or(capacity_bytes) / 4;
    Share {
        guaranteed_bytes: 0,
        limit_bytes,
        limit_pinned_bytes: pinned_bytes.unwrap_or(quarter),
    }
}

fn whole_slabs(bytes: u64, slab_bytes: u64) -> u64 {
    bytes
        .checked_next_multiple_of(slab_bytes.max(1))
        .unwrap_or(bytes)
}

/// As [`split`], in whole slabs: of a part of one nobody could make use, and what is kept of many
/// such parts would keep everybody from all slabs.
fn split_slabs(whole_bytes: u64, wishes_bytes: &[u64], slab_bytes: u64) -> Vec<u64> {
    let slab_bytes = slab_bytes.max(1);
    let sum: u128 = wishes_bytes.iter().map(|wish| u128::from(*wish)).sum();
    if sum <= u128::from(whole_bytes) {
        return wishes_bytes.to_vec();
    }
    let slabs = wishes_bytes.iter().map(|wish| wish.div_ceil(slab_bytes));
    let parts = split(whole_bytes / slab_bytes, &slabs.collect::<Vec<_>>());
    // At most as many as the whole has, so it fits.
    parts.into_iter().map(|slabs| slabs * slab_bytes).collect()
}

/// `wishes` if they fit into `whole`, else as much of it for each as its part of all wishes. What
/// rounding leaves goes, one each, to the largest remainders; equals in the order given.
fn split(whole: u64, wishes: &[u64]) -> Vec<u64> {
    let sum: u128 = wishes.iter().map(|wish| u128::from(*wish)).sum();
    if sum <= u128::from(whole) {
        return wishes.to_vec();
    }
    let part = |wish: &u64| u128::from(*wish) * u128::from(whole);
    // A part is at most `whole`, so it fits.
    let mut parts: Vec<u64> = wishes
        .iter()
        .map(|wish| u64::try_from(part(wish) / sum).unwrap_or(whole))
        .collect();
    let given: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    let left = usize::try_from(u128::from(whole) - given).unwrap_or(0);
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by_key(|at| (Reverse(part(&wishes[*at]) % sum), *at));
    for at in order.into_iter().take(left) {
        parts[at] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_fits_is_given_as_asked() {
        assert_eq!(split(10, &[3, 7]), [3, 7]);
        assert_eq!(split(10, &[]), [0; 0]);
        assert_eq!(split(0, &[0, 0]), [0, 0]);
    }

    #[test]
    fn what_does_not_fit_shrinks_in_proportion_with_a_fixed_remainder() {
        assert_eq!(split(100, &[100, 50]), [67, 33]);
        assert_eq!(split(10, &[10, 10, 10]), [4, 3, 3], "equals in order");
        assert_eq!(split(0, &[5, 5]), [0, 0]);
        assert_eq!(
            split(u64::MAX, &[u64::MAX, u64::MAX]),
            [1 << 63, (1 << 63) - 1]
        );
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_nobody_gets_more_than_asked(
            whole in 0..1_000_000u64,
            wishes in prop::collection::vec(0..1_000_000u64, 0..20),
        ) {
            let parts = split(whole, &wishes);
            let sum: u64 = wishes.iter().sum();
            prop_assert_eq!(parts.iter().sum::<u64>(), sum.min(whole));
            for (part, wish) in parts.iter().zip(&wishes) {
                prop_assert!(part <= wish);
            }
        }
    }
}
