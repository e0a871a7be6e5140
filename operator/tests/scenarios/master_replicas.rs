//! Pools with several masters: what is made for them, and what is said when some are down.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api_server::{ApiServer, key};
use crate::world::{Operator, cluster, condition, pool, wait};

const POOLS: &str = "cachepools";

/// A pool with three masters, each with a volume.
fn replicated() -> Value {
    let mut pool = pool("small", Some(2));
    pool["spec"]["masters"] = json!({ "replicas": 3, "storage": { "size": "2Gi" } });
    pool
}

/// Another number of ready masters, as the StatefulSet's controller would say it.
async fn ready(api: &ApiServer, ready: Option<u32>) {
    api.with(move |state| state.masters_ready = ready).await;
    let looked = format!("{ready:?}");
    let metadata = json!({ "metadata": { "annotations": { "looked": looked } } });
    api.edit("statefulsets", "apps", "small-master", metadata)
        .await;
}

async fn status(api: &ApiServer) -> Value {
    let found = api.get(POOLS, "apps", "small").await.expect("the pool");
    found["status"].clone()
}

async fn message(api: &ApiServer, kind: &str) -> String {
    let status = status(api).await;
    let conditions = status["conditions"].as_array().expect("conditions");
    let found = conditions.iter().find(|one| one["type"] == kind);
    found.expect("one")["message"].to_string()
}

#[tokio::test(start_paused = true)]
async fn three_masters_get_volumes_and_a_budget_and_then_nothing_is_written() {
    let (api, master) = cluster().await;
    api.put(POOLS, replicated()).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True/Serving").await;
    condition(&api, POOLS, "small", "MastersReady", "True/AllMastersReady").await;
    let said = status(&api).await;
    assert_eq!(said["phase"], "Ready");
    assert_eq!(said["masters"], json!({ "desired": 3, "ready": 3 }));
    let set = api.get("statefulsets", "apps", "small-master").await;
    let claims = &set.expect("masters")["spec"]["volumeClaimTemplates"];
    let size = &claims[0]["spec"]["resources"]["requests"]["storage"];
    assert_eq!(size, "2Gi");
    let budget = api
        .get("poddisruptionbudgets", "apps", "small-master")
        .await;
    assert_eq!(budget.expect("a budget")["spec"]["maxUnavailable"], 1);
    // Repaired as every other child is.
    api.delete("poddisruptionbudgets", "apps", "small-master")
        .await;
    api.until("a budget again", |state| {
        let key = key("poddisruptionbudgets", "apps", "small-master");
        state.objects.contains_key(&key)
    })
    .await;
    wait(Duration::from_secs(120)).await;
    api.take_writes().await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(api.take_writes().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_lost_master_is_told_and_a_lost_quorum_with_what_to_do() {
    let (api, master) = cluster().await;
    api.put(POOLS, replicated()).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True/Serving").await;

    ready(&api, Some(2)).await;
    condition(
        &api,
        POOLS,
        "small",
        "MastersReady",
        "False/MastersStarting",
    )
    .await;
    let said = status(&api).await;
    assert_eq!(said["phase"], "Degraded");
    assert_eq!(said["masters"], json!({ "desired": 3, "ready": 2 }));
    assert_eq!(
        api.with(|s| s.condition(POOLS, "apps", "small", "Ready"))
            .await,
        "True/Serving"
    );

    // Who has no leader is not ready.
    master.with(|state| state.leaderless = Some(1));
    ready(&api, Some(0)).await;
    condition(&api, POOLS, "small", "LeaderElected", "False/QuorumLost").await;
    condition(&api, POOLS, "small", "Ready", "False/QuorumLost").await;
    let said = message(&api, "LeaderElected").await;
    for part in [
        "small-master-1, small-master-2 are down, and 2 of 3 masters must answer",
        "while their volumes are there",
        "nothing is lost",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let shown = status(&api).await;
    assert_eq!(shown["capacityBytes"], 1 << 30, "what was last known stays");
    wait(Duration::from_secs(600)).await;
    condition(&api, POOLS, "small", "LeaderElected", "False/QuorumLost").await;

    master.with(|state| state.leaderless = Some(2));
    condition(&api, POOLS, "small", "LeaderElected", "False/Electing").await;
    master.with(|state| state.leaderless = None);
    ready(&api, None).await;
    condition(&api, POOLS, "small", "LeaderElected", "True/Leading").await;
    condition(&api, POOLS, "small", "MastersReady", "True").await;
    assert_eq!(status(&api).await["phase"], "Ready");
}

#[tokio::test(start_paused = true)]
async fn masters_that_never_led_are_starting() {
    let (api, master) = cluster().await;
    master.with(|state| state.leaderless = Some(1));
    api.with(|state| state.masters_hang = true).await;
    let mut pool = replicated();
    pool["spec"]["masters"] = json!({ "replicas": 3 });
    api.put(POOLS, pool).await;
    let _operator = Operator::alone(&api, &master);
    condition(
        &api,
        POOLS,
        "small",
        "LeaderElected",
        "False/MasterStarting",
    )
    .await;
    wait(Duration::from_secs(600)).await;
    condition(&api, POOLS, "small", "Ready", "False/MasterStarting").await;
    let set = api.get("statefulsets", "apps", "small-master").await;
    let spec = &set.expect("masters")["spec"];
    assert!(spec["volumeClaimTemplates"].is_null());
    assert!(spec["template"].to_string().contains("emptyDir"));
}
