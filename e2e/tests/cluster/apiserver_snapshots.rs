//! CacheSnapshots with the real operator and API server. No master runs on these nodes, so none is
//! ever taken: what stands in the way is told, and nothing keeps an object that is deleted.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::Test;
use crate::scene::Scene;
use crate::simulated::Nodes;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new("apiserver_snapshots_wait_for_masters", wait)]
}

fn wait(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 1)?;
    let release = scene.release()?;
    let _operator = release.start()?;
    scene.apply(&[json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheSnapshot",
        "metadata": { "name": "before" },
        "spec": { "poolRef": { "name": "small" } },
    })])?;
    scene.await_condition("cachesnapshot/before", "Accepted", "PoolNotFound")?;
    scene.apply(&[nodes.pool("small", Some(1))])?;
    scene.await_condition("cachesnapshot/before", "Accepted", "True")?;
    scene.await_condition("cachesnapshot/before", "Ready", "MasterNotReached")?;
    let row = scene.kubectl(&["get", "csnap", "before", "--no-headers"])?;
    let row: Vec<&str> = row.split_whitespace().collect();
    ensure!(row.starts_with(&["before", "Pending", "small"]), "{row:?}");
    let found = scene.get(&["cachesnapshot/before"])?;
    ensure!(
        found["metadata"]["finalizers"] == json!(["larder.dev/snapshot"]),
        "{found}"
    );
    scene.kubectl(&["delete", "cachepool/small", "--timeout=60s"])?;
    scene.kubectl(&["delete", "cachesnapshot/before", "--timeout=60s"])?;
    Ok(())
}
