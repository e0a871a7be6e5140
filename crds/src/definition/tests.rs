//! The definitions as a whole: committed text, size, shape. The rules are tested in `admission`.

use std::path::Path;

use kube::core::cel::apply_defaults;
use serde_json::{Value, json};

use super::*;
use crate::{
    CacheNodeStatus, CachePoolStatus, CacheQuotaStatus, CacheSnapshotStatus, CacheTenantStatus,
};

/// A CRD above 262,144 bytes cannot be applied by the client; ours have a quarter of it.
const MAX_YAML_BYTES: usize = 65_536;

fn schemas() -> [(&'static str, Value); 5] {
    [
        ("CachePool", schema::<CachePool>()),
        ("CacheTenant", schema::<CacheTenant>()),
        ("CacheQuota", schema::<CacheQuota>()),
        ("CacheNode", schema::<CacheNode>()),
        ("CacheSnapshot", schema::<CacheSnapshot>()),
    ]
}

/// Calls `visit` with every node of a schema and its path.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(child, &format!("{path}.{name}"), visit);
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if let Some(child) = schema.get(key) {
            walk(child, &format!("{path}{suffix}"), visit);
        }
    }
}

#[test]
fn the_committed_yaml_is_what_the_types_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("yaml");
    let mut names = Vec::new();
    for (name, yaml) in generate().unwrap() {
        let committed = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        assert!(
            committed == yaml,
            "{name} is stale; run `cargo run -p larder-xtask -- crdgen`"
        );
        assert!(
            yaml.len() <= MAX_YAML_BYTES,
            "{name} has {} bytes",
            yaml.len()
        );
        names.push(name.to_owned());
    }
    let mut found: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    names.sort();
    assert_eq!(found, names, "crds/yaml holds exactly what is generated");
}

#[test]
fn the_yaml_reads_back_as_the_definition() {
    for (name, yaml) in generate().unwrap() {
        let read: CustomResourceDefinition = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(read.spec.group, crate::GROUP, "{name}");
        assert_eq!(read.spec.scope, "Namespaced", "{name}");
        assert_eq!(
            read.spec.names.categories,
            Some(vec!["larder".to_owned()]),
            "{name}"
        );
        assert_eq!(
            name.strip_suffix(".yaml"),
            Some(read.spec.names.plural.as_str())
        );
        let [version] = read.spec.versions.as_slice() else {
            panic!("{name}: one version")
        };
        assert_eq!(version.name, crate::VERSION, "{name}");
        assert!(
            version.subresources.as_ref().unwrap().status.is_some(),
            "{name}"
        );
        let schema = version
            .schema
            .as_ref()
            .unwrap()
            .open_api_v3_schema
            .as_ref()
            .unwrap();
        let kind = read.spec.names.kind.as_str();
        let (_, expected) = schemas().into_iter().find(|(k, _)| *k == kind).unwrap();
        assert_eq!(
            serde_json::to_value(schema).unwrap(),
            floats(expected),
            "{name}"
        );
    }
}

/// The schema type keeps bounds as floating point.
fn floats(schema: Value) -> Value {
    let typed: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps =
        serde_json::from_value(schema).unwrap();
    serde_json::to_value(typed).unwrap()
}

#[test]
fn names_and_columns_are_as_documented() {
    let facts = |definition: CustomResourceDefinition| {
        let columns = definition.spec.versions[0]
            .additional_printer_columns
            .clone();
        let columns: Vec<String> = columns.unwrap().into_iter().map(|c| c.name).collect();
        (
            definition.spec.names.short_names.unwrap().join(","),
            columns.join(","),
        )
    };
    let expected = |short: &str, columns: &str| (short.to_owned(), columns.to_owned());
    assert_eq!(
        facts(CachePool::crd()),
        expected("cpool", "Ready,Nodes,Desired,Capacity,Used,Hit%,Age")
    );
    assert_eq!(
        facts(CacheTenant::crd()),
        expected("ctenant", "Ready,Pool,Used,Limit,Age")
    );
    assert_eq!(
        facts(CacheQuota::crd()),
        expected("cquota", "Ready,Pool,Tenants,Used,Guaranteed,Limit,Age")
    );
    assert_eq!(
        facts(CacheNode::crd()),
        expected("cnode", "Ready,Pool,Node,Memory,Used,Drain,Age")
    );
    assert_eq!(
        facts(CacheSnapshot::crd()),
        expected("csnap", "Phase,Pool,Objects,Size,Taken,Location,Age")
    );
}

#[test]
fn every_column_and_scale_path_names_a_field() {
    for definition in [
        CachePool::crd(),
        CacheTenant::crd(),
        CacheQuota::crd(),
        CacheNode::crd(),
        CacheSnapshot::crd(),
    ] {
        let kind = definition.spec.names.kind.clone();
        let (_, schema) = schemas().into_iter().find(|(k, _)| *k == kind).unwrap();
        let version = definition.spec.versions[0].clone();
        let mut paths: Vec<String> = version
            .additional_printer_columns
            .unwrap()
            .into_iter()
            .map(|column| column.json_path)
            .collect();
        if let Some(scale) = version.subresources.unwrap().scale {
            paths.extend([scale.spec_replicas_path, scale.status_replicas_path]);
            paths.extend(scale.label_selector_path);
        }
        for path in paths.iter().filter(|path| !path.starts_with(".metadata.")) {
            let mut node = &schema;
            for name in path
                .trim_start_matches('.')
                .split('[')
                .next()
                .unwrap()
                .split('.')
            {
                node = &node["properties"][name];
            }
            assert!(node.is_object(), "{kind}: {path} names no field");
        }
    }
}

#[test]
fn schemas_are_structural_and_bounded() {
    for (kind, schema) in schemas() {
        walk(&schema, kind, &mut |path, node| {
            let known = crate::admission::KEYWORDS;
            for keyword in node.as_object().unwrap().keys() {
                assert!(
                    known.contains(&keyword.as_str()),
                    "{path}: keyword {keyword}"
                );
            }
            assert!(node["type"].is_string(), "{path} has no type");
            let bounded = node["type"] != "array" || node["maxItems"].is_u64();
            assert!(bounded, "{path}: a list without maxItems");
            let upstream = path.contains(".conditions");
            let shapeless = path.ends_with("[]") || path.ends_with("{}") || path == kind;
            assert!(
                upstream || shapeless || node["description"].is_string(),
                "{path} has no description"
            );
            for rule in node["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let message = rule["message"].as_str().unwrap_or_default();
                assert!(
                    !message.is_empty() && !message.contains('\n'),
                    "{path}: {rule}"
                );
            }
        });
    }
}

#[test]
fn every_string_of_a_spec_is_bounded() {
    for (kind, schema) in schemas() {
        walk(&schema["properties"]["spec"], kind, &mut |path, node| {
            let bounded =
                node["type"] != "string" || node["maxLength"].is_u64() || node["enum"].is_array();
            assert!(
                bounded,
                "{path}: a string without maxLength makes rules too costly"
            );
        });
    }
}

#[test]
fn conditions_are_lists_keyed_by_type() {
    for (kind, schema) in schemas() {
        let conditions = &schema["properties"]["status"]["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-type"], "map", "{kind}");
        assert_eq!(
            conditions["x-kubernetes-list-map-keys"],
            json!(["type"]),
            "{kind}"
        );
    }
}

#[test]
fn defaults_are_complete() {
    let minimal = json!({ "spec": {
        "tiers": [{ "name": "memory", "medium": "Dram", "size": "1Gi" }],
    }});
    let pool = apply_defaults(&schema::<CachePool>(), &minimal);
    assert_eq!(
        pool,
        json!({ "spec": {
            "masters": { "replicas": 1 },
            "nodes": {
                "drain": { "deadlineSeconds": 600 }, "rackLabel": "topology.larder.dev/rack",
            },
            "tiers": [
                { "name": "memory", "medium": "Dram", "size": "1Gi", "slabSize": "64Mi" },
            ],
            "placement": { "replicaFactor": 1 },
            "quotas": { "overcommit": "Warn" },
            "eviction": { "highWatermarkPercent": 90, "lowWatermarkPercent": 80 },
            "moves": { "maxConcurrent": 32, "bytesPerSecond": "768Mi" },
        }})
    );
    let minimal = json!({ "spec": { "poolRef": { "name": "demo" } } });
    let tenant = apply_defaults(&schema::<CacheTenant>(), &minimal);
    assert_eq!(tenant["spec"]["access"], "ReadWrite");
    // The API server goes on defaulting inside a default and kube-cel does not, so every default
    // of ours must be complete: a second round finds nothing to do.
    for (_, schema) in schemas() {
        for object in [json!({ "spec": {} }), json!({ "spec": {}, "status": {} })] {
            let once = apply_defaults(&schema, &object);
            assert_eq!(apply_defaults(&schema, &once), once);
            assert_eq!(
                once.get("status"),
                object.get("status"),
                "a status has no defaults"
            );
        }
    }
    let pool_schema = schema::<CachePool>();
    assert_eq!(apply_defaults(&pool_schema, &pool), pool);
}

#[test]
fn an_empty_status_is_an_empty_object() {
    // A null in an applied status would take the ownership of a field that nobody reported.
    let empty = json!({});
    assert_eq!(
        serde_json::to_value(CachePoolStatus::default()).unwrap(),
        empty
    );
    assert_eq!(
        serde_json::to_value(CacheTenantStatus::default()).unwrap(),
        empty
    );
    assert_eq!(
        serde_json::to_value(CacheQuotaStatus::default()).unwrap(),
        empty
    );
    assert_eq!(
        serde_json::to_value(CacheNodeStatus::default()).unwrap(),
        empty
    );
    assert_eq!(
        serde_json::to_value(CacheSnapshotStatus::default()).unwrap(),
        empty
    );
}
