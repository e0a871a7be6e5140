//! Nodes that come, go, and lose their power.

use anyhow::{Context, Result, bail, ensure};
use larder_e2e::cluster::{Look, product, until};
use serde_json::{Value, json};

use crate::Test;
use crate::cluster_pods::{Pool, is_ready};
use crate::rig::programs;
use crate::scene::{LIMIT, Scene};

const MIB: usize = 1 << 20;
/// More objects than one slab takes, from each engine. An object lies on its writer's node as long
/// as that has room.
const OBJECTS: usize = 8;
const NOT_FOUND: i32 = 3;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster_a_node_moves_its_objects_before_it_leaves", scale),
        Test::new("cluster_nodes_join_and_leave_by_label", labels),
        Test::new("cluster_a_node_loses_its_power_and_returns", power),
    ]
}

/// An engine on each of these nodes, named after it.
fn engines(pool: &Pool<'_>, nodes: &[String]) -> Result<()> {
    let engines: Vec<_> = nodes
        .iter()
        .map(|node| pool.engine(node, "team", "team", node))
        .collect();
    pool.scene.apply(&engines)?;
    pool.await_pods()
}

fn key(engine: &str, number: usize) -> String {
    format!("{engine}/{number}")
}

fn fill(pool: &Pool<'_>, engine: &str) -> Result<()> {
    (0..OBJECTS).try_for_each(|number| pool.put(engine, &key(engine, number), MIB).map(drop))
}

fn check(pool: &Pool<'_>, reader: &str, writer: &str) -> Result<()> {
    (0..OBJECTS).try_for_each(|number| pool.check(reader, &key(writer, number), MIB))
}

/// All objects that an engine put are clean misses.
fn misses(pool: &Pool<'_>, reader: &str, writer: &str) -> Result<()> {
    for number in 0..OBJECTS {
        pool.refused(reader, NOT_FOUND, &["get", &key(writer, number)])?;
        pool.refused(reader, NOT_FOUND, &["exists", &key(writer, number)])?;
    }
    Ok(())
}

fn empty(pool: &Pool<'_>, engine: &str, writer: &str) -> Result<()> {
    let keys: Vec<_> = (0..OBJECTS).map(|number| key(writer, number)).collect();
    let mut words = vec!["remove"];
    words.extend(keys.iter().map(String::as_str));
    pool.larder(engine, &words).map(drop)
}

fn scale_to(pool: &Pool<'_>, count: u32) -> Result<()> {
    let replicas = format!("--replicas={count}");
    pool.scene
        .kubectl(&["scale", &pool.object(), &replicas])
        .map(drop)
}

/// What the CacheNode of a node that leaves says, once it has figures. They stand there until the
/// next look of the operator, seconds later.
fn progress(pool: &Pool<'_>, node: &str) -> Result<Value> {
    until(&format!("{node} to tell its drain"), LIMIT, || {
        let nodes = pool.cache_nodes()?;
        let found = nodes
            .iter()
            .find(|one| one["spec"]["nodeName"] == json!(node));
        let found = found.with_context(|| format!("{node} left untold"))?;
        let drain = found["status"]["drain"].clone();
        let is_told = drain["state"] == json!("Draining") && drain["bytesLeft"].is_u64();
        Ok(if is_told {
            Look::Content(drain)
        } else {
            Look::NotYet(drain.to_string())
        })
    })
}

fn scale(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::small(scene, &json!({ "count": 2 }), 2)?;
    let selector = scene.get(&[&pool.object()])?["status"]["selector"].clone();
    let selector = selector.as_str().context("no selector for autoscalers")?;
    ensure!(
        scene.list(&["pods", "-l", selector])?.len() == 2,
        "{selector}"
    );
    let nodes = pool.nodes()?;
    engines(&pool, &nodes)?;
    for engine in &nodes {
        fill(&pool, engine)?;
    }
    scale_to(&pool, 1)?;
    // Of two that hold as much, the last by name is to leave.
    let drain = progress(&pool, &nodes[1])?;
    let bytes = drain["bytesLeft"].as_u64().unwrap_or(0);
    ensure!(
        bytes > 0 && drain["objectsLeft"].as_u64() <= Some(OBJECTS as u64),
        "{drain}"
    );
    pool.await_ready(1)?;
    scene.await_condition(&pool.object(), "ScaleInBlocked", "NothingToRemove")?;
    ensure!(
        pool.nodes()? == nodes[..1],
        "another node left than the one that was drained"
    );
    for engine in &nodes {
        check(&pool, &nodes[0], engine)?;
        empty(&pool, &nodes[0], engine)?;
    }
    scale_to(&pool, 3)?;
    pool.await_ready(3)?;
    scale_to(&pool, 0)?;
    scene.await_condition(&pool.object(), "Ready", "NoNodes")?;
    ensure!(
        pool.cache_nodes()?.is_empty(),
        "a pool of no nodes has some"
    );
    Ok(())
}

fn labels(scene: &Scene<'_>) -> Result<()> {
    let label = format!("e2e.larder.dev/{}", scene.namespace);
    let mark = |node: &str, text: &str| -> Result<()> {
        let change = format!("{label}{text}");
        scene
            .cluster
            .kubectl()
            .run(&["label", "node", node, &change, "--overwrite"])
            .map(drop)
    };
    mark("n1", "=yes")?;
    let pool = Pool::small(scene, &json!({ "selector": { label.as_str(): "yes" } }), 1)?;
    let added = scene.cluster.add_node()?;
    let name = added.name().to_owned();
    let result = grow(scene, &pool, &mark, &name);
    // It goes in any case: it would be in the way of others.
    mark("n1", "-").and(added.remove()).and(result)
}

fn grow(
    scene: &Scene<'_>,
    pool: &Pool<'_>,
    mark: &dyn Fn(&str, &str) -> Result<()>,
    added: &str,
) -> Result<()> {
    let images = product::write(&programs()?, product::PRODUCT, scene.folder())?;
    for image in [&images.product, &images.engine] {
        scene.cluster.node(added)?.load_image(image)?;
    }
    mark(added, "=yes")?;
    pool.await_ready(2)?;
    mark(added, "-")?;
    pool.await_ready(1)?;
    let cluster = scene.cluster;
    until("the folders of an agent that left to go", LIMIT, || {
        let left =
            cluster
                .node(added)?
                .run(&["find", "/run/larder", "/var/lib/larder", "-mindepth", "1"]);
        let left = left.unwrap_or_default();
        Ok(Look::holds(left.trim().is_empty(), &left))
    })
}

fn power(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::small(scene, &json!({ "count": 3 }), 3)?;
    let master = pool.pods("master")?;
    let master = master.first().context("no master")?;
    let (home, master) = (
        text(&master["spec"]["nodeName"]),
        text(&master["metadata"]["name"]),
    );
    let others: Vec<_> = pool
        .nodes()?
        .into_iter()
        .filter(|node| *node != home)
        .collect();
    let [lost, stays] = &others[..] else {
        bail!("the master is on {home}, and the other agents on {others:?}");
    };
    engines(&pool, &others)?;
    fill(&pool, lost)?;
    fill(&pool, stays)?;
    let result = lose_an_agent(&pool, lost, stays)
        .and_then(|()| lose_the_master(&pool, &home, &master, stays));
    // Others need all nodes.
    for name in [lost, &home] {
        let node = scene.cluster.node(name)?;
        if !node.is_on() {
            node.power_on()?;
        }
    }
    let wait = [
        "wait",
        "nodes",
        "--all",
        "--for=condition=Ready",
        "--timeout=120s",
    ];
    let woke = scene.cluster.kubectl().run(&wait).map(drop);
    result.and(woke)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn lose_an_agent(pool: &Pool<'_>, lost: &str, stays: &str) -> Result<()> {
    let scene = pool.scene;
    check(pool, stays, lost)?;
    scene.cluster.node(lost)?.power_off()?;
    // The master gives an agent up after ten seconds of silence.
    until("the master to give the agent up", LIMIT, || {
        let agents = pool.master_says("/v1/agents")?;
        let has_segments = |agent: &Value| {
            agent["segments"]
                .as_array()
                .is_some_and(|segments| !segments.is_empty())
        };
        let mounted = agents["agents"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|agent| agent["name"] == json!(lost) && has_segments(agent));
        Ok(Look::holds(!mounted, &agents.to_string()))
    })?;
    misses(pool, stays, lost)?;
    check(pool, stays, stays)?;
    pool.put(stays, "meanwhile", MIB)?;
    scene.await_condition(&pool.object(), "NodesReady", "AgentsStarting")?;
    let found = scene.get(&[&pool.object()])?;
    ensure!(
        found["status"]["phase"] == json!("Degraded"),
        "{}",
        found["status"]
    );
    scene.cluster.node(lost)?.power_on()?;
    pool.await_ready(3)?;
    // It came back with nothing.
    misses(pool, stays, lost)?;
    check(pool, stays, stays)?;
    pool.check(stays, "meanwhile", MIB)
}

/// A pod on a dead node is not replaced until somebody says that it is gone for good.
fn lose_the_master(pool: &Pool<'_>, home: &str, master: &str, stays: &str) -> Result<()> {
    let scene = pool.scene;
    let before = text(&scene.get(&["pod", master])?["metadata"]["uid"]);
    scene.cluster.node(home)?.power_off()?;
    scene.await_condition(&pool.object(), "LeaderElected", "False")?;
    scene.await_condition(&pool.object(), "Ready", "False")?;
    // Else the new pod may be placed there too.
    until("the dead node to take no pods", LIMIT, || {
        let node = scene.cluster.kubectl().get(&["node", home])?;
        // The taint that stops the scheduler; of the one that evicts every pod tolerates a while.
        let mut taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let holds = taints.any(|taint| {
            taint["key"] == json!("node.kubernetes.io/unreachable")
                && taint["effect"] == json!("NoSchedule")
        });
        Ok(Look::holds(holds, &node["spec"]["taints"].to_string()))
    })?;
    let delete = ["delete", "pod", master, "--force", "--grace-period=0"];
    scene.kubectl(&delete)?;
    until("a new master", LIMIT, || {
        let pods = pool.pods("master")?;
        // The scheduler hears of taints a moment later.
        let is_astray = |pod: &Value| {
            pod["spec"]["nodeName"] == json!(home) && pod["metadata"]["deletionTimestamp"].is_null()
        };
        if pods.iter().any(is_astray) {
            scene.kubectl(&delete)?;
        }
        let is_new = |pod: &Value| text(&pod["metadata"]["uid"]) != before && is_ready(pod);
        Ok(Look::holds(
            pods.iter().any(is_new),
            &json!(pods).to_string(),
        ))
    })?;
    scene.await_condition(&pool.object(), "LeaderElected", "True")?;
    scene.await_condition(&pool.object(), "Ready", "True")?;
    // Its log is gone with the node: what the agent that stays holds is found again.
    until("the new master to find what is held", LIMIT, || {
        Ok(Look::at(check(pool, stays, stays)))
    })?;
    until("the new master to take puts", LIMIT, || {
        let answer = pool.ask(stays, &["put", "anew", "-"], "text")?;
        Ok(Look::holds(answer.code == 0, &format!("{answer:?}")))
    })?;
    scene.cluster.node(home)?.power_on()?;
    pool.await_ready(3)?;
    pool.larder(stays, &["get", "anew"]).map(drop)
}
