//! The chart and the manifests, with Helm and against the API server.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::Test;
use crate::rig::{SYSTEM, chart, run, tree};
use crate::scene::Scene;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("apiserver_chart_is_strict", strict),
        Test::new("apiserver_install_yaml_is_the_chart", same),
        Test::new("apiserver_manifests_are_taken", taken),
        Test::new("apiserver_upgrade_renews_the_kinds", upgraded),
    ]
}

fn strict(scene: &Scene<'_>) -> Result<()> {
    run(scene.cluster.helm().args(["lint", "--strict"]).arg(chart()))?;
    for (value, said) in [
        ("imgae.tag=x", "imgae"),
        ("operator.replica=2", "replica"),
        ("operator.replicas=9", "replicas"),
        ("operator.log.format=xml", "format"),
        ("watchNamespace=Not-A-Name", "watchNamespace"),
        ("crds.install=perhaps", "install"),
    ] {
        let refused = run(template(scene).args(["--set", value]));
        let text = match refused {
            Ok(_) => bail!("{value} was taken"),
            Err(error) => error.to_string(),
        };
        ensure!(text.contains(said), "{value}: {text}");
    }
    Ok(())
}

fn template(scene: &Scene<'_>) -> Command {
    let mut helm = scene.cluster.helm();
    helm.args(["template", "larder"]).arg(chart());
    helm.args(["--namespace", SYSTEM, "--kube-version", "1.33.0"]);
    helm
}

/// The objects of a text of YAML, without the words by which Helm knows its own.
fn objects(scene: &Scene<'_>, yaml: &str) -> Result<BTreeMap<String, Value>> {
    let ask = ["create", "--dry-run=client", "-o", "json", "-f", "-"];
    let text = scene.cluster.kubectl().feed(&ask, yaml)?;
    let mut objects = BTreeMap::new();
    // One document after another, as kubectl prints them.
    for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        let mut object = object?;
        let metadata = &mut object["metadata"];
        let labels = metadata["labels"].as_object_mut();
        if let Some(labels) = labels {
            labels.retain(|key, value| !key.starts_with("helm.sh/") && *value != json!("Helm"));
        }
        let annotations = metadata["annotations"].as_object_mut();
        if let Some(annotations) = annotations {
            annotations.retain(|key, _| !key.starts_with("helm.sh/"));
            if annotations.is_empty() {
                metadata["annotations"] = Value::Null;
            }
        }
        let fields = metadata.as_object_mut().context("no metadata")?;
        fields.retain(|_, value| !value.is_null());
        let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
        // A pod template carries the chart's labels too.
        if let Some(labels) = object.pointer_mut("/spec/template/metadata/labels") {
            let labels = labels.as_object_mut().context("no labels")?;
            labels.retain(|key, value| !key.starts_with("helm.sh/") && *value != json!("Helm"));
        }
        objects.insert(name, object);
    }
    Ok(objects)
}

fn same(scene: &Scene<'_>) -> Result<()> {
    let file = std::fs::read_to_string(tree().join("manifests/install.yaml"))?;
    let mut file = objects(scene, &file)?;
    let chart = objects(scene, &run(&mut template(scene))?)?;
    ensure!(chart.len() > 15, "the chart makes only {:?}", chart.keys());
    let namespace = file.remove(&format!("\"Namespace\" \"{SYSTEM}\""));
    ensure!(namespace.is_some(), "install.yaml makes no namespace");
    for name in chart.keys().chain(file.keys()) {
        ensure!(
            chart.get(name) == file.get(name),
            "{name} differs; run: cargo run -p larder-xtask -- render HELM\n{:#?}\n{:#?}",
            chart.get(name),
            file.get(name)
        );
    }
    Ok(())
}

fn taken(scene: &Scene<'_>) -> Result<()> {
    let folder = tree().join("manifests");
    let folder = folder.to_str().context("a path of text")?;
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
    ];
    let said = scene
        .cluster
        .kubectl()
        .run(&[&apply, &["-k", folder][..]].concat())?;
    ensure!(said.lines().count() > 15, "{said}");
    let samples = format!("{folder}/samples");
    scene
        .kubectl(&[&apply, &["-f", &samples][..]].concat())
        .map(drop)
}

/// The rig installed an older chart first; see `rig.rs`.
fn upgraded(scene: &Scene<'_>) -> Result<()> {
    let history = ["history", "larder", "--namespace", SYSTEM, "-o", "json"];
    let history: Value = serde_json::from_str(&run(scene.cluster.helm().args(history))?)?;
    ensure!(
        history.as_array().is_some_and(|all| all.len() >= 2),
        "{history}"
    );
    let definition = scene
        .cluster
        .kubectl()
        .get(&["crd", "cachepools.larder.dev"])?;
    let count = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/nodes\
                 /properties/count/maximum";
    ensure!(
        definition.pointer(count) == Some(&json!(4096)),
        "{:?}",
        definition.pointer(count)
    );
    ensure!(
        definition["metadata"]["generation"].as_u64() >= Some(2),
        "{definition}"
    );
    let keep = &definition["metadata"]["annotations"]["helm.sh/resource-policy"];
    ensure!(
        *keep == json!("keep"),
        "an uninstallation would take pools along: {keep}"
    );
    Ok(())
}
