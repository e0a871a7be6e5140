//! Every CEL rule with objects that it lets pass and that it refuses: one list for the tests of
//! this crate and for those that ask a real API server.

use serde_json::{Value, json};

mod master;

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
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 4] = [Self::Pool, Self::Tenant, Self::Quota, Self::Node];

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

fn pool_cases() -> Vec<Case> {
    let case = |at, path, message| Case::new(Kind::Pool, at, path, message);
    let replicas = |count: u32| ("/spec/placement", Some(json!({ "replicaFactor": count })));
    let masters = |count: u32| set("/spec/masters", json!({ "replicas": count }));
    let rack = |key: String| set("/spec/nodes/rackLabel", key);
    vec![
        case(
            "",
            "",
            "metadata.name must be at most 40 characters of a-z, 0-9 and '-' and \
             start with a letter",
        )
        .passes(set("/metadata/name", "a".repeat(40)))
        .passes(set("/metadata/name", "p-1"))
        .fails(set("/metadata/name", "a".repeat(41)))
        .fails(set("/metadata/name", "1a"))
        .fails(set("/metadata/name", "a.b")),
        case(
            "spec",
            "spec.placement.replicaFactor",
            "must not be larger than nodes.count: replicas of an object are on different nodes",
        )
        .passes(vec![replicas(3)])
        .passes(set2(("/spec/nodes", Some(json!({}))), replicas(3)))
        .passes(set("/spec/nodes/count", 0))
        .fails(set2(("/spec/nodes/count", Some(json!(2))), replicas(3))),
        case(
            "spec.nodes.rackLabel",
            "spec.nodes.rackLabel",
            "must have at most 63 characters behind the '/', as every label key",
        )
        .passes(rack("rack".to_owned()))
        .passes(rack(format!("example.com/{}", "r".repeat(63))))
        .fails(rack("r".repeat(64)))
        .fails(rack(format!("example.com/{}", "r".repeat(64)))),
        case(
            "spec.masters.replicas",
            "spec.masters.replicas",
            "must be 1; 3 and 5 come with replicated masters",
        )
        .passes(masters(1))
        .passes(set("/spec/masters", json!({})))
        .fails(masters(3))
        .fails(masters(2)),
        case(
            "spec.tiers",
            "spec.tiers",
            "must be exactly one tier; more tiers come with SSD as a medium",
        )
        .passes(vec![])
        .fails(set("/spec/tiers/1", tier("more"))),
        case(
            "spec.tiers",
            "spec.tiers",
            "a tier cannot be removed or renamed; create another pool",
        )
        .on_update()
        .passes(vec![])
        .passes(set(SIZE, "2Gi"))
        .fails(set("/spec/tiers/0", tier("other"))),
    ]
}

fn slab_cases() -> Vec<Case> {
    let case = |path, message| Case::new(Kind::Pool, "spec.tiers[]", path, message);
    let slab_size = "spec.tiers[0].slabSize";
    vec![
        case(
            slab_size,
            "must be a power of two from 2Mi (one huge page) to 1Gi",
        )
        .passes(sizes("8Gi", "2Mi"))
        .passes(sizes("8Gi", "1Gi"))
        .passes(sizes("8Gi", "1024Mi"))
        .passes(sizes("8Gi", "2097152"))
        .passes(sizes("8Gi", "65536Ki"))
        .fails(sizes("8Gi", "1Mi"))
        .fails(sizes("8Gi", "2Gi"))
        .fails(sizes("8Gi", "48Mi"))
        .fails(sizes("8Gi", "64M"))
        .fails(sizes("8Gi", "4194305")),
        case(
            slab_size,
            "must not be larger than size (slabSize is 64Mi when it is absent)",
        )
        .passes(sizes("16Mi", "16Mi"))
        .fails(sizes("16Mi", "32Mi"))
        .fails(set2((SIZE, Some(json!("63Mi"))), (SLAB, None)))
        .fails(sizes("0", "2Mi")),
        case(
            "spec.tiers[0].size",
            "must be at most 16384 slabs; choose a larger slabSize",
        )
        .passes(sizes("32Gi", "2Mi"))
        .passes(sizes("16Ti", "1Gi"))
        .passes(sizes("100Gi", "8Mi"))
        .fails(sizes("34359738369", "2Mi"))
        .fails(sizes("17Ti", "1Gi"))
        .fails(sizes("4Pi", "1Gi")),
        case(slab_size, "cannot be changed; create another pool")
            .on_update()
            .passes(set(SLAB, "65536Ki"))
            .passes(vec![(SLAB, None)])
            .fails(set(SLAB, "32Mi")),
    ]
}

/// The bound that every size has. Beyond it a size of a tier breaks other rules too.
fn size_cases() -> Vec<Case> {
    let case = |kind, at, path| Case::new(kind, at, path, TOO_LARGE);
    vec![
        case(Kind::Pool, "spec.tiers[].size", "spec.tiers[0].size")
            .passes(set(SIZE, "1Ti"))
            .fails(set(SIZE, "5Pi"))
            .fails(set(SIZE, "999999999999999999Pi")),
        case(
            Kind::Pool,
            "spec.tiers[].slabSize",
            "spec.tiers[0].slabSize",
        )
        .passes(set(SLAB, "1Gi"))
        .fails(set(SLAB, "5Pi")),
        case(Kind::Tenant, "spec.limit.bytes", "spec.limit.bytes")
            .passes(set("/spec/limit/bytes", "4Pi"))
            .fails(set("/spec/limit/bytes", "5Pi"))
            .fails(set("/spec/limit/bytes", "99999999999999999999"))
            .fails(set("/spec/limit/bytes", "999999999999999999Pi")),
        case(
            Kind::Tenant,
            "spec.guaranteed.bytes",
            "spec.guaranteed.bytes",
        )
        .passes(guarantee("1Gi", "1Gi"))
        .fails(guarantee("5Pi", "5Pi")),
        case(Kind::Tenant, "spec.pinned.bytes", "spec.pinned.bytes")
            .passes(set("/spec/pinned", json!({ "bytes": "0" })))
            .fails(set("/spec/pinned", json!({ "bytes": "5Pi" }))),
        case(
            Kind::Quota,
            "spec.guaranteed.bytes",
            "spec.guaranteed.bytes",
        )
        .passes(guarantee("1", "4Pi"))
        .fails(guarantee("5Pi", "5Pi")),
        case(Kind::Quota, "spec.limit.bytes", "spec.limit.bytes")
            .passes(guarantee("1Gi", "4Pi"))
            .fails(guarantee("1Gi", "5Pi")),
        case(Kind::Quota, "spec.pinned.bytes", "spec.pinned.bytes")
            .passes(set("/spec/pinned/bytes", "0"))
            .fails(set("/spec/pinned/bytes", "5Pi")),
        case(Kind::Tenant, "spec.viewBytes", "spec.viewBytes")
            .passes(set("/spec/viewBytes", "4Pi"))
            .passes(set("/spec/viewBytes", "0"))
            .fails(set("/spec/viewBytes", "4097Ti")),
    ]
}

fn tenant_cases() -> Vec<Case> {
    let case = |at, path, message| Case::new(Kind::Tenant, at, path, message);
    let name = |length| ("/metadata/name", Some(json!("t".repeat(length))));
    let limit = |limit: Value| set("/spec/limit", limit);
    let quota_ref = || ("/spec/quotaRef", Some(json!({ "name": "team" })));
    vec![
        case(
            "",
            "",
            "metadata.name must be at most 64 characters, or spec.tenantId must be given",
        )
        .passes(vec![name(65)])
        .passes(set2(name(64), (TENANT_ID, None)))
        .fails(set2(name(65), (TENANT_ID, None))),
        case(
            "",
            "",
            "metadata.name must be at most 242 characters: the ConfigMap <name>-connection is \
             named after it; choose a shorter name",
        )
        .passes(vec![name(242)])
        .fails(vec![name(243)]),
        case(
            "spec",
            "spec.tenantId",
            "cannot be set, changed or removed after creation; create another CacheTenant",
        )
        .on_update()
        .passes(vec![])
        .passes(set("/spec/access", "ReadOnly"))
        .fails(set(TENANT_ID, "team-b"))
        .fails(vec![(TENANT_ID, None)]),
        case(
            "spec.poolRef",
            "spec.poolRef",
            "cannot be changed; create another CacheTenant",
        )
        .on_update()
        .passes(set("/spec/viewBytes", "0"))
        .fails(set("/spec/poolRef/name", "other")),
        case(
            "spec.limit",
            "spec.limit",
            "must give bytes, objects or both; leave limit out for no limit",
        )
        .passes(limit(json!({ "objects": 1 })))
        .passes(limit(json!({ "bytes": "1", "objects": 1 })))
        .passes(vec![("/spec/limit", None)])
        .fails(limit(json!({})))
        .fails(limit(json!({ "bytes": null }))),
        case(
            "spec.limit.bytes",
            "spec.limit.bytes",
            "must be more than 0",
        )
        .passes(set("/spec/limit/bytes", "1"))
        .fails(set("/spec/limit/bytes", "0"))
        .fails(set("/spec/limit/bytes", "0Gi")),
        case(
            "spec",
            "spec.quotaRef",
            "takes the figures of that CacheQuota; leave quotaRef out, or guaranteed, limit, \
             pinned, borrowing and onExceed",
        )
        .passes(set2(("/spec/limit", None), quota_ref()))
        .fails(vec![quota_ref()])
        .fails(vec![
            ("/spec/limit", None),
            quota_ref(),
            ("/spec/onExceed", Some(json!("EvictOwn"))),
        ]),
    ]
}

fn guarantee(guaranteed: &str, limit: &str) -> Vec<Edit> {
    set2(
        ("/spec/guaranteed", Some(json!({ "bytes": guaranteed }))),
        ("/spec/limit", Some(json!({ "bytes": limit }))),
    )
}

/// What the figures of a tenant and of a quota have in common.
fn figure_cases() -> Vec<Case> {
    let of = |kind| {
        let case = move |at, path, message| Case::new(kind, at, path, message);
        let no_guarantee = || ("/spec/guaranteed", None);
        let borrowing = |word: &str| ("/spec/borrowing", Some(json!(word)));
        [
            case(
                "spec",
                "spec.guaranteed",
                "must not be more than limit.bytes",
            )
            .passes(guarantee("1Gi", "1024Mi"))
            .passes(set2(
                ("/spec/guaranteed", Some(json!({ "bytes": "9Gi" }))),
                ("/spec/limit", Some(json!({ "objects": 1 }))),
            ))
            .fails(guarantee("1Gi", "1023Mi")),
            case(
                "spec",
                "spec.borrowing",
                "must be Allowed without guaranteed, or nothing could be stored",
            )
            .passes(set2(no_guarantee(), borrowing("Allowed")))
            .passes(vec![
                ("/spec/guaranteed", Some(json!({ "bytes": "1Gi" }))),
                borrowing("Forbidden"),
            ])
            .fails(set2(no_guarantee(), borrowing("Forbidden"))),
            case(
                "spec.guaranteed.bytes",
                "spec.guaranteed.bytes",
                "must be more than 0",
            )
            .passes(guarantee("1", "1Gi"))
            .fails(guarantee("0", "1Gi")),
        ]
    };
    [of(Kind::Tenant), of(Kind::Quota)]
        .into_iter()
        .flatten()
        .collect()
}

fn quota_cases() -> Vec<Case> {
    let case = |at, path, message| Case::new(Kind::Quota, at, path, message);
    let selector = || {
        (
            "/spec/selector",
            Some(json!({ "matchLabels": { "team": "a" } })),
        )
    };
    let limit = |limit: Value| set("/spec/limit", limit);
    vec![
        case(
            "",
            "",
            "metadata.name must be at most 63 characters: each of its tenants carries it",
        )
        .passes(set("/metadata/name", "q".repeat(63)))
        .fails(set("/metadata/name", "q".repeat(64))),
        case(
            "spec",
            "spec",
            "must have exactly one of tenants and selector",
        )
        .passes(vec![])
        .passes(set2(("/spec/tenants", None), selector()))
        .fails(vec![selector()])
        .fails(vec![("/spec/tenants", None)]),
        case("spec", "spec", "must give guaranteed, limit or both")
            .passes(vec![("/spec/limit", None)])
            .passes(vec![("/spec/guaranteed", None)])
            .fails(set2(("/spec/limit", None), ("/spec/guaranteed", None))),
        case(
            "spec.poolRef",
            "spec.poolRef",
            "cannot be changed; create another CacheQuota",
        )
        .on_update()
        .passes(set("/spec/limit/bytes", "3Gi"))
        .fails(set("/spec/poolRef/name", "other")),
        case(
            "spec.limit",
            "spec.limit",
            "must give bytes, objects or both; leave limit out for no limit",
        )
        .passes(limit(json!({ "objects": 1 })))
        .fails(limit(json!({}))),
        case(
            "spec.limit.bytes",
            "spec.limit.bytes",
            "must be more than 0",
        )
        .passes(guarantee("1", "1"))
        .fails(set2(
            ("/spec/guaranteed", None),
            ("/spec/limit", Some(json!({ "bytes": "0" }))),
        )),
    ]
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
        pool_cases(),
        slab_cases(),
        size_cases(),
        tenant_cases(),
        figure_cases(),
        quota_cases(),
        node_cases(),
        master::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
