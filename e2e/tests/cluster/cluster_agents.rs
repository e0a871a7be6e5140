//! Agents that stop and come back.

use anyhow::{Result, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::json;

use crate::Test;
use crate::cluster_pods::{Pool, is_ready};
use crate::scene::{LIMIT, Scene};

const MIB: usize = 1 << 20;
const NOT_FOUND: i32 = 3;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new("cluster_agents_stop_roll_and_die", agents)]
}

fn agents(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::small(scene, &json!({ "count": 1 }), 1)?;
    let node = pool.nodes()?.remove(0);
    scene.apply(&[pool.engine("engine", "team", "team", &node)])?;
    pool.await_pods()?;
    pool.put("engine", "one", MIB)?;
    pool.check("engine", "one", MIB)?;

    // A graceful stop, as by a drain: the master hears of it at once.
    let uid = stop(&pool, &node, &[])?;
    comes_back(&pool, &node, &uid)?;
    pool.refused("engine", NOT_FOUND, &["get", "one"])?;
    // The engine's pod still has the folder of the socket, and the new agent is in it.
    local(&pool, &node, "two")?;

    // A roll.
    let uid = uid_on(&pool, &node)?;
    scene.kubectl(&["rollout", "restart", "daemonset/small-agent"])?;
    scene.kubectl(&[
        "rollout",
        "status",
        "daemonset/small-agent",
        "--timeout=120s",
    ])?;
    comes_back(&pool, &node, &uid)?;
    local(&pool, &node, "three")?;

    // A crash: kubelet starts the same pod's container again.
    let before = scene.get(&["cachenode", &format!("small-{node}")])?;
    let pid = scene.cluster.node(&node)?.run(&[
        "pgrep",
        "-f",
        &format!("cache-node {}/", scene.namespace),
    ])?;
    let pid = pid.lines().next().unwrap_or_default().to_owned();
    scene.cluster.node(&node)?.run(&["kill", "-9", &pid])?;
    until("the agent to start again", LIMIT, || {
        let now = scene.get(&["cachenode", &format!("small-{node}")])?;
        let is_other = now["status"]["incarnation"] != before["status"]["incarnation"];
        Ok(Look::holds(
            is_other && is_ready(&now),
            &now["status"].to_string(),
        ))
    })?;
    pool.await_ready(1)?;
    pool.refused("engine", NOT_FOUND, &["get", "three"])?;
    local(&pool, &node, "four")
}

/// A put and a get that go through shared memory.
fn local(pool: &Pool<'_>, node: &str, key: &str) -> Result<()> {
    let counts = || pool.agent_counts(node, "larder_agent_read_bytes_total", "\"shm\"");
    let before = counts()?;
    pool.put("engine", key, MIB)?;
    pool.check("engine", key, MIB)?;
    let after = counts()?;
    ensure!(
        after - before >= MIB as f64,
        "{key}: {before} and then {after} bytes by shm"
    );
    Ok(())
}

fn uid_on(pool: &Pool<'_>, node: &str) -> Result<String> {
    let pod = pool.agent_on(node)?;
    Ok(pod["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

fn stop(pool: &Pool<'_>, node: &str, more: &[&str]) -> Result<String> {
    let pod = pool.agent_on(node)?;
    let name = pod["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    pool.scene
        .kubectl(&[&["delete", "pod", &name, "--timeout=60s"], more].concat())?;
    Ok(pod["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

fn comes_back(pool: &Pool<'_>, node: &str, old: &str) -> Result<()> {
    let name = format!("{}-{node}", pool.name);
    until("a new agent in the CacheNode", LIMIT, || {
        let found = pool.scene.get(&["cachenode", &name])?;
        let uid = &found["status"]["agentUid"];
        let holds = uid.is_string() && *uid != json!(old) && is_ready(&found);
        Ok(Look::holds(holds, &found["status"].to_string()))
    })?;
    pool.await_ready(1)
}
