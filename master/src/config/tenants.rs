//! Tenants and quotas, as files and the admin port name them.

use larder_store::{QuotaPolicy, TenantPolicy};
use larder_types::{Access, Borrowing, OnExceed, QuotaName, TenantId};
use serde::Deserialize;

/// One line of the tenants file, and the body of `PUT /v1/tenants/{id}` with the id in the path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The tenant.
    pub tenant: TenantId,
    /// What it may do.
    #[serde(default)]
    pub access: Access,
    /// What it may be charged whatever others do.
    #[serde(default)]
    pub guaranteed_bytes: u64,
    /// The most bytes that it may be charged.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// The most objects that it may hold.
    #[serde(default)]
    pub limit_objects: Option<u64>,
    /// The most bytes that its views may hold on one agent.
    #[serde(default)]
    pub view_bytes: Option<u64>,
    /// The most bytes that its hard pins may hold; absent is a quarter of its limit.
    #[serde(default)]
    pub limit_pinned_bytes: Option<u64>,
    /// Whether it may hold more than its guarantee.
    #[serde(default)]
    pub borrowing: Borrowing,
    /// What a put beyond its limits does.
    #[serde(default)]
    pub on_exceed: OnExceed,
    /// The quota that it shares.
    #[serde(default)]
    pub cohort: Option<QuotaName>,
}

impl TenantConfig {
    /// The tenant and what it may do.
    #[must_use]
    pub fn into_policy(self) -> (TenantId, TenantPolicy) {
        let policy = TenantPolicy {
            access: self.access,
            guaranteed_bytes: self.guaranteed_bytes,
            limit_bytes: self.limit_bytes,
            limit_objects: self.limit_objects,
            view_bytes: self.view_bytes,
            limit_pinned_bytes: self.limit_pinned_bytes,
            borrowing: self.borrowing,
            on_exceed: self.on_exceed,
            cohort: self.cohort,
        };
        (self.tenant, policy)
    }
}

/// One line of the quotas file, and the body of `PUT /v1/quotas/{name}` with the name in the path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaConfig {
    /// The quota.
    pub quota: QuotaName,
    /// What its tenants may be charged whatever others do.
    #[serde(default)]
    pub guaranteed_bytes: u64,
    /// The most bytes that they may be charged.
    #[serde(default)]
    pub limit_bytes: Option<u64>,
    /// The most objects that they may hold.
    #[serde(default)]
    pub limit_objects: Option<u64>,
    /// The most bytes that hard pins may hold.
    #[serde(default)]
    pub limit_pinned_bytes: Option<u64>,
    /// Whether they may hold more than the guarantee.
    #[serde(default)]
    pub borrowing: Borrowing,
    /// What a put beyond it does.
    #[serde(default)]
    pub on_exceed: OnExceed,
}

impl QuotaConfig {
    /// The quota and what its tenants may hold.
    #[must_use]
    pub fn into_policy(self) -> (QuotaName, QuotaPolicy) {
        let policy = QuotaPolicy {
            guaranteed_bytes: self.guaranteed_bytes,
            limit_bytes: self.limit_bytes,
            limit_objects: self.limit_objects,
            limit_pinned_bytes: self.limit_pinned_bytes,
            borrowing: self.borrowing,
            on_exceed: self.on_exceed,
        };
        (self.quota, policy)
    }
}
