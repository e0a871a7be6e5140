//! The checks, each in a namespace of its own. The slow ones, which hurt nodes, come last.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::super::command::{Look, until};
use super::super::probe::PORT;
use super::{Check, daemon_set, pod};

/// A check and its name.
type Named = (&'static str, fn(Check<'_>) -> Result<()>);

/// All checks, in the order in which they run.
pub(super) const CHECKS: [Named; 11] = [
    ("nodes_are_ready", nodes_are_ready),
    ("pod_runs_our_image_and_logs", pod_runs_our_image_and_logs),
    (
        "service_name_reaches_another_node",
        service_name_reaches_another_node,
    ),
    ("nothing_leaves_the_network", nothing_leaves_the_network),
    ("daemon_set_runs_on_all_nodes", daemon_set_runs_on_all_nodes),
    (
        "host_path_is_private_to_a_node",
        host_path_is_private_to_a_node,
    ),
    ("projected_token_is_reviewed", projected_token_is_reviewed),
    ("writes_are_logged", writes_are_logged),
    ("node_comes_and_goes", node_comes_and_goes),
    ("killed_kubelet_is_noticed", killed_kubelet_is_noticed),
    ("power_cut_is_survived", power_cut_is_survived),
];
/// A node is lost after 20 s and found again after a few; a busy machine takes longer.
const NODE_LIMIT: Duration = Duration::from_secs(120);
const READY: &str = "--for=condition=Ready";

fn nodes_are_ready(check: Check<'_>) -> Result<()> {
    let nodes = check.cluster.kubectl().get(&["nodes"])?;
    let nodes = nodes["items"].as_array().context("a list")?;
    ensure!(nodes.len() == 3, "{} nodes", nodes.len());
    for (number, node) in (1..).zip(nodes) {
        let zone = &node["metadata"]["labels"]["topology.kubernetes.io/zone"];
        ensure!(*zone == json!(format!("zone-{number}")), "zone {zone}");
        ensure!(node["spec"]["podCIDR"] == json!(format!("10.90.{number}.0/24")));
        let version = &node["status"]["nodeInfo"]["kubeletVersion"];
        ensure!(*version == json!("v1.35.4"), "kubelet {version}");
    }
    Ok(())
}

fn pod_runs_our_image_and_logs(check: Check<'_>) -> Result<()> {
    check.apply(&[pod("app", "n1", &json!({}))])?;
    check.wait("pod/app", READY)?;
    let logs = check.kubectl(&["logs", "app"])?;
    ensure!(logs.trim() == "serving as app", "logs {logs:?}");
    let host = check.in_pod("app", &["read", "/etc/hostname"])?;
    ensure!(host == "app", "host {host:?}");
    Ok(())
}

fn service_name_reaches_another_node(check: Check<'_>) -> Result<()> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "app" },
        "spec": { "selector": { "app": "app" }, "ports": [{ "port": 80, "targetPort": PORT }] },
    });
    let asker = |name: &str, node: &str| pod(name, node, &json!({}));
    check.apply(&[
        service,
        asker("app", "n1"),
        asker("far", "n2"),
        asker("near", "n1"),
    ])?;
    for name in ["app", "far", "near"] {
        check.wait(&format!("pod/{name}"), READY)?;
    }
    let long = format!("app.{}.svc.cluster.local:80", check.namespace);
    // The node's rules for the Service may be a moment behind.
    for (from, target) in [
        ("far", "app:80"),
        ("far", long.as_str()),
        ("near", "app:80"),
    ] {
        until(
            &format!("{target} to answer to {from}"),
            Duration::from_secs(30),
            || {
                Ok(Look::at(check.in_pod(from, &["ask", target]).and_then(
                    |answer| {
                        ensure!(answer == "app", "answered {answer:?}");
                        Ok(())
                    },
                )))
            },
        )?;
    }
    // What every client in a pod does. It speaks TLS and says so.
    let answer = check.in_pod("far", &["ask", "kubernetes.default.svc:443"])?;
    ensure!(answer.contains("400"), "the API server says {answer:?}");
    Ok(())
}

fn nothing_leaves_the_network(check: Check<'_>) -> Result<()> {
    check.apply(&[pod("app", "n1", &json!({}))])?;
    check.wait("pod/app", READY)?;
    // Addresses that are given to nobody, for documents.
    let Err(error) = check.in_pod("app", &["ask", "192.0.2.1:80"]) else {
        bail!("an address outside answered");
    };
    let text = format!("{error:#}");
    ensure!(text.contains("unreachable"), "not refused but: {text}");
    Ok(())
}

fn daemon_set_runs_on_all_nodes(check: Check<'_>) -> Result<()> {
    check.apply(&[daemon_set("app", &json!({}))])?;
    check.rollout("daemonset/app")?;
    let pods = check.get(&["pods", "-l", "app=app"])?;
    let nodes = nodes_of(&pods);
    ensure!(nodes == ["n1", "n2", "n3"], "on {nodes:?}");
    Ok(())
}

fn host_path_is_private_to_a_node(check: Check<'_>) -> Result<()> {
    let folder = "/var/lib/larder-selftest";
    let more = json!({
        "volumes": [{
            "name": "host", "hostPath": { "path": folder, "type": "DirectoryOrCreate" },
        }],
        "containers": [{ "volumeMounts": [{ "name": "host", "mountPath": "/host" }] }],
    });
    check.apply(&[daemon_set("app", &more)])?;
    check.rollout("daemonset/app")?;
    for item in items(&check.get(&["pods"])?) {
        let (name, node) = (
            text(&item["metadata"]["name"]),
            text(&item["spec"]["nodeName"]),
        );
        check.in_pod(name, &["write", "/host/node", node])?;
    }
    for node in check.cluster.nodes() {
        let inside = node.run(&["cat", &format!("{folder}/node")])?;
        ensure!(inside == node.name(), "{} has {inside:?}", node.name());
        let outside = std::fs::read_to_string(node.path(folder)?.join("node"))?;
        ensure!(outside == inside, "seen from outside: {outside:?}");
    }
    ensure!(
        !std::path::Path::new(folder).exists(),
        "{folder} is on the whole machine"
    );
    Ok(())
}

fn projected_token_is_reviewed(check: Check<'_>) -> Result<()> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "engine" },
    });
    let more = json!({
        "serviceAccountName": "engine",
        "volumes": [{ "name": "token", "projected": { "sources": [{ "serviceAccountToken": {
            "audience": "larder", "expirationSeconds": 600, "path": "token",
        } }] } }],
        "containers": [{ "volumeMounts": [{ "name": "token", "mountPath": "/token" }] }],
    });
    check.apply(&[account, pod("app", "n1", &more)])?;
    check.wait("pod/app", READY)?;
    let token = check.in_pod("app", &["read", "/token/token"])?;
    let review = |audience: &str| -> Result<Value> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": { "token": token, "audiences": [audience] },
        });
        let arguments = ["create", "-o", "json", "-f", "-"];
        Ok(serde_json::from_str(
            &check
                .cluster
                .kubectl()
                .feed(&arguments, &review.to_string())?,
        )?)
    };
    let good = review("larder")?;
    let user = format!("system:serviceaccount:{}:engine", check.namespace);
    ensure!(good["status"]["user"]["username"] == json!(user), "{good}");
    let other = review("somebody-else")?;
    ensure!(other["status"]["authenticated"] != json!(true), "{other}");
    Ok(())
}

fn writes_are_logged(check: Check<'_>) -> Result<()> {
    let mut audit = check.cluster.audit();
    check.kubectl(&["create", "configmap", "noted"])?;
    check.kubectl(&["get", "configmap", "noted"])?;
    check.kubectl(&["delete", "configmap", "noted"])?;
    let mut verbs = Vec::new();
    until(
        "the log to have both writes",
        Duration::from_secs(10),
        || {
            let writes = audit.writes()?.into_iter();
            let ours = writes.filter(|write| {
                (
                    write.namespace.as_str(),
                    write.resource.as_str(),
                    write.user.as_str(),
                ) == (check.namespace, "configmaps", "cluster-admin")
            });
            verbs.extend(ours.map(|write| (write.verb, write.code)));
            Ok(Look::holds(verbs.len() >= 2, &format!("{verbs:?}")))
        },
    )?;
    let wanted = [("create".to_owned(), 201), ("delete".to_owned(), 200)];
    ensure!(verbs == wanted, "{verbs:?}");
    Ok(())
}

fn node_comes_and_goes(check: Check<'_>) -> Result<()> {
    let node = check.cluster.add_node()?;
    ensure!(node.name() == "n4", "it is {}", node.name());
    await_node(check, "n4", true)?;
    let object = check.cluster.kubectl().get(&["node", "n4"])?;
    ensure!(
        object["spec"]["podCIDR"] == json!("10.90.4.0/24"),
        "{object}"
    );
    node.remove()?;
    let left = check
        .cluster
        .kubectl()
        .run(&["get", "nodes", "-o", "name"])?;
    ensure!(left == "node/n1\nnode/n2\nnode/n3\n", "left are {left:?}");
    ensure!(check.cluster.nodes().len() == 3, "n4 is still on disk");
    Ok(())
}

fn killed_kubelet_is_noticed(check: Check<'_>) -> Result<()> {
    check.apply(&[pod("app", "n2", &json!({})), pod("asker", "n1", &json!({}))])?;
    check.wait("pod/app", READY)?;
    check.wait("pod/asker", READY)?;
    let address = text(&check.get(&["pod", "app"])?["status"]["podIP"]).to_owned();
    let node = check.cluster.node("n2")?;
    node.stop_kubelet()?;
    let lost = await_node(check, "n2", false);
    // The container runs on without it.
    let answer = check.in_pod("asker", &["ask", &format!("{address}:{PORT}")]);
    node.start_kubelet()?;
    lost?;
    let answer = answer?;
    ensure!(answer == "app", "{answer:?}");
    await_node(check, "n2", true)
}

fn power_cut_is_survived(check: Check<'_>) -> Result<()> {
    check.apply(&[daemon_set("app", &json!({}))])?;
    check.rollout("daemonset/app")?;
    let node = check.cluster.node("n3")?;
    node.run(&["touch", "/var/lib/kept"])?;
    let boot =
        |node: &super::super::Node<'_>| node.run(&["cat", "/proc/sys/kernel/random/boot_id"]);
    let first_boot = boot(&node)?;
    node.power_off()?;
    let lost = await_node(check, "n3", false);
    node.power_on()?;
    lost?;
    ensure!(boot(&node)? != first_boot, "the boot has the same id");
    node.run(&["test", "-e", "/var/lib/kept"])?;
    await_node(check, "n3", true)?;
    until("the pod on n3 to answer again", NODE_LIMIT, || {
        let all = check.get(&["pods", "-l", "app=app"])?;
        let Some(item) = items(&all).find(|item| text(&item["spec"]["nodeName"]) == "n3") else {
            return Ok(Look::NotYet("no pod".to_owned()));
        };
        Ok(Look::at(check.in_pod(
            text(&item["metadata"]["name"]),
            &["read", "/etc/hostname"],
        )))
    })?;
    check.rollout("daemonset/app")
}

fn await_node(check: Check<'_>, name: &str, ready: bool) -> Result<()> {
    until(
        &format!("{name} to be {}ready", if ready { "" } else { "not " }),
        NODE_LIMIT,
        || {
            let node = check.cluster.kubectl().get(&["node", name])?;
            let conditions = node["status"]["conditions"].as_array();
            let found = conditions
                .into_iter()
                .flatten()
                .find(|one| one["type"] == json!("Ready"));
            let status = found.map_or("missing", |one| text(&one["status"]));
            Ok(Look::holds((status == "True") == ready, status))
        },
    )
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn nodes_of(pods: &Value) -> Vec<&str> {
    let mut nodes: Vec<_> = items(pods)
        .map(|item| text(&item["spec"]["nodeName"]))
        .collect();
    nodes.sort_unstable();
    nodes
}
