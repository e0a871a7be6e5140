//! Deleted pools: nothing of them stays, neither in the API server nor on nodes.

use anyhow::{Context, Result, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::json;

use crate::Test;
use crate::cluster_pods::Pool;
use crate::rig::SYSTEM;
use crate::scene::{LIMIT, Scene};

const MIB: usize = 1 << 20;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster_a_deleted_pool_leaves_nothing", deleted),
        Test::new("cluster_a_pool_is_deleted_with_a_dead_node", dead_node),
    ]
}

/// What there is of a pool in the API server, besides itself and its tenants.
fn objects(scene: &Scene<'_>, uid: &str) -> Result<String> {
    let of_pool = format!("larder.dev/pool-uid={uid}");
    let kinds = "all,configmap,secret,serviceaccount,role,rolebinding,controllerrevision,cachenode";
    let inside = scene.kubectl(&["get", kinds, "-l", &of_pool, "-o", "name"])?;
    let kubectl = scene.cluster.kubectl();
    let bindings = kubectl.run(&["get", "clusterrolebinding", "-l", &of_pool, "-o", "name"])?;
    let label = format!("pool.larder.dev/{uid}");
    let nodes = kubectl.run(&["get", "nodes", "-l", &label, "-o", "name"])?;
    Ok(inside + &bindings + &nodes)
}

/// What there is of a pool on a node: folders, processes, mounts, and memory in their files.
const ON_NODE: &str = r#"
    for path in "/run/larder/$1".* "/var/lib/larder/$2"; do [ ! -e "$path" ] || echo "$path"; done
    grep -e "/run/larder/$1" -e "/var/lib/larder/$2" /proc/self/mountinfo
    for process in /proc/[0-9]*; do
        if tr '\0' ' ' <"$process/cmdline" 2>/dev/null | grep -q -e "--cache-node $1/"; then
            echo "$process"; ls -l "$process/fd" | grep memfd
        fi
    done
    true"#;

fn on_node(scene: &Scene<'_>, node: &str, uid: &str) -> Result<String> {
    let words = ["sh", "-c", ON_NODE, "sh", &scene.namespace, uid];
    scene.cluster.node(node)?.run(&words)
}

fn await_nothing(scene: &Scene<'_>, uid: &str, nodes: &[String]) -> Result<()> {
    until("nothing to be left of the pool", LIMIT, || {
        let mut left = objects(scene, uid)?;
        for node in nodes {
            left += &on_node(scene, node, uid)?;
        }
        Ok(Look::holds(left.trim().is_empty(), &left))
    })
}

fn uid_of(pool: &Pool<'_>) -> Result<String> {
    let found = pool.scene.get(&[&pool.object()])?;
    Ok(found["metadata"]["uid"]
        .as_str()
        .context("no uid")?
        .to_owned())
}

fn scale_operator(scene: &Scene<'_>, replicas: u32) -> Result<()> {
    let kubectl = scene.cluster.kubectl();
    let (deployment, replicas) = (
        "deployment/larder-operator",
        format!("--replicas={replicas}"),
    );
    kubectl.run(&["-n", SYSTEM, "scale", deployment, &replicas])?;
    kubectl
        .run(&[
            "-n",
            SYSTEM,
            "rollout",
            "status",
            deployment,
            "--timeout=120s",
        ])
        .map(drop)
}

fn deleted(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::small(scene, &json!({ "count": 2 }), 2)?;
    let (uid, nodes) = (uid_of(&pool)?, pool.nodes()?);
    scene.apply(&[pool.engine("engine", "team", "team", &nodes[0])])?;
    pool.await_pods()?;
    pool.put("engine", "one", MIB)?;
    ensure!(
        !objects(scene, &uid)?.is_empty(),
        "nothing is found of a pool that is there"
    );
    ensure!(
        on_node(scene, &nodes[0], &uid)?.contains("memfd"),
        "no memory is found"
    );
    scene.kubectl(&["delete", "pod", "engine"])?;

    // The operator dies in the middle, and things that the pool needs go before it.
    scale_operator(scene, 0)?;
    scene.kubectl(&["delete", &pool.object(), "--wait=false"])?;
    scene.kubectl(&[
        "delete",
        "configmap,secret",
        "-l",
        &format!("larder.dev/pool-uid={uid}"),
    ])?;
    scale_operator(scene, 1)?;
    await_nothing(scene, &uid, &nodes)?;
    // Its tenant outlives it and can still go.
    scene.await_condition("cachetenant/team", "Accepted", "PoolNotFound")?;

    // A pool of the same name takes nothing over.
    let again = Pool::small(scene, &json!({ "count": 1 }), 1)?;
    let (uid, nodes) = (uid_of(&again)?, again.nodes()?);
    ensure!(again.pods("agent")?.len() == 1, "old labels place agents");
    scene.apply(&[again.engine("engine", "team", "team", &nodes[0])])?;
    again.await_pods()?;
    again.refused("engine", 3, &["get", "one"])?;
    scene.kubectl(&["delete", "pod", "engine"])?;
    scene.kubectl(&[
        "delete",
        &again.object(),
        "cachetenant/team",
        "--timeout=60s",
    ])?;
    await_nothing(scene, &uid, &nodes)
}

fn dead_node(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::small(scene, &json!({ "count": 2 }), 2)?;
    let (uid, nodes) = (uid_of(&pool)?, pool.nodes()?);
    let master = pool.pods("master")?;
    let home = master
        .first()
        .map(|pod| pod["spec"]["nodeName"].clone())
        .unwrap_or_default();
    let lost = nodes
        .iter()
        .find(|node| json!(node) != home)
        .context("no other node")?;
    let node = scene.cluster.node(lost)?;
    node.power_off()?;
    let result = || -> Result<()> {
        scene.kubectl(&["delete", &pool.object(), "--timeout=60s"])?;
        scene.kubectl(&["delete", "cachetenant/team", "--timeout=60s"])?;
        let rest: Vec<_> = nodes.iter().filter(|node| *node != lost).cloned().collect();
        until(
            "nothing to be left but a pod of the dead node",
            LIMIT,
            || {
                let mut left = objects(scene, &uid)?;
                left = left
                    .lines()
                    .filter(|line| !line.starts_with("pod/small-agent"))
                    .collect();
                for node in &rest {
                    left += &on_node(scene, node, &uid)?;
                }
                Ok(Look::holds(left.trim().is_empty(), &left))
            },
        )
    };
    let result = result();
    node.power_on()?;
    let wait = [
        "wait",
        "nodes",
        "--all",
        "--for=condition=Ready",
        "--timeout=120s",
    ];
    scene.cluster.kubectl().run(&wait)?;
    result?;
    // Its disk still has the epoch that the agent had seen: nobody of the pool is there any more
    // who could take that away. Everything else ended with the power.
    let state = format!("/var/lib/larder/{uid}");
    until("nothing to be left but a file of state", LIMIT, || {
        let left = objects(scene, &uid)? + &on_node(scene, lost, &uid)?;
        Ok(Look::holds(left.trim() == state, &left))
    })?;
    let size = node.run(&["du", "-sk", &state])?;
    let size_kib: u32 = size.split_whitespace().next().unwrap_or_default().parse()?;
    ensure!(size_kib <= 64, "{size}");
    node.run(&["rm", "-r", &state]).map(drop)
}
