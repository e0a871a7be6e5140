//! Who may import whom. Lines point down: ground, pure, input and output, programs.

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::Value;

use super::Finding;

/// One crate: its name after `larder-`, which of ours it may import, what from outside never.
struct Row {
    name: &'static str,
    may: &'static [&'static str],
    never: &'static [&'static str],
}

const fn row(
    name: &'static str,
    may: &'static [&'static str],
    never: &'static [&'static str],
) -> Row {
    Row { name, may, never }
}

/// May import anything of ours; nobody imports them.
const FREE: [&str; 2] = ["e2e", "xtask"];

/// A name in the last column forbids every crate that starts with it.
const TABLE: [Row; 14] = [
    row(
        "types",
        &[],
        &["tokio", "rand", "kube", "ring", "prometheus"],
    ),
    row("telemetry", &[], &["kube"]),
    row("http", &[], &["kube"]),
    row("crds", &[], &["tokio"]),
    row(
        "store",
        &["types"],
        &[
            "tokio",
            "serde",
            "rand",
            "kube",
            "ring",
            "tracing",
            "prometheus",
        ],
    ),
    row("wire", &["types"], &["kube"]),
    row(
        "oplog",
        &["store", "types"],
        &["tokio", "rand", "kube", "openraft", "tracing"],
    ),
    row("transfer", &["wire", "types", "telemetry"], &["kube"]),
    row(
        "client",
        &["transfer", "wire", "types", "telemetry"],
        &["kube"],
    ),
    row(
        "master",
        &["store", "oplog", "wire", "types", "telemetry", "http"],
        &[],
    ),
    row(
        "node-agent",
        &["transfer", "wire", "types", "telemetry", "http", "crds"],
        &[],
    ),
    row("operator", &["crds", "types", "telemetry"], &[]),
    row(
        "cli",
        &[
            "client",
            "master",
            "node-agent",
            "crds",
            "oplog",
            "store",
            "types",
            "telemetry",
            "transfer",
            "wire",
        ],
        &[],
    ),
    row(
        "sim",
        &[
            "types",
            "store",
            "oplog",
            "wire",
            "transfer",
            "master",
            "node-agent",
            "client",
        ],
        &["kube"],
    ),
];

/// Compares the manifests, as `cargo metadata --no-deps` prints them, with the table. Dependencies
/// of tests alone are free.
///
/// # Errors
/// The text is not what cargo prints.
pub fn check(metadata: &str) -> anyhow::Result<Vec<Finding>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata has no packages")?;
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for package in packages {
        let full = package["name"].as_str().context("a package has no name")?;
        let path = format!("the manifest of {full}");
        let name = full.strip_prefix("larder-").unwrap_or(full);
        seen.insert(name);
        let row = TABLE.iter().find(|row| row.name == name);
        if row.is_none() && !FREE.contains(&name) {
            let what = "is not in the table of imports; say there what it may import";
            findings.push(Finding::file(&path, what));
        }
        for import in imports(package) {
            if let Some(what) = refuse(row, import) {
                findings.push(Finding::file(&path, what));
            }
        }
    }
    for name in TABLE.iter().map(|row| row.name).chain(FREE) {
        if !seen.contains(name) {
            let what = "is in the table of imports, but there is no such crate";
            findings.push(Finding::file(name, what));
        }
    }
    Ok(findings)
}

/// The dependencies of a package for its normal and build targets.
fn imports(package: &Value) -> impl Iterator<Item = &str> {
    let all = package["dependencies"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    all.iter()
        .filter(|one| one["kind"].as_str() != Some("dev"))
        .filter_map(|one| one["name"].as_str())
}

fn refuse(row: Option<&Row>, import: &str) -> Option<String> {
    let ours = import.strip_prefix("larder-");
    if let Some(name) = ours
        && FREE.contains(&name)
    {
        return Some(format!("imports {import}, which nothing may import"));
    }
    let row = row?;
    match ours {
        Some(name) if !row.may.contains(&name) => Some(format!(
            "may not import {import}; it may import: {}",
            row.may.join(", ")
        )),
        None if row.never.iter().any(|never| import.starts_with(never)) => {
            Some(format!("may never import {import}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The findings when these packages are added to ones that import nothing.
    fn found(name: &str, imports: &[(&str, Option<&str>)]) -> Vec<String> {
        let names = TABLE
            .iter()
            .map(|row| row.name)
            .chain(FREE)
            .filter(|one| *one != name);
        let mut packages: Vec<Value> = names
            .map(|one| json!({"name": format!("larder-{one}"), "dependencies": []}))
            .collect();
        let imports: Vec<Value> = imports
            .iter()
            .map(|(name, kind)| json!({"name": name, "kind": kind}))
            .collect();
        packages.push(json!({"name": format!("larder-{name}"), "dependencies": imports}));
        let text = json!({"packages": packages}).to_string();
        check(&text)
            .expect("metadata")
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_the_table_allows_passes() {
        assert_eq!(
            found("store", &[("larder-types", None), ("hashbrown", None)]),
            [""; 0]
        );
        assert_eq!(
            found("e2e", &[("larder-store", None), ("larder-cli", None)]),
            [""; 0]
        );
        assert_eq!(found("store", &[("rand", Some("dev"))]), [""; 0]);
    }

    #[test]
    fn what_it_does_not_is_found() {
        for (name, import, kind) in [
            ("types", "larder-telemetry", None),
            ("client", "larder-store", None),
            ("master", "larder-transfer", Some("build")),
            ("store", "tokio", None),
            ("store", "serde_json", None),
            ("client", "kube-client", None),
            ("cli", "larder-e2e", None),
            ("xtask", "larder-e2e", None),
        ] {
            let found = found(name, &[(import, kind)]);
            assert!(
                found.len() == 1 && found[0].contains(import),
                "{name} {import}: {found:?}"
            );
        }
    }

    #[test]
    fn table_and_workspace_name_the_same_crates() {
        let found = found("cellar", &[]);
        assert!(
            found.len() == 1 && found[0].contains("not in the table"),
            "{found:?}"
        );
        let text = json!({"packages": []}).to_string();
        assert_eq!(
            check(&text).expect("metadata").len(),
            TABLE.len() + FREE.len()
        );
        assert!(check("{}").is_err());
    }
}
