//! `CacheTenant`: who may use a pool, as what, and how much of it.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::quantity::Quantity;
use crate::quota::{Borrowing, Guaranteed, OnExceed, Pinned, QuotaRef};

/// One tenant of a pool: an identity with its own keys and limits.
// Namespace (63) + '.' + name (64) fit an id of 128.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "larder.dev",
    version = "v1alpha1",
    kind = "CacheTenant",
    namespaced,
    status = "CacheTenantStatus",
    derive = "PartialEq",
    doc = "A tenant of a CachePool: an identity with its own keys and limits.",
    shortname = "ctenant",
    category = "larder",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(
        name = "Used",
        type_ = "string",
        description = "What the tenant's objects take",
        json_path = ".status.used"
    ),
    printcolumn(
        name = "Limit",
        type_ = "string",
        description = "Most bytes that the tenant may take",
        json_path = ".spec.limit.bytes"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new("has(self.spec.tenantId) || size(self.metadata.name) <= 64")
        .message("metadata.name must be at most 64 characters, or spec.tenantId must be given"),
    // A name has at most 253.
    validation = Rule::new("size(self.metadata.name) <= 242").message(
        "metadata.name must be at most 242 characters: the ConfigMap <name>-connection is named \
         after it; choose a shorter name"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "has(self.tenantId) == has(oldSelf.tenantId) && \
         (!has(self.tenantId) || self.tenantId == oldSelf.tenantId)"
    )
    .message("cannot be set, changed or removed after creation; create another CacheTenant")
    .field_path(".tenantId"),
    validation = Rule::new(
        "!has(self.quotaRef) || !(has(self.guaranteed) || has(self.limit) || has(self.pinned) || \
         has(self.borrowing) || has(self.onExceed))"
    )
    .message(
        "takes the figures of that CacheQuota; leave quotaRef out, or guaranteed, limit, pinned, \
         borrowing and onExceed"
    )
    .field_path(".quotaRef"),
    validation = Rule::new(
        "!has(self.guaranteed) || !has(self.limit) || !has(self.limit.bytes) || \
         quantity(self.guaranteed.bytes).compareTo(quantity(self.limit.bytes)) <= 0"
    )
    .message("must not be more than limit.bytes")
    .field_path(".guaranteed"),
    validation = Rule::new(
        "!has(self.borrowing) || self.borrowing == 'Allowed' || has(self.guaranteed)"
    )
    .message("must be Allowed without guaranteed, or nothing could be stored")
    .field_path(".borrowing")
)]
pub struct CacheTenantSpec {
    /// The pool, in the same namespace.
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("cannot be changed; create another CacheTenant"))]
    pub pool_ref: PoolRef,
    /// Identity of the tenant in the pool. Absent means `<namespace>.<name>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), length(max = 128))]
    pub tenant_id: Option<String>,
    /// Who may act as this tenant. `larder up` knows no ServiceAccounts; there the bearer of the
    /// tenant's token file acts as it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[x_kube(merge_strategy = ListMerge::Atomic)]
    pub subjects: Vec<Subject>,
    /// What the tenant may do with its objects.
    #[serde(default)]
    pub access: Access,
    /// What the tenant may take whatever others do. Absent means nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed: Option<Guaranteed>,
    /// How much the tenant may take. Absent means no limit but the pool's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// How much the tenant's hard pins may hold. Absent means a quarter of its limit, or of the
    /// pool without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
    /// Whether the tenant may take more than the guarantee. Absent means Allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing: Option<Borrowing>,
    /// What a put beyond the limits does. Absent means EvictOwn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exceed: Option<OnExceed>,
    /// Instead of figures of its own: the CacheQuota that the tenant shares. That quota has to
    /// name the tenant. A tenant with figures of its own may be named by a quota, too, and is then
    /// held to both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_ref: Option<QuotaRef>,
    /// Most bytes that readers on one node may hold as views at a time; beyond it a get copies.
    /// 0 means that every get copies. Absent means a quarter of the pool's size on a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_bytes: Option<Quantity>,
}

/// Names a CachePool.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// Name of the CachePool.
    #[schemars(regex(pattern = "^[a-z][-a-z0-9]*$"), length(max = 40))]
    pub name: String,
}

/// Somebody who may act as a tenant.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subject {
    /// Pods that run under this ServiceAccount.
    pub service_account: ServiceAccountRef,
}

/// Names a ServiceAccount.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccountRef {
    /// Name of the ServiceAccount.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"), length(max = 253))]
    pub name: String,
    /// Namespace of the ServiceAccount. Absent means the tenant's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub namespace: Option<String>,
}

/// What a tenant may do with its objects.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Put, get and remove.
    #[default]
    ReadWrite,
    /// Get only.
    ReadOnly,
    /// Put and remove only.
    WriteOnly,
}

/// How much a tenant may take. From nine tenths of it on the tenant's own coldest objects are
/// evicted; a put beyond it for which none may go, as they are pinned or being read, is refused
/// with the reason.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.bytes) || has(self.objects)")
    .message("must give bytes, objects or both; leave limit out for no limit"))]
pub struct Limit {
    /// Most bytes, replicas and alignment included, such as 10Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("quantity(self).isGreaterThan(quantity('0'))")
        .message("must be more than 0"))]
    pub bytes: Option<Quantity>,
    /// Most objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub objects: Option<u64>,
}

/// What the operator reports about a tenant.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheTenantStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// State of the tenant, one entry per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// Identity of the tenant in the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// What the tenant's guarantee comes to, in bytes: whole slabs, and less while all guarantees
    /// of the pool are more than it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_bytes: Option<u64>,
    /// Name of the CacheQuota that the tenant shares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub quota: Option<String>,
    /// Bytes that the tenant's objects are charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// The same in three digits for people, such as 1.5Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub used: Option<String>,
    /// Number of the tenant's objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
}
