//! From objects to numbers.

use serde_json::{Value, json};

use super::*;

fn pool(spec: Value) -> Result<PoolSettings, String> {
    let object = json!({ "metadata": { "name": "demo" }, "spec": spec });
    let object = json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CachePool",
        "metadata": object["metadata"], "spec": object["spec"],
    });
    let pool: CachePool = serde_json::from_value(object).unwrap();
    pool.settings().map_err(|problems| problems.to_string())
}

fn tenant(metadata: Value, spec: Value) -> Result<TenantSettings, String> {
    let object = json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheTenant",
        "metadata": metadata, "spec": spec,
    });
    let tenant: CacheTenant = serde_json::from_value(object).unwrap();
    tenant.settings().map_err(|problems| problems.to_string())
}

fn tier(size: &str, slab: &str) -> Value {
    json!([{ "name": "memory", "medium": "Dram", "size": size, "slabSize": slab }])
}

#[test]
fn a_minimal_pool_gets_the_defaults() {
    let tiers = json!([{ "name": "memory", "medium": "Dram", "size": "1Gi" }]);
    let settings = pool(json!({ "tiers": tiers })).unwrap();
    assert_eq!(
        settings,
        PoolSettings {
            namespace: "default".into(),
            name: "demo".into(),
            masters: 1,
            master_storage: None,
            node_selector: BTreeMap::new(),
            node_count: None,
            drain_deadline_s: 600,
            rack_label: "topology.larder.dev/rack".into(),
            agents: 2,
            dram_tier: "memory".into(),
            node_dram_bytes: 1 << 30,
            slab_bytes: 64 << 20,
            replica_factor: 1,
            overcommit: Overcommit::Warn,
            master: MasterSettings::default(),
        }
    );
}

#[test]
fn agents_are_enough_for_the_replicas() {
    let agents = |nodes: Value, replica_factor: u32| {
        let placement = json!({ "replicaFactor": replica_factor });
        let spec = json!({ "nodes": nodes, "placement": placement, "tiers": tier("1Gi", "2Mi") });
        pool(spec).map(|settings| settings.agents)
    };
    assert_eq!(agents(json!({}), 1), Ok(2));
    assert_eq!(agents(json!({}), 3), Ok(3));
    assert_eq!(agents(json!({ "count": 1 }), 1), Ok(1));
    assert_eq!(agents(json!({ "count": 5 }), 3), Ok(5));
    assert_eq!(agents(json!({ "count": 0 }), 1), Ok(0));
    let refused = agents(json!({ "count": 2 }), 3).unwrap_err();
    assert!(
        refused.starts_with("spec.placement.replicaFactor: "),
        "{refused}"
    );
}

#[test]
fn an_unsound_pool_is_refused_with_every_field() {
    let refused = pool(json!({
        "masters": { "replicas": 4 },
        "nodes": {
            "selector": { "-bad": "x", "": "x", "a/b/c": "x", "UP.case/x": "y" },
            "rackLabel": "a b",
        },
        "placement": { "replicaFactor": 0 },
        "tiers": tier("99999999999999999999", "3Mi"),
    }))
    .unwrap_err();
    let paths: Vec<&str> = refused
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "spec.nodes.selector",
            "spec.nodes.selector",
            "spec.nodes.selector",
            "spec.nodes.selector",
            "spec.nodes.rackLabel",
            "spec.masters.replicas",
            "spec.placement.replicaFactor",
            "spec.tiers[0].size",
        ]
    );
    assert_eq!(
        pool(json!({ "tiers": [] })).unwrap_err(),
        "spec.tiers: must be exactly one tier"
    );
    let slab = pool(json!({ "tiers": tier("1Gi", "3Mi") })).unwrap_err();
    assert!(
        slab.starts_with("spec.tiers[0].slabSize: must be a power of two"),
        "{slab}"
    );
    let many = pool(json!({ "tiers": tier("34359738369", "2Mi") })).unwrap_err();
    assert!(
        many.starts_with("spec.tiers[0].size: must be at most 16384 slabs"),
        "{many}"
    );
}

#[test]
fn label_keys() {
    let long = format!("{}/x", "a".repeat(254));
    for (key, expected) in [
        ("disk", true),
        ("Disk_1.x-y", true),
        ("example.com/disk", true),
        ("node-role.kubernetes.io/worker", true),
        ("", false),
        ("/x", false),
        ("x/", false),
        ("a..b/x", false),
        ("-x", false),
        ("x-", false),
        ("Example.com/x", false),
        ("x y", false),
        ("\u{e9}", false),
        (long.as_str(), false),
    ] {
        assert_eq!(is_label_key(key), expected, "{key}");
    }
}

#[test]
fn a_tenant_without_an_id_is_called_by_namespace_and_name() {
    let spec = json!({ "poolRef": { "name": "demo" } });
    let settings = tenant(json!({ "name": "a", "namespace": "ml" }), spec.clone()).unwrap();
    assert_eq!(settings.tenant_id, "ml.a");
    assert_eq!(settings.access, Access::ReadWrite);
    let limits = (
        settings.figures.limit_bytes,
        settings.figures.limit_objects,
        settings.view_bytes,
    );
    assert_eq!(limits, (None, None, None));
    assert_eq!(
        tenant(json!({ "name": "a" }), spec).unwrap().tenant_id,
        "default.a"
    );
}

#[test]
fn a_full_tenant_in_numbers() {
    let settings = tenant(
        json!({ "name": "a", "namespace": "ml" }),
        json!({
            "poolRef": { "name": "demo" },
            "tenantId": "Team_A.1",
            "subjects": [
                { "serviceAccount": { "name": "engine" } },
                { "serviceAccount": { "name": "engine", "namespace": "other" } },
            ],
            "access": "ReadOnly",
            "limit": { "bytes": "2Gi", "objects": 7 },
            "viewBytes": "1M",
        }),
    )
    .unwrap();
    let subject = |namespace: &str| SubjectSettings {
        namespace: namespace.into(),
        name: "engine".into(),
    };
    assert_eq!(
        settings,
        TenantSettings {
            namespace: "ml".into(),
            name: "a".into(),
            pool_name: "demo".into(),
            tenant_id: "Team_A.1".into(),
            subjects: vec![subject("ml"), subject("other")],
            access: Access::ReadOnly,
            labels: BTreeMap::new(),
            figures: Figures {
                limit_bytes: Some(2 << 30),
                limit_objects: Some(7),
                ..Figures::default()
            },
            quota_name: None,
            view_bytes: Some(1_000_000),
        }
    );
}

#[test]
fn an_unsound_tenant_is_refused_with_every_field() {
    let refused = tenant(
        json!({}),
        json!({
            "poolRef": { "name": "demo" },
            "tenantId": "_x",
            "guaranteed": { "bytes": "2" },
            "limit": { "bytes": "0", "objects": 0 },
            "quotaRef": { "name": "team" },
            "viewBytes": "many",
        }),
    )
    .unwrap_err();
    let paths: Vec<&str> = refused
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        paths,
        [
            "metadata.name",
            "spec.tenantId",
            "spec.quotaRef",
            "spec.limit.bytes",
            "spec.limit.objects",
            "spec.guaranteed",
            "spec.viewBytes"
        ]
    );
}

fn quota(name: &str, spec: Value) -> Result<QuotaSettings, String> {
    let object = json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheQuota",
        "metadata": { "name": name, "namespace": "ml" }, "spec": spec,
    });
    let quota: crate::CacheQuota = serde_json::from_value(object).unwrap();
    quota.settings().map_err(|problems| problems.to_string())
}

#[test]
fn a_quota_names_tenants_by_name_or_label() {
    let limit = json!({ "bytes": "1Gi" });
    let of = |choice: Value| {
        let mut spec = json!({ "poolRef": { "name": "demo" }, "limit": limit });
        let fields = choice.as_object().unwrap().clone();
        spec.as_object_mut().unwrap().extend(fields);
        spec
    };
    let named = quota("named", of(json!({ "tenants": ["a", "b"] }))).unwrap();
    let labels = json!({ "selector": { "matchLabels": { "team": "red" } } });
    let labelled = quota("labelled", of(labels)).unwrap();
    let all = quota("all", of(json!({ "selector": { "matchLabels": {} } }))).unwrap();
    assert_eq!(named.figures.limit_bytes, Some(1 << 30));
    let quotas = [named, labelled, all];
    let shares = |name: &str, team: Option<&str>, pool: &str, wanted: Option<&str>| {
        let mut metadata = json!({ "name": name, "namespace": "ml" });
        if let Some(team) = team {
            metadata["labels"] = json!({ "team": team });
        }
        let mut spec = json!({ "poolRef": { "name": pool } });
        if let Some(wanted) = wanted {
            spec["quotaRef"] = json!({ "name": wanted });
        }
        let tenant = tenant(metadata, spec).unwrap();
        tenant.quota_of(&quotas).map(|quota| quota.name.clone())
    };
    assert_eq!(
        shares("a", Some("red"), "demo", None),
        Some("named".into()),
        "the oldest"
    );
    assert_eq!(
        shares("c", Some("red"), "demo", None),
        Some("labelled".into())
    );
    assert_eq!(shares("c", None, "demo", None), Some("all".into()));
    assert_eq!(shares("a", None, "other", None), None, "of another pool");
    assert_eq!(
        shares("a", Some("red"), "demo", Some("all")),
        Some("all".into()),
        "chosen"
    );
    assert_eq!(
        shares("a", None, "demo", Some("labelled")),
        Some("named".into()),
        "not named"
    );
}

#[test]
fn an_unsound_quota_is_refused_with_every_field() {
    let refused = quota(
        "q",
        json!({
            "poolRef": { "name": "demo" },
            "tenants": ["a"],
            "selector": { "matchLabels": {} },
            "limit": { "objects": 0 },
            "pinned": { "bytes": "x" },
            "borrowing": "Forbidden",
        }),
    )
    .unwrap_err();
    let paths: Vec<&str> = refused
        .lines()
        .map(|line| line.split(": ").next().unwrap())
        .collect();
    let expected = [
        "spec.pinned.bytes",
        "spec.limit.objects",
        "spec.borrowing",
        "spec",
    ];
    assert_eq!(paths, expected);
    let key = json!({
        "poolRef": { "name": "demo" }, "limit": { "objects": 1 },
        "selector": { "matchLabels": { "-x": "y" } },
    });
    assert!(
        quota("q", key)
            .unwrap_err()
            .starts_with("spec.selector.matchLabels: '-x'")
    );
}
