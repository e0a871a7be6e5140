//! The fields of `spec.nodes` about nodes that leave, and a node that leaves without a master.

use anyhow::{Result, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::scene::{LIMIT, Scene};
use crate::simulated::Nodes;

/// Long enough to be seen, short enough to wait for.
const DEADLINE_S: u32 = 10;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new("apiserver_a_node_leaves_at_the_deadline", drains)]
}

fn drains(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = scene.release()?;
    let pool = |nodes: Value| {
        json!({
            "apiVersion": "larder.dev/v1alpha1", "kind": "CachePool",
            "metadata": { "name": "small" },
            "spec": {
                "nodes": nodes,
                "tiers": [{
                    "name": "memory", "medium": "Dram", "size": "64Mi", "slabSize": "16Mi",
                }],
            },
        })
    };
    for wrong in [
        json!({ "drain": { "deadlineSeconds": 86_401 } }),
        json!({ "drain": { "deadlineSeconds": -1 } }),
        json!({ "drain": { "deadline": "10m" } }),
        json!({ "rackLabel": "not a label" }),
        json!({ "rackLabel": "" }),
    ] {
        let taken = scene.apply(&[pool(wrong.clone())]);
        ensure!(taken.is_err(), "{wrong} was taken");
    }
    let _operator = release.start()?;
    scene.apply(&[nodes.pool("small", Some(2))])?;
    let found = scene.get(&["cachepool", "small"])?;
    let spec = &found["spec"]["nodes"];
    ensure!(
        spec["drain"] == json!({ "deadlineSeconds": 600 })
            && spec["rackLabel"] == json!("topology.larder.dev/rack"),
        "other defaults: {spec}"
    );
    members(&nodes, 2)?;
    let less = json!({ "spec": { "nodes": {
        "count": 1, "drain": { "deadlineSeconds": DEADLINE_S },
    } } });
    scene.kubectl(&[
        "patch",
        "cachepool/small",
        "--type=merge",
        "-p",
        &less.to_string(),
    ])?;
    // No master runs on these nodes, so nobody can say what they hold.
    scene.await_condition("cachepool/small", "ScaleInBlocked", "MasterNotReached")?;
    let leaves = format!("cachenode/small-{}", nodes.names[1]);
    let drain = scene.get(&[&leaves])?["status"]["drain"].clone();
    ensure!(
        drain["state"] == json!("Draining") && drain["startedAt"].is_string(),
        "{drain}"
    );
    scene.await_condition("cachepool/small", "ScaleInBlocked", "ObjectsLost")?;
    members(&nodes, 1)?;
    let left = scene.list(&["cachenodes"])?;
    let left: Vec<_> = left.iter().map(|node| &node["spec"]["nodeName"]).collect();
    ensure!(left == [&json!(nodes.names[0])], "{left:?}");
    until("the event of the loss", LIMIT, || {
        let events = scene.kubectl(&["get", "events", "--field-selector=reason=ObjectsLost"])?;
        let holds = events.contains("cachepool/small") && events.contains(&nodes.names[1]);
        Ok(Look::holds(holds, &events))
    })
}

fn members(nodes: &Nodes<'_>, count: usize) -> Result<()> {
    until(&format!("{count} members"), LIMIT, || {
        let found = nodes.members()?;
        Ok(Look::holds(found == count, &format!("{found} members")))
    })
}
