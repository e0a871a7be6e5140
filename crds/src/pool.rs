//! `CachePool`: masters, member nodes and tiers of one pool.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::background::{Eviction, Moves, Signals};
use crate::condition::{self, Condition};
use crate::events::Events;
use crate::masters::{Masters, MastersStatus};
use crate::quantity::Quantity;
use crate::snapshot::{Bootstrap, Snapshots};

/// Most member nodes of one pool.
const MAX_NODES: u32 = 4096;
/// Slab size of a tier that names none. Large enough that a pool of terabytes stays below the
/// slab limit, small enough that many tenants share a node.
const DEFAULT_SLAB_SIZE: &str = "64Mi";
/// Label of a Node that names its rack, where a pool names none: Kubernetes knows zones only.
const DEFAULT_RACK_LABEL: &str = "topology.larder.dev/rack";
/// How long a node that leaves may take to move its objects, where a pool does not say, in
/// seconds: 64 GiB at 110 MB/s, a tenth of the slowest network that a pool is put on.
const DEFAULT_DRAIN_DEADLINE_S: u32 = 600;
/// The longest that it may take, in seconds: a day.
const MAX_DRAIN_DEADLINE_S: u32 = 86_400;

// A pool's name becomes a prefix of the names of Services, which must start with a letter and
// hold no dot, and of pods, which must stay below 63 with `-master-0` and a hash behind it.
/// One pool: the masters that know where everything is and the nodes whose memory it uses.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "larder.dev",
    version = "v1alpha1",
    kind = "CachePool",
    namespaced,
    status = "CachePoolStatus",
    derive = "PartialEq",
    doc = "A distributed cache of KV blocks in the memory of a set of nodes.",
    shortname = "cpool",
    category = "larder",
    scale(
        spec_replicas_path = ".spec.nodes.count",
        status_replicas_path = ".status.nodes.ready",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        description = "Nodes whose agent is ready",
        json_path = ".status.nodes.ready"
    ),
    printcolumn(
        name = "Desired",
        type_ = "integer",
        description = "Nodes that should have an agent",
        json_path = ".status.nodes.desired"
    ),
    printcolumn(
        name = "Capacity",
        type_ = "string",
        description = "What the pool can hold",
        json_path = ".status.capacity"
    ),
    printcolumn(
        name = "Used",
        type_ = "string",
        description = "What objects take",
        json_path = ".status.used"
    ),
    printcolumn(
        name = "Hit%",
        type_ = "integer",
        description = "Look-ups of a hundred that found their object",
        json_path = ".status.signals.hitRatioPercent",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = Rule::new(
        "size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z][-a-z0-9]*$')"
    )
    .message(
        "metadata.name must be at most 40 characters of a-z, 0-9 and '-' and start with a letter"
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "!has(self.nodes.count) || self.nodes.count == 0 || \
         self.placement.replicaFactor <= self.nodes.count"
    )
    .message("must not be larger than nodes.count: replicas of an object are on different nodes")
    .field_path(".placement.replicaFactor"),
    validation = Rule::new(
        "!has(self.bootstrap) || !has(self.bootstrap.fromSnapshot) || \
         has(self.bootstrap.fromSnapshot.folder) || \
         (has(self.snapshots) && has(self.snapshots.objectStore))"
    )
    .message("fromSnapshot needs snapshots.objectStore, where the snapshot is looked for")
    .field_path(".bootstrap")
)]
pub struct CachePoolSpec {
    /// The metadata servers.
    #[serde(default)]
    pub masters: Masters,
    /// Which nodes belong to the pool.
    #[serde(default)]
    pub nodes: Nodes,
    /// What stores the bytes on each node; for now exactly one tier of medium Dram.
    #[schemars(length(min = 1, max = 8))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".into()]))]
    #[x_kube(
        validation = Rule::new("size(self) == 1")
            .message("must be exactly one tier; more tiers come with SSD as a medium"),
        validation = Rule::new("oldSelf.all(o, self.exists(t, t.name == o.name))")
            .message("a tier cannot be removed or renamed; create another pool")
    )]
    pub tiers: Vec<Tier>,
    /// Where objects are put.
    #[serde(default)]
    pub placement: Placement,
    /// What tenants are promised.
    #[serde(default)]
    pub quotas: Quotas,
    /// When cold objects make room.
    #[serde(default)]
    pub eviction: Eviction,
    /// How fast objects are copied between nodes.
    #[serde(default)]
    pub moves: Moves,
    /// Who is told what appears in the cache and what goes. Absent means nobody, and nothing is
    /// kept for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<Events>,
    /// Where snapshots are kept. Absent means the volume of each master.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Snapshots>,
    /// What the pool begins with while it has no log. Absent means nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
}

/// What tenants are promised.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quotas {
    /// What happens when tenants and quotas are guaranteed more than the pool has.
    #[serde(default)]
    pub overcommit: Overcommit,
}

/// What happens when more is guaranteed than there is.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Overcommit {
    /// All guarantees shrink in proportion, and the condition QuotaOvercommitted says so.
    #[default]
    Warn,
    /// The youngest tenants and quotas whose guarantees do not fit any more get none. What fits
    /// is judged by the tiers' size on all nodes of the pool.
    Refuse,
}

/// The member nodes of a pool.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Nodes {
    /// Labels that a node must carry to belong to the pool. Empty means every node.
    /// Without Kubernetes there are no labels to match, and all agents belong to it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "selector_schema")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub selector: BTreeMap<String, String>,
    /// How many of the matching nodes are used. Absent means all of them; `larder up`, which
    /// has no nodes to match, then starts two agents, or as many as there are replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_NODES))]
    pub count: Option<u32>,
    /// What happens to the objects of a node that leaves the pool.
    #[serde(default)]
    pub drain: Drain,
    /// Key of the label of Nodes that names their rack. Replicas of an object are spread over
    /// zones (topology.kubernetes.io/zone), racks and nodes.
    #[serde(default = "default_rack_label")]
    #[schemars(
        regex(
            pattern = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
        ),
        length(max = 317)
    )]
    #[x_kube(validation = Rule::new("self.matches('^([^/]*/)?[^/]{1,63}$')")
        .message("must have at most 63 characters behind the '/', as every label key"))]
    pub rack_label: String,
}

impl Default for Nodes {
    fn default() -> Self {
        Self {
            selector: BTreeMap::new(),
            count: None,
            drain: Drain::default(),
            rack_label: default_rack_label(),
        }
    }
}

/// What happens to the objects of a node that leaves the pool.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drain {
    /// How long the node may take to move them to other nodes, in seconds. Then it leaves without
    /// those that are left. 0 means that it leaves at once and nothing is moved.
    #[serde(default = "default_drain_deadline_s")]
    #[schemars(range(min = 0, max = MAX_DRAIN_DEADLINE_S))]
    pub deadline_seconds: u32,
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            deadline_seconds: DEFAULT_DRAIN_DEADLINE_S,
        }
    }
}

// That a size is a power of two: it is at most 1Gi = 2^30 = 1073741824 and divides it.
/// One kind of storage on every member node.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new(
        "quantity(self.slabSize).compareTo(quantity('2Mi')) >= 0 && \
         quantity(self.slabSize).compareTo(quantity('1Gi')) <= 0 && \
         1073741824 % int(quantity(self.slabSize).asApproximateFloat()) == 0"
    )
    .message("must be a power of two from 2Mi (one huge page) to 1Gi")
    .field_path(".slabSize"),
    validation = Rule::new("quantity(self.slabSize).compareTo(quantity(self.size)) <= 0")
        .message("must not be larger than size (slabSize is 64Mi when it is absent)")
        .field_path(".slabSize"),
    validation = Rule::new(
        "quantity(self.size).asApproximateFloat() <= \
         16384.0 * quantity(self.slabSize).asApproximateFloat()"
    )
    .message("must be at most 16384 slabs; choose a larger slabSize")
    .field_path(".size"),
    validation = Rule::new("quantity(self.slabSize).compareTo(quantity(oldSelf.slabSize)) == 0")
        .message("cannot be changed; create another pool")
        .field_path(".slabSize")
)]
pub struct Tier {
    /// Name of the tier, unique in the pool.
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"), length(max = 63))]
    pub name: String,
    /// What the bytes are stored in.
    pub medium: Medium,
    /// Bytes that the pool takes on each node, such as 64Gi.
    pub size: Quantity,
    /// Bytes per slab. A slab belongs to one tenant while it holds anything, so a node serves at
    /// most size / slabSize tenants; a larger object lies in several. A power of two.
    #[serde(default = "default_slab_size")]
    pub slab_size: Quantity,
}

/// What a tier stores its bytes in.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Medium {
    /// Main memory of the node.
    Dram,
}

/// Where objects are put.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Placement {
    /// Copies of each object that does not ask for another number, each on another node.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 3))]
    pub replica_factor: u32,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            replica_factor: one(),
        }
    }
}

/// What the operator reports about a pool.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CachePoolStatus {
    /// One word for people, derived from the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// State of the pool, one entry per type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "condition::list_schema")]
    pub conditions: Vec<Condition>,
    /// Counts of nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<NodesStatus>,
    /// Counts of masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masters: Option<MastersStatus>,
    /// Label selector of the agents' pods, for autoscalers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Bytes that the pool can hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    /// The same in three digits for people, such as 1.5Gi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub capacity: Option<String>,
    /// Bytes that objects take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// The same in three digits for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 20))]
    pub used: Option<String>,
    /// Number of objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    /// How the cache has done lately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<Signals>,
    /// Name of the master that leads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
}

/// One word for the state of a pool.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not all parts have come up yet.
    Pending,
    /// Everything serves.
    Ready,
    /// It serves, but parts are missing.
    Degraded,
    /// It cannot serve.
    Failed,
}

/// Counts of a pool's nodes.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesStatus {
    /// Nodes that should have an agent.
    pub desired: u32,
    /// Nodes whose agent is ready.
    pub ready: u32,
    /// Nodes that leave and still move their objects; absent means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<u32>,
}

fn one() -> u32 {
    1
}

fn default_rack_label() -> String {
    DEFAULT_RACK_LABEL.to_owned()
}

const fn default_drain_deadline_s() -> u32 {
    DEFAULT_DRAIN_DEADLINE_S
}

fn default_slab_size() -> Quantity {
    Quantity::new(DEFAULT_SLAB_SIZE)
}

// Keys cannot be bounded in a structural schema, and a rule over unbounded keys exceeds the API
// server's cost budget; the keys are checked by `CachePool::settings`.
fn selector_schema(_: &mut SchemaGenerator) -> Schema {
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
