//! ServiceAccount tokens prove who speaks: a master against a stand-in of the API server.
#![cfg(feature = "kubernetes")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use larder_telemetry::exposition::value;
use larder_wire::{Hello, Purpose, Refused, RefusedReason, Welcome};
use serde_json::{Value, json};

use crate::peer::{Peer, hello};
use crate::rig::{Folder, Rig, prepare, soon};

/// What the stand-in shares with the test.
#[derive(Default)]
struct Faults {
    /// A status to answer with instead; 0 = none.
    status: AtomicU16,
    asked: AtomicUsize,
}

/// Answers reviews as the token itself says: `genuine`, `node`, `for`.
async fn review(State(faults): State<Arc<Faults>>, Json(review): Json<Value>) -> Response {
    faults.asked.fetch_add(1, Ordering::SeqCst);
    let status = faults.status.load(Ordering::SeqCst);
    if let Ok(status) = StatusCode::from_u16(status) {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "not now", "reason": "Other", "code": status.as_u16(),
        });
        return (status, Json(body)).into_response();
    }
    let token = review["spec"]["token"].as_str().expect("a token");
    let payload = token.split('.').nth(1).expect("a payload");
    let payload = URL_SAFE_NO_PAD.decode(payload).expect("base64");
    let claims: Value = serde_json::from_slice(&payload).expect("JSON");
    assert_eq!(review["spec"]["audiences"], json!(["larder"]));
    let status = if claims["genuine"] == true {
        let mut extra = json!({ "authentication.kubernetes.io/pod-name": ["pod"] });
        if let Some(node) = claims["node"].as_str() {
            extra["authentication.kubernetes.io/node-name"] = json!([node]);
        }
        let user = json!({
            "username": claims["sub"], "uid": "1", "extra": extra,
            "groups": ["system:serviceaccounts", "system:authenticated"],
        });
        json!({ "authenticated": true, "user": user, "audiences": claims["for"] })
    } else {
        json!({ "error": "invalid bearer token", "user": {} })
    };
    let mut answer = review;
    answer["status"] = status;
    (StatusCode::CREATED, Json(answer)).into_response()
}

async fn serve_reviews() -> (SocketAddr, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a free port");
    let addr = listener.local_addr().expect("an address");
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let router = Router::new()
        .route(path, post(review))
        .with_state(Arc::clone(&faults));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (addr, faults)
}

fn subjects(tenants: &[&str]) -> String {
    let role = |role: &str| json!({ "principal": role, "service_account": format!("p/{role}") });
    let mut entries = vec![role("AgentOfNode"), role("Master"), role("Operator")];
    entries.extend(tenants.iter().map(|tenant| {
        json!({ "principal": { "Tenant": tenant }, "service_account": format!("apps/{tenant}") })
    }));
    json!({ "audience": "larder", "subjects": entries }).to_string()
}

/// A master that asks the API server at `addr`.
async fn start(addr: SocketAddr) -> Rig {
    let folder = Folder::new();
    let mut config = prepare(&folder);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{addr}") } }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
        "users": [{ "name": "u", "user": { "token": "of-the-master" } }],
    });
    config.kubeconfig = Some(folder.write("kubeconfig", &kubeconfig.to_string()));
    config.subjects_file = Some(folder.write("subjects.json", &subjects(&["a", "b", "c"])));
    config.identities_file = None;
    Rig::start_in(folder, config).await
}

/// A token of an account, with these claims more.
fn token_of(account: &str, more: Value) -> String {
    let (namespace, name) = account.split_once('/').expect("namespace/name");
    let mut claims = json!({
        "aud": ["larder"], "for": ["larder"], "genuine": true,
        "sub": format!("system:serviceaccount:{namespace}:{name}"),
    });
    if let (Value::Object(claims), Value::Object(more)) = (&mut claims, more) {
        claims.extend(more);
    }
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.{}", part("{}"), part(&claims.to_string()), part("s"))
}

async fn try_hello(rig: &Rig, token: &str, purpose: Purpose) -> Result<Welcome, Refused> {
    let hello = Hello {
        credential: token.as_bytes().to_vec(),
        ..hello("", purpose)
    };
    Peer::connect(rig.client_addr).await.say_hello(&hello).await
}

#[tokio::test]
async fn a_token_proves_what_its_account_is() {
    let (addr, faults) = serve_reviews().await;
    let rig = start(addr).await;
    let a = token_of("apps/a", json!({}));
    let welcome = try_hello(&rig, &a, Purpose::Client).await.expect("tenant");
    assert_eq!(welcome.principal.to_string(), "tenant a");
    let agent = token_of("p/AgentOfNode", json!({ "node": "node-7" }));
    let welcome = try_hello(&rig, &agent, Purpose::Agent)
        .await
        .expect("agent");
    assert_eq!(welcome.principal.to_string(), "agent node-7");
    let operator = token_of("p/Operator", json!({}));
    let (status, body) = rig.http("GET", "/v1/status", Some(&operator), "").await;
    assert_eq!(status, 200, "{body}");
    let (status, _) = rig.http("GET", "/v1/status", Some(&a), "").await;
    assert_eq!(status, 403, "a tenant is no operator");
    let master = token_of("p/Master", json!({}));
    let refused = try_hello(&rig, &master, Purpose::Client).await;
    assert_eq!(refused.expect_err("a role").reason, RefusedReason::Role);

    let asked = faults.asked.load(Ordering::SeqCst);
    try_hello(&rig, &a, Purpose::Client).await.expect("known");
    assert_eq!(faults.asked.load(Ordering::SeqCst), asked);
    let page = rig.metrics().await;
    let labels = [("result", "proven")];
    let proven = value(&page, "larder_master_token_reviews_total", &labels);
    assert_eq!(proven, Some(4.0));
}

#[tokio::test]
async fn a_token_that_proves_nothing_is_told_what_to_check() {
    let (addr, _) = serve_reviews().await;
    let rig = start(addr).await;
    let cases = [
        ("secret-a".to_owned(), Purpose::Client),
        (
            token_of("apps/a", json!({ "genuine": false })),
            Purpose::Client,
        ),
        // The API server proves it, and for another audience or for none.
        (
            token_of("apps/a", json!({ "for": ["vault"] })),
            Purpose::Client,
        ),
        (token_of("apps/a", json!({ "for": null })), Purpose::Client),
        (token_of("apps/stranger", json!({})), Purpose::Client),
        (token_of("p/AgentOfNode", json!({})), Purpose::Agent),
        (
            token_of("p/AgentOfNode", json!({ "node": "no/node" })),
            Purpose::Agent,
        ),
    ];
    for (token, purpose) in cases {
        let refused = try_hello(&rig, &token, purpose).await.expect_err("nothing");
        assert_eq!(refused.reason, RefusedReason::Credential, "{refused}");
        let detail = &refused.detail;
        assert!(
            detail.contains("`subjects`") && detail.contains("`larder`"),
            "{detail}"
        );
        assert!(!detail.contains(&token), "a token is not repeated");
        let (status, _) = rig.http("GET", "/v1/status", Some(&token), "").await;
        assert_eq!(status, 401);
    }
    // The account is a tenant's, and the pool has no such tenant yet.
    let c = token_of("apps/c", json!({}));
    let refused = try_hello(&rig, &c, Purpose::Client)
        .await
        .expect_err("no tenant");
    assert_eq!(refused.reason, RefusedReason::Credential);
}

#[tokio::test]
async fn without_the_api_server_the_known_go_on_and_others_hear_to_try_again() {
    let (addr, faults) = serve_reviews().await;
    let rig = start(addr).await;
    let (a, b) = (token_of("apps/a", json!({})), token_of("apps/b", json!({})));
    try_hello(&rig, &a, Purpose::Client).await.expect("tenant");
    for status in [403, 429, 500, 503] {
        faults.status.store(status, Ordering::SeqCst);
        let refused = try_hello(&rig, &b, Purpose::Client)
            .await
            .expect_err("away");
        assert_eq!(refused.reason, RefusedReason::Busy, "{status}: {refused}");
        try_hello(&rig, &a, Purpose::Client).await.expect("known");
        let (status, _) = rig.http("GET", "/v1/status", Some(&b), "").await;
        assert_eq!(status, 503);
    }
    faults.status.store(0, Ordering::SeqCst);
    try_hello(&rig, &b, Purpose::Client)
        .await
        .expect("it is back");

    // Nobody listens at all.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let closed = listener.local_addr().expect("an address");
    drop(listener);
    let rig = start(closed).await;
    let refused = try_hello(&rig, &b, Purpose::Client)
        .await
        .expect_err("away");
    assert_eq!(refused.reason, RefusedReason::Busy, "{refused}");
}

#[tokio::test]
async fn a_tenant_that_leaves_the_file_is_refused_without_a_restart() {
    let (addr, _) = serve_reviews().await;
    let rig = start(addr).await;
    let a = token_of("apps/a", json!({}));
    try_hello(&rig, &a, Purpose::Client).await.expect("tenant");
    let new = rig.folder.write("new.json", &subjects(&["b"]));
    let file = rig.config.subjects_file.clone().expect("configured");
    std::fs::rename(new, file).expect("exchanged");
    soon("the file is looked at", async {
        while try_hello(&rig, &a, Purpose::Client).await.is_ok() {}
    })
    .await;
    let b = token_of("apps/b", json!({}));
    try_hello(&rig, &b, Purpose::Client).await.expect("tenant");
}
