//! What the cluster does to an operator without breaking: refusals, slow starts, stale watches,
//! and objects of others that look like its own.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, key};
use crate::world::{Operator, cluster, condition, pool, tenant, wait};

const POOLS: &str = "cachepools";
const TENANTS: &str = "cachetenants";

async fn member_labels(api: &ApiServer) -> usize {
    let labels = |node: &Value| {
        let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
        labels
            .filter(|(key, _)| key.starts_with("pool.larder.dev/"))
            .count()
    };
    api.with(move |state| {
        let nodes = state.objects.iter().filter(|(key, _)| key.0 == "nodes");
        nodes.map(|(_, node)| labels(node)).sum()
    })
    .await
}

fn count(writes: &[String], part: &str) -> usize {
    writes.iter().filter(|write| write.contains(part)).count()
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_finds_its_nodes_at_its_first_look() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", None)).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    let writes = api.take_writes().await;
    let at = |part: &str| writes.iter().position(|write| write.contains(part));
    let set = at("daemonsets/apps/small-agent").expect("written");
    for node in ["n1", "n2", "n3"] {
        let label = at(&format!("nodes//{node}")).expect("written");
        assert!(label < set, "{writes:#?}");
        // A sweep knows by the binding whose labels are left behind.
        assert!(at("clusterrolebindings/").expect("written") < label);
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_told_and_tried_slowly() {
    let (api, master) = cluster().await;
    let refuse = |plural: &'static str, code| {
        api.with(move |state| state.refused.insert(plural.to_owned(), code))
    };
    refuse("services", StatusCode::FORBIDDEN).await;
    api.put(POOLS, pool("small", Some(1))).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Accepted", "False/ApiRefused").await;
    let found = api.get(POOLS, "apps", "small").await.expect("the pool");
    assert_eq!(
        found["status"]["conditions"][0]["message"],
        "the API server refuses to apply Service apps/small-master: Forbidden"
    );
    wait(Duration::from_secs(120)).await;
    api.take_writes().await;
    wait(Duration::from_secs(600)).await;
    let writes = api.take_writes().await;
    let tries = count(&writes, "services/");
    assert!(tries > 0 && tries <= 11, "about one a minute: {writes:#?}");
    let asked = count(&writes, "secrets/");
    assert_eq!(tries + asked, writes.len(), "nothing else: {writes:#?}");
    api.with(|state| state.refused.clear()).await;
    condition(&api, POOLS, "small", "Ready", "True").await;

    refuse("configmaps", StatusCode::UNPROCESSABLE_ENTITY).await;
    api.put(TENANTS, tenant("team-a", "small")).await;
    condition(&api, TENANTS, "team-a", "Accepted", "False/ApiRefused").await;
    condition(&api, POOLS, "small", "Accepted", "False/ApiRefused").await;
    api.with(|state| state.refused.clear()).await;
    condition(&api, TENANTS, "team-a", "Ready", "True").await;
    condition(&api, POOLS, "small", "Ready", "True").await;
}

#[tokio::test(start_paused = true)]
async fn a_binding_to_another_role_is_made_anew() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(1))).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    let other = json!({ "roleRef": { "name": "an-earlier-role" } });
    api.edit("rolebindings", "apps", "small-agent", other).await;
    let binding = key("rolebindings", "apps", "small-agent");
    api.until("the role again", move |state| {
        let binding = state.objects.get(&binding);
        binding.is_some_and(|binding| binding["roleRef"]["name"] == "larder-agent")
    })
    .await;
    condition(&api, POOLS, "small", "Accepted", "True").await;
}

#[tokio::test(start_paused = true)]
async fn a_root_key_that_is_lost_before_the_first_start_is_made_again() {
    let (api, master) = cluster().await;
    api.with(|state| state.masters_hang = true).await;
    api.put(POOLS, pool("small", Some(1))).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "False/MasterStarting").await;
    wait(Duration::from_secs(600)).await;
    let asked = count(&api.take_writes().await, "secrets/");
    assert_eq!(asked, 1, "quiet while it hangs");
    let lost = api
        .with(|state| {
            let found = state.objects.keys().find(|key| key.0 == "secrets").cloned();
            let found = found.expect("a root key");
            state.delete(&found);
            found
        })
        .await;
    api.until("another key", move |state| {
        state.objects.contains_key(&lost)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_comes_again_at_once_is_told_to_the_master() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(1))).await;
    api.put(TENANTS, tenant("team-a", "small")).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, TENANTS, "team-a", "Ready", "True").await;
    // The latest look at the master shows the tenant, and the next one takes a minute.
    wait(Duration::from_secs(120)).await;
    master.with(|state| state.delay = Duration::from_secs(60));
    api.delete("services", "apps", "small-master").await;
    wait(Duration::from_secs(1)).await;
    master.with(|state| state.delay = Duration::ZERO);
    api.delete(TENANTS, "apps", "team-a").await;
    let gone = key(TENANTS, "apps", "team-a");
    api.until("it goes", move |state| !state.objects.contains_key(&gone))
        .await;
    api.put(TENANTS, tenant("team-a", "small")).await;
    condition(&api, TENANTS, "team-a", "Ready", "True/Serving").await;
    let changes = master.with(|state| state.changes.clone());
    let last = ["delete apps/small team-a", "set apps/small team-a"];
    assert_eq!(changes[changes.len() - 2..], last);
}

#[tokio::test(start_paused = true)]
async fn an_object_in_another_namespace_is_no_child() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(1))).await;
    let operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    let mut copy = api
        .get("services", "apps", "small-master")
        .await
        .expect("made");
    copy["metadata"]["namespace"] = json!("elsewhere");
    copy["metadata"]["ownerReferences"] = json!([]);
    api.put("services", copy).await;
    // A trigger of the pool, and a look by an operator that has just come.
    wait(Duration::from_secs(120)).await;
    drop(operator);
    let _second = Operator::alone(&api, &master);
    wait(Duration::from_secs(120)).await;
    let copy = || api.get("services", "elsewhere", "small-master");
    assert!(copy().await.is_some(), "not removed as an orphan");
    api.delete(POOLS, "apps", "small").await;
    let gone = key(POOLS, "apps", "small");
    api.until("the pool goes", move |state| {
        !state.objects.contains_key(&gone)
    })
    .await;
    assert!(copy().await.is_some(), "nor with the pool");
}

#[tokio::test(start_paused = true)]
async fn labels_that_the_watch_has_not_shown_go_with_the_pool() {
    let (api, master) = cluster().await;
    let _operator = Operator::alone(&api, &master);
    wait(Duration::from_secs(1)).await;
    api.with(|state| state.untold.insert("nodes".to_owned()))
        .await;
    api.put(POOLS, pool("small", Some(2))).await;
    condition(&api, POOLS, "small", "Ready", "True").await;
    assert_eq!(member_labels(&api).await, 2);
    api.delete(POOLS, "apps", "small").await;
    let gone = key(POOLS, "apps", "small");
    api.until("the pool goes", move |state| {
        !state.objects.contains_key(&gone)
    })
    .await;
    assert_eq!(member_labels(&api).await, 0);
}
