//! The operator in the cluster: without it, two of it, and what it is not allowed.

use anyhow::{Context, Result, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::cluster_pods::{Pool, is_ready, pool_object};
use crate::rig::SYSTEM;
use crate::scene::{LIMIT, Scene};

const DEPLOYMENT: &str = "deployment/larder-operator";
/// As many as the chart makes.
const REPLICAS: u32 = 2;

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster_sample_serves_without_an_operator", without),
        Test::new(
            "cluster_sample_is_handed_from_operator_to_operator",
            hand_over,
        ),
        Test::new("cluster_pod_security_is_told_in_a_condition", pod_security),
    ]
}

fn scale(scene: &Scene<'_>, replicas: u32) -> Result<()> {
    let kubectl = scene.cluster.kubectl();
    kubectl.run(&[
        "-n",
        SYSTEM,
        "scale",
        DEPLOYMENT,
        &format!("--replicas={replicas}"),
    ])?;
    until(&format!("{replicas} operators"), LIMIT, || {
        let pods = operators(scene)?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let holds = pods.len() == replicas as usize && ready == pods.len();
        Ok(Look::holds(
            holds,
            &format!("{ready} of {} are ready", pods.len()),
        ))
    })
}

fn operators(scene: &Scene<'_>) -> Result<Vec<Value>> {
    let select = [
        "pods",
        "-n",
        SYSTEM,
        "-l",
        "app.kubernetes.io/component=operator",
    ];
    let mut found = scene.cluster.kubectl().get(&select)?;
    Ok(found["items"]
        .as_array_mut()
        .map(std::mem::take)
        .unwrap_or_default())
}

fn holder(scene: &Scene<'_>) -> Result<String> {
    let lease = scene
        .cluster
        .kubectl()
        .get(&["lease", "larder-operator", "-n", SYSTEM])?;
    Ok(lease["spec"]["holderIdentity"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

fn without(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::sample(scene)?;
    scale(scene, 0)?;
    let used = || -> Result<()> {
        pool.put("engine-0", "alone", 100_000)?;
        pool.check("engine-1", "alone", 100_000)?;
        // An agent comes back without it, too: that is Kubernetes' work.
        let node = pool.nodes()?.remove(1);
        let pod = pool.agent_on(&node)?;
        let name = pod["metadata"]["name"].as_str().context("no name")?;
        scene.kubectl(&["delete", "pod", name])?;
        until("the agent to be back", LIMIT, || {
            let found = pool.agent_on(&node);
            let holds = found.as_ref().is_ok_and(is_ready);
            Ok(Look::holds(holds, &format!("{found:?}")))
        })?;
        pool.put("engine-1", "alone/2", 100_000)?;
        pool.check("engine-0", "alone/2", 100_000)
    };
    let used = used();
    scale(scene, REPLICAS)?;
    used?;
    pool.await_ready(2)
}

fn hand_over(scene: &Scene<'_>) -> Result<()> {
    let pool = Pool::sample(scene)?;
    scale(scene, REPLICAS)?;
    let work = || -> Result<()> {
        let mut audit = scene.cluster.audit();
        for (turn, force) in [(0, false), (1, true)] {
            let leads = holder(scene)?;
            let names: Vec<_> = operators(scene)?
                .iter()
                .map(|pod| pod["metadata"]["name"].clone())
                .collect();
            ensure!(
                names.contains(&json!(leads)),
                "{leads} leads, and there are {names:?}"
            );
            let mut delete = vec!["-n", SYSTEM, "delete", "pod", &leads];
            if force {
                delete.extend(["--grace-period=0", "--force"]);
            }
            scene.cluster.kubectl().run(&delete)?;
            until("another operator to lead", LIMIT, || {
                let now = holder(scene)?;
                Ok(Look::holds(!now.is_empty() && now != leads, &now))
            })?;
            // The new one does the work.
            let limit = json!({ "spec": { "limit": { "objects": 900 + turn } } }).to_string();
            scene.kubectl(&[
                "patch",
                "cachetenant",
                "team-b",
                "--type=merge",
                "-p",
                &limit,
            ])?;
            until("a change to be carried out", LIMIT, || {
                let tenants = pool.master_says("/v1/tenants")?;
                let holds = tenants["tenants"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|tenant| tenant["limit_objects"] == json!(900 + turn));
                Ok(Look::holds(holds, &tenants.to_string()))
            })?;
            scale(scene, REPLICAS)?;
        }
        // Nothing was made twice or taken away on the way.
        let odd = audit.writes()?.into_iter().find(|write| {
            write.user.ends_with(":larder-operator")
                && write.namespace == scene.namespace
                && matches!(write.verb.as_str(), "create" | "delete")
                && write.resource != "events"
        });
        ensure!(odd.is_none(), "{odd:?}");
        Ok(())
    };
    let work = work();
    scale(scene, REPLICAS)?;
    work?;
    pool.await_ready(2)
}

fn pod_security(scene: &Scene<'_>) -> Result<()> {
    scene.with_operator()?;
    let enforce = |level: &str| -> Result<()> {
        let label = format!("pod-security.kubernetes.io/enforce={level}");
        let words = [
            "label",
            "namespace",
            &scene.namespace,
            &label,
            "--overwrite",
        ];
        scene.cluster.kubectl().run(&words).map(drop)
    };
    enforce("baseline")?;
    scene.apply(&[pool_object("small", &json!({ "count": 1 }))])?;
    let told = scene.await_condition("cachepool/small", "NodesReady", "AgentsRefused")?;
    let message = told["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains("hostPath") && message.contains("privileged"),
        "{message}"
    );
    enforce("privileged")?;
    let pool = Pool {
        scene,
        name: "small".to_owned(),
    };
    // The controller tries again by itself, with longer and longer pauses.
    pool.await_ready(1)
}
