//! Quotas of the store as masters tell them.

use larder_store::{Bound, CohortReport, Usage};
use larder_wire::quota::{CohortUsage, QuotaBound, TenantQuota};

/// What a tenant's quota comes to.
pub(crate) fn of_tenant(usage: &Usage) -> TenantQuota {
    let (policy, report) = (&usage.policy, &usage.quota);
    TenantQuota {
        guaranteed_bytes: policy.guaranteed_bytes,
        effective_guaranteed_bytes: report.share.guaranteed_bytes,
        effective_limit_bytes: report.share.limit_bytes,
        effective_pinned_bytes: report.share.limit_pinned_bytes,
        borrowing: policy.borrowing,
        on_exceed: policy.on_exceed,
        borrowed_bytes: report.borrowed_bytes,
        lent_bytes: report.lent_bytes,
        cohort: report.cohort.as_ref().map(of_cohort),
        bounds: report.bounds.iter().map(bound).collect(),
        pool_requested_bytes: report.requested_bytes,
        overcommitted: report.overcommitted,
    }
}

/// What the tenants of a quota hold together.
pub(crate) fn of_cohort(report: &CohortReport) -> CohortUsage {
    let policy = report.policy.clone().unwrap_or_default();
    CohortUsage {
        quota: report.name.clone(),
        is_set: report.policy.is_some(),
        tenants: report.tenants,
        guaranteed_bytes: policy.guaranteed_bytes,
        effective_guaranteed_bytes: report.share.guaranteed_bytes,
        limit_bytes: policy.limit_bytes,
        effective_limit_bytes: report.share.limit_bytes,
        limit_objects: policy.limit_objects,
        limit_pinned_bytes: policy.limit_pinned_bytes,
        borrowing: policy.borrowing,
        on_exceed: policy.on_exceed,
        charged_bytes: report.charged_bytes,
        charged_objects: report.charged_objects,
    }
}

const fn bound(bound: &Bound) -> QuotaBound {
    let Bound {
        kind,
        limit,
        charged,
        room,
        on_exceed,
    } = *bound;
    QuotaBound {
        kind,
        limit,
        charged,
        room,
        on_exceed,
    }
}
