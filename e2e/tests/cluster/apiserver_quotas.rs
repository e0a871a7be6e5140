//! Quotas that tenants share, and guarantees of more than a pool has, with the real operator and
//! API server. No master runs on these nodes, so what only it can tell is absent.

use anyhow::{Context, Result, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::scene::{LIMIT, Scene};
use crate::simulated::{Nodes, tenant};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("apiserver_quotas_bind_their_tenants", bound),
        Test::new("apiserver_b40_a_strict_pool_refuses_guarantees", strict),
    ]
}

fn quota(chosen: &Value) -> Value {
    let mut quota = json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheQuota",
        "metadata": { "name": "research" },
        "spec": {
            "poolRef": { "name": "small" },
            "guaranteed": { "bytes": "16Mi" },
            "limit": { "bytes": "64Mi", "objects": 1000 },
        },
    });
    for (field, value) in chosen.as_object().into_iter().flatten() {
        quota["spec"][field] = value.clone();
    }
    quota
}

fn bound(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = scene.release()?;
    let _operator = release.start()?;
    let mut labelled = tenant("team-b", "small");
    labelled["metadata"]["labels"] = json!({ "department": "research" });
    scene.apply(&[
        quota(&json!({ "tenants": ["team-a", "gone"] })),
        tenant("team-a", "small"),
        labelled,
    ])?;
    scene.await_condition("cachequota/research", "Accepted", "PoolNotFound")?;
    scene.apply(&[nodes.pool("small", Some(2))])?;
    scene.await_condition("cachequota/research", "Accepted", "True")?;
    scene.await_condition("cachequota/research", "TenantsBound", "TenantsMissing")?;
    scene.await_condition("cachetenant/team-a", "QuotaBound", "QuotaShared")?;
    scene.await_condition("cachetenant/team-b", "QuotaBound", "NoQuota")?;
    let told = status(scene, "cachequota/research")?;
    ensure!(told["tenantCount"] == json!(1), "{told}");
    ensure!(told["requestedBytes"] == json!(16 << 20), "{told}");
    ensure!(
        status(scene, "cachetenant/team-a")?["quota"] == json!("research"),
        "the tenant does not say which"
    );
    starts_with(scene, &["research"])?;

    // By a label instead of names: the other tenant.
    let chosen = json!({ "spec": {
        "tenants": null, "selector": { "matchLabels": { "department": "research" } },
    } });
    patch(scene, "cachequota/research", &chosen)?;
    scene.await_condition("cachetenant/team-b", "QuotaBound", "QuotaShared")?;
    scene.await_condition("cachetenant/team-a", "QuotaBound", "NoQuota")?;
    scene.await_condition("cachequota/research", "TenantsBound", "AllBound")?;

    // Deleted, it is gone at once and bounds nothing.
    scene.kubectl(&["delete", "cachequota/research", "--timeout=60s"])?;
    scene.await_condition("cachetenant/team-b", "QuotaBound", "NoQuota")?;
    starts_with(scene, &[])
}

/// Waits until a master of the pool that starts now would know these quotas.
fn starts_with(scene: &Scene<'_>, names: &[&str]) -> Result<()> {
    until("the file of quotas", LIMIT, || {
        let Ok(files) = scene.get(&["configmap/small-tenants"]) else {
            return Ok(Look::holds(false, "it is not there yet"));
        };
        let text = files["data"]["quotas.json"].as_str().unwrap_or("[]");
        let lines: Vec<Value> = serde_json::from_str(text).context("not a list")?;
        let holds = lines.iter().map(|line| &line["quota"]).eq(names);
        Ok(Look::holds(holds, text))
    })
}

/// A pool of 128 MiB whose tenants are guaranteed half as much again.
fn strict(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = scene.release()?;
    let mut pool = nodes.pool("small", Some(2));
    pool["spec"]["quotas"] = json!({ "overcommit": "Refuse" });
    let with = |name: &str, bytes: &str| {
        let mut tenant = tenant(name, "small");
        tenant["spec"]["tenantId"] = json!(name);
        tenant["spec"]["guaranteed"] = json!({ "bytes": bytes });
        tenant["spec"]["limit"] = json!({ "bytes": "128Mi" });
        tenant
    };
    scene.apply(&[pool, with("a-first", "96Mi")])?;
    // Who is older is told by whole seconds, and by the name within one.
    scene.apply(&[with("b-second", "96Mi")])?;
    let _operator = release.start()?;
    scene.await_condition("cachetenant/b-second", "Guaranteed", "GuaranteeRefused")?;
    scene.await_condition("cachetenant/b-second", "Accepted", "True")?;
    guarantees(scene, &[("a-first", 96), ("b-second", 0)])?;
    // As much as there is room for is given, and what an older one gives up as well.
    for (name, guaranteed, then) in [
        ("b-second", json!({ "bytes": "32Mi" }), [96, 32]),
        ("b-second", json!({ "bytes": "128Mi" }), [96, 0]),
        ("a-first", Value::Null, [0, 128]),
    ] {
        let change = json!({ "spec": { "guaranteed": guaranteed } });
        patch(scene, &format!("cachetenant/{name}"), &change)?;
        guarantees(scene, &[("a-first", then[0]), ("b-second", then[1])])?;
    }
    Ok(())
}

/// Waits until a master of the pool that starts now would guarantee this, in MiB.
fn guarantees(scene: &Scene<'_>, wanted: &[(&str, u64)]) -> Result<()> {
    until(&format!("guarantees {wanted:?}"), LIMIT, || {
        let Ok(files) = scene.get(&["configmap/small-tenants"]) else {
            return Ok(Look::holds(false, "it is not there yet"));
        };
        let text = files["data"]["tenants.json"].as_str().unwrap_or("[]");
        let lines: Vec<Value> = serde_json::from_str(text).context("not a list")?;
        let holds = wanted.len() == lines.len()
            && wanted.iter().all(|(name, mib)| {
                lines.iter().any(|line| {
                    let bytes = line["guaranteed_bytes"].as_u64().unwrap_or(0);
                    line["tenant"] == json!(name) && bytes == mib << 20
                })
            });
        Ok(Look::holds(holds, text))
    })
}

fn status(scene: &Scene<'_>, object: &str) -> Result<Value> {
    Ok(scene.get(&[object])?["status"].clone())
}

fn patch(scene: &Scene<'_>, object: &str, change: &Value) -> Result<()> {
    let change = change.to_string();
    scene
        .kubectl(&["patch", object, "--type=merge", "-p", &change])
        .map(drop)
}
