//! Every CEL rule with a passing and a failing case; a rule without a case fails a test.

use std::collections::BTreeSet;

use kube::core::cel::{ScopeContext, analyze_rule, compile_schema};
use regex::Regex;
use serde_json::{Value, json};

use super::*;

const TOO_LARGE: &str = "must be at most 4Pi";

/// One rule with edits of the base object that it lets pass and that it refuses.
struct Case {
    kind: Kind,
    /// Where the rule stands in the schema.
    at: &'static str,
    message: &'static str,
    /// Whether the base object is what was stored before.
    update: bool,
    pass: Vec<Vec<Edit>>,
    fail: Vec<Vec<Edit>>,
    /// The field that a failure names.
    path: &'static str,
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

fn cases() -> Vec<Case> {
    [
        pool_cases(),
        slab_cases(),
        size_cases(),
        tenant_cases(),
        node_cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Kind, place, message, rule and the schema that the rule stands in.
fn rules() -> Vec<(Kind, String, String, String, Value)> {
    fn collect(
        kind: Kind,
        at: &str,
        node: &Value,
        out: &mut Vec<(Kind, String, String, String, Value)>,
    ) {
        for rule in node["x-kubernetes-validations"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let text = |name: &str| rule[name].as_str().unwrap().to_owned();
            out.push((
                kind,
                at.to_owned(),
                text("message"),
                text("rule"),
                node.clone(),
            ));
        }
        for (name, child) in node["properties"].as_object().into_iter().flatten() {
            let at = if at.is_empty() {
                name.clone()
            } else {
                format!("{at}.{name}")
            };
            collect(kind, &at, child, out);
        }
        for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
            if let Some(child) = node.get(key) {
                collect(kind, &format!("{at}{suffix}"), child, out);
            }
        }
    }
    let mut out = Vec::new();
    for kind in Kind::ALL {
        collect(kind, "", &kind.schema(), &mut out);
    }
    out
}

#[test]
fn every_rule_passes_and_fails_where_it_should() {
    for kind in Kind::ALL {
        let admission = kind.admission();
        let stored = admission.create(kind.base()).unwrap();
        let admit = |case: &Case, edits: &[Edit]| {
            let object = edited(kind.base(), edits);
            if case.update {
                admission.update(object, &stored)
            } else {
                admission.create(object)
            }
        };
        for case in cases().iter().filter(|case| case.kind == kind) {
            let name = format!("{kind:?} {}: {}", case.at, case.message);
            assert!(
                !case.pass.is_empty() && !case.fail.is_empty(),
                "{name}: needs both cases"
            );
            for edits in &case.pass {
                assert_eq!(
                    admit(case, edits).err(),
                    None,
                    "{name}: {edits:?} should pass"
                );
            }
            for edits in &case.fail {
                let problems = admit(case, edits).expect_err(&name);
                let expected = Problem::new(case.path, case.message);
                assert!(
                    problems.as_slice().contains(&expected),
                    "{name}: {edits:?} gave\n{problems}"
                );
                assert!(
                    problems.as_slice().len() == 1 || case.message == TOO_LARGE,
                    "{name}: {edits:?} broke other rules too:\n{problems}"
                );
            }
        }
    }
}

#[test]
fn every_rule_has_a_case() {
    let in_schema: BTreeSet<(String, String, String)> = rules()
        .into_iter()
        .map(|(kind, at, message, ..)| (format!("{kind:?}"), at, message))
        .collect();
    assert_eq!(
        in_schema.len(),
        rules().len(),
        "two rules at one place have one message"
    );
    let in_table: BTreeSet<(String, String, String)> = cases()
        .into_iter()
        .map(|case| {
            (
                format!("{:?}", case.kind),
                case.at.to_owned(),
                case.message.to_owned(),
            )
        })
        .collect();
    assert_eq!(in_schema, in_table);
}

#[test]
fn every_rule_stays_in_scope_and_budget() {
    // The analysis takes the variable of a comprehension for a foreign one.
    let variables = Regex::new(r"\.(?:all|exists)\((\w+),").unwrap();
    for (kind, at, _, rule, node) in rules() {
        let mut warnings = analyze_rule(&rule, &compile_schema(&node), ScopeContext::CrdValidation);
        for variable in variables.captures_iter(&rule) {
            let foreign = format!("variable '{}' is not available", &variable[1]);
            warnings.retain(|warning| !warning.message.starts_with(&foreign));
        }
        assert_eq!(warnings, [], "{kind:?} {at}: {rule}");
        // The API server keeps large binary sizes as decimals, which these refuse.
        assert!(
            !rule.contains("asInteger") && !rule.contains("isInteger"),
            "{rule}"
        );
    }
}
