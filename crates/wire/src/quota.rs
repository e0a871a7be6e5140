//! What a tenant's quota comes to, as masters tell it to the tenant and to administrators.

use larder_types::{Borrowing, BoundKind, OnExceed, QuotaName, layout};
use serde::{Deserialize, Serialize};

/// A tenant's quota as it stands. Sizes are in bytes and count what is charged: aligned payload of
/// all replicas, and at least [`layout::CHARGED_MIN_BYTES`] an extent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantQuota {
    /// The guarantee that was asked for.
    pub guaranteed_bytes: u64,
    /// What it comes to: whole slabs, and less where all guarantees are more than the pool.
    pub effective_guaranteed_bytes: u64,
    /// What the limit comes to: not more than the pool. `None` is no limit.
    pub effective_limit_bytes: Option<u64>,
    /// The most that hard pins may hold.
    pub effective_pinned_bytes: u64,
    /// Whether it may hold more than its guarantee.
    pub borrowing: Borrowing,
    /// What a put beyond its own limits does.
    pub on_exceed: OnExceed,
    /// What it is charged beyond its guarantee.
    pub borrowed_bytes: u64,
    /// The most of its unused guarantee that others hold at the moment.
    pub lent_bytes: u64,
    /// The quota that it shares, if it names one.
    pub cohort: Option<CohortUsage>,
    /// Everything that bounds it; a put must fit into all of them.
    pub bounds: Vec<QuotaBound>,
    /// All guarantees of the pool as they were asked for.
    pub pool_requested_bytes: u64,
    /// Whether they are more than the pool has, so that all are scaled down.
    pub overcommitted: bool,
}

/// The quota that several tenants share, as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CohortUsage {
    /// Its name.
    pub quota: QuotaName,
    /// Whether it is set; one that is not bounds nothing.
    pub is_set: bool,
    /// How many tenants share it.
    pub tenants: u64,
    /// The guarantee that was asked for.
    pub guaranteed_bytes: u64,
    /// What it comes to.
    pub effective_guaranteed_bytes: u64,
    /// The limit that was asked for.
    pub limit_bytes: Option<u64>,
    /// What it comes to.
    pub effective_limit_bytes: Option<u64>,
    /// The limit of objects.
    pub limit_objects: Option<u64>,
    /// The most that hard pins of each of its tenants may hold.
    pub limit_pinned_bytes: Option<u64>,
    /// Whether they may hold more than the guarantee.
    pub borrowing: Borrowing,
    /// What a put beyond it does.
    pub on_exceed: OnExceed,
    /// What its tenants are charged, pending puts included.
    pub charged_bytes: u64,
    /// Their objects, pending ones included.
    pub charged_objects: u64,
}

/// One thing that bounds a tenant, as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaBound {
    /// What it is.
    pub kind: BoundKind,
    /// The limit, in bytes or objects; `None` where there is none, or where it moves with what
    /// others use.
    pub limit: Option<u64>,
    /// What is charged against it.
    pub charged: u64,
    /// What may be charged more; `None` is without bound.
    pub room: Option<u64>,
    /// What a put beyond it does.
    pub on_exceed: OnExceed,
}

impl TenantQuota {
    /// The first bound that an object of `size_bytes` in so many replicas would break now.
    #[must_use]
    pub fn refused_by(&self, size_bytes: u64, replicas: u8) -> Option<&QuotaBound> {
        let charged = layout::charged_bytes(size_bytes)
            .and_then(|bytes| bytes.checked_mul(u64::from(replicas)))
            .unwrap_or(u64::MAX);
        self.bounds.iter().find(|bound| {
            let asked = if bound.kind.counts_objects() {
                1
            } else {
                charged
            };
            bound.room.is_some_and(|room| asked > room)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_broken_bound_is_named() {
        let bound = |kind, room| QuotaBound {
            kind,
            limit: None,
            charged: 0,
            room,
            on_exceed: OnExceed::EvictOwn,
        };
        let quota = TenantQuota {
            bounds: vec![
                bound(BoundKind::Bytes, Some(40_000)),
                bound(BoundKind::Objects, Some(1)),
                bound(BoundKind::Memory, Some(20_000)),
            ],
            ..TenantQuota::default()
        };
        let by = |size, replicas| quota.refused_by(size, replicas).map(|bound| bound.kind);
        assert_eq!(by(1, 1), None);
        assert_eq!(by(1, 2), Some(BoundKind::Memory), "two records");
        assert_eq!(by(1, 3), Some(BoundKind::Bytes));
        assert_eq!(by(u64::MAX, 1), Some(BoundKind::Bytes));
    }
}
