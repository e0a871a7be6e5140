//! `CacheQuota`: what several tenants of a pool may take together, and the figures that a
//! CacheTenant and a CacheQuota have in common.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::quantity::Quantity;
use crate::tenant::{Limit, PoolRef};

/// Most rows of tenants in a status; `tenantCount` counts all.
pub const MAX_ROWS: usize = 100;
/// Most names in `spec.tenants`; more tenants are chosen by a selector.
const MAX_TENANTS: u32 = 256;

/// What several tenants of a pool may take together.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "larder.dev",
    version = "v1alpha1",
    kind = "CacheQuota",
    namespaced,
    status = "CacheQuotaStatus",
    derive = "PartialEq",
    doc = "What several CacheTenants of a pool may take together.",
    shortname = "cquota",
    category = "larder",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(
        name = "Tenants",
        type_ = "integer",
        description = "Tenants that share the quota",
        json_path = ".status.tenantCount"
    ),
    printcolumn(
        name = "Used",
        type_ = "string",
        description = "What the objects of these tenants are charged",
        json_path = ".status.used"
    ),
    printcolumn(
        name = "Guaranteed",
        type_ = "string",
        description = "Bytes that these tenants may take whatever others do",
        json_path = ".spec.guaranteed.bytes"
    ),
    printcolumn(
        name = "Limit",
        type_ = "string",
        description = "Most bytes that these tenants may take",
        json_path = ".spec.limit.bytes"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    validation = Rule::new("size(self.metadata.name) <= 63")
        .message("metadata.name must be at most 63 characters: each of its tenants carries it")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.tenants) != has(self.selector)")
        .message("must have exactly one of tenants and selector"),
    validation = Rule::new("has(self.guaranteed) || has(self.limit)")
        .message("must give guaranteed, limit or both"),
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
pub struct CacheQuotaSpec {
    /// The pool, in the same namespace.
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("cannot be changed; create another CacheQuota"))]
    pub pool_ref: PoolRef,
    /// Names of the CacheTenants that share the quota, in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "names_schema")]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub tenants: Option<Vec<String>>,
    /// Instead of names: the pool's CacheTenants with these labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<TenantSelector>,
    /// What the tenants may take whatever others do; their own guarantees lie within it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guaranteed: Option<Guaranteed>,
    /// The most that the tenants may take together. Absent means no limit but the pool's size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// How much hard pins may hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Pinned>,
    /// Whether the tenants may take more than the guarantee. Absent means Allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing: Option<Borrowing>,
    /// What a put beyond the quota does. Absent means EvictOwn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_exceed: Option<OnExceed>,
}

/// Chooses tenants by their labels.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TenantSelector {
    /// Labels that a CacheTenant must carry. Empty means every tenant of the pool.
    #[serde(default)]
    #[schemars(schema_with = "labels_schema")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub match_labels: BTreeMap<String, String>,
}

/// What may be taken whatever others do. Memory is guaranteed in whole slabs, so the guarantee is
/// rounded up to the pool's slabSize. Medium Dram; other media get fields of their own.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Guaranteed {
    /// Bytes, replicas and alignment included, such as 10Gi.
    #[x_kube(validation = Rule::new("quantity(self).isGreaterThan(quantity('0'))")
        .message("must be more than 0"))]
    pub bytes: Quantity,
}

/// How much hard pins may hold.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pinned {
    /// Most bytes of objects that are pinned. 0 means that nothing can be pinned.
    pub bytes: Quantity,
}

/// Whether memory beyond a guarantee may be used while nobody needs it.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Borrowing {
    /// Up to the limit, of what the unused guarantees of others leave.
    #[default]
    Allowed,
    /// Not at all: the guarantee is the limit.
    Forbidden,
}

/// What a put beyond the quota does.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnExceed {
    /// The tenant's own coldest objects go first; it is refused when that does not help.
    #[default]
    EvictOwn,
    /// It is refused.
    Refuse,
}

/// Names a CacheQuota.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaRef {
    /// Name of the CacheQuota.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"), length(max = 253))]
    pub name: String,
}

/// What the operator reports about a quota.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheQuotaStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// State of the quota, one entry per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// What is guaranteed, in bytes: the spec's and at least the sum of its tenants' own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
    /// What the guarantee comes to: whole slabs, and less while all guarantees of the pool are
    /// more than it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_bytes: Option<u64>,
    /// Bytes that the objects of its tenants are charged, puts under way included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// The same in three digits for people, such as 1.5Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub used: Option<String>,
    /// Number of the objects of its tenants, puts under way included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// How many tenants share it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_count: Option<u32>,
    /// The first hundred of them by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub tenants: Vec<QuotaRow>,
}

/// One tenant of a quota.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QuotaRow {
    /// Name of the CacheTenant.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Bytes that its objects are charged.
    pub used_bytes: u64,
    /// Number of its objects.
    pub objects: u64,
}

fn names_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_TENANTS,
        "items": {
            "type": "string",
            "maxLength": 253,
            "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        },
    })
}

// As for nodes: keys cannot be bounded in a structural schema.
fn labels_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "type": "string",
            "maxLength": 63,
            "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$",
        },
    })
}
