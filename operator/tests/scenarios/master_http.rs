//! The master's administration port over HTTP, against documents as the master writes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use kube::Client;
use larder_crds::{Access, Borrowing, OnExceed};
use larder_operator::master_api::http::HttpMasters;
use larder_operator::master_api::tokens::Tokens;
use larder_operator::master_api::{
    AgentLabels, MasterApi, MasterError, PolicyFigures, QuotaPolicy, TenantPolicy,
};
use larder_operator::names::PoolId;
use serde_json::{Value, json};
use tokio::net::TcpListener;

fn pool() -> PoolId {
    PoolId {
        namespace: "apps".into(),
        name: "small".into(),
        uid: "u".into(),
    }
}

fn policy(tenant: &str) -> TenantPolicy {
    TenantPolicy {
        tenant: tenant.into(),
        access: Access::ReadOnly,
        figures: PolicyFigures {
            guaranteed_bytes: 3,
            limit_bytes: Some(7),
            borrowing: Borrowing::Forbidden,
            ..PolicyFigures::default()
        },
        view_bytes: None,
        cohort: Some("team".into()),
    }
}

async fn bearer(request: Request, next: Next) -> Response {
    match request.headers().get("authorization") {
        Some(token) if token == "Bearer secret" => next.run(request).await,
        _ => (StatusCode::UNAUTHORIZED, "who are you").into_response(),
    }
}

async fn set(Path(id): Path<String>, Json(body): Json<Value>) -> StatusCode {
    let expected = json!({
        "access": "ReadOnly", "guaranteed_bytes": 3, "limit_bytes": 7, "limit_objects": null,
        "borrowing": "Forbidden", "view_bytes": null, "cohort": "team",
    });
    if body == expected && id == "team-a" {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::BAD_REQUEST
    }
}

async fn set_quota(Path(name): Path<String>, Json(body): Json<Value>) -> StatusCode {
    let expected = json!({ "limit_bytes": null, "limit_objects": 9, "on_exceed": "Refuse" });
    if body == expected && name == "team" {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::BAD_REQUEST
    }
}

async fn delete(State(left): State<Arc<AtomicUsize>>) -> StatusCode {
    match left.fetch_sub(1, Ordering::Relaxed) {
        2.. => StatusCode::NO_CONTENT,
        1 => StatusCode::NOT_FOUND,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

async fn set_labels(Path(name): Path<String>, Json(body): Json<Value>) -> StatusCode {
    if body == json!({ "host": "n1", "zone": "z1" }) && name == "n1" {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::BAD_REQUEST
    }
}

/// Only `n1` is known.
async fn change_drain(Path(name): Path<String>) -> StatusCode {
    if name == "n1" {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::NOT_FOUND
    }
}

async fn name_masters(Json(body): Json<Value>) -> StatusCode {
    if body == json!({ "names": ["a", "b"] }) {
        StatusCode::NO_CONTENT
    } else {
        StatusCode::BAD_REQUEST
    }
}

async fn promote(Path(name): Path<String>) -> impl IntoResponse {
    if name == "small-master-1" {
        (StatusCode::OK, Json(json!({ "leader": name })))
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({ "error": {} })),
        )
    }
}

async fn serve() -> String {
    let status = json!({
        "pool": "small", "name": "small-master-0", "role": "leader",
        "epoch": { "generation": 1, "term": 1 }, "tenants": 1, "agents": 1, "objects": 2,
        "capacity_bytes": 64, "used_bytes": 8,
    });
    let tenants = json!({ "tenants": [{
        "tenant": "team-a", "access": "ReadWrite", "limit_bytes": 9, "limit_objects": null,
        "view_bytes": null, "used_bytes": 8, "objects": 2, "slabs": 1, "deleting": false,
    }] });
    let agents = json!({ "agents": [{
        "name": "n1", "id": 1, "health": "live", "data_addr": "10.0.0.1:7410",
        "segments": [{
            "segment": 1, "ordinal": 0, "numa": null, "slab_bytes": 16, "slabs": 4,
            "free_slabs": 3, "capacity_bytes": 64,
        }],
        "draining": true, "labels": { "host": "n1", "rack": null, "numa": 0 },
    }] });
    let quotas = json!({ "quotas": [{
        "quota": "team", "is_set": true, "tenants": 2, "guaranteed_bytes": 5,
        "effective_guaranteed_bytes": 16, "limit_bytes": null, "effective_limit_bytes": null,
        "limit_objects": 9, "limit_pinned_bytes": null, "borrowing": "Allowed",
        "on_exceed": "Refuse", "charged_bytes": 32, "charged_objects": 2,
    }] });
    let drain = json!({
        "name": "n1", "state": "draining", "slabs_left": 1, "bytes_left": 16, "extents_left": 3,
        "objects_left": null, "releasing_bytes": 0, "moved_objects": 0, "moved_bytes": 0,
        "blocked": "no space",
    });
    let masters = json!({ "leader": "small-master-0", "term": 3, "named": [], "masters": [
        { "name": "small-master-0", "addr": "m:1", "is_voter": true, "in_sync": true },
        { "name": "small-master-1", "addr": "m:2", "is_voter": false, "in_sync": false },
    ] });
    let answer = |value: Value| get(move || async move { Json(value) });
    let router = Router::new()
        .route("/v1/status", answer(status))
        .route("/v1/tenants", answer(tenants))
        .route("/v1/agents", answer(agents))
        .route("/v1/quotas", answer(quotas))
        .route("/v1/masters", answer(masters).put(name_masters))
        .route("/v1/masters/{name}/promote", post(promote))
        .route(
            "/v1/agents/{name}/drain",
            answer(drain).put(change_drain).delete(change_drain),
        )
        .route("/v1/agents/{name}/labels", put(set_labels))
        .route("/v1/quotas/{name}", put(set_quota).delete(delete))
        .route("/v1/tenants/{id}", put(set).delete(delete))
        .with_state(Arc::new(AtomicUsize::new(3)))
        .layer(from_fn(bearer));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move { axum::serve(listener, router).await });
    addr
}

/// An API server that gives this token to the operator's account, for the audience of `pool()`.
fn tokens(token: &'static str) -> (Tokens, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let make = move |Path((namespace, account)): Path<(String, String)>,
                     Json(body): Json<Value>| {
        let known = namespace == "system" && account == "larder-operator";
        let fits = body["spec"]["audiences"] == json!(["larder.apps.small"]);
        count.fetch_add(1, Ordering::Relaxed);
        let answer = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": body["spec"],
            "status": { "token": token, "expirationTimestamp": "2026-01-01T00:00:00Z" },
        });
        async move {
            if known && fits {
                Json(answer).into_response()
            } else {
                (StatusCode::FORBIDDEN, "no").into_response()
            }
        }
    };
    let path = "/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token";
    let client = Client::new(Router::new().route(path, post(make)), "default");
    (Tokens::new(client, "system", "larder-operator"), asked)
}

#[tokio::test]
async fn documents_are_read_and_changes_sent() {
    let (tokens, asked) = tokens("secret");
    let masters = HttpMasters::at(tokens, vec![serve().await]);
    let view = masters.look(&pool()).await.expect("a view");
    assert_eq!((view.status.objects, view.status.capacity_bytes), (2, 64));
    let voters = view.masters.masters.iter().map(|one| one.is_voter);
    assert_eq!(voters.collect::<Vec<_>>(), [true, false]);
    masters
        .promote(&pool(), "small-master-1")
        .await
        .expect("promoted");
    let names = ["a".to_owned(), "b".to_owned()];
    masters.name_masters(&pool(), &names).await.expect("named");
    let refused = masters
        .promote(&pool(), "other")
        .await
        .expect_err("refused");
    assert!(matches!(refused, MasterError::Refused { status: 503, .. }));
    assert_eq!(view.tenants["team-a"].used_bytes, 8);
    assert!(!view.tenants["team-a"].fits(&policy("team-a")));
    assert_eq!(view.agents["n1"].held_bytes(), 16);
    masters
        .set_tenant(&pool(), &policy("team-a"))
        .await
        .expect("set");
    let refused = masters
        .set_tenant(&pool(), &policy("b"))
        .await
        .expect_err("refused");
    assert!(matches!(refused, MasterError::Refused { status: 400, .. }) && !refused.is_retryable());
    let team = &view.quotas["team"];
    assert_eq!(
        (team.charged_bytes, team.effective_guaranteed_bytes),
        (32, 16)
    );
    assert_eq!(team.figures.guaranteed_bytes, 5);
    let figures = PolicyFigures {
        limit_objects: Some(9),
        on_exceed: OnExceed::Refuse,
        ..PolicyFigures::default()
    };
    let policy = QuotaPolicy {
        quota: "team".into(),
        figures,
    };
    masters.set_quota(&pool(), &policy).await.expect("set");
    masters
        .delete_quota(&pool(), "team")
        .await
        .expect("deleted");
    masters
        .delete_tenant(&pool(), "team-a")
        .await
        .expect("deleted");
    masters
        .delete_tenant(&pool(), "team-a")
        .await
        .expect("gone already");
    let error = masters
        .delete_tenant(&pool(), "team-a")
        .await
        .expect_err("503");
    assert!(error.is_retryable());
    assert_eq!(
        asked.load(Ordering::Relaxed),
        1,
        "one token serves all calls"
    );
}

#[tokio::test]
async fn agents_are_drained_and_told_where_they_stand() {
    let masters = HttpMasters::at(tokens("secret").0, vec![serve().await]);
    let pool = pool();
    let view = masters.look(&pool).await.expect("a view");
    let agent = &view.agents["n1"];
    let labels = |zone: Option<&str>| AgentLabels {
        host: Some("n1".into()),
        rack: None,
        zone: zone.map(str::to_owned),
    };
    assert!(agent.draining);
    assert_eq!(agent.labels, Some(labels(None)));
    masters.drain(&pool, "n1").await.expect("begun");
    let status = masters.drain_status(&pool, "n1").await.expect("known");
    assert!(status.is_draining());
    assert_eq!((status.extents_left, status.objects_left), (Some(3), None));
    assert_eq!(status.blocked.as_deref(), Some("no space"));
    let refused = masters.drain(&pool, "n2").await.expect_err("unknown");
    assert!(matches!(refused, MasterError::Refused { status: 404, .. }));
    masters.undrain(&pool, "n1").await.expect("ended");
    masters.undrain(&pool, "n2").await.expect("gone already");
    let told = labels(Some("z1"));
    masters.set_labels(&pool, "n1", &told).await.expect("told");
}

/// One that stands behind the Service of a pool hears a token, which must be of use nowhere else.
#[tokio::test(start_paused = true)]
async fn each_pool_is_shown_its_own_token_and_a_new_one_in_time() {
    let (tokens, asked) = tokens("secret");
    tokens.of(&pool()).await.expect("for this pool");
    let other = PoolId {
        uid: "v".into(),
        ..pool()
    };
    tokens
        .of(&other)
        .await
        .expect("asked again for another life");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    tokio::time::advance(Duration::from_secs(479)).await;
    tokens.of(&pool()).await.expect("known");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    tokio::time::advance(Duration::from_secs(1)).await;
    tokens.of(&pool()).await.expect("renewed");
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn failures_are_typed() {
    let addr = serve().await;
    let masters = HttpMasters::at(tokens("wrong").0, vec![addr.clone()]);
    let error = masters.look(&pool()).await.expect_err("401");
    assert!(
        matches!(error, MasterError::Refused { status: 401, .. }),
        "{error}"
    );
    let other = PoolId {
        name: "other".into(),
        ..pool()
    };
    let masters = HttpMasters::at(tokens("secret").0, vec![addr]);
    assert!(matches!(
        masters.look(&other).await,
        Err(MasterError::Token { .. })
    ));
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = closed.local_addr().expect("an address").to_string();
    drop(closed);
    let masters = HttpMasters::at(tokens("secret").0, vec![addr]);
    assert!(matches!(
        masters.look(&pool()).await,
        Err(MasterError::Unreachable { .. })
    ));
}

/// A master that takes quotas while it leads, and says how many calls besides `/v1/status` came.
#[derive(Clone, Debug, Default)]
struct Replica {
    leads: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
}

impl Replica {
    fn of(leads: bool) -> Self {
        let replica = Self::default();
        replica.leads.store(leads, Ordering::Relaxed);
        replica
    }

    async fn serve(&self) -> String {
        let status = |State(one): State<Self>| async move {
            let leads = one.leads.load(Ordering::Relaxed);
            let role = if leads { "leader" } else { "standby" };
            Json(json!({ "name": "m", "role": role, "objects": 0 }))
        };
        let set = |State(one): State<Self>| async move {
            one.calls.fetch_add(1, Ordering::Relaxed);
            if one.leads.load(Ordering::Relaxed) {
                return StatusCode::NO_CONTENT.into_response();
            }
            let error = json!({ "error": { "reason": "not_leader" } });
            (StatusCode::SERVICE_UNAVAILABLE, Json(error)).into_response()
        };
        let router = Router::new()
            .route("/v1/status", get(status))
            .route("/v1/quotas/{name}", put(set))
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move { axum::serve(listener, router).await });
        addr
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

fn team() -> QuotaPolicy {
    QuotaPolicy {
        quota: "team".into(),
        figures: PolicyFigures::default(),
    }
}

#[tokio::test]
async fn calls_follow_the_leader() {
    let (one, two) = (Replica::of(false), Replica::of(true));
    let closed = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let gone = closed.local_addr().expect("an address").to_string();
    drop(closed);
    let addrs = vec![gone, one.serve().await, two.serve().await];
    let masters = HttpMasters::at(tokens("secret").0, addrs);
    masters.set_quota(&pool(), &team()).await.expect("found");
    masters.set_quota(&pool(), &team()).await.expect("known");
    assert_eq!(
        (one.calls(), two.calls()),
        (0, 2),
        "no standby is asked what only a leader may do"
    );
    // The leader changes: the one that led refuses once, and is not asked again.
    two.leads.store(false, Ordering::Relaxed);
    one.leads.store(true, Ordering::Relaxed);
    masters.set_quota(&pool(), &team()).await.expect("followed");
    masters.set_quota(&pool(), &team()).await.expect("known");
    assert_eq!((one.calls(), two.calls()), (2, 3));
    // None leads, and it is said how many are there.
    one.leads.store(false, Ordering::Relaxed);
    let error = masters.set_quota(&pool(), &team()).await.expect_err("none");
    let answer = match &error {
        MasterError::NoLeader { answered, asked } => Some((answered.join(" "), *asked)),
        _ => None,
    };
    assert_eq!(answer, Some(("m m".to_owned(), 3)), "{error}");
    assert!(error.is_retryable());
}
