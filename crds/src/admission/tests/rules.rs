//! Every CEL rule with a passing and a failing case; a rule without a case fails a test.

use std::collections::BTreeSet;

use kube::core::cel::{ScopeContext, analyze_rule, compile_schema};
use regex::Regex;
use serde_json::Value;

use super::*;
use crate::cases::{Case, TOO_LARGE, cases};

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
    let variables = Regex::new(r"\.(?:all|exists|exists_one)\((\w+),").unwrap();
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
