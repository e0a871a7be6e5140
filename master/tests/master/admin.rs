//! The admin port: who may ask what, documents, and a page of metrics without ghosts.

use larder_telemetry::exposition::value;
use serde_json::{Value, json};

use crate::peer::{AgentPeer, Client};
use crate::rig::{Rig, soon, token};

#[tokio::test]
async fn a_master_that_is_alone_leads_already_and_knows_no_other() {
    let rig = Rig::start().await;
    Client::connect(&rig, "a").await;
    let path = "/v1/masters/small-master-0/promote";
    let (status, body) = rig.http("POST", path, Some(&token("operator")), "").await;
    assert_eq!(
        (status, body.contains("small-master-0")),
        (200, true),
        "{body}"
    );
    let path = "/v1/masters/other/promote";
    let (status, body) = rig.http("POST", path, Some(&token("operator")), "").await;
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("`other` is no voting master"), "{body}");
}

#[tokio::test]
async fn b55_nothing_but_three_gets_is_answered_without_a_credential() {
    let rig = Rig::start().await;
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(rig.http("GET", path, None, "").await.0, 200, "{path}");
    }
    let closed = [
        ("GET", "/v1/status"),
        ("GET", "/v1/tenants"),
        ("PUT", "/v1/tenants/a"),
        ("DELETE", "/v1/tenants/a"),
        ("GET", "/v1/tenants/a/quota"),
        ("GET", "/v1/quotas"),
        ("GET", "/v1/quotas/team"),
        ("PUT", "/v1/quotas/team"),
        ("DELETE", "/v1/quotas/team"),
        ("GET", "/v1/agents"),
        ("POST", "/v1/masters/small-master-0/promote"),
        ("GET", "/v1/agents/node-0/drain"),
        ("PUT", "/v1/agents/node-0/drain"),
        ("DELETE", "/v1/agents/node-0/drain"),
        ("PUT", "/v1/agents/node-0/labels"),
        ("GET", "/v1/snapshots"),
        ("POST", "/v1/snapshots"),
        ("GET", "/v1/snapshots/s"),
        ("DELETE", "/v1/snapshots/s"),
        ("GET", "/v1/check"),
        ("GET", "/"),
        ("GET", "/metrics/"),
        ("GET", "/v1/unknown"),
        ("POST", "/metrics"),
        ("PUT", "/healthz"),
        ("DELETE", "/readyz"),
    ];
    for (method, path) in closed {
        for credential in [None, Some("made up"), Some("")] {
            let (status, body) = rig.http(method, path, credential, "{}").await;
            assert_eq!(status, 401, "{method} {path} {credential:?}");
            let error: Value = serde_json::from_str(&body).expect("JSON");
            assert_eq!(error["error"]["reason"], "no_credential");
        }
        for name in ["a", "node-0", "master"] {
            let (status, _) = rig.http(method, path, Some(&token(name)), "{}").await;
            assert_eq!(status, 403, "{method} {path} as {name}");
        }
    }
    assert!(
        Client::connect(&rig, "a").await.exists(&["k"]).await[0].is_ok(),
        "a is still there"
    );
}

#[tokio::test]
async fn tenants_are_made_changed_and_deleted() {
    let rig = Rig::start().await;
    let operator = token("operator");
    let put = async |path: &str, body: &str| rig.http("PUT", path, Some(&operator), body).await;
    let policy = json!({ "access": "WriteOnly", "limit_bytes": 1000, "limit_objects": 7 });
    assert_eq!(put("/v1/tenants/c", &policy.to_string()).await.0, 204);
    let tenants = rig.document("/v1/tenants").await;
    let c = &tenants["tenants"][2];
    assert_eq!(
        (&c["tenant"], &c["access"]),
        (&json!("c"), &json!("WriteOnly"))
    );
    assert_eq!(
        (&c["limit_bytes"], &c["limit_objects"]),
        (&json!(1000), &json!(7))
    );
    let mut client = Client::connect(&rig, "c").await;
    assert_eq!(client.usage().await.limit_bytes, Some(1000));
    assert_eq!(put("/v1/tenants/c", "{}").await.0, 204);
    assert_eq!(
        client.usage().await.limit_bytes,
        None,
        "a policy is replaced as a whole"
    );

    let (status, body) = put("/v1/tenants/c", r#"{"limit_byte": 5}"#).await;
    assert_eq!(status, 400);
    assert!(body.contains("limit_byte"), "{body}");
    assert_eq!(put("/v1/tenants/-c", "{}").await.0, 400);
    assert_eq!(put("/v1/tenants/c", &" ".repeat(20_000)).await.0, 413);
    let delete = async |path: &str| rig.http("DELETE", path, Some(&operator), "").await;
    assert_eq!(delete("/v1/tenants/c").await.0, 204);
    assert_eq!(
        delete("/v1/tenants/c").await.0,
        204,
        "a second deletion is as good as the first"
    );
    soon("the end of the tenant", async {
        while rig.document("/v1/tenants").await["tenants"]
            .as_array()
            .map_or(0, Vec::len)
            > 2
        {}
    })
    .await;
    assert_eq!(delete("/v1/tenants/c").await.0, 204);
    assert_eq!(
        rig.http("POST", "/v1/tenants/c", Some(&operator), "")
            .await
            .0,
        405
    );
    assert_eq!(
        rig.http("GET", "/v1/none", Some(&operator), "").await.0,
        404
    );
}

/// Quotas that tenants share go in and out by the same port; a tenant hears of its own what an
/// administrator hears.
#[tokio::test]
async fn quotas_are_made_explained_and_deleted() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let operator = token("operator");
    let put = async |path: &str, body: Value| {
        rig.http("PUT", path, Some(&operator), &body.to_string())
            .await
    };
    let policy = json!({ "guaranteed_bytes": 1, "limit_bytes": 100_000, "on_exceed": "Refuse" });
    assert_eq!(put("/v1/quotas/team", policy).await.0, 204);
    let member = json!({ "cohort": "team", "guaranteed_bytes": 3, "limit_pinned_bytes": 7 });
    assert_eq!(put("/v1/tenants/a", member).await.0, 204);
    let mut client = Client::connect(&rig, "a").await;
    client.put("k", 90_000, &[&agent]).await.expect("put");
    let refused = client
        .put("more", 1, &[&agent])
        .await
        .expect_err("the team is full");
    assert_eq!(refused.reason, larder_types::Reason::QuotaBytes);

    let own = client.usage().await;
    let told = rig.document("/v1/tenants/a/quota").await;
    assert_eq!(serde_json::to_value(&own).expect("JSON"), told);
    let slab = own.quota.effective_guaranteed_bytes;
    assert!(slab > 3, "whole slabs");
    assert_eq!(
        (own.quota.guaranteed_bytes, own.quota.effective_pinned_bytes),
        (3, 7)
    );
    let by = own.quota.refused_by(1, 1).expect("full");
    assert_eq!(
        (by.kind, by.room),
        (larder_types::BoundKind::CohortBytes, Some(9_888))
    );
    let quotas = rig.document("/v1/quotas").await;
    let team = &quotas["quotas"][0];
    assert_eq!(
        (&team["quota"], &team["tenants"]),
        (&json!("team"), &json!(1))
    );
    assert_eq!(team["charged_bytes"], 90_112);
    assert_eq!(&rig.document("/v1/quotas/team").await, team);

    the_page_tells_what_the_quota_comes_to(&rig, slab).await;

    for _ in 0..2 {
        let gone = rig
            .http("DELETE", "/v1/quotas/team", Some(&operator), "")
            .await;
        assert_eq!(gone.0, 204);
    }
    client.put("more", 1, &[&agent]).await.expect("released");
    let get = async |path: &str| rig.http("GET", path, Some(&operator), "").await.0;
    assert_eq!(get("/v1/quotas/team").await, 404);
    assert_eq!(get("/v1/tenants/nobody/quota").await, 404);
    assert_eq!(put("/v1/quotas/-team", json!({})).await.0, 400);
    assert_eq!(
        put("/v1/quotas/team", json!({ "quota": "other" })).await.0,
        400
    );
    assert_eq!(put("/v1/quotas/team", json!({ "limit": 1 })).await.0, 400);
}

/// Tenant `a` asked for three bytes, has a slab for them and was refused once.
async fn the_page_tells_what_the_quota_comes_to(rig: &Rig, slab: u64) {
    let page = rig.metrics().await;
    let labels = [("tenant", "a")];
    assert_eq!(
        value(&page, "larder_tenant_requested_bytes", &labels),
        Some(3.0)
    );
    let effective = value(&page, "larder_tenant_effective_bytes", &labels);
    assert_eq!(effective, Some(slab as f64));
    let refusals = [("tenant", "a"), ("reason", "quota_bytes")];
    assert_eq!(
        value(&page, "larder_tenant_refusals_total", &refusals),
        Some(1.0)
    );
}

#[tokio::test]
async fn documents_tell_the_state_of_the_pool() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    client.put("k", 1000, &[&agent]).await.expect("put");
    let status = rig.document("/v1/status").await;
    assert_eq!(status["pool"], "small");
    assert_eq!(status["role"], "leader");
    assert_eq!(status["epoch"]["generation"], 1);
    assert_eq!(
        (&status["objects"], &status["agents"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(status["used_bytes"], 16_384);
    let agents = rig.document("/v1/agents").await;
    let node = &agents["agents"][0];
    assert_eq!(
        (&node["name"], &node["health"]),
        (&json!("node-0"), &json!("alive"))
    );
    assert_eq!(node["segments"][0]["slabs"], 8);
    assert_eq!(node["segments"][0]["free_slabs"], 7);
    let check = rig.document("/v1/check").await;
    assert_eq!(check["findings"], json!([]));
    assert_eq!(check["digest"], status["digest"]);
}

#[tokio::test]
async fn b59_series_go_with_what_they_tell_of() {
    let rig = Rig::start().await;
    let operator = token("operator");
    // What stands on the page from the start, with the counters of calls left out: those stay.
    let series = |page: &[larder_telemetry::exposition::Family]| {
        let gauges = page.iter().filter(|family| family.kind == "gauge");
        gauges.map(|family| family.samples.len()).sum::<usize>()
    };
    let base = series(&rig.metrics().await);
    for round in 0..5 {
        for n in 0..20 {
            let path = format!("/v1/tenants/t{n}");
            let body = r#"{"limit_bytes": 1000000}"#;
            assert_eq!(rig.http("PUT", &path, Some(&operator), body).await.0, 204);
        }
        let page = rig.metrics().await;
        assert_eq!(series(&page), base + 140, "seven series each");
        let limit = value(&page, "larder_master_limit_bytes", &[("tenant", "t7")]);
        assert_eq!(limit, Some(1_000_000.0));
        let mut agent = AgentPeer::mount(&rig, "node-0", 10 + round).await;
        assert_eq!(
            value(&rig.metrics().await, "larder_master_capacity_bytes", &[]),
            Some(16_777_216.0)
        );
        let (id, incarnation) = (agent.agent.id, agent.agent.incarnation);
        let unmount = larder_wire::agent::Unmount {
            agent: id,
            incarnation,
        };
        let kind = larder_wire::Kind::Unmount;
        agent
            .peer
            .call::<()>(kind, &unmount)
            .await
            .expect("unmounted");
        for n in 0..20 {
            let path = format!("/v1/tenants/t{n}");
            assert_eq!(rig.http("DELETE", &path, Some(&operator), "").await.0, 204);
        }
        soon("the end of the tenants", async {
            while rig.document("/v1/tenants").await["tenants"]
                .as_array()
                .map_or(0, Vec::len)
                > 2
            {}
        })
        .await;
        let page = rig.metrics().await;
        assert_eq!(series(&page), base);
        assert_eq!(value(&page, "larder_master_capacity_bytes", &[]), Some(0.0));
        assert_eq!(
            value(&page, "larder_master_agents", &[("state", "alive")]),
            Some(0.0)
        );
    }
    let page = rig.http("GET", "/metrics", None, "").await.1;
    assert!(!page.contains("tenant=\"t"), "{page}");
}

#[tokio::test]
async fn silent_connections_do_not_keep_a_probe_out() {
    let rig = Rig::start().await;
    let mut silent = Vec::new();
    // More than there are places.
    for _ in 0..300 {
        let stream = tokio::net::TcpStream::connect(rig.admin_addr).await;
        silent.push(stream.expect("connected"));
    }
    assert_eq!(rig.http("GET", "/healthz", None, "").await.0, 200);
    drop(silent);
}

/// The pages that `docs/calls.md` names are those that are there, with the methods it says.
#[tokio::test]
async fn the_pages_are_those_of_the_docs() {
    let docs = include_str!("../../../docs/calls.md");
    let (_, table) = docs.split_once("## The admin port").expect("a section");
    let rows = table.lines().skip_while(|line| !line.starts_with("| `"));
    let rows: Vec<Vec<&str>> = rows
        .take_while(|line| line.starts_with("| `"))
        .map(|line| line.split(" | ").take(2).collect())
        .collect();
    assert!(rows.len() > 10, "{rows:?}");
    let routes = include_str!("../../src/admin.rs").split("/v1/").skip(1);
    for route in routes {
        let (route, _) = route.split_once('"').expect("a literal");
        let is_told = rows.iter().any(|row| row[1] == format!("`/v1/{route}`"));
        assert!(is_told, "/v1/{route}");
    }
    let rig = Rig::start().await;
    let admin = token("operator");
    for row in rows {
        let path = row[1].trim_matches('`');
        let real = path.replace("{id}", "none").replace("{name}", "none");
        let real = real.replace("{task}", "7");
        for method in ["GET", "PUT", "DELETE", "POST"] {
            let (status, body) = rig.http(method, &real, Some(&admin), "{}").await;
            assert!(!body.contains("no such route"), "{path}");
            let is_told = row[0].contains(&format!("`{method}`"));
            assert_eq!(status != 405, is_told, "{method} {path}: {status}");
        }
    }
}
