//! Every CEL rule with objects that it lets pass and that it refuses: one list for the tests of
//! this crate and for those that ask a real API server.

use serde_json::{Value, json};

mod figures;
mod master;
mod pool;
mod quota;
mod snapshot;
mod tenant;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// CachePool.
    Pool,
    /// CacheTenant.
    Tenant,
    /// CacheQuota.
    Quota,
    /// CacheNode.
    Node,
    /// CacheSnapshot.
    Snapshot,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Pool,
        Self::Tenant,
        Self::Quota,
        Self::Node,
        Self::Snapshot,
    ];

    /// A sound object that every case changes.
    #[must_use]
    pub fn base(self) -> Value {
        match self {
            Self::Pool => json!({
                "apiVersion": "larder.dev/v1alpha1",
                "kind": "CachePool",
                "metadata": { "name": "demo" },
                "spec": {
                    "nodes": { "count": 3 },
                    "tiers": [{
                        "name": "memory", "medium": "Dram", "size": "1Gi", "slabSize": "64Mi",
                    }],
                },
            }),
            Self::Tenant => json!({
                "apiVersion": "larder.dev/v1alpha1",
                "kind": "CacheTenant",
                "metadata": { "name": "team-a" },
                "spec": {
                    "poolRef": { "name": "demo" },
                    "tenantId": "team-a",
                    "limit": { "bytes": "1Gi" },
                    "viewBytes": "1Mi",
                },
            }),
            Self::Quota => json!({
                "apiVersion": "larder.dev/v1alpha1",
                "kind": "CacheQuota",
                "metadata": { "name": "team" },
                "spec": {
                    "poolRef": { "name": "demo" },
                    "tenants": ["team-a"],
                    "guaranteed": { "bytes": "1Gi" },
                    "limit": { "bytes": "2Gi" },
                    "pinned": { "bytes": "1Mi" },
                },
            }),
            Self::Node => json!({
                "apiVersion": "larder.dev/v1alpha1",
                "kind": "CacheNode",
                "metadata": { "name": "demo-node-1" },
                "spec": { "poolRef": { "name": "demo" }, "nodeName": "node-1" },
            }),
            Self::Snapshot => json!({
                "apiVersion": "larder.dev/v1alpha1",
                "kind": "CacheSnapshot",
                "metadata": { "name": "before" },
                "spec": { "poolRef": { "name": "demo" } },
            }),
        }
    }
}

/// JSON pointer and new value; `None` removes the field.
pub type Edit = (&'static str, Option<Value>);

/// The object with all edits made. One that fits nowhere changes nothing.
#[must_use]
pub fn edited(mut object: Value, edits: &[Edit]) -> Value {
    for (pointer, value) in edits {
        let (parent, name) = pointer.rsplit_once('/').unwrap_or_default();
        match (object.pointer_mut(parent), value) {
            (Some(Value::Object(fields)), Some(value)) => {
                fields.insert(name.to_owned(), value.clone());
            }
            (Some(Value::Object(fields)), None) => {
                fields.remove(name);
            }
            (Some(Value::Array(items)), Some(value)) => {
                items.truncate(name.parse().unwrap_or_default());
                items.push(value.clone());
            }
            _ => {}
        }
    }
    object
}

pub(crate) const SLAB: &str = "/spec/tiers/0/slabSize";
pub(crate) const SIZE: &str = "/spec/tiers/0/size";
pub(crate) const TENANT_ID: &str = "/spec/tenantId";

pub(crate) fn set(pointer: &'static str, value: impl Into<Value>) -> Vec<Edit> {
    vec![(pointer, Some(value.into()))]
}

pub(crate) fn set2(first: Edit, second: Edit) -> Vec<Edit> {
    vec![first, second]
}

pub(crate) fn sizes(size: &str, slab: &str) -> Vec<Edit> {
    vec![(SIZE, Some(json!(size))), (SLAB, Some(json!(slab)))]
}

pub(crate) fn tier(name: &str) -> Value {
    json!({ "name": name, "medium": "Dram", "size": "1Gi", "slabSize": "64Mi" })
}

/// Beyond this bound a size breaks other rules too.
pub const TOO_LARGE: &str = "must be at most 4Pi";

/// One rule with edits of the base object that it lets pass and that it refuses.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kind of the object.
    pub kind: Kind,
    /// Where the rule stands in the schema.
    pub at: &'static str,
    /// What a refusal says.
    pub message: &'static str,
    /// Whether the base object is what was stored before.
    pub update: bool,
    /// Edits of the base object that pass.
    pub pass: Vec<Vec<Edit>>,
    /// Edits of the base object that are refused.
    pub fail: Vec<Vec<Edit>>,
    /// The field that a failure names.
    pub path: &'static str,
}

impl Case {
    fn new(kind: Kind, at: &'static str, path: &'static str, message: &'static str) -> Self {
        Self {
            kind,
            at,
            message,
            update: false,
            pass: vec![],
            fail: vec![],
            path,
        }
    }

    /// The base object is what was stored before.
    fn on_update(mut self) -> Self {
        self.update = true;
        self
    }

    fn passes(mut self, edits: Vec<Edit>) -> Self {
        self.pass.push(edits);
        self
    }

    fn fails(mut self, edits: Vec<Edit>) -> Self {
        self.fail.push(edits);
        self
    }
}

fn node_cases() -> Vec<Case> {
    let message = "cannot be changed; the operator creates one CacheNode per pool and node";
    let case = |path| {
        Case::new(Kind::Node, path, path, message)
            .on_update()
            .passes(vec![])
    };
    vec![
        case("spec.poolRef").fails(set("/spec/poolRef/name", "other")),
        case("spec.nodeName").fails(set("/spec/nodeName", "node-2")),
    ]
}

/// The whole list.
#[must_use]
pub fn cases() -> Vec<Case> {
    [
        pool::pool_cases(),
        pool::masters_cases(),
        pool::slab_cases(),
        figures::size_cases(),
        tenant::cases(),
        figures::figure_cases(),
        quota::cases(),
        node_cases(),
        master::cases(),
        snapshot::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
