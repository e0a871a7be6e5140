//! Quotas that tenants share, from their first reconcile to their end.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::world::{Operator, cluster, condition, pool, quota, tenant, wait};

const POOLS: &str = "cachepools";
const TENANTS: &str = "cachetenants";
const QUOTAS: &str = "cachequotas";

async fn status(api: &ApiServer, name: &str) -> Value {
    let found = api.get(QUOTAS, "apps", name).await.expect("the quota");
    found["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_quota_bounds_its_tenants_and_is_released_when_it_goes() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(2))).await;
    for name in ["team-a", "team-b"] {
        api.put(TENANTS, tenant(name, "small")).await;
    }
    api.put(QUOTAS, quota("team", "small", &["team-a", "gone"]))
        .await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, QUOTAS, "team", "Ready", "True/Serving").await;
    condition(&api, QUOTAS, "team", "TenantsBound", "False/TenantsMissing").await;
    condition(&api, QUOTAS, "team", "Guaranteed", "True/GuaranteeHeld").await;
    condition(&api, TENANTS, "team-a", "QuotaBound", "True/QuotaShared").await;
    condition(&api, TENANTS, "team-b", "QuotaBound", "False/NoQuota").await;
    condition(
        &api,
        POOLS,
        "small",
        "QuotaOvercommitted",
        "False/GuaranteesFit",
    )
    .await;
    let cohort = |id: &str| {
        let key = ("apps/small".to_owned(), id.to_owned());
        master.with(|state| state.tenants[&key].cohort.clone())
    };
    assert_eq!(
        (cohort("team-a"), cohort("team-b")),
        (Some("team".into()), None)
    );
    let known = master
        .with(|state| state.quotas.values().next().cloned())
        .expect("told");
    assert_eq!(known.figures.limit_bytes, Some(512 << 20));
    let files = api
        .get("configmaps", "apps", "small-tenants")
        .await
        .expect("files");
    let text = files["data"]["quotas.json"].as_str().expect("a file");
    let lines: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(lines[0]["quota"], "team");

    usage_is_told_once(&api).await;
    labels_choose_the_other_tenant(&api).await;

    api.delete(QUOTAS, "apps", "team").await;
    condition(&api, TENANTS, "team-b", "QuotaBound", "False/NoQuota").await;
    wait(Duration::from_secs(60)).await;
    assert!(
        master.with(|state| state.quotas.is_empty()),
        "the master is told"
    );
    assert_eq!(cohort("team-b"), None);
}

/// Usage is told once it rests; after that nothing moves.
async fn usage_is_told_once(api: &ApiServer) {
    wait(Duration::from_secs(120)).await;
    let told = status(api, "team").await;
    assert_eq!(
        (&told["usedBytes"], &told["used"]),
        (&json!(1 << 20), &json!("1Mi"))
    );
    assert_eq!(
        (&told["tenantCount"], &told["effectiveBytes"]),
        (&json!(1), &json!(64 << 20))
    );
    assert_eq!(told["tenants"][0]["name"], "team-a");
    api.take_writes().await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(api.take_writes().await, Vec::<String>::new());
}

/// By labels instead of names, and the other tenant.
async fn labels_choose_the_other_tenant(api: &ApiServer) {
    let labels = json!({ "metadata": { "labels": { "team": "b" } } });
    api.edit(TENANTS, "apps", "team-b", labels).await;
    let selector = json!({ "spec": {
        "tenants": null, "selector": { "matchLabels": { "team": "b" } },
    } });
    api.edit(QUOTAS, "apps", "team", selector).await;
    condition(api, TENANTS, "team-b", "QuotaBound", "True/QuotaShared").await;
    condition(api, TENANTS, "team-a", "QuotaBound", "False/NoQuota").await;
    condition(api, QUOTAS, "team", "TenantsBound", "True/AllBound").await;
}

/// B43: a quota without its pool goes at once, and a pool that comes later is no trouble.
#[tokio::test(start_paused = true)]
async fn b43_a_quota_does_not_wait_for_its_pool() {
    let (api, master) = cluster().await;
    api.put(QUOTAS, quota("team", "small", &["team-a"])).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, QUOTAS, "team", "Accepted", "False/PoolNotFound").await;
    let found = api.get(QUOTAS, "apps", "team").await.expect("the quota");
    assert!(
        found["metadata"]["finalizers"].is_null(),
        "its deletion waits for nothing"
    );
    api.put(POOLS, pool("small", Some(1))).await;
    condition(&api, QUOTAS, "team", "Ready", "True/Serving").await;
    api.delete(POOLS, "apps", "small").await;
    condition(&api, QUOTAS, "team", "Accepted", "False/PoolNotFound").await;
}

/// Over-commit is told; a strict pool gives the youngest nothing.
#[tokio::test(start_paused = true)]
async fn b40_overcommit_is_shown_or_refused() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(2))).await;
    for (name, bytes) in [("old", "768Mi"), ("young", "512Mi")] {
        let mut tenant = tenant(name, "small");
        let spec = &mut tenant["spec"];
        spec["guaranteed"] = json!({ "bytes": bytes });
        spec["limit"] = json!({ "objects": 100 });
        api.put(TENANTS, tenant).await;
        wait(Duration::from_secs(2)).await;
    }
    let _operator = Operator::alone(&api, &master);
    let exceed = "True/GuaranteesExceedCapacity";
    condition(&api, POOLS, "small", "QuotaOvercommitted", exceed).await;
    let strict = json!({ "spec": { "quotas": { "overcommit": "Refuse" } } });
    api.edit(POOLS, "apps", "small", strict).await;
    condition(
        &api,
        TENANTS,
        "young",
        "Guaranteed",
        "False/GuaranteeRefused",
    )
    .await;
    condition(&api, TENANTS, "old", "Guaranteed", "True/GuaranteeHeld").await;
    condition(
        &api,
        POOLS,
        "small",
        "QuotaOvercommitted",
        "False/GuaranteesFit",
    )
    .await;
    condition(&api, TENANTS, "young", "Ready", "True/Serving").await;
}
