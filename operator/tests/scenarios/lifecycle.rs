//! Pools and tenants from their first reconcile to their end.

use std::time::Duration;

use larder_operator::reasons::Reason;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, key};
use crate::world::{Operator, cluster, condition, node, pool, tenant, wait};

const POOLS: &str = "cachepools";
const TENANTS: &str = "cachetenants";
/// The uid that the fourth object gets, after three nodes.
const UID: &str = "00000004-0000-4000-8000-000000000000";

pub(crate) async fn labelled(api: &ApiServer, prefix: &'static str) -> Vec<String> {
    api.with(move |state| {
        let nodes = state.objects.iter().filter(|(key, _)| key.0 == "nodes");
        let has = |node: &Value| {
            let labels = node["metadata"]["labels"].as_object();
            labels.is_some_and(|labels| labels.keys().any(|key| key.starts_with(prefix)))
        };
        nodes
            .filter(|(_, node)| has(node))
            .map(|(key, _)| key.2.clone())
            .collect()
    })
    .await
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    let found = object.pointer(path).and_then(Value::as_str);
    found.expect("a text at this path")
}

#[tokio::test(start_paused = true)]
async fn a_pool_and_its_tenants_come_up_and_then_nothing_is_written() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(2))).await;
    api.put(TENANTS, tenant("team-a", "small")).await;
    let operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True/Serving").await;
    condition(&api, TENANTS, "team-a", "Ready", "True/Serving").await;

    assert_eq!(labelled(&api, "pool.larder.dev/").await, ["n1", "n2"]);
    let found = api.get(POOLS, "apps", "small").await.expect("the pool");
    let status = &found["status"];
    assert_eq!(status["phase"], "Ready");
    assert_eq!(status["nodes"], json!({ "desired": 2, "ready": 2 }));
    assert_eq!(status["observedGeneration"], 1);
    assert!(text(&found, "/status/selector").contains("larder.dev/pool=small"));
    assert_eq!(status["leader"], "small-master-0");
    assert_eq!(status["capacityBytes"], 1 << 30);
    let known = master.with(|state| state.tenants.clone());
    let known = &known[&("apps/small".to_owned(), "team-a".to_owned())];
    assert_eq!(known.figures.limit_bytes, Some(256 << 20));

    let identity = api
        .get("configmaps", "apps", "small-identity")
        .await
        .expect("who is who");
    let subjects: Value =
        serde_json::from_str(text(&identity, "/data/subjects.json")).expect("JSON");
    assert!(
        subjects["subjects"].as_array().expect("a list").contains(
            &json!({"service_account": "apps/team-a", "principal": {"Tenant": "team-a"}})
        )
    );
    let connection = api
        .get("configmaps", "apps", "team-a-connection")
        .await
        .expect("connection");
    assert_eq!(
        text(&connection, "/data/LARDER_SOCKET"),
        "/run/larder/apps.small/agent.sock"
    );
    let secret = format!("small-root-key-{}", &UID[..8]);
    let secret = api.get("secrets", "apps", &secret).await.expect("the key");
    assert_eq!(text(&secret, "/stringData/root.key").trim_end().len(), 64);

    // Usage is told once it rests; after that nothing moves.
    wait(Duration::from_secs(120)).await;
    api.take_writes().await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(api.take_writes().await, Vec::<String>::new());
    assert!(
        operator.metrics.idle_ms() <= 60_000,
        "it looks at its pools all the same"
    );
    assert!(!operator.metrics.is_stuck(true));
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_or_edited_by_hand_is_repaired() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", None)).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    for (plural, name) in [
        ("services", "small-master"),
        ("serviceaccounts", "small-agent"),
        ("cachenodes", "small-n2"),
        ("daemonsets", "small-agent"),
    ] {
        api.delete(plural, "apps", name).await;
        let key = key(plural, "apps", name);
        api.until(&format!("{plural}/{name} again"), move |s| {
            s.objects.contains_key(&key)
        })
        .await;
    }
    api.edit(
        "configmaps",
        "apps",
        "small-agent",
        json!({"data": {"agent.json": "{}"}}),
    )
    .await;
    let edited = key("configmaps", "apps", "small-agent");
    api.until("the file again", move |state| {
        state.objects[&edited]["data"]["agent.json"] != json!("{}")
    })
    .await;
    // A label taken off a node by hand comes back, too.
    let label = format!("pool.larder.dev/{UID}");
    api.edit(
        "nodes",
        "",
        "n3",
        json!({"metadata": {"labels": {label.clone(): null}}}),
    )
    .await;
    let node = key("nodes", "", "n3");
    api.until("the label again", move |state| {
        !state.objects[&node]["metadata"]["labels"][&label].is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_a_dead_agent_the_master_tells() {
    const NODES: &str = "cachenodes";
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", None)).await;
    let alive = ["n1", "n2", "n3"].map(|node| (node.to_owned(), 0));
    master.with(|state| state.agents = alive.into());
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    for name in ["small-n1", "small-n2"] {
        let ready = json!({ "status": { "conditions": [{
            "type": "Ready", "status": "True", "reason": "Serving", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] } });
        api.edit(NODES, "apps", name, ready).await;
    }
    wait(Duration::from_secs(120)).await;
    condition(&api, NODES, "small-n2", "Ready", "True/Serving").await;
    master.with(|state| state.agents.remove("n2"));
    condition(&api, NODES, "small-n2", "Ready", "Unknown/AgentSilent").await;
    condition(&api, NODES, "small-n1", "Ready", "True/Serving").await;
    api.take_writes().await;
    wait(Duration::from_secs(600)).await;
    assert_eq!(api.take_writes().await, Vec::<String>::new(), "told once");
}

#[tokio::test(start_paused = true)]
async fn nodes_come_and_go() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", None)).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    api.put("nodes", node("n4")).await;
    let joined = key("cachenodes", "apps", "small-n4");
    api.until("n4 joins", move |state| state.objects.contains_key(&joined))
        .await;
    // Its power is cut and its Node removed, while the master still counts on it.
    master.with(|state| state.agents.insert("n4".to_owned(), 5));
    wait(Duration::from_secs(60)).await;
    api.delete("nodes", "", "n4").await;
    wait(Duration::from_secs(120)).await;
    assert!(api.get("cachenodes", "apps", "small-n4").await.is_some());
    master.with(|state| state.agents.remove("n4"));
    let gone = key("cachenodes", "apps", "small-n4");
    api.until("n4 is forgotten", move |state| {
        !state.objects.contains_key(&gone)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_is_told_and_the_rest_goes_on() {
    let (api, master) = cluster().await;
    let mut nowhere = pool("nowhere", None);
    nowhere["spec"]["nodes"]["selector"] = json!({ "disk": "none" });
    let mut large = pool("large", None);
    large["spec"]["tiers"][0]["size"] = json!("64Gi");
    large["spec"]["tiers"][0]["slabSize"] = json!("64Mi");
    let mut wrong = pool("wrong", None);
    wrong["spec"]["nodes"]["selector"] = json!({ "-": "x" });
    for one in [nowhere, large, wrong, pool("small", Some(5))] {
        api.put(POOLS, one).await;
    }
    api.put(TENANTS, tenant("lost", "unknown")).await;
    let mut second = tenant("second", "small");
    second["spec"]["tenantId"] = json!("first");
    api.put(TENANTS, tenant("first", "small")).await;
    api.put(TENANTS, second).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "nowhere", "NodesReady", "False/NoMatchingNode").await;
    condition(&api, POOLS, "large", "NodesReady", "False/NodeTooSmall").await;
    condition(&api, POOLS, "wrong", "Accepted", "False/InvalidSpec").await;
    condition(&api, POOLS, "small", "NodesReady", "False/TooFewNodes").await;
    condition(&api, POOLS, "small", "Ready", "True").await;
    condition(&api, TENANTS, "lost", "Accepted", "False/PoolNotFound").await;
    condition(&api, TENANTS, "second", "Accepted", "False/TenantIdTaken").await;
    condition(&api, TENANTS, "first", "Ready", "True").await;
    // Each is cured by the change that its condition asks for.
    api.put(POOLS, pool("unknown", Some(1))).await;
    condition(&api, TENANTS, "lost", "Ready", "True").await;
    api.delete(TENANTS, "apps", "first").await;
    condition(&api, TENANTS, "second", "Ready", "True").await;
    let changes = master.with(|state| state.changes.clone());
    let at = |what: &str| {
        changes
            .iter()
            .rposition(|change| change == what)
            .expect("it happened")
    };
    let (forgotten, made) = (at("delete apps/small first"), at("set apps/small first"));
    assert!(forgotten < made, "the second never sees bytes of the first");
    every_condition_stands_in_the_table(&api).await;
}

async fn every_condition_stands_in_the_table(api: &ApiServer) {
    let objects = api.with(|state| state.objects.clone()).await;
    for (key, object) in objects
        .iter()
        .filter(|(key, _)| [POOLS, TENANTS].contains(&&*key.0))
    {
        for condition in object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let row = |field: &str| condition[field].as_str().unwrap_or_default().to_owned();
            let known = Reason::ALL.iter().any(|reason| {
                let uses = reason.uses().iter();
                let mut uses = uses.filter(|(kind, ..)| object["kind"] == *kind);
                reason.text() == row("reason")
                    && uses.any(|(_, kind, status)| {
                        kind.text() == row("type") && *status == row("status")
                    })
            });
            assert!(known, "{key:?}: {condition}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_of_somebody_else_is_not_touched() {
    let (api, master) = cluster().await;
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "team-a-connection", "namespace": "apps" },
        "data": { "theirs": "yes" },
    });
    api.put("configmaps", theirs).await;
    api.put(POOLS, pool("small", Some(1))).await;
    api.put(TENANTS, tenant("team-a", "small")).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, TENANTS, "team-a", "Accepted", "False/NameTaken").await;
    let theirs = api
        .get("configmaps", "apps", "team-a-connection")
        .await
        .expect("still there");
    assert_eq!(theirs["data"], json!({ "theirs": "yes" }));
    api.delete("configmaps", "apps", "team-a-connection").await;
    condition(&api, TENANTS, "team-a", "Ready", "True").await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pool_leaves_nothing_and_its_name_inherits_nothing() {
    let (api, master) = cluster().await;
    api.edit(
        "nodes",
        "",
        "n1",
        json!({"metadata": {"labels": {"pool.larder.dev": "not ours"}}}),
    )
    .await;
    api.put(POOLS, pool("small", Some(3))).await;
    let first = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    api.delete(POOLS, "apps", "small").await;
    api.until("nothing is left", |state| {
        state
            .objects
            .keys()
            .all(|key| ["nodes", "events"].contains(&key.0.as_str()))
    })
    .await;
    assert_eq!(
        labelled(&api, "pool.larder.dev/").await,
        Vec::<String>::new()
    );
    assert_eq!(
        labelled(&api, "pool.larder.dev").await,
        ["n1"],
        "labels of others stay"
    );
    drop(first);

    // A finalizer that somebody removed by hand leaves labels; the sweep takes them away, and the
    // next pool of the name has its own.
    let stale = json!({"metadata": {"labels": {"pool.larder.dev/gone": "small"}}});
    api.edit("nodes", "", "n3", stale).await;
    api.put(POOLS, pool("small", Some(1))).await;
    let _second = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    api.until("the stale label goes", |state| {
        let node = &state.objects[&key("nodes", "", "n3")];
        node["metadata"]["labels"]["pool.larder.dev/gone"].is_null()
    })
    .await;
    assert_eq!(labelled(&api, "pool.larder.dev/").await, ["n1"]);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_goes_with_its_bytes_and_never_gets_stuck() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(1))).await;
    api.put(TENANTS, tenant("team-a", "small")).await;
    api.put(TENANTS, tenant("team-b", "small")).await;
    let operator = Operator::alone(&api, &master);
    condition(&api, TENANTS, "team-a", "Ready", "True").await;
    condition(&api, TENANTS, "team-b", "Ready", "True").await;
    // While the master is silent the tenant waits, since its bytes are there.
    master.with(|state| state.is_silent = true);
    api.delete(TENANTS, "apps", "team-a").await;
    wait(Duration::from_secs(300)).await;
    assert!(api.get(TENANTS, "apps", "team-a").await.is_some());
    master.with(|state| state.is_silent = false);
    let gone = key(TENANTS, "apps", "team-a");
    api.until("team-a goes", move |state| {
        !state.objects.contains_key(&gone)
    })
    .await;
    let changes = master.with(|state| state.changes.clone());
    assert_eq!(
        changes.last().map(String::as_str),
        Some("delete apps/small team-a")
    );
    // The pool goes first, while nobody operates; then the tenant.
    drop(operator);
    api.with(|state| {
        let pool = key(POOLS, "apps", "small");
        let object = state.objects.get_mut(&pool).expect("the pool");
        object["metadata"]["finalizers"] = json!([]);
        state.delete(&pool);
        state.delete(&key(TENANTS, "apps", "team-b"));
    })
    .await;
    let _operator = Operator::alone(&api, &master);
    let gone = key(TENANTS, "apps", "team-b");
    api.until("team-b goes", move |state| {
        !state.objects.contains_key(&gone)
    })
    .await;
}
