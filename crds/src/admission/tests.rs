//! What is checked around the CEL rules; the rules themselves are in `rules`.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cases::{Edit, Kind, SIZE, SLAB, TENANT_ID, edited, set, tier};
use crate::{CacheNode, CachePool, CacheQuota, CacheSnapshot, CacheTenant};

mod rules;

impl Kind {
    pub(super) fn schema(self) -> Value {
        match self {
            Self::Pool => definition::schema::<CachePool>(),
            Self::Tenant => definition::schema::<CacheTenant>(),
            Self::Quota => definition::schema::<CacheQuota>(),
            Self::Node => definition::schema::<CacheNode>(),
            Self::Snapshot => definition::schema::<CacheSnapshot>(),
        }
    }

    pub(super) fn admission(self) -> Admission {
        match self {
            Self::Pool => Admission::of::<CachePool>(),
            Self::Tenant => Admission::of::<CacheTenant>(),
            Self::Quota => Admission::of::<CacheQuota>(),
            Self::Node => Admission::of::<CacheNode>(),
            Self::Snapshot => Admission::of::<CacheSnapshot>(),
        }
    }
}

fn refusal(kind: Kind, edits: &[Edit]) -> String {
    kind.admission()
        .create(edited(kind.base(), edits))
        .unwrap_err()
        .to_string()
}

fn check_refusals(cases: &[(Kind, Vec<Edit>, &str)]) {
    for (kind, edits, expected) in cases {
        assert_eq!(refusal(*kind, edits), *expected);
    }
}

#[test]
fn unknown_and_missing_fields_are_named() {
    check_refusals(&[
        (
            Kind::Pool,
            set("/spec/tiers/0/sise", "1Gi"),
            "spec.tiers[0].sise: unknown field; did you mean 'size'?",
        ),
        (
            Kind::Pool,
            set("/spec/tiers/0/slab_size", "1Gi"),
            "spec.tiers[0].slab_size: unknown field; did you mean 'slabSize'?",
        ),
        (
            Kind::Pool,
            set("/spec/evicting", "Lru"),
            "spec.evicting: unknown field; did you mean 'eviction'?",
        ),
        (
            Kind::Pool,
            set("/spec/compression", "Zstd"),
            "spec.compression: unknown field; the fields here are bootstrap, events, eviction, \
             masters, moves, nodes, placement, quotas, snapshots, tiers",
        ),
        (
            Kind::Pool,
            set("/spce", 1),
            "spce: unknown field; did you mean 'spec'?",
        ),
        (
            Kind::Pool,
            set("/metadata/nmae", "x"),
            "metadata.nmae: unknown field; did you mean 'name'?",
        ),
        (
            Kind::Pool,
            vec![("/metadata/name", None)],
            "metadata.name: is required",
        ),
        (
            Kind::Pool,
            vec![("/metadata", None)],
            "metadata: is required",
        ),
        (Kind::Pool, vec![("/spec", None)], "spec: is required"),
        (
            Kind::Pool,
            vec![("/spec/tiers", None)],
            "spec.tiers: is required",
        ),
        (
            Kind::Tenant,
            set("/spec/subjects", json!([{}])),
            "spec.subjects[0].serviceAccount: is required",
        ),
    ]);
}

#[test]
fn bounds_are_kept() {
    let subject = json!({ "serviceAccount": { "name": "a" } });
    check_refusals(&[
        (
            Kind::Pool,
            set("/spec/tiers", json!([])),
            "spec.tiers: must have at least 1 entry",
        ),
        (
            Kind::Pool,
            set(SIZE, "1".repeat(21)),
            "spec.tiers[0].size: must have at most 20 characters",
        ),
        (
            Kind::Pool,
            set("/spec/nodes/count", -1),
            "spec.nodes.count: must be at least 0, not -1",
        ),
        (
            Kind::Pool,
            set("/spec/nodes/count", 5000),
            "spec.nodes.count: must be at most 4096, not 5000",
        ),
        (
            Kind::Pool,
            set("/spec/placement", json!({ "replicaFactor": 4 })),
            "spec.placement.replicaFactor: must be at most 3, not 4",
        ),
        (
            Kind::Tenant,
            set(TENANT_ID, "t".repeat(129)),
            "spec.tenantId: must have at most 128 characters",
        ),
        (
            Kind::Tenant,
            set("/spec/limit/objects", 0),
            "spec.limit.objects: must be at least 1, not 0",
        ),
        (
            Kind::Tenant,
            set("/spec/limit/objects", u64::MAX),
            "spec.limit.objects: must be a whole number of 64 bits, not 18446744073709551615",
        ),
        (
            Kind::Tenant,
            set("/spec/subjects", vec![subject.clone(); 65]),
            "spec.subjects: must have at most 64 entries",
        ),
    ]);
}

#[test]
fn wrong_types_are_named() {
    check_refusals(&[
        (
            Kind::Pool,
            set("/spec/tiers", "x"),
            "spec.tiers: must be a list, not the string 'x'",
        ),
        (
            Kind::Pool,
            set("/spec/tiers", json!([null])),
            "spec.tiers[0]: must be a mapping, not null",
        ),
        (
            Kind::Pool,
            set("/spec/nodes/count", 1.5),
            "spec.nodes.count: must be a whole number of 64 bits, not 1.5",
        ),
        (
            Kind::Pool,
            set("/spec/nodes/count", "2"),
            "spec.nodes.count: must be a whole number of 64 bits, not the string '2'",
        ),
        (
            Kind::Pool,
            set("/spec/nodes", true),
            "spec.nodes: must be a mapping, not true",
        ),
        (
            Kind::Pool,
            set("/spec/nodes/drain", json!({ "deadlineSeconds": 86_401 })),
            "spec.nodes.drain.deadlineSeconds: must be at most 86400, not 86401",
        ),
        (
            Kind::Pool,
            set("/spec/nodes/drain", json!({ "deadlineSeconds": -1 })),
            "spec.nodes.drain.deadlineSeconds: must be at least 0, not -1",
        ),
        (
            Kind::Pool,
            set(SIZE, 1024),
            "spec.tiers[0].size: must be a string, not 1024; put it in quotes",
        ),
        (
            Kind::Pool,
            set("/spec/nodes/selector", json!({ "disk": true })),
            "spec.nodes.selector.disk: must be a string, not true; put it in quotes",
        ),
    ]);
}

#[test]
fn wrong_words_are_named() {
    check_refusals(&[
        (
            Kind::Pool,
            set("/spec/tiers/1", tier("memory")),
            "spec.tiers[1]: has the same name as spec.tiers[0]",
        ),
        (
            Kind::Pool,
            set("/spec/tiers/0/medium", "Nvme"),
            "spec.tiers[0].medium: 'Nvme' is not known; for now it must be Dram",
        ),
        (
            Kind::Pool,
            set(SIZE, "512 MB"),
            "spec.tiers[0].size: '512 MB' is not a size: write digits and one of \
             Ki, Mi, Gi, Ti, Pi, k, M, G, T, P, as in 512Mi",
        ),
        (
            Kind::Pool,
            set("/spec/tiers/0/name", "Memory"),
            "spec.tiers[0].name: 'Memory' does not match the pattern \
             ^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        ),
        (
            Kind::Tenant,
            set("/spec/access", "Read"),
            "spec.access: 'Read' is not known; it must be one of ReadWrite, ReadOnly, WriteOnly",
        ),
        (
            Kind::Tenant,
            set(TENANT_ID, "_system"),
            "spec.tenantId: '_system' does not match the pattern ^[A-Za-z0-9][A-Za-z0-9._-]*$",
        ),
    ]);
}

#[test]
fn all_problems_are_told_at_once() {
    let edits = [
        ("/spec/tiers/0/sise", Some(json!("1Gi"))),
        (SIZE, None),
        ("/spec/masters", Some(json!({ "replicas": "one" }))),
        ("/metadata/labels", Some(json!({ "a": 1 }))),
    ];
    let found = refusal(Kind::Pool, &edits);
    let found: Vec<&str> = found
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        found,
        [
            "spec.tiers[0].sise",
            "metadata.labels.a",
            "spec.masters.replicas",
            "spec.tiers[0].size"
        ]
    );
}

#[test]
fn a_null_is_an_absent_field() {
    let edits = [
        ("/spec/nodes", Some(Value::Null)),
        ("/spec/masters", Some(json!({ "replicas": null }))),
        (SLAB, Some(Value::Null)),
    ];
    let admitted = Kind::Pool
        .admission()
        .create(edited(Kind::Pool.base(), &edits))
        .unwrap();
    let nodes = json!({
        "drain": { "deadlineSeconds": 600 }, "rackLabel": "topology.larder.dev/rack",
    });
    assert_eq!(admitted["spec"]["nodes"], nodes);
    assert_eq!(
        admitted["spec"]["masters"],
        json!({ "replicas": 1, "oplog": { "sync": "Interval", "intervalMs": 20 } })
    );
    assert_eq!(admitted["spec"]["tiers"][0]["slabSize"], "64Mi");
    assert_eq!(
        refusal(Kind::Pool, &[(SIZE, Some(Value::Null))]),
        "spec.tiers[0].size: is required"
    );
}

#[test]
fn an_exported_object_is_taken_without_its_status() {
    let edits = [
        (
            "/status",
            Some(json!({ "phase": "Ready", "conditions": [] })),
        ),
        ("/metadata/uid", Some(json!("0d9e"))),
        (
            "/metadata/managedFields",
            Some(json!([{ "fieldsV1": { "f:spec": {} } }])),
        ),
    ];
    let admitted = Kind::Pool
        .admission()
        .create(edited(Kind::Pool.base(), &edits))
        .unwrap();
    assert_eq!(admitted.get("status"), None);
    assert_eq!(admitted["metadata"]["uid"], "0d9e");
}

/// Half of them powers of two.
fn slab_numbers() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..130, (0_u32..11).prop_map(|shift| 1 << shift)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The rules in CEL and the same arithmetic in Rust must not drift apart.
    #[test]
    fn rules_and_settings_agree_on_sizes(
        sizes in prop::collection::vec(
            (0_u64..20_000, 0_usize..7, slab_numbers(), 0_usize..4),
            32,
        )
    ) {
        let admission = Kind::Pool.admission();
        for (size, size_unit, slab, slab_unit) in sizes {
            let size = format!("{size}{}", ["", "Ki", "Mi", "Gi", "Ti", "M", "G"][size_unit]);
            let slab = format!("{slab}{}", ["Ki", "Mi", "Gi", "M"][slab_unit]);
            let edits = [(SIZE, Some(json!(size))), (SLAB, Some(json!(slab)))];
            let object = edited(Kind::Pool.base(), &edits);
            let by_rules = admission.create(object.clone()).is_ok();
            let pool: CachePool = serde_json::from_value(object).unwrap();
            let by_settings = pool.settings().is_ok();
            prop_assert_eq!(by_rules, by_settings, "size {} slabSize {}", size, slab);
        }
    }
}
