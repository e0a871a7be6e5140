//! The sample for autoscaling as the API server and its controller take it.

use anyhow::{Context, Result, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::rig::tree;
use crate::scene::{LIMIT, Scene};
use crate::simulated::Nodes;

/// The autoscaler of the sample, and the pool that it scales.
const NAME: &str = "pool-small";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new(
        "apiserver_autoscaler_of_the_sample_scales",
        autoscaler,
    )]
}

/// Nobody answers for its metric here; that it would be asked for is all that can be seen of it.
fn autoscaler(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 3)?;
    let release = scene.release()?;
    let _operator = release.start()?;
    scene.apply(&[nodes.pool(NAME, Some(1))])?;
    until("the selector of the scale", LIMIT, || {
        let scale = scene.get(&["cachepool", NAME, "--subresource=scale"])?;
        let selector = scale["status"]["selector"].as_str().unwrap_or_default();
        Ok(Look::holds(!selector.is_empty(), &scale.to_string()))
    })?;
    let file = tree().join("manifests/samples/autoscaling/hpa.yaml");
    let file = file.to_str().context("a path that is no text")?;
    scene.kubectl(&["apply", "--validate=strict", "--filename", file])?;
    // Below its least it scales without any metric.
    until("the least number of nodes", LIMIT, || {
        let members = nodes.members()?;
        let count = scene.get(&["cachepool", NAME])?["spec"]["nodes"]["count"].clone();
        let holds = members == 2 && count == json!(2);
        Ok(Look::holds(
            holds,
            &format!("{members} members, count {count}"),
        ))
    })?;
    until("the metric to be asked for", LIMIT, || {
        let found = scene.get(&["horizontalpodautoscalers.v2.autoscaling", NAME])?;
        let of = |kind: &str| {
            let all = found["status"]["conditions"].as_array();
            let one = all.and_then(|all| all.iter().find(|one| one["type"] == json!(kind)));
            let one = one.cloned().unwrap_or_default();
            let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
            (text("status"), text("reason"), text("message"))
        };
        let (able, _, _) = of("AbleToScale");
        let (active, reason, message) = of("ScalingActive");
        let holds = able == "True"
            && active == "False"
            && reason == "FailedGetExternalMetric"
            && message.contains("larder_pool_demand_percent");
        Ok(Look::holds(holds, &found["status"].to_string()))
    })?;
    let count: Value = scene.get(&["cachepool", NAME])?["spec"]["nodes"]["count"].clone();
    ensure!(
        count == json!(2),
        "without a metric the pool went to {count}"
    );
    Ok(())
}
