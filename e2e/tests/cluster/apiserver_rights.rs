//! Who may do what: RBAC and the admission policies of the chart, with real tokens.

use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use larder_e2e::cluster::{Kubectl, Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::scene::{LIMIT, Scene};
use crate::simulated::Nodes;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("apiserver_agents_write_their_own_status_only", agents),
        Test::new("apiserver_operator_may_do_what_it_needs", operator),
    ]
}

/// What the policy says to an agent of another node.
const OWN_NODE: &str = "only the CacheNode of its own node";
/// Server-side apply asks no question before: an agent has no right to read a status.
const OBJECT: &[&str] = &[
    "apply",
    "--server-side",
    "--force-conflicts",
    "--validate=false",
    "-f",
    "-",
];
const STATUS: &[&str] = &[
    "apply",
    "--server-side",
    "--force-conflicts",
    "--validate=false",
    "--subresource=status",
    "-f",
    "-",
];

/// Refused by a policy and not for lack of a right or of an object.
fn refused(kubectl: &Kubectl, arguments: &[&str], why: &str) -> Result<()> {
    let output = kubectl.output(arguments, "")?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        bail!("{arguments:?} was allowed");
    }
    ensure!(said.contains(why), "{arguments:?} failed otherwise: {said}");
    Ok(())
}

fn refuse(kubectl: &Kubectl, apply: &[&str], object: &Value, why: &str) -> Result<()> {
    let output = kubectl.output(apply, &object.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "{object} was taken");
    ensure!(said.contains(why), "{object} was refused otherwise: {said}");
    Ok(())
}

/// `kubectl` with a token of a ServiceAccount that is bound to a pod on a node.
fn as_pod(scene: &Scene<'_>, account: &str, node: &str) -> Result<Kubectl> {
    let pod = format!("{account}-on-{node}");
    scene.apply(&[json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": pod },
        "spec": {
            "serviceAccountName": account, "nodeName": node,
            "containers": [{ "name": "main", "image": "localhost/none:1" }],
        },
    })])?;
    let found = scene.get(&["pod", &pod])?;
    let uid = found["metadata"]["uid"].as_str().unwrap_or_default();
    let bound = [
        "create",
        "token",
        account,
        "--bound-object-kind=Pod",
        "--bound-object-name",
        &pod,
        "--bound-object-uid",
        uid,
    ];
    let token = scene.kubectl(&bound)?;
    kubectl_of(scene, &pod, &token)
}

fn kubectl_of(scene: &Scene<'_>, name: &str, token: &str) -> Result<Kubectl> {
    let path: PathBuf = scene.folder().join(format!("{name}.kubeconfig"));
    scene.cluster.write_kubeconfig(&path, token.trim())?;
    Ok(scene.cluster.kubectl().with_kubeconfig(path))
}

fn agents(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = scene.release()?;
    let _operator = release.start()?;
    scene.apply(&[nodes.pool("small", None), nodes.pool("other", None)])?;
    let (one, two) = (&nodes.names[0], &nodes.names[1]);
    until("two CacheNodes of each pool", LIMIT, || {
        let count = scene.list(&["cachenodes"])?.len();
        Ok(Look::holds(count == 4, &format!("{count} CacheNodes")))
    })?;
    let agent = as_pod(scene, "small-agent", one)?;
    let status = json!({ "address": "10.0.0.1:7410" });
    let of = |pool: &str, node: &str| cache_node(scene, pool, node, "status", &status);
    let foreign = of("small", two);
    // The API server needs a moment to compile a new policy; until then everything passes.
    until("the policy to be in force", LIMIT, || {
        Ok(Look::at(refuse(&agent, STATUS, &foreign, OWN_NODE)))
    })?;
    agent.feed(STATUS, &of("small", one).to_string())?;
    refuse(
        &agent,
        STATUS,
        &of("other", one),
        "only CacheNodes of its own pool",
    )?;
    let spec = json!({ "poolRef": { "name": "small" }, "nodeName": "elsewhere" });
    let spec = cache_node(scene, "small", one, "spec", &spec);
    refuse(&agent, OBJECT, &spec, "cannot patch resource")?;
    // What a status is written with does not carry anything else along.
    let mut labelled = of("small", one);
    labelled["metadata"]["labels"] = json!({ "larder.dev/pool": "other" });
    agent.feed(STATUS, &labelled.to_string())?;
    let found = scene.get(&["cachenode", &format!("small-{one}")])?;
    ensure!(
        found["metadata"]["labels"]["larder.dev/pool"] == json!("small"),
        "{found}"
    );
    ensure!(found["status"] == status, "{found}");
    // A token that is bound to no pod names no node.
    let loose = scene.kubectl(&["create", "token", "small-agent"])?;
    let loose = kubectl_of(scene, "loose", &loose)?;
    refuse(&loose, STATUS, &of("small", one), OWN_NODE)?;
    let namespace = scene.namespace.as_str();
    for (verb, kind) in [("get", "secrets"), ("list", "cachenodes"), ("get", "pods")] {
        refused(
            &agent,
            &["-n", namespace, "auth", "can-i", verb, kind, "--quiet"],
            "",
        )?;
    }
    refused(
        &agent,
        &["-n", "default", "get", "cachenode", "any"],
        "forbidden",
    )
}

/// One field of a CacheNode, to apply.
fn cache_node(scene: &Scene<'_>, pool: &str, node: &str, field: &str, value: &Value) -> Value {
    let metadata = json!({ "name": format!("{pool}-{node}"), "namespace": scene.namespace });
    json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheNode",
        "metadata": metadata, field: value,
    })
}

fn operator(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 1)?;
    let release = scene.release()?;
    let kubectl = release.kubectl();
    let patch = |body: &str| -> Vec<String> {
        let words = [
            "patch",
            "node",
            &nodes.names[0],
            "--type=merge",
            "--dry-run=server",
            "-p",
            body,
        ];
        words.map(str::to_owned).to_vec()
    };
    for (body, why) in [
        (
            r#"{"metadata":{"labels":{"evil":"1"}}}"#,
            "only labels under pool.larder.dev",
        ),
        (
            r#"{"metadata":{"labels":{"e2e.larder.dev/scene":null}}}"#,
            "only labels under",
        ),
        (
            r#"{"metadata":{"annotations":{"evil":"1"}}}"#,
            "annotations of a node",
        ),
        (r#"{"spec":{"unschedulable":true}}"#, "the spec of a node"),
    ] {
        let words = patch(body);
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        until("the policy to be in force", LIMIT, || {
            Ok(Look::at(refused(&kubectl, &words, why)))
        })?;
    }
    let words = patch(r#"{"metadata":{"labels":{"pool.larder.dev/0":"x"}}}"#);
    kubectl.run(&words.iter().map(String::as_str).collect::<Vec<_>>())?;
    // What it may never do, here and elsewhere.
    let namespace = scene.namespace.as_str();
    for (verb, kind, place) in [
        ("get", "secrets", namespace),
        ("list", "secrets", namespace),
        ("create", "pods", namespace),
        ("update", "pods", namespace),
        ("create", "pods/exec", namespace),
        ("create", "roles.rbac.authorization.k8s.io", namespace),
        ("patch", "cachepools", "default"),
        ("delete", "nodes", namespace),
        ("impersonate", "serviceaccounts", namespace),
    ] {
        refused(
            &kubectl,
            &["-n", place, "auth", "can-i", verb, kind, "--quiet"],
            "",
        )?;
    }
    pods(scene, &kubectl)?;
    no_wildcard(&kubectl, namespace)
}

/// Of pods it may replace those of masters, and mark the leader's.
fn pods(scene: &Scene<'_>, kubectl: &Kubectl) -> Result<()> {
    let pod = |name: &str, component: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "labels": {
                "app.kubernetes.io/managed-by": "larder-operator",
                "app.kubernetes.io/component": component,
            } },
            // No scheduler of that name is there: it waits for ever.
            "spec": { "schedulerName": "none", "containers": [{ "name": "c", "image": "i" }] },
        })
    };
    scene.apply(&[pod("master", "master"), pod("engine", "engine")])?;
    let labelled = |name: &str, label: &str| {
        let metadata = json!({
            "name": name, "namespace": scene.namespace, "labels": { label: "true" },
        });
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata })
    };
    // In a name of its own: as the one who made the pod it would take all else away.
    let own = ["--dry-run=server", "--field-manager=larder-operator"];
    let try_out = [OBJECT, &own].concat();
    let only = "only pods of masters";
    for (name, label, why) in [
        ("engine", "larder.dev/leader", only),
        (
            "master",
            "larder.dev/pool",
            "only the label larder.dev/leader",
        ),
    ] {
        until("the policy of pods to be in force", LIMIT, || {
            let object = labelled(name, label);
            Ok(Look::at(refuse(kubectl, &try_out, &object, why)))
        })?;
    }
    let delete = |name| {
        [
            "-n",
            &scene.namespace,
            "delete",
            "pod",
            name,
            "--dry-run=server",
        ]
    };
    refused(kubectl, &delete("engine"), only)?;
    kubectl.run(&delete("master"))?;
    let marked = labelled("master", "larder.dev/leader").to_string();
    kubectl.feed(&try_out, &marked).map(drop)
}

/// Asks for all rules in force, of every role that the operator has.
fn no_wildcard(kubectl: &Kubectl, namespace: &str) -> Result<()> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": { "namespace": namespace },
    });
    let ask = ["create", "--validate=false", "-o", "json", "-f", "-"];
    let answer: Value = serde_json::from_str(&kubectl.feed(&ask, &review.to_string())?)?;
    let rules = answer["status"]["resourceRules"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    ensure!(rules.len() > 5, "few rules: {rules:?}");
    for rule in &rules {
        for field in ["verbs", "apiGroups", "resources"] {
            let words = rule[field].as_array().cloned().unwrap_or_default();
            ensure!(!words.contains(&json!("*")), "a wildcard: {rule}");
        }
    }
    Ok(())
}
