//! `CacheNode`: one agent of one pool. The operator writes the spec, the agent the status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::{self, Condition};
use crate::quantity::rounded;
use crate::tenant::PoolRef;

/// One node of a pool.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "larder.dev",
    version = "v1alpha1",
    kind = "CacheNode",
    namespaced,
    status = "CacheNodeStatus",
    derive = "PartialEq",
    doc = "One node of a CachePool. The operator creates it; the agent on the node reports here.",
    shortname = "cnode",
    category = "larder",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.poolRef.name"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.nodeName"),
    printcolumn(
        name = "Memory",
        type_ = "string",
        description = "What the node offers to the pool",
        json_path = ".status.memory.total"
    ),
    printcolumn(
        name = "Used",
        type_ = "string",
        description = "What of it is in use",
        json_path = ".status.memory.used"
    ),
    printcolumn(
        name = "Drain",
        type_ = "string",
        description = "How it goes with moving its objects before it leaves",
        priority = 1,
        json_path = ".status.drain.state"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CacheNodeSpec {
    /// The pool, in the same namespace.
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("cannot be changed; the operator creates one CacheNode per pool and node"))]
    pub pool_ref: PoolRef,
    /// Name of the Node object.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"), length(max = 253))]
    #[x_kube(validation = Rule::new("self == oldSelf")
        .message("cannot be changed; the operator creates one CacheNode per pool and node"))]
    pub node_name: String,
}

/// What the agent of a node reports.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CacheNodeStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// State of the agent, one entry per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// Uid of the agent's pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub agent_uid: Option<String>,
    /// One life of the agent's process, in hexadecimal: a random number of 64 bits, which would
    /// lose digits as a JSON number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub incarnation: Option<String>,
    /// Where clients and other agents reach it, as host:port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 300))]
    pub address: Option<String>,
    /// Number of NUMA nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_count: Option<u32>,
    /// Memory that the node offers to the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryFacts>,
    /// Huge pages of the node, one entry per page size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["pageBytes".into()]))]
    pub hugepages: Vec<HugepageFacts>,
    /// What the agent found on the node, and what it lacks and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    pub capabilities: Vec<NodeCapability>,
    /// Number of segments that are mounted at the master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<u32>,
    /// How it goes with moving the node's objects to others before it leaves the pool; absent
    /// while it does not leave. The operator writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<NodeDrain>,
}

/// How a node that leaves its pool moves its objects to others.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeDrain {
    /// One word.
    pub state: DrainState,
    /// When it began; the deadline counts from here.
    pub started_at: Time,
    /// Objects that are left; absent where nobody counts them, as with very many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects_left: Option<u64>,
    /// Bytes that are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_left: Option<u64>,
    /// Pieces of objects that are left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extents_left: Option<u64>,
    /// What is in the way, or what became of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub message: Option<String>,
}

/// How it goes with a drain.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DrainState {
    /// Objects are being moved, or wait for room elsewhere or for the master.
    Draining,
    /// Nothing is left; the node leaves.
    Drained,
    /// The master refuses to begin; it is asked again until the deadline.
    Failed,
    /// The deadline has passed; the node leaves without what is left.
    TimedOut,
    /// The node is to stay after all; the drain ends as soon as the master answers.
    Ending,
}

/// Memory that a node offers to its pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryFacts {
    /// Bytes in all segments.
    pub total_bytes: u64,
    /// The same in three digits for people, such as 1.5Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub total: Option<String>,
    /// Bytes of it in use.
    pub used_bytes: u64,
    /// The same in three digits for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub used: Option<String>,
}

impl MemoryFacts {
    /// Of these bytes, with the texts for people.
    #[must_use]
    pub fn new(total_bytes: u64, used_bytes: u64) -> Self {
        Self {
            total_bytes,
            total: Some(rounded(total_bytes)),
            used_bytes,
            used: Some(rounded(used_bytes)),
        }
    }
}

/// Huge pages of one size.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HugepageFacts {
    /// Bytes of one page.
    pub page_bytes: u64,
    /// Pages of the node.
    pub total: u64,
    /// Pages that nobody uses.
    pub free: u64,
}

/// Something that a node has or lacks.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeCapability {
    /// Name, such as `hugepages` or `rdma`.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Whether the node has it.
    pub available: bool,
    /// Why not, or what was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub reason: Option<String>,
}
