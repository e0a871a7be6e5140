//! What users and accidents do to objects, and what the operator does about it.

use anyhow::{Context, Result, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::operator::Release;
use crate::scene::{LIMIT, Scene};
use crate::simulated::{Nodes, tenant};

/// Everything that a pool makes in its namespace.
const CHILDREN: &str = "serviceaccounts,rolebindings,configmaps,services,statefulsets,daemonsets,\
                        cachenodes,secrets";

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("apiserver_children_are_repaired", repaired),
        Test::new("apiserver_impossible_specs_are_told", impossible),
        Test::new("apiserver_two_pools_share_a_node", share),
        Test::new("apiserver_deleted_pool_leaves_nothing", leaves_nothing),
        Test::new("apiserver_namespace_goes_with_all_in_it", namespace_goes),
    ]
}

fn children(scene: &Scene<'_>) -> Result<Vec<Value>> {
    scene.list(&[CHILDREN, "-l", "larder.dev/pool=small"])
}

fn name_of(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
    format!(
        "{kind}/{}",
        object["metadata"]["name"].as_str().unwrap_or_default()
    )
}

/// Waits until the operator has told the state of a pool's nodes: all else is written before.
fn settled(scene: &Scene<'_>, pool: &str) -> Result<()> {
    scene
        .await_condition(&format!("cachepool/{pool}"), "Accepted", "True")
        .map(drop)
}

fn repaired(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = scene.release()?;
    let _operator = release.start()?;
    scene.apply(&[nodes.pool("small", None)])?;
    settled(scene, "small")?;
    let all = children(scene)?;
    // Two ServiceAccounts, one binding, four ConfigMaps, three Services, two sets, two CacheNodes
    // and a Secret.
    ensure!(
        all.len() == 15,
        "{:?}",
        all.iter().map(name_of).collect::<Vec<_>>()
    );
    for child in &all {
        comes_back(scene, child)?;
    }
    let node = format!("cachenode/small-{}", nodes.names[0]);
    for (pointer, patch) in [
        (
            "/metadata/labels/larder.dev~1pool",
            r#"{"metadata":{"labels":{"larder.dev/pool":"x"}}}"#,
        ),
        (
            "/metadata/ownerReferences/0/kind",
            r#"{"metadata":{"ownerReferences":null}}"#,
        ),
    ] {
        is_undone(scene, &node, pointer, patch)?;
    }
    for (name, pointer, patch) in EDITS {
        is_undone(scene, name, pointer, patch)?;
    }
    // What tells whose a CacheNode is cannot be changed at all.
    let foreign = r#"{"spec":{"nodeName":"elsewhere"}}"#;
    let changed = scene.kubectl(&["patch", &node, "--type=merge", "-p", foreign]);
    let refusal = changed
        .err()
        .context("the node of a CacheNode was changed")?
        .to_string();
    ensure!(refusal.contains("spec.nodeName"), "{refusal}");
    ensure!(refusal.contains("cannot be changed"), "{refusal}");
    // A member's label taken off by hand.
    let label = nodes.list()?[0]["metadata"]["labels"].clone();
    let mut labels = label.as_object().into_iter().flat_map(|all| all.keys());
    let label = labels
        .find(|key| key.starts_with("pool."))
        .context("no label")?;
    let gone = format!("{label}-");
    scene
        .cluster
        .kubectl()
        .run(&["label", "node", &nodes.names[0], &gone])?;
    until("two members", LIMIT, || {
        let found = nodes.members()?;
        Ok(Look::holds(found == 2, &format!("{found} members")))
    })
}

/// Objects, fields of them, and patches that change these.
const EDITS: [(&str, &str, &str); 5] = [
    (
        "configmap/small-agent",
        "/data/agent.json",
        r#"{"data":{"agent.json":"{}"}}"#,
    ),
    (
        "service/small-master",
        "/spec/selector/larder.dev~1pool",
        r#"{"spec":{"selector":{"larder.dev/pool":"x"}}}"#,
    ),
    (
        "daemonset/small-agent",
        "/spec/template/spec/nodeSelector",
        r#"{"spec":{"template":{"spec":{"nodeSelector":null}}}}"#,
    ),
    (
        "statefulset/small-master",
        "/spec/updateStrategy/type",
        r#"{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}"#,
    ),
    (
        "rolebinding/small-agent",
        "/subjects/0/name",
        r#"{"subjects":null}"#,
    ),
];

/// Deletes a child and waits until there is another one.
fn comes_back(scene: &Scene<'_>, child: &Value) -> Result<()> {
    let name = name_of(child);
    if name.starts_with("secret/") {
        // Nobody but a master can tell that it is gone, and none runs here.
        return Ok(());
    }
    let old = &child["metadata"]["uid"];
    scene.kubectl(&["delete", &name, "--wait=false"])?;
    until(&format!("{name} to come back"), LIMIT, || {
        let found = scene.get(&[&name]).unwrap_or_default();
        let uid = &found["metadata"]["uid"];
        Ok(Look::holds(uid.is_string() && uid != old, "it has not"))
    })
}

/// Changes a field by hand and waits until it is as it was.
fn is_undone(scene: &Scene<'_>, name: &str, pointer: &str, patch: &str) -> Result<()> {
    let before = scene.get(&[name])?;
    let before = before
        .pointer(pointer)
        .with_context(|| format!("no {pointer} in {name}"))?;
    scene.kubectl(&["patch", name, "--type=merge", "-p", patch])?;
    until(
        &format!("{pointer} of {name} to be repaired"),
        LIMIT,
        || {
            let found = scene.get(&[name])?;
            let found = found.pointer(pointer);
            Ok(Look::holds(found == Some(before), &format!("{found:?}")))
        },
    )
}

fn impossible(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = scene.release()?;
    let _operator = release.start()?;
    let mut nowhere = nodes.pool("nowhere", None);
    nowhere["spec"]["nodes"]["selector"] = json!({ "no.such/label": "x" });
    let mut huge = nodes.pool("huge", None);
    huge["spec"]["tiers"][0]["size"] = json!("64Gi");
    let mut unkeyed = nodes.pool("unkeyed", None);
    unkeyed["spec"]["nodes"]["selector"] = json!({ "not a key!": "x" });
    let taken = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "taken-agent" },
        "data": { "mine": "untouched" },
    });
    let crowded = nodes.pool("crowded", Some(5));
    let lone = tenant("lone", "no-such-pool");
    scene.apply(&[
        taken,
        nowhere,
        huge,
        unkeyed,
        nodes.pool("taken", None),
        crowded,
        lone,
    ])?;
    scene.apply(&[nodes.pool("small", None), tenant("team-a", "small")])?;
    for (object, condition, reason, said) in TOLD {
        is_told(scene, object, condition, reason, said)?;
    }
    // The others go on, and what belongs to somebody else is as it was.
    settled(scene, "small")?;
    scene.await_condition("cachetenant/team-a", "Accepted", "True")?;
    let taken = scene.get(&["configmap/taken-agent"])?;
    ensure!(taken["data"] == json!({ "mine": "untouched" }), "{taken}");
    // Each mends once its cause is gone.
    scene.kubectl(&["delete", "configmap", "taken-agent"])?;
    settled(scene, "taken")?;
    scene.apply(&[nodes.pool("no-such-pool", None)])?;
    scene
        .await_condition("cachetenant/lone", "Accepted", "True")
        .map(drop)
}

/// Objects that cannot be carried out, the condition and the reason, and a part of the message.
const TOLD: [(&str, &str, &str, &str); 6] = [
    (
        "CachePool/nowhere",
        "NodesReady",
        "NoMatchingNode",
        "selector",
    ),
    ("CachePool/huge", "NodesReady", "NodeTooSmall", "memory"),
    (
        "CachePool/unkeyed",
        "Accepted",
        "InvalidSpec",
        "spec.nodes.selector",
    ),
    ("CachePool/taken", "Accepted", "NameTaken", "taken-agent"),
    (
        "CachePool/crowded",
        "NodesReady",
        "TooFewNodes",
        "5 are wanted",
    ),
    (
        "CacheTenant/lone",
        "Accepted",
        "PoolNotFound",
        "no-such-pool",
    ),
];

/// A condition and a warning say what is wrong.
fn is_told(
    scene: &Scene<'_>,
    object: &str,
    condition: &str,
    reason: &str,
    said: &str,
) -> Result<()> {
    let found = scene.await_condition(object, condition, reason)?;
    let text = found["message"].as_str().unwrap_or_default();
    ensure!(text.contains(said), "{object}: {text:?}");
    let (kind, name) = object.split_once('/').unwrap_or_default();
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name},reason={reason}");
    until(&format!("an event {reason} of {object}"), LIMIT, || {
        let events = scene.list(&["events", "--field-selector", &fields])?;
        let is_warning = events.iter().any(|event| event["type"] == json!("Warning"));
        Ok(Look::holds(is_warning, &format!("{events:?}")))
    })
}

/// Sockets and state lie in folders of namespace and pool, so pools do not meet on a node.
fn share(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 1)?;
    let release = scene.release()?;
    let _operator = release.start()?;
    scene.apply(&[nodes.pool("small", None), nodes.pool("other", None)])?;
    scene.apply(&[tenant("team-a", "small"), tenant("team-b", "other")])?;
    let mut sockets = Vec::new();
    for name in ["team-a", "team-b"] {
        scene.await_condition(&format!("cachetenant/{name}"), "Accepted", "True")?;
        let connection = scene.get(&["configmap", &format!("{name}-connection")])?;
        sockets.push(
            connection["data"]["LARDER_SOCKET"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    let folder = |pool: &str| format!("/run/larder/{}.{pool}/agent.sock", scene.namespace);
    ensure!(sockets == [folder("small"), folder("other")], "{sockets:?}");
    for pool in ["small", "other"] {
        settled(scene, pool)?;
        let map = scene.get(&["configmap", &format!("{pool}-agent")])?;
        let file = map["data"]["agent.json"].as_str().unwrap_or_default();
        ensure!(
            file.contains(&format!("{}.{pool}", scene.namespace)),
            "{file}"
        );
    }
    // An account is one tenant of a pool: the younger one of two is told.
    let mut second = tenant("team-c", "small");
    second["spec"]["subjects"][0]["serviceAccount"]["name"] = json!("team-a");
    scene.apply(&[second])?;
    scene
        .await_condition("cachetenant/team-c", "Accepted", "SubjectTaken")
        .map(drop)
}

/// Objects of any kind that carry the pool's mark, and labels on nodes.
fn traces(scene: &Scene<'_>, nodes: &Nodes<'_>) -> Result<Vec<String>> {
    let mut found: Vec<_> = children(scene)?.iter().map(name_of).collect();
    let own = format!("larder.dev/pool-namespace={}", scene.namespace);
    let bindings = scene
        .cluster
        .kubectl()
        .get(&["clusterrolebindings", "-l", &own])?;
    let bindings = bindings["items"].as_array().cloned().unwrap_or_default();
    found.extend(bindings.iter().map(name_of));
    found.extend(scene.list(&["larder"])?.iter().map(name_of));
    found.extend(
        scene
            .list(&["configmaps"])?
            .iter()
            .map(name_of)
            .filter(|name| name.contains("connection")),
    );
    let members = nodes.members()?;
    if members > 0 {
        found.push(format!("{members} labels on nodes"));
    }
    Ok(found)
}

fn await_nothing(scene: &Scene<'_>, nodes: &Nodes<'_>) -> Result<()> {
    until("nothing to be left", LIMIT, || {
        let found = traces(scene, nodes)?;
        Ok(Look::holds(found.is_empty(), &found.join(", ")))
    })
}

fn finalizers(scene: &Scene<'_>, object: &str) -> Result<Value> {
    Ok(scene.get(&[object])?["metadata"]["finalizers"].clone())
}

fn leaves_nothing(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = scene.release()?;
    let operator = release.start()?;
    scene.apply(&[
        nodes.pool("small", None),
        tenant("team-a", "small"),
        tenant("lone", "none"),
    ])?;
    settled(scene, "small")?;
    scene.await_condition("cachetenant/team-a", "Accepted", "True")?;
    scene.await_condition("cachetenant/lone", "Accepted", "PoolNotFound")?;
    ensure!(finalizers(scene, "cachepool/small")? == json!(["larder.dev/pool"]));
    ensure!(finalizers(scene, "cachetenant/team-a")? == json!(["larder.dev/tenant"]));
    // No master knows of it, so nothing has to be forgotten.
    ensure!(finalizers(scene, "cachetenant/lone")?.is_null());
    scene.kubectl(&["delete", "cachetenant", "lone", "--timeout=60s"])?;
    // While nobody looks after it the pool waits, and goes as soon as somebody does.
    drop(operator);
    scene.kubectl(&["delete", "cachepool", "small", "--wait=false"])?;
    scene.kubectl(&["delete", "cachetenant", "team-a", "--wait=false"])?;
    ensure!(finalizers(scene, "cachepool/small")? == json!(["larder.dev/pool"]));
    let operator = release.start()?;
    await_nothing(scene, &nodes)?;
    // And with the operator there all the time, the other way round.
    scene.apply(&[nodes.pool("small", None), tenant("team-a", "small")])?;
    settled(scene, "small")?;
    scene.await_condition("cachetenant/team-a", "Accepted", "True")?;
    scene.kubectl(&["delete", "cachetenant", "team-a", "--timeout=60s"])?;
    scene.kubectl(&["delete", "cachepool", "small", "--timeout=60s"])?;
    await_nothing(scene, &nodes)?;
    // And with the finalizer removed by hand while nobody looks: the sweep finds what stayed.
    scene.apply(&[nodes.pool("small", None)])?;
    settled(scene, "small")?;
    drop(operator);
    let none = r#"{"metadata":{"finalizers":null}}"#;
    scene.kubectl(&["patch", "cachepool/small", "--type=merge", "-p", none])?;
    scene.kubectl(&["delete", "cachepool", "small", "--timeout=60s"])?;
    ensure!(
        nodes.members()? == 2,
        "the labels went with nobody to take them"
    );
    let _operator = release.start()?;
    await_nothing(scene, &nodes)
}

/// With the rights for all namespaces: those for one lie in it, and go before the pool does.
fn namespace_goes(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = Release::of_all(scene)?;
    let operator = release.start()?;
    scene.apply(&[
        nodes.pool("small", None),
        tenant("team-a", "small"),
        tenant("lone", "none"),
    ])?;
    settled(scene, "small")?;
    scene.await_condition("cachetenant/team-a", "Accepted", "True")?;
    let kubectl = scene.cluster.kubectl();
    kubectl.run(&["delete", "namespace", &scene.namespace, "--timeout=120s"])?;
    await_nothing(scene, &nodes)?;
    operator.stop()
}
