//! Quotas as plain numbers, and which tenants share which.

use std::collections::BTreeMap;

use super::{TenantSettings, bytes_of, is_label_key, name_of, namespace_of};
use crate::problem::{Problem, Problems};
use crate::quota::{Borrowing, CacheQuota, Guaranteed, OnExceed, Pinned};
use crate::tenant::Limit;

/// Guarantee and limits in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes that may be taken whatever others do; 0 is none.
    pub guaranteed_bytes: u64,
    /// Most bytes; at least 1.
    pub limit_bytes: Option<u64>,
    /// Most objects; at least 1.
    pub limit_objects: Option<u64>,
    /// Most bytes that hard pins hold; `None` means a quarter of the limit.
    pub limit_pinned_bytes: Option<u64>,
    /// Whether more than the guarantee may be taken.
    pub borrowing: Borrowing,
    /// What a put beyond does.
    pub on_exceed: OnExceed,
}

/// What a spec says of them.
pub(super) struct Said<'a> {
    pub(super) guaranteed: Option<&'a Guaranteed>,
    pub(super) limit: Option<&'a Limit>,
    pub(super) pinned: Option<&'a Pinned>,
    pub(super) borrowing: Option<Borrowing>,
    pub(super) on_exceed: Option<OnExceed>,
}

impl Said<'_> {
    /// Whether it says nothing.
    pub(super) const fn is_silent(&self) -> bool {
        self.guaranteed.is_none()
            && self.limit.is_none()
            && self.pinned.is_none()
            && self.borrowing.is_none()
            && self.on_exceed.is_none()
    }

    pub(super) fn figures(&self, problems: &mut Vec<Problem>) -> Figures {
        let guaranteed = self
            .guaranteed
            .and_then(|one| bytes_of(&one.bytes, "spec.guaranteed.bytes", problems));
        let limit_bytes = self
            .limit
            .and_then(|limit| limit.bytes.as_ref())
            .and_then(|bytes| bytes_of(bytes, "spec.limit.bytes", problems));
        let limit_objects = self.limit.and_then(|limit| limit.objects);
        let limit_pinned_bytes = self
            .pinned
            .and_then(|one| bytes_of(&one.bytes, "spec.pinned.bytes", problems));
        for (path, count) in [
            ("spec.guaranteed.bytes", guaranteed),
            ("spec.limit.bytes", limit_bytes),
            ("spec.limit.objects", limit_objects),
        ] {
            if count == Some(0) {
                problems.push(Problem::new(path, "must be more than 0"));
            }
        }
        if guaranteed
            .zip(limit_bytes)
            .is_some_and(|(g, limit)| g > limit)
        {
            let message = "must not be more than limit.bytes";
            problems.push(Problem::new("spec.guaranteed", message));
        }
        let borrowing = self.borrowing.unwrap_or_default();
        if borrowing == Borrowing::Forbidden && self.guaranteed.is_none() {
            let message = "must be Allowed without guaranteed, or nothing could be stored";
            problems.push(Problem::new("spec.borrowing", message));
        }
        Figures {
            guaranteed_bytes: guaranteed.unwrap_or(0),
            limit_bytes,
            limit_objects,
            limit_pinned_bytes,
            borrowing,
            on_exceed: self.on_exceed.unwrap_or_default(),
        }
    }
}

/// A quota in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaSettings {
    /// Namespace of the CacheQuota.
    pub namespace: String,
    /// Name of the CacheQuota, and of the quota in the pool.
    pub name: String,
    /// Name of its CachePool, in the same namespace.
    pub pool_name: String,
    /// Which tenants of the pool share it.
    pub tenants: TenantChoice,
    /// Guarantee and limits.
    pub figures: Figures,
}

/// Which tenants share a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantChoice {
    /// CacheTenants of these names.
    Named(Vec<String>),
    /// CacheTenants with these labels.
    Labelled(BTreeMap<String, String>),
}

impl QuotaSettings {
    /// Whether the quota names a tenant of its namespace.
    #[must_use]
    pub fn names(&self, tenant: &TenantSettings) -> bool {
        let same = tenant.namespace == self.namespace && tenant.pool_name == self.pool_name;
        same && match &self.tenants {
            TenantChoice::Named(names) => names.contains(&tenant.name),
            TenantChoice::Labelled(labels) => labels
                .iter()
                .all(|(key, value)| tenant.labels.get(key) == Some(value)),
        }
    }
}

impl TenantSettings {
    /// The quota that the tenant shares: of those that name it the one in its `quotaRef`, else
    /// the first of `quotas`, which stand in the order of age.
    #[must_use]
    pub fn quota_of<'a>(&self, quotas: &'a [QuotaSettings]) -> Option<&'a QuotaSettings> {
        let mut naming = quotas.iter().filter(|quota| quota.names(self));
        let wanted = self.quota_name.as_deref();
        let first = naming.clone().next();
        naming
            .find(|quota| Some(quota.name.as_str()) == wanted)
            .or(first)
    }
}

impl CacheQuota {
    /// The quota in numbers. Checks all that they rest on, as `CachePool::settings` does.
    ///
    /// # Errors
    /// All [`Problems`] that were found.
    pub fn settings(&self) -> Result<QuotaSettings, Problems> {
        let mut problems = Vec::new();
        let name = name_of(self.metadata.name.as_deref(), &mut problems);
        let spec = &self.spec;
        let said = Said {
            guaranteed: spec.guaranteed.as_ref(),
            limit: spec.limit.as_ref(),
            pinned: spec.pinned.as_ref(),
            borrowing: spec.borrowing,
            on_exceed: spec.on_exceed,
        };
        let figures = said.figures(&mut problems);
        let tenants = match (&spec.tenants, &spec.selector) {
            (Some(names), None) => TenantChoice::Named(names.clone()),
            (None, Some(selector)) => {
                let labels = selector.match_labels.clone();
                for key in labels.keys().filter(|key| !is_label_key(key)) {
                    let message = format!("'{key}' is not a label key, such as example.com/team");
                    problems.push(Problem::new("spec.selector.matchLabels", message));
                }
                TenantChoice::Labelled(labels)
            }
            _ => {
                let message = "must have exactly one of tenants and selector";
                problems.push(Problem::new("spec", message));
                TenantChoice::Named(Vec::new())
            }
        };
        Problems::unless_empty(problems)?;
        Ok(QuotaSettings {
            namespace: namespace_of(self.metadata.namespace.as_deref()),
            name,
            pool_name: spec.pool_ref.name.clone(),
            tenants,
            figures,
        })
    }
}
