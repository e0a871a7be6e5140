//! Masters that get another template or another number: in which order, and what is written.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api_server::{ApiServer, key};
use crate::world::{FakeMaster, Operator, cluster, condition, pool, wait};

const POOLS: &str = "cachepools";

/// A pool with three masters of which the first leads.
async fn three() -> (ApiServer, Arc<FakeMaster>) {
    let (api, master) = cluster().await;
    master.with(|state| {
        state.voters = BTreeMap::from([(0, true), (1, true), (2, true)]);
        state.named = (0..3).collect();
    });
    api.with(|state| state.has_pods = true).await;
    let mut pool = pool("small", Some(2));
    pool["spec"]["masters"] = json!({ "replicas": 3 });
    api.put(POOLS, pool).await;
    (api, master)
}

async fn updated(api: &ApiServer, value: &'static str) {
    condition(api, POOLS, "small", "MastersUpdated", value).await;
}

async fn edit(api: &ApiServer, spec: Value) {
    api.edit(POOLS, "apps", "small", json!({ "spec": spec }))
        .await;
}

/// What was done to pods and to the office, in order.
async fn steps(api: &ApiServer, master: &FakeMaster) -> Vec<String> {
    let writes = api.take_writes().await;
    let deleted = writes.iter().filter(|w| w.contains("DELETE pods/"));
    let mut steps: Vec<String> = deleted
        .map(|write| write.rsplit('/').next().unwrap_or_default().to_owned())
        .collect();
    steps.extend(master.with(|state| std::mem::take(&mut state.changes)));
    steps
}

/// The names of the pods that are marked as the leader's.
async fn marked(api: &ApiServer) -> Vec<String> {
    let pods = |state: &mut crate::api_server::State| -> Vec<String> {
        let marked = |object: &Value| object["metadata"]["labels"]["larder.dev/leader"] == "true";
        let pods = state.objects.iter().filter(|(key, _)| key.0 == "pods");
        pods.filter(|(_, object)| marked(object))
            .map(|(key, _)| key.2.clone())
            .collect()
    };
    api.with(pods).await
}

#[tokio::test(start_paused = true)]
async fn standbys_come_first_and_then_nothing_is_written() {
    let (api, master) = three().await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True/Serving").await;
    updated(&api, "True/AllMastersUpdated").await;
    assert_eq!(marked(&api).await, ["small-master-0"]);
    let service = api.get("services", "apps", "small-leader").await;
    let selector = service.expect("a service")["spec"]["selector"].clone();
    assert_eq!(selector["larder.dev/leader"], "true");
    steps(&api, &master).await;

    edit(
        &api,
        json!({ "masters": { "oplog": { "sync": "Always" } } }),
    )
    .await;
    updated(&api, "False/MastersRolling").await;
    updated(&api, "True/AllMastersUpdated").await;
    let order = [
        "small-master-2",
        "small-master-1",
        "small-master-0",
        "promote apps/small small-master-1",
    ];
    assert_eq!(steps(&api, &master).await, order);
    assert_eq!(marked(&api).await, ["small-master-1"]);
    wait(Duration::from_secs(120)).await;
    api.take_writes().await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(api.take_writes().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn nobody_is_taken_away_while_another_one_is_not_in_sync() {
    let (api, master) = three().await;
    let _operator = Operator::alone(&api, &master);
    updated(&api, "True/AllMastersUpdated").await;
    steps(&api, &master).await;
    master.with(|state| state.voters.insert(1, false));
    edit(&api, json!({ "eviction": { "highWatermarkPercent": 95 } })).await;
    updated(&api, "False/MastersRolling").await;
    wait(Duration::from_secs(600)).await;
    assert_eq!(steps(&api, &master).await, Vec::<String>::new());
    master.with(|state| state.voters.insert(1, true));
    updated(&api, "True/AllMastersUpdated").await;
    assert_eq!(steps(&api, &master).await.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_dies_at_any_write_of_a_roll_is_followed_by_one_that_ends_it() {
    for writes in 0..14 {
        let (api, master) = three().await;
        let operator = Operator::alone(&api, &master);
        updated(&api, "True/AllMastersUpdated").await;
        steps(&api, &master).await;
        edit(&api, json!({ "eviction": { "highWatermarkPercent": 95 } })).await;
        api.with(move |state| state.writes_left = Some(writes))
            .await;
        wait(Duration::from_secs(60)).await;
        drop(operator);
        api.with(|state| state.writes_left = None).await;
        let _next = Operator::alone(&api, &master);
        let is_done = |state: &crate::api_server::State| {
            let set = &state.objects[&key("statefulsets", "apps", "small-master")];
            let revision = &set["status"]["updateRevision"];
            let mut pods = state.objects.iter().filter(|(key, _)| key.0 == "pods");
            set["spec"]["template"]
                .to_string()
                .contains("larder.dev/config")
                && pods.all(|(_, pod)| {
                    pod["metadata"]["labels"]["controller-revision-hash"] == *revision
                })
        };
        wait(Duration::from_secs(60)).await;
        api.until("the end of the roll", is_done).await;
        updated(&api, "True/AllMastersUpdated").await;
        let done = steps(&api, &master).await;
        assert_eq!(done.len(), 4, "each once: {done:?} after {writes} writes");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_go_only_when_their_masters_vote_no_longer() {
    let (api, master) = three().await;
    let _operator = Operator::alone(&api, &master);
    updated(&api, "True/AllMastersUpdated").await;
    let agents = api.get("daemonsets", "apps", "small-agent").await;
    steps(&api, &master).await;
    let replicas = |state: &crate::api_server::State| {
        let key = key("statefulsets", "apps", "small-master");
        state.objects[&key]["spec"]["replicas"].clone()
    };
    edit(&api, json!({ "masters": { "replicas": 1 } })).await;
    wait(Duration::from_secs(60)).await;
    // As its new configuration has it.
    master.with(|state| state.named = (0..1).collect());
    wait(Duration::from_secs(600)).await;
    assert_eq!(api.with(move |state| replicas(state)).await, 3);
    updated(&api, "False/MastersRolling").await;
    // Only the one that stays is made again, and leads in the end.
    let order = [
        "small-master-0",
        "promote apps/small small-master-1",
        "promote apps/small small-master-0",
        "name apps/small 1",
    ];
    assert_eq!(steps(&api, &master).await, order);
    let budget = api
        .get("poddisruptionbudgets", "apps", "small-master")
        .await;
    assert_eq!(budget.expect("a budget")["spec"]["maxUnavailable"], 0);

    master.with(|state| state.voters = BTreeMap::from([(0, true)]));
    api.until("one pod", move |state| replicas(state) == 1)
        .await;
    updated(&api, "True/AllMastersUpdated").await;
    edit(&api, json!({ "masters": { "replicas": 3 } })).await;
    api.until("three pods", move |state| replicas(state) == 3)
        .await;
    updated(&api, "False/MastersRolling").await;
    wait(Duration::from_secs(60)).await;
    assert_eq!(
        steps(&api, &master).await,
        ["name apps/small 3"],
        "it keeps its log"
    );
    master.with(|state| state.voters = BTreeMap::from([(0, true), (1, true), (2, true)]));
    updated(&api, "True/AllMastersUpdated").await;
    let now = api.get("daemonsets", "apps", "small-agent").await;
    assert_eq!(
        now.expect("agents")["spec"],
        agents.expect("agents")["spec"],
        "no agent starts again, and loses what it holds, for another number of masters"
    );
}
