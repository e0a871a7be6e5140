//! Nodes that leave a pool: their objects are moved first, with progress, within a deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use larder_operator::master_api::AgentLabels;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, key};
use crate::lifecycle::labelled;
use crate::world::{FakeMaster, Operator, cluster, condition, pool, wait};

const POOLS: &str = "cachepools";
const NODES: &str = "cachenodes";
const MEMBERS: &str = "pool.larder.dev/";
const BLOCKED: &str = "ScaleInBlocked";

/// A pool on three nodes, of which the first is empty, and a running operator.
async fn three() -> (ApiServer, Arc<FakeMaster>, Operator) {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(3))).await;
    hold(&master, &[("n1", 0), ("n2", 2), ("n3", 1)]);
    let operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    (api, master, operator)
}

/// Slabs that nodes hold from now on.
fn hold(master: &FakeMaster, slabs: &[(&str, u64)]) {
    let slabs = slabs.iter().map(|(node, held)| ((*node).to_owned(), *held));
    master.with(|state| state.agents.extend(slabs));
}

async fn nodes(api: &ApiServer, change: Value) {
    let spec = json!({ "spec": { "nodes": change } });
    api.edit(POOLS, "apps", "small", spec).await;
}

async fn drain_of(api: &ApiServer, node: &str) -> Value {
    let found = api.get(NODES, "apps", &format!("small-{node}")).await;
    found.map_or(Value::Null, |found| found["status"]["drain"].clone())
}

async fn is_gone(api: &ApiServer, node: &'static str) {
    let gone = key(NODES, "apps", &format!("small-{node}"));
    api.until(&format!("{node} leaves"), move |state| {
        !state.objects.contains_key(&gone)
    })
    .await;
}

async fn message(api: &ApiServer) -> String {
    let found = api.get(POOLS, "apps", "small").await.expect("the pool");
    let conditions = found["status"]["conditions"].as_array().expect("a list");
    let found = conditions.iter().find(|one| one["type"] == BLOCKED);
    let text = found.and_then(|one| one["message"].as_str());
    text.expect("a message").to_owned()
}

/// Events of a reason.
async fn events(api: &ApiServer, reason: &'static str) -> usize {
    let is = move |(key, event): &(&crate::api_server::Key, &Value)| {
        key.0 == "events" && event["reason"] == reason
    };
    api.with(move |state| state.objects.iter().filter(is).count())
        .await
}

#[tokio::test(start_paused = true)]
async fn a_node_moves_its_objects_before_it_leaves() {
    let (api, master, _operator) = three().await;
    nodes(&api, json!({ "count": 1 })).await;
    condition(&api, POOLS, "small", BLOCKED, "False/NodesDraining").await;
    is_gone(&api, "n1").await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2", "n3"], "n1 was empty");
    let drain = drain_of(&api, "n3").await;
    assert_eq!(drain["state"], "Draining");
    let figures = ["objectsLeft", "bytesLeft", "extentsLeft"].map(|field| drain[field].clone());
    assert_eq!(figures, [json!(2), json!(1 << 20), json!(4)]);
    wait(Duration::from_secs(2)).await;
    let found = api.get(POOLS, "apps", "small").await.expect("the pool");
    let counts = json!({ "desired": 1, "ready": 2, "draining": 1 });
    assert_eq!(found["status"]["nodes"], counts);
    assert_eq!(events(&api, "NodesDraining").await, 1);
    // Others become emptier than the one that has begun; it goes on all the same.
    hold(&master, &[("n2", 0)]);
    wait(Duration::from_secs(60)).await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2", "n3"]);
    hold(&master, &[("n2", 3), ("n3", 0)]);
    is_gone(&api, "n3").await;
    condition(&api, POOLS, "small", BLOCKED, "False/NothingToRemove").await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2"]);
    let changes = master.with(|state| std::mem::take(&mut state.changes));
    assert_eq!(changes, ["drain apps/small n1", "drain apps/small n3"]);
    // The master keeps the order for a name; a node that returns is to be filled again.
    nodes(&api, json!({ "count": 3 })).await;
    condition(&api, POOLS, "small", "NodesReady", "True").await;
    wait(Duration::from_secs(60)).await;
    let changes = master.with(|state| state.changes.clone());
    assert_eq!(changes, ["undrain apps/small n1", "undrain apps/small n3"]);
    assert_eq!(drain_of(&api, "n3").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_asked_about_and_told_seldom() {
    let (api, master, _operator) = three().await;
    hold(&master, &[("n3", 30)]);
    hold(&master, &[("n2", 31)]);
    nodes(
        &api,
        json!({ "count": 2, "drain": { "deadlineSeconds": 86_400 } }),
    )
    .await;
    is_gone(&api, "n1").await;
    nodes(&api, json!({ "count": 1 })).await;
    condition(&api, POOLS, "small", BLOCKED, "False/NodesDraining").await;
    wait(Duration::from_secs(30)).await;
    api.take_writes().await;
    master.with(|state| state.polls = 0);
    // Its figures change all the time.
    for left in (0..300_u64).rev() {
        hold(&master, &[("n3", 1 + left % 30)]);
        wait(Duration::from_secs(1)).await;
    }
    let polls = master.with(|state| state.polls);
    assert!((40..=75).contains(&polls), "{polls} in 300 s");
    let writes = api.take_writes().await;
    let of_node = writes
        .iter()
        .filter(|one| one.contains("cachenodes/apps/small-n3/status"));
    let of_node = of_node.count();
    assert!(
        (15..=30).contains(&of_node),
        "{of_node} in 300 s: {writes:#?}"
    );
    // While nothing moves nothing is written.
    wait(Duration::from_secs(30)).await;
    api.take_writes().await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(api.take_writes().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_it_leaves_and_the_loss_is_told() {
    let (api, master, _operator) = three().await;
    master.with(|state| state.blocked = Some("no space: add nodes".to_owned()));
    nodes(&api, json!({ "count": 1 })).await;
    condition(&api, POOLS, "small", BLOCKED, "True/DrainStalled").await;
    assert_eq!(message(&api).await, "n3: no space: add nodes");
    assert_eq!(drain_of(&api, "n3").await["message"], "no space: add nodes");
    wait(Duration::from_secs(580)).await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2", "n3"]);
    condition(&api, POOLS, "small", BLOCKED, "False/ObjectsLost").await;
    is_gone(&api, "n3").await;
    let told = "n3 left with 1048576 bytes (1Mi) that were not moved: \
                600 s have passed: no space: add nodes";
    assert_eq!(message(&api).await, told);
    assert_eq!(events(&api, "ObjectsLost").await, 1);
    // It stands until somebody changes the pool.
    wait(Duration::from_secs(3600)).await;
    assert_eq!(message(&api).await, told);
    assert_eq!(events(&api, "ObjectsLost").await, 1);
    nodes(&api, json!({ "drain": { "deadlineSeconds": 60 } })).await;
    condition(&api, POOLS, "small", BLOCKED, "False/NothingToRemove").await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_zero_drops_what_is_there() {
    let (api, master, _operator) = three().await;
    nodes(
        &api,
        json!({ "count": 1, "drain": { "deadlineSeconds": 0 } }),
    )
    .await;
    is_gone(&api, "n3").await;
    is_gone(&api, "n1").await;
    condition(&api, POOLS, "small", BLOCKED, "False/ObjectsLost").await;
    let said = message(&api).await;
    assert!(said.starts_with("n3 left with 1048576 bytes"), "{said}");
    assert_eq!(events(&api, "ObjectsLost").await, 1);
    assert_eq!(
        master.with(|state| state.changes.clone()),
        Vec::<String>::new()
    );
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_to_stay_after_all_stays() {
    let (api, master, operator) = three().await;
    // Somebody else's drain has nothing to do with it.
    master.with(|state| state.draining.insert("n2".to_owned()));
    nodes(&api, json!({ "count": 2 })).await;
    is_gone(&api, "n1").await;
    nodes(&api, json!({ "count": 1 })).await;
    condition(&api, POOLS, "small", BLOCKED, "False/NodesDraining").await;
    // The word comes while the master is away, and another operator goes on.
    master.with(|state| state.is_silent = true);
    nodes(&api, json!({ "count": 2 })).await;
    condition(&api, POOLS, "small", BLOCKED, "True/MasterNotReached").await;
    drop(operator);
    let _second = Operator::alone(&api, &master);
    wait(Duration::from_secs(60)).await;
    assert_eq!(drain_of(&api, "n3").await["state"], "Ending");
    master.with(|state| state.is_silent = false);
    condition(&api, POOLS, "small", BLOCKED, "False/NothingToRemove").await;
    wait(Duration::from_secs(700)).await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2", "n3"]);
    assert_eq!(drain_of(&api, "n3").await, Value::Null);
    let (changes, draining) = master.with(|state| (state.changes.clone(), state.draining.clone()));
    assert_eq!(
        changes.last().map(String::as_str),
        Some("undrain apps/small n3")
    );
    assert!(draining.contains("n2"), "{changes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_returned_and_leaves_again_has_all_of_its_time() {
    let (api, master, _operator) = three().await;
    nodes(&api, json!({ "count": 2 })).await;
    is_gone(&api, "n1").await;
    nodes(&api, json!({ "count": 1 })).await;
    condition(&api, POOLS, "small", BLOCKED, "False/NodesDraining").await;
    // It is to stay, and for longer than a drain may take nobody can tell the master.
    master.with(|state| state.is_silent = true);
    nodes(&api, json!({ "count": 2 })).await;
    condition(&api, POOLS, "small", BLOCKED, "True/MasterNotReached").await;
    wait(Duration::from_secs(900)).await;
    assert_eq!(drain_of(&api, "n3").await["state"], "Ending");
    // Then it is to leave after all, and the master is back a little later.
    nodes(&api, json!({ "count": 1 })).await;
    wait(Duration::from_secs(60)).await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2", "n3"]);
    assert_eq!(drain_of(&api, "n3").await["state"], "Draining");
    master.with(|state| state.is_silent = false);
    hold(&master, &[("n2", 3), ("n3", 0)]);
    is_gone(&api, "n3").await;
    assert_eq!(events(&api, "ObjectsLost").await, 0);
}

#[tokio::test(start_paused = true)]
async fn another_operator_goes_on_and_the_deadline_counts_from_the_start() {
    let (api, master, first) = three().await;
    nodes(&api, json!({ "count": 1 })).await;
    is_gone(&api, "n1").await;
    wait(Duration::from_secs(300)).await;
    let began = drain_of(&api, "n3").await["startedAt"].clone();
    assert!(began.is_string());
    drop(first);
    let _second = Operator::alone(&api, &master);
    wait(Duration::from_secs(200)).await;
    assert_eq!(drain_of(&api, "n3").await["startedAt"], began);
    assert_eq!(labelled(&api, MEMBERS).await, ["n2", "n3"]);
    wait(Duration::from_secs(120)).await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2"]);
    let changes = master.with(|state| state.changes.clone());
    assert_eq!(changes, ["drain apps/small n1", "drain apps/small n3"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_master_is_waited_for_until_the_deadline() {
    let (api, master, _operator) = three().await;
    master.with(|state| state.is_silent = true);
    nodes(&api, json!({ "count": 2 })).await;
    condition(&api, POOLS, "small", BLOCKED, "True/MasterNotReached").await;
    wait(Duration::from_secs(300)).await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n1", "n2", "n3"]);
    condition(&api, POOLS, "small", BLOCKED, "False/ObjectsLost").await;
    // Nobody knows what the nodes hold, so the last by name was chosen.
    is_gone(&api, "n3").await;
    let said = message(&api).await;
    assert!(
        said.starts_with("n3 left with an unknown number of bytes"),
        "{said}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_master_that_takes_no_drain_is_told_and_asked_again() {
    let (api, master, _operator) = three().await;
    master.with(|state| state.refuses = Some(405));
    nodes(&api, json!({ "count": 1 })).await;
    condition(&api, POOLS, "small", BLOCKED, "True/DrainRefused").await;
    assert_eq!(drain_of(&api, "n3").await["state"], "Failed");
    master.with(|state| state.refuses = None);
    condition(&api, POOLS, "small", BLOCKED, "False/NodesDraining").await;
    assert_eq!(drain_of(&api, "n3").await["state"], "Draining");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_vanishes_is_not_waited_for() {
    let (api, master, _operator) = three().await;
    nodes(&api, json!({ "count": 1 })).await;
    condition(&api, POOLS, "small", BLOCKED, "False/NodesDraining").await;
    api.delete("nodes", "", "n3").await;
    condition(&api, POOLS, "small", BLOCKED, "False/NothingToRemove").await;
    master.with(|state| state.agents.remove("n3"));
    is_gone(&api, "n3").await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_no_longer_matches_goes_the_same_way() {
    let (api, master) = cluster().await;
    let label = |value: Value| json!({ "metadata": { "labels": { "disk": value } } });
    for node in ["n1", "n2"] {
        api.edit("nodes", "", node, label(json!("fast"))).await;
    }
    let mut labelled_pool = pool("small", None);
    labelled_pool["spec"]["nodes"]["selector"] = json!({ "disk": "fast" });
    api.put(POOLS, labelled_pool).await;
    hold(&master, &[("n1", 2), ("n2", 1)]);
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "NodesReady", "True").await;
    api.edit("nodes", "", "n1", label(Value::Null)).await;
    condition(&api, POOLS, "small", BLOCKED, "False/NodesDraining").await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n1", "n2"]);
    hold(&master, &[("n1", 0), ("n2", 3)]);
    is_gone(&api, "n1").await;
    assert_eq!(labelled(&api, MEMBERS).await, ["n2"]);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_deleted_waits_for_no_drain() {
    let (api, master, _operator) = three().await;
    nodes(&api, json!({ "count": 1 })).await;
    condition(&api, POOLS, "small", BLOCKED, "False/NodesDraining").await;
    master.with(|state| state.is_silent = true);
    api.delete(POOLS, "apps", "small").await;
    api.until("nothing is left", |state| {
        let mut kinds = state.objects.keys().map(|key| key.0.as_str());
        kinds.all(|kind| ["nodes", "events"].contains(&kind))
    })
    .await;
    assert_eq!(labelled(&api, MEMBERS).await, Vec::<String>::new());
}

/// The master moves an object a second.
async fn moving(master: &FakeMaster, seconds: u64) {
    for _ in 0..seconds {
        wait(Duration::from_secs(1)).await;
        master.with(|state| {
            for node in state.draining.clone() {
                if let Some(left) = state.agents.get_mut(&node) {
                    *left = left.saturating_sub(1);
                }
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn killed_after_each_write_a_scale_in_ends_in_the_same_place() {
    for writes in 0..60 {
        let (api, master, first) = three().await;
        hold(&master, &[("n3", 20), ("n2", 30)]);
        wait(Duration::from_secs(60)).await;
        api.with(move |state| state.writes_left = Some(writes))
            .await;
        nodes(&api, json!({ "count": 1 })).await;
        moving(&master, 60).await;
        drop(first);
        let left = api.with(|state| state.writes_left.take()).await;
        let _second = Operator::alone(&api, &master);
        moving(&master, 60).await;
        condition(&api, POOLS, "small", BLOCKED, "False/NothingToRemove").await;
        assert_eq!(
            labelled(&api, MEMBERS).await,
            ["n2"],
            "after {writes} writes"
        );
        is_gone(&api, "n3").await;
        is_gone(&api, "n1").await;
        assert_eq!(events(&api, "ObjectsLost").await, 0);
        if left.is_some_and(|left| left > 0) {
            assert!(writes > 8, "the whole scale-in took only {writes} writes");
            return;
        }
    }
    panic!("60 writes were not enough for two nodes");
}

#[tokio::test(start_paused = true)]
async fn the_master_is_told_where_agents_stand() {
    let (api, master, _operator) = three().await;
    wait(Duration::from_secs(120)).await;
    let told = |master: &FakeMaster| -> Vec<String> {
        let changes = master.with(|state| std::mem::take(&mut state.changes));
        changes
            .into_iter()
            .filter(|change| change.starts_with("labels"))
            .collect()
    };
    assert_eq!(
        told(&master),
        Vec::<String>::new(),
        "this master knows no labels"
    );
    master.with(|state| state.labels = Some(BTreeMap::new()));
    let stands = |zone: &str, rack: &str| {
        json!({ "metadata": { "labels": {
            "topology.kubernetes.io/zone": zone, "topology.larder.dev/rack": rack,
        } } })
    };
    api.edit("nodes", "", "n1", stands("z1", "r1")).await;
    wait(Duration::from_secs(120)).await;
    let mut all = told(&master);
    all.sort();
    assert_eq!(
        all,
        ["n1", "n2", "n3"].map(|node| format!("labels apps/small {node}"))
    );
    let labels = |host: &str, zone: Option<&str>, rack: Option<&str>| AgentLabels {
        host: Some(host.to_owned()),
        rack: rack.map(str::to_owned),
        zone: zone.map(str::to_owned),
    };
    let known =
        |node: &str| master.with(|state| state.labels.clone().unwrap_or_default()[node].clone());
    assert_eq!(known("n1"), labels("n1", Some("z1"), Some("r1")));
    assert_eq!(known("n2"), labels("n2", None, None));
    // Another key, another zone, and a master that lost what it knew.
    nodes(&api, json!({ "rackLabel": "row" })).await;
    wait(Duration::from_secs(60)).await;
    assert_eq!(told(&master), ["labels apps/small n1"]);
    assert_eq!(known("n1"), labels("n1", Some("z1"), None));
    master.with(|state| state.labels = Some(BTreeMap::new()));
    wait(Duration::from_secs(120)).await;
    assert_eq!(told(&master).len(), 3);
    // One that shows labels and takes none is told once, and nothing fails.
    master.with(|state| {
        state.labels = Some(BTreeMap::new());
        state.refuses = Some(404);
    });
    wait(Duration::from_secs(600)).await;
    assert_eq!(told(&master).len(), 3);
    condition(&api, POOLS, "small", "Ready", "True").await;
}
