//! An API server with one CacheNode: real HTTP, and each call is answered by the test itself.

use std::net::SocketAddr;

use axum::body::{Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use larder_node_agent::cache_node::{Member, Pauses};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::fake_master::soon;

pub(crate) const NODE: &str = "cache/small-n1";
const PATH: &str = "/apis/larder.dev/v1alpha1/namespaces/cache/cachenodes/small-n1";
const BODY_BYTES_MAX: usize = 1 << 20;

/// Looks at once where something changed, and never else, so that a test sees each cause alone.
pub(crate) const EAGER: Pauses = Pauses {
    resync_ms: 3_600_000,
    lost_ms: 3_600_000,
    used_ms: 0,
    gap_ms: 0,
    retry_ms: 1,
    retry_max_ms: 1,
};

/// Looks all the time.
pub(crate) const RESTLESS: Pauses = Pauses {
    resync_ms: 1,
    ..EAGER
};

struct HttpCall {
    method: String,
    path: String,
    content_type: String,
    body: Bytes,
    answer: oneshot::Sender<(u16, Value)>,
}

/// What an agent did.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Did {
    Read,
    /// Sent this as a merge patch of the status.
    Wrote(Value),
}

pub(crate) struct FakeApi {
    pub(crate) addr: SocketAddr,
    calls: mpsc::Receiver<HttpCall>,
    /// The object; `None` if there is none.
    pub(crate) node: Option<Value>,
    version: u64,
}

async fn forward(State(calls): State<mpsc::Sender<HttpCall>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let content_type = parts.headers.get(header::CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let (answer, answered) = oneshot::channel();
    let call = HttpCall {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        content_type: content_type.unwrap_or_default().to_owned(),
        body: to_bytes(body, BODY_BYTES_MAX).await.expect("a body"),
        answer,
    };
    // The test may be over.
    let _ = calls.send(call).await;
    let (code, body) = answered.await.unwrap_or((503, json!({})));
    let code = StatusCode::from_u16(code).expect("a code");
    (code, axum::Json(body)).into_response()
}

impl FakeApi {
    pub(crate) async fn new() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("bound");
        let addr = listener.local_addr().expect("an address");
        let (sender, calls) = mpsc::channel(16);
        let router = axum::Router::new().fallback(forward).with_state(sender);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let node = json!({
            "apiVersion": "larder.dev/v1alpha1",
            "kind": "CacheNode",
            "metadata": {
                "name": "small-n1",
                "namespace": "cache",
                "uid": "node-uid",
                "generation": 1,
                "resourceVersion": "1",
                "ownerReferences": [owner("pool-uid")],
            },
            "spec": { "poolRef": { "name": "small" }, "nodeName": "n1" },
        });
        Self {
            addr,
            calls,
            node: Some(node),
            version: 1,
        }
    }

    pub(crate) fn member(&self, pauses: Pauses) -> Member {
        member_at(self.addr, pauses)
    }

    /// Answers the next call as an API server does.
    pub(crate) async fn next(&mut self) -> Did {
        let call = soon("the agent calls", self.calls.recv())
            .await
            .expect("open");
        let (did, code, body) = self.perform(&call);
        // An agent that stops does not wait for its answer.
        let _ = call.answer.send((code, body));
        did
    }

    /// Answers the next call with an error of this code.
    pub(crate) async fn refuse(&mut self, code: u16) -> Did {
        let call = soon("the agent calls", self.calls.recv())
            .await
            .expect("open");
        let did = understood(&call);
        let _ = call.answer.send((code, failure(code)));
        did
    }

    /// Answers calls until `end` is there, refusing with `code` if there is one.
    pub(crate) async fn until<T>(
        &mut self,
        code: Option<u16>,
        end: impl Future<Output = T>,
    ) -> (T, Vec<Did>) {
        let mut end = std::pin::pin!(end);
        let mut did = Vec::new();
        loop {
            tokio::select! {
                value = soon("it ends", &mut end) => return (value, did),
                one = async { match code {
                    Some(code) => self.refuse(code).await,
                    None => self.next().await,
                } } => did.push(one),
            }
        }
    }

    /// A look that ends in a write; the status as it then stands.
    pub(crate) async fn written(&mut self) -> Value {
        assert_eq!(self.next().await, Did::Read);
        assert!(matches!(self.next().await, Did::Wrote(_)));
        self.status().clone()
    }

    pub(crate) fn status(&self) -> &Value {
        &self.node.as_ref().expect("an object")["status"]
    }

    /// Changes the object as somebody else would.
    pub(crate) fn edit(&mut self, patch: &Value) {
        self.version += 1;
        let version = self.version;
        let node = self.node.as_mut().expect("an object");
        merge(node, patch);
        node["metadata"]["resourceVersion"] = json!(version.to_string());
    }

    fn perform(&mut self, call: &HttpCall) -> (Did, u16, Value) {
        let did = understood(call);
        let Some(node) = &self.node else {
            return (did, 404, failure(404));
        };
        if let Did::Wrote(patch) = &did {
            if patch["metadata"]["resourceVersion"] != node["metadata"]["resourceVersion"] {
                return (did, 409, failure(409));
            }
            let status = json!({ "status": patch["status"] });
            self.edit(&status);
        }
        (did, 200, self.node.clone().expect("an object"))
    }
}

pub(crate) fn member_at(addr: SocketAddr, pauses: Pauses) -> Member {
    let server = kube::Config::new(format!("http://{addr}").parse().expect("an address"));
    let node = NODE.parse().expect("a name");
    Member::new(node, Some("pod-uid".to_owned()), server, pauses)
}

pub(crate) fn owner(pool_uid: &str) -> Value {
    json!({
        "apiVersion": "larder.dev/v1alpha1",
        "kind": "CachePool",
        "name": "small",
        "uid": pool_uid,
    })
}

/// Agents do two things and nothing else: above all, they create nothing.
fn understood(call: &HttpCall) -> Did {
    match call.method.as_str() {
        "GET" if call.path == PATH => Did::Read,
        "PATCH" if call.path == format!("{PATH}/status") => {
            assert_eq!(call.content_type, "application/merge-patch+json");
            Did::Wrote(serde_json::from_slice(&call.body).expect("json"))
        }
        method => panic!("an agent does not {method} {}", call.path),
    }
}

fn failure(code: u16) -> Value {
    let reason = match code {
        404 => "NotFound",
        403 => "Forbidden",
        409 => "Conflict",
        _ => "InternalError",
    };
    json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "code": code, "reason": reason, "message": format!("refused with {code}"),
    })
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().expect("an object").remove(key);
        } else {
            merge(&mut target[key], value);
        }
    }
}
