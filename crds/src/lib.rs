//! The types of Larder's custom resources, their defaults and their rules.
//!
//! One set of types has three users: the API server (through the YAML in `crds/yaml`), the
//! operator, and `larder up`, which reads the same YAML without a cluster. What is checked where:
//!
//! | check | API server | `larder up` |
//! |---|---|---|
//! | unknown fields, defaults, types, required, enums, patterns, bounds | schema | [`Admission`] |
//! | arithmetic between fields, what may not change | CEL rules in the schema | [`Admission`] |
//! | keys of `nodes.selector`, numbers | no: operator, [`CachePool::settings`] | the same |
//! | tenants and quotas name what exists, ids are used once | no: operator | [`PoolFile`] |
//!
//! Nothing downstream reads the raw objects: [`PoolSettings`], [`TenantSettings`] and
//! [`QuotaSettings`] hold plain numbers that were checked once, so that building from them cannot
//! fail. This crate does no I/O, and it must stay quick to compile, because the command line links
//! it: no Kubernetes client, no async runtime.

mod admission;
#[expect(
    unreachable_pub,
    reason = "kube's derive copies each struct into a function"
)]
mod background;
#[cfg(any(test, feature = "cases"))]
pub mod cases;
mod condition;
mod definition;
mod document;
#[expect(
    unreachable_pub,
    reason = "kube's derive copies each struct into a function"
)]
mod events;
#[expect(
    unreachable_pub,
    reason = "kube's derive copies each struct into a function"
)]
mod masters;
#[expect(
    unreachable_pub,
    clippy::duplicated_attributes,
    reason = "kube's derive copies each struct into a function; columns have equal types"
)]
mod node;
#[expect(
    unreachable_pub,
    reason = "kube's derive copies each struct into a function"
)]
mod pool;
mod pool_file;
mod problem;
mod quantity;
#[expect(
    unreachable_pub,
    reason = "kube's derive copies each struct into a function"
)]
mod quota;
mod settings;
#[expect(
    unreachable_pub,
    reason = "kube's derive copies each struct into a function"
)]
mod snapshot;
#[expect(
    unreachable_pub,
    reason = "kube's derive copies each struct into a function"
)]
mod tenant;

pub use admission::Admission;
pub use background::{Eviction, Moves, Signals};
pub use condition::Condition;
pub use definition::{GenerateError, generate, schema};
pub use document::{Document, DocumentError, DocumentProblem, parse_documents};
pub use events::{Events, ZmqEndpoint, ZmqSchema};
pub use masters::{MasterStorage, Masters, MastersStatus};
pub use node::{
    CacheNode, CacheNodeSpec, CacheNodeStatus, DrainState, HugepageFacts, MemoryFacts,
    NodeCapability, NodeDrain,
};
pub use pool::{
    CachePool, CachePoolSpec, CachePoolStatus, Drain, Medium, Nodes, NodesStatus, Overcommit,
    Phase, Placement, Quotas, Tier,
};
pub use pool_file::PoolFile;
pub use problem::{Problem, Problems};
pub use quantity::{Quantity, QuantityError, rounded};
pub use quota::{
    Borrowing, CacheQuota, CacheQuotaSpec, CacheQuotaStatus, Guaranteed, MAX_ROWS, OnExceed,
    Pinned, QuotaRef, QuotaRow, TenantSelector,
};
pub use settings::{
    EventsSettings, Figures, FromSettings, MasterSettings, ObjectStoreSettings, PoolSettings,
    QuotaSettings, SnapshotsSettings, StorageSettings, SubjectSettings, TenantChoice,
    TenantSettings,
};
pub use snapshot::{
    Bootstrap, CacheSnapshot, CacheSnapshotSpec, CacheSnapshotStatus, DeletionPolicy, FromSnapshot,
    ObjectStore, SecretRef, SnapshotPhase, Snapshots,
};
pub use tenant::{
    Access, CacheTenant, CacheTenantSpec, CacheTenantStatus, Limit, PoolRef, ServiceAccountRef,
    Subject,
};

/// The API group of every kind of Larder.
pub const GROUP: &str = "larder.dev";
/// The one version that is served.
pub const VERSION: &str = "v1alpha1";
/// The namespace of an object that names none, as `kubectl` has it without a context.
pub const DEFAULT_NAMESPACE: &str = "default";
