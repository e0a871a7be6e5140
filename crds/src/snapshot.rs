//! `CacheSnapshot`: what the masters of a pool know, kept under a name; and what a pool's spec says
//! of where snapshots are kept and of the one that the pool begins from.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::tenant::PoolRef;

/// What the masters of a pool know at one moment, kept under the name of the object.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "larder.dev",
    version = "v1alpha1",
    kind = "CacheSnapshot",
    namespaced,
    status = "CacheSnapshotStatus",
    derive = "PartialEq",
    doc = "What the masters of a pool know at one moment: tenants, quotas and where objects are.",
    shortname = "csnap",
    category = "larder",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(
        name = "Objects",
        type_ = "integer",
        description = "Objects that it knows of",
        json_path = ".status.objects"
    ),
    printcolumn(
        name = "Size",
        type_ = "string",
        description = "Size of its file",
        json_path = ".status.size"
    ),
    printcolumn(
        name = "Taken",
        type_ = "date",
        description = "When it was taken",
        json_path = ".status.takenAt"
    ),
    printcolumn(
        name = "Location",
        type_ = "string",
        description = "Where it is kept",
        json_path = ".status.location",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    ),
    validation = Rule::new(
        "size(self.metadata.name) <= 63 && self.metadata.name.matches('^[-a-z0-9]*$')"
    )
    .message("metadata.name must be at most 63 characters of a-z, 0-9 and '-'")
)]
#[serde(rename_all = "camelCase")]
pub struct CacheSnapshotSpec {
    /// The pool, in the same namespace. A snapshot of this object's name that the pool has already
    /// is shown and not taken again.
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("cannot be changed; create another CacheSnapshot"))]
    pub pool_ref: PoolRef,
    /// What becomes of the snapshot when this object is deleted. Absent means Delete.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// What becomes of a snapshot whose object is deleted.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// It is deleted too, unless its pool is gone before.
    #[default]
    Delete,
    /// It stays, and a CacheSnapshot of the same name shows it again.
    Retain,
}

/// What the operator reports about a snapshot.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheSnapshotStatus {
    /// Where it stands, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<SnapshotPhase>,
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// State of the snapshot, one entry per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// Size of its file, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The same in three digits for people, such as 1.5Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub size: Option<String>,
    /// Number of objects in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// Generation of the pool's log and term of its leader, such as 1.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 41))]
    pub epoch: Option<String>,
    /// Digest of the state, in 16 hex digits: equal for equal states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub digest: Option<String>,
    /// Where it is kept: a URL in an object store, or a folder of the master that is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub location: Option<String>,
    /// The master that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub master: Option<String>,
    /// When it was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time_schema")]
    pub taken_at: Option<String>,
}

/// Where a snapshot stands.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SnapshotPhase {
    /// It was not begun yet.
    Pending,
    /// A master makes it.
    Taking,
    /// It is sent to where it is kept.
    Uploading,
    /// It is there.
    Ready,
    /// It was not taken, or is not there any more. Nothing is tried again.
    Failed,
}

/// Where snapshots are kept.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshots {
    /// In an object store. Without it each lies on the volume of the master that took it, and is
    /// gone when that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_store: Option<ObjectStore>,
}

/// An object store that speaks the protocol of S3.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStore {
    /// `http://host:port` or `https://host:port`. Absent means that of the region at AWS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^https?://[^/]+/?$"), length(max = 300))]
    pub endpoint: Option<String>,
    /// The region. Absent means us-east-1; stores outside AWS mostly take any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub region: Option<String>,
    /// The bucket, which is there.
    #[schemars(regex(pattern = "^[a-z0-9][-.a-z0-9]*$"), length(min = 3, max = 63))]
    pub bucket: String,
    /// What the names of all objects of this pool begin with; no other pool may use it. Absent
    /// means `<namespace>/<name>` of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        regex(pattern = "^[-_.A-Za-z0-9]+(/[-_.A-Za-z0-9]+)*$"),
        length(max = 512)
    )]
    pub prefix: Option<String>,
    /// A Secret of the pool's namespace with the keys `accessKeyId` and `secretAccessKey`.
    pub credentials_secret: SecretRef,
}

/// Names a Secret.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Name of the Secret.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"), length(max = 253))]
    pub name: String,
}

/// What a pool begins with that has no log yet. Later it has no effect.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The tenants and quotas of a snapshot of a pool of the same name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_snapshot: Option<FromSnapshot>,
}

/// A snapshot that a pool begins from.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FromSnapshot {
    /// Its name: that of the CacheSnapshot which took it. The object itself may be gone.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub name: String,
    /// With `larder up` only: the folder that holds the snapshot's folder. In Kubernetes it is
    /// looked for in spec.snapshots.objectStore.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 4096))]
    pub folder: Option<String>,
}

fn time_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "string", "format": "date-time" })
}
