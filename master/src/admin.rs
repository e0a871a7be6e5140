//! The admin port: metrics and probes for everybody, the rest for the operator and administrators.

mod drain;
mod labels;
pub(crate) mod objects;
mod quotas;
mod reject;
mod snapshots;
mod tasks;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use larder_http::Limits;
use larder_telemetry::Registry;
use larder_telemetry::metrics::CONTENT_TYPE;
use larder_types::{Principal, Reason, TenantId};
use larder_wire::CallError;
use larder_wire::limit::MAX_CREDENTIAL_BYTES;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::config::TenantConfig;
use crate::consensus::PeerDesk;
use crate::event::{AdminAsk, Event};
use crate::identity::{Identity, IdentityError};
use crate::role::Role;
use crate::snapshots::SnapshotDesk;
use reject::Rejection;

/// The longest body, in bytes: a policy has a few numbers.
const MAX_BODY_BYTES: usize = 16 * 1024;
/// Connections: two scrapers, kubelet, the operator and some people. Five seconds for a head are
/// plenty for all of them; five minutes of life make those rare who send a body byte by byte.
const LIMITS: Limits = Limits {
    connections_max: 256,
    head_ms: 5_000,
    life_ms: 300_000,
};
/// How long the leader may take for an answer; its own deadline for a change is shorter.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a page of metrics waits for fresh gauges.
const GAUGES_TIMEOUT: Duration = Duration::from_secs(1);

/// What the routes share.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) identity: Arc<dyn Identity>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) registry: Registry,
    pub(crate) role: watch::Receiver<Role>,
    /// Takes part in the log, once this master does.
    pub(crate) desk: watch::Receiver<Option<PeerDesk>>,
    /// Takes snapshots and knows of those that are kept.
    pub(crate) snapshots: SnapshotDesk,
}

/// Who asks; put beside each request that passed.
#[derive(Clone, Debug)]
struct Asker(Principal);

/// Serves the admin port until `stop` ends.
pub(crate) async fn serve(
    listener: TcpListener,
    admin: Admin,
    stop: impl Future<Output = ()> + Send + 'static,
) {
    larder_http::serve(listener, router(admin), LIMITS, stop).await;
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/v1/status", get(status))
        .route("/v1/tenants", get(tenants))
        .route("/v1/tenants/{id}", put(put_tenant).delete(delete_tenant))
        .route(
            "/v1/tenants/{id}/objects",
            get(objects::list).delete(objects::remove),
        )
        .route("/v1/tenants/{id}/quota", get(quotas::of_tenant))
        .route("/v1/quotas", get(quotas::all))
        .route(
            "/v1/quotas/{name}",
            get(quotas::one).put(quotas::set).delete(quotas::delete),
        )
        .route("/v1/agents", get(agents))
        .route(
            "/v1/agents/{name}/drain",
            get(drain::status).put(drain::begin).delete(drain::end),
        )
        .route("/v1/agents/{name}/labels", put(labels::set))
        .route("/v1/tasks", get(tasks::list))
        .route("/v1/tasks/{task}", get(tasks::one).delete(tasks::cancel))
        .route("/v1/snapshots", get(snapshots::list).post(snapshots::take))
        .route(
            "/v1/snapshots/{name}",
            get(snapshots::one).delete(snapshots::delete),
        )
        .route("/v1/check", get(check))
        .route("/v1/masters", get(masters).put(expect_masters))
        .route("/v1/masters/{name}/promote", post(promote))
        .fallback(|| async { Rejection::not_found("no such route") })
        .method_not_allowed_fallback(|| async { Rejection::method() })
        // Around everything, unknown routes too: a stranger learns nothing, not even names.
        .layer(middleware::from_fn_with_state(admin.clone(), authenticate))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(admin)
}

/// Lets the three open routes and proven operators and administrators pass.
async fn authenticate(
    State(admin): State<Admin>,
    mut request: Request,
    next: Next,
) -> Result<Response, Rejection> {
    let open = ["/metrics", "/healthz", "/readyz"];
    if request.method() == Method::GET && open.contains(&request.uri().path()) {
        return Ok(next.run(request).await);
    }
    let credential = bearer(request.headers()).ok_or_else(Rejection::no_credential)?;
    let principal = admin
        .identity
        .prove(credential)
        .await
        .map_err(|error| match error {
            IdentityError::Unknown | IdentityError::UnknownAccount { .. } => {
                Rejection::no_credential()
            }
            IdentityError::Unavailable { .. } => {
                tracing::debug!(error = larder_telemetry::error_chain(&error), "identity");
                Rejection::from(CallError::new(Reason::Overloaded))
            }
        })?;
    if !matches!(principal, Principal::Operator | Principal::Admin) {
        audit(
            &principal,
            request.method(),
            request.uri().path(),
            "refused",
        );
        return Err(Rejection::role(&principal));
    }
    request.extensions_mut().insert(Asker(principal));
    Ok(next.run(request).await)
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let text = headers.get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, credential) = text.split_at_checked("Bearer ".len())?;
    let fits = scheme.eq_ignore_ascii_case(b"Bearer ")
        && (1..=MAX_CREDENTIAL_BYTES).contains(&credential.len());
    fits.then_some(credential)
}

/// One line for each change, done or refused, and each try without the right.
fn audit(principal: &Principal, action: &Method, object: &str, outcome: &str) {
    tracing::info!(target: "audit", %principal, %action, object, outcome, "admin call");
}

impl Admin {
    async fn ask(&self, ask: AdminAsk) -> Result<Value, CallError> {
        let role = *self.role.borrow();
        if role == Role::Stopping {
            return Err(CallError::new(role.refusal()));
        }
        let (reply, answer) = oneshot::channel();
        self.events
            .try_send(Event::Asked(ask, reply))
            .map_err(|_| CallError::new(Reason::Overloaded))?;
        match timeout(ANSWER_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(CallError::new(self.role.borrow().refusal())),
            Err(_) => Err(CallError::new(Reason::DeadlinePassed)),
        }
    }

    async fn document(&self, ask: AdminAsk) -> Result<Response, Rejection> {
        let value = self.ask(ask).await?;
        Ok(axum::Json(value).into_response())
    }

    /// Makes a change and leaves an audit line, however it ends.
    async fn change(
        &self,
        asker: &Asker,
        method: &Method,
        object: &str,
        ask: AdminAsk,
    ) -> Result<Response, Rejection> {
        let done = self.ask(ask).await;
        let outcome = done
            .as_ref()
            .map_or_else(|error| error.reason.label(), |_| "done");
        audit(&asker.0, method, object, outcome);
        done?;
        Ok(StatusCode::NO_CONTENT.into_response())
    }
}

async fn metrics(State(admin): State<Admin>) -> Response {
    // An old gauge is better than no page: whoever debugs an overload needs it most.
    drop(timeout(GAUGES_TIMEOUT, admin.ask(AdminAsk::Gauges)).await);
    (
        [(header::CONTENT_TYPE, CONTENT_TYPE)],
        admin.registry.render(),
    )
        .into_response()
}

async fn readyz(State(admin): State<Admin>) -> Response {
    let role = *admin.role.borrow();
    let status = if matches!(role, Role::Leading | Role::Standby) {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, format!("{}\n", role.name())).into_response()
}

async fn status(State(admin): State<Admin>) -> Result<Response, Rejection> {
    let role = *admin.role.borrow();
    if role == Role::Leading {
        return admin.document(AdminAsk::Status).await;
    }
    // Who is starting or following has few figures, but can say what it is.
    let Admin { pool, name, .. } = &admin;
    let mut document = json!({ "pool": pool, "name": name, "role": role.name() });
    if let (Ok(Value::Object(more)), Some(document)) =
        (admin.ask(AdminAsk::Status).await, document.as_object_mut())
    {
        document.extend(more);
    }
    Ok(axum::Json(document).into_response())
}

async fn tenants(State(admin): State<Admin>) -> Result<Response, Rejection> {
    admin.document(AdminAsk::Tenants).await
}

async fn agents(State(admin): State<Admin>) -> Result<Response, Rejection> {
    admin.document(AdminAsk::Agents).await
}

async fn check(State(admin): State<Admin>) -> Result<Response, Rejection> {
    admin.document(AdminAsk::Check).await
}

/// Who is a master and who leads, as this one sees it; only the leader knows who is in sync.
async fn masters(State(admin): State<Admin>) -> Result<Response, Rejection> {
    match &*admin.desk.borrow() {
        Some(desk) => Ok(axum::Json(desk.masters()).into_response()),
        None => Err(CallError::new(admin.role.borrow().refusal()).into()),
    }
}

/// Who is to be a master, in the body of a call.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    names: BTreeSet<String>,
}

/// Says which masters the pool is to have. To be asked of the leader.
async fn expect_masters(
    State(admin): State<Admin>,
    axum::Extension(asker): axum::Extension<Asker>,
    body: axum::body::Bytes,
) -> Result<Response, Rejection> {
    let expected: Expected = serde_json::from_slice(&body).map_err(Rejection::bad_argument)?;
    let all: Vec<&str> = expected.names.iter().map(String::as_str).collect();
    let object = all.join(" ");
    let desk = admin.desk.borrow().clone();
    let done = match desk {
        Some(desk) if *admin.role.borrow() == Role::Leading => desk
            .expect(expected.names.clone())
            .map_err(Rejection::bad_argument),
        _ => Err(CallError::new(Reason::NotLeader).into()),
    };
    let outcome = if done.is_ok() { "done" } else { "refused" };
    audit(&asker.0, &Method::PUT, &object, outcome);
    done?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Makes another master the leader, at once. To be asked of the leader.
async fn promote(
    State(admin): State<Admin>,
    axum::Extension(asker): axum::Extension<Asker>,
    Path(name): Path<String>,
) -> Result<Response, Rejection> {
    let desk = admin.desk.borrow().clone();
    let done = match desk {
        Some(desk) if *admin.role.borrow() == Role::Leading => {
            let done = desk.hand_over(Some(name.clone())).await;
            done.map_err(|why| {
                let mut error = CallError::new(Reason::Overloaded);
                error.detail = why;
                error
            })
        }
        _ => Err(CallError::new(Reason::NotLeader)),
    };
    let outcome = done
        .as_ref()
        .map_or_else(|error| error.reason.label(), |_| "done");
    audit(&asker.0, &Method::POST, &name, outcome);
    let leader = done?;
    Ok(axum::Json(json!({ "leader": leader.name })).into_response())
}

async fn put_tenant(
    State(admin): State<Admin>,
    axum::Extension(asker): axum::Extension<Asker>,
    Path(id): Path<String>,
    body: axum::body::Bytes,
) -> Result<Response, Rejection> {
    let tenant = TenantId::new(&id).map_err(Rejection::bad_argument)?;
    let config: TenantConfig = named("tenant", &id, &body)?;
    let (_, policy) = config.into_policy();
    admin
        .change(
            &asker,
            &Method::PUT,
            &id,
            AdminAsk::TenantSet(tenant, policy),
        )
        .await
}

/// The body of a change with the name of its path in it.
fn named<T: DeserializeOwned>(field: &str, name: &str, body: &[u8]) -> Result<T, Rejection> {
    let mut fields: serde_json::Map<String, Value> =
        serde_json::from_slice(body).map_err(Rejection::bad_argument)?;
    if let Some(other) = fields.insert(field.to_owned(), name.into()) {
        let wrong = format!("`{field}` stands in the path; leave {other} out of the body");
        return Err(Rejection::bad_argument(wrong));
    }
    serde_json::from_value(Value::Object(fields)).map_err(Rejection::bad_argument)
}

async fn delete_tenant(
    State(admin): State<Admin>,
    axum::Extension(asker): axum::Extension<Asker>,
    Path(id): Path<String>,
) -> Result<Response, Rejection> {
    let tenant = TenantId::new(&id).map_err(Rejection::bad_argument)?;
    admin
        .change(&asker, &Method::DELETE, &id, AdminAsk::TenantDelete(tenant))
        .await
}
