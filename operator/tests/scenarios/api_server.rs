//! A small API server in this process: enough of create, apply, patch, delete, list and watch for
//! the operator, with a count of writes, garbage collection and faults.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{Method, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use crate::merge::{apply, merge};

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
/// Plural, namespace (empty for the cluster), name.
pub(crate) type Key = (String, String, String);

/// Events on their way to one watch; one that does not keep up is closed, as in real ones.
const WATCH_QUEUE: usize = 16_384;

/// The server. A clone asks the same one.
#[derive(Clone, Debug)]
pub(crate) struct ApiServer {
    asks: mpsc::Sender<Ask>,
    version: watch::Receiver<u64>,
}

#[derive(Debug)]
enum Ask {
    Call(Call, oneshot::Sender<Option<Answer>>),
    Run(Box<dyn FnOnceBox>),
}

/// A closure over the state, so that tests look at it and change it without a lock.
trait FnOnceBox: Send {
    fn call(self: Box<Self>, state: &mut State);
}

impl std::fmt::Debug for dyn FnOnceBox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closure")
    }
}

impl<F: FnOnce(&mut State) + Send> FnOnceBox for F {
    fn call(self: Box<Self>, state: &mut State) {
        self(state);
    }
}

#[derive(Debug)]
struct Call {
    client: String,
    method: Method,
    key: Key,
    status: bool,
    query: BTreeMap<String, String>,
    kind: String,
    body: Value,
}

struct Watch {
    plural: String,
    namespace: String,
    selector: BTreeMap<String, String>,
    events: mpsc::Sender<Bytes>,
}

/// What the server holds.
pub(crate) struct State {
    /// Every object.
    pub(crate) objects: BTreeMap<Key, Value>,
    /// What each field manager applied last.
    applied: BTreeMap<(Key, String), Value>,
    /// Every write: client, verb and object.
    pub(crate) writes: Vec<String>,
    /// No request gets through once this many writes were done.
    pub(crate) writes_left: Option<usize>,
    /// Clients whose requests do not arrive.
    pub(crate) cut: BTreeSet<String>,
    /// Plurals that cannot be written, and what the server answers instead.
    pub(crate) refused: BTreeMap<String, StatusCode>,
    /// Plurals of whose changes no watch is told.
    pub(crate) untold: BTreeSet<String>,
    /// Whether masters start and never become ready.
    pub(crate) masters_hang: bool,
    /// With `Some` only so many masters of each pool are ready.
    pub(crate) masters_ready: Option<u32>,
    /// Whether masters have pods, each ready at once.
    pub(crate) has_pods: bool,
    history: Vec<(u64, Key, Value)>,
    oldest: u64,
    version: u64,
    uids: u64,
    watches: Vec<Watch>,
}

impl ApiServer {
    /// A server without objects.
    pub(crate) fn start() -> Self {
        let (asks, mut queue) = mpsc::channel(1024);
        let (told, version) = watch::channel(0);
        tokio::spawn(async move {
            let mut state = State::new();
            while let Some(ask) = queue.recv().await {
                match ask {
                    Ask::Call(call, reply) => drop(reply.send(state.answer(call))),
                    Ask::Run(run) => run.call(&mut state),
                }
                // Only changes: who waits for one looks, and looking asks the server.
                let version = state.version;
                told.send_if_modified(|told| std::mem::replace(told, version) != version);
            }
        });
        Self { asks, version }
    }

    /// A client that goes by this name.
    pub(crate) fn client(&self, name: &str) -> Client {
        let (server, name) = (self.clone(), name.to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, name) = (server.clone(), name.clone());
            async move {
                let call = Call::read(name, request).await;
                let (reply, answer) = oneshot::channel();
                let sent = server.asks.send(Ask::Call(call, reply)).await;
                sent.map_err(|_| std::io::Error::other("no server"))?;
                let answer = answer.await.ok().flatten();
                answer.ok_or_else(|| std::io::Error::other("connection refused"))
            }
        });
        Client::new(service, "default")
    }

    /// Looks at the state or changes it behind everybody's back.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut State) -> T + Send + 'static,
    ) -> T {
        let (reply, answer) = oneshot::channel();
        let run = move |state: &mut State| drop(reply.send(run(state)));
        self.asks
            .send(Ask::Run(Box::new(run)))
            .await
            .expect("the server runs");
        answer.await.expect("the server runs")
    }

    /// Puts an object there, or replaces it.
    pub(crate) async fn put(&self, plural: &'static str, object: Value) {
        self.with(move |state| state.put(plural, object)).await;
    }

    /// One object.
    pub(crate) async fn get(&self, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = key(plural, namespace, name);
        self.with(move |state| state.objects.get(&key).cloned())
            .await
    }

    /// Deletes an object as `kubectl delete` would.
    pub(crate) async fn delete(&self, plural: &str, namespace: &str, name: &str) {
        let key = key(plural, namespace, name);
        self.with(move |state| state.delete(&key)).await;
    }

    /// Changes an object as `kubectl edit` would.
    pub(crate) async fn edit(&self, plural: &str, namespace: &str, name: &str, patch: Value) {
        let key = key(plural, namespace, name);
        self.with(move |state| {
            let mut object = state.objects[&key].clone();
            merge(&mut object, &patch);
            state.store(&key, object);
        })
        .await;
    }

    /// Returns once `holds`.
    pub(crate) async fn until(
        &self,
        what: &str,
        holds: impl Fn(&State) -> bool + Send + Sync + 'static,
    ) {
        let holds = std::sync::Arc::new(holds);
        let wait = async {
            let mut version = self.version.clone();
            loop {
                version.borrow_and_update();
                let holds = holds.clone();
                if self.with(move |state| holds(state)).await {
                    return;
                }
                version.changed().await.expect("the server runs");
            }
        };
        // In fake time; it only ends a test that would hang.
        let waited = tokio::time::timeout(std::time::Duration::from_secs(3600), wait).await;
        let writes = self.with(|state| state.writes.clone()).await;
        assert!(
            waited.is_ok(),
            "{what} did not come about; writes: {writes:#?}"
        );
    }

    /// The writes since the last call, but for the Lease and events.
    pub(crate) async fn take_writes(&self) -> Vec<String> {
        let all = self.with(|state| std::mem::take(&mut state.writes)).await;
        all.into_iter()
            .filter(|w| !w.contains(" leases/") && !w.contains(" events/"))
            .collect()
    }
}

/// A key from its parts.
pub(crate) fn key(plural: &str, namespace: &str, name: &str) -> Key {
    (plural.to_owned(), namespace.to_owned(), name.to_owned())
}

impl Call {
    async fn read(client: String, request: Request<Body>) -> Self {
        let (parts, body) = request.into_parts();
        let segments: Vec<&str> = parts
            .uri
            .path()
            .split('/')
            .filter(|s| !s.is_empty())
            .collect();
        // api/v1/.. or apis/group/version/..
        let mut rest = &segments[if segments[0] == "api" { 2 } else { 3 }..];
        let mut namespace = "";
        if rest[0] == "namespaces" && rest.len() > 2 {
            namespace = rest[1];
            rest = &rest[2..];
        }
        let key = key(rest[0], namespace, rest.get(1).copied().unwrap_or_default());
        let query = parts.uri.query().unwrap_or_default().split('&');
        let query = query.filter_map(|pair| pair.split_once('='));
        let decode = |text: &str| {
            text.replace("%3D", "=")
                .replace("%2F", "/")
                .replace("%2C", ",")
                .replace('+', " ")
        };
        let query = query.map(|(k, v)| (k.to_owned(), decode(v))).collect();
        let kind = parts
            .headers
            .get("content-type")
            .and_then(|v| v.to_str().ok());
        let kind = kind.unwrap_or_default().to_owned();
        let bytes = body.collect().await.expect("a body").to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        let status = rest.get(2) == Some(&"status");
        Self {
            client,
            method: parts.method,
            key,
            status,
            query,
            kind,
            body,
        }
    }
}

impl State {
    fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            applied: BTreeMap::new(),
            writes: Vec::new(),
            writes_left: None,
            cut: BTreeSet::new(),
            refused: BTreeMap::new(),
            untold: BTreeSet::new(),
            masters_hang: false,
            masters_ready: None,
            has_pods: false,
            history: Vec::new(),
            oldest: 0,
            version: 1,
            uids: 0,
            watches: Vec::new(),
        }
    }

    fn answer(&mut self, call: Call) -> Option<Answer> {
        if self.cut.contains(&call.client) || self.writes_left == Some(0) {
            return None;
        }
        if call.method == Method::GET {
            return Some(self.read(&call));
        }
        if let Some(left) = &mut self.writes_left {
            *left -= 1;
        }
        let (plural, namespace, name) = &call.key;
        let body_name = call.body["metadata"]["name"].as_str().unwrap_or_default();
        let name = if name.is_empty() { body_name } else { name };
        let part = if call.status { "/status" } else { "" };
        let (client, method) = (&call.client, &call.method);
        self.writes.push(format!(
            "{client} {method} {plural}/{namespace}/{name}{part}"
        ));
        if let Some(code) = self.refused.get(plural) {
            return Some(refusal(*code));
        }
        let written = match call.method.as_str() {
            "POST" => self.create(&call),
            "PUT" => self.replace(&call),
            "DELETE" => self.remove(&call),
            _ if call.kind.contains("apply-patch") => self.apply(&call),
            _ => self.patch(&call),
        };
        Some(written.map_or_else(refusal, |object| answer(StatusCode::OK, &object)))
    }

    fn read(&mut self, call: &Call) -> Answer {
        if !call.key.2.is_empty() {
            let found = self.objects.get(&call.key);
            let missing = || refusal(StatusCode::NOT_FOUND);
            return found.map_or_else(missing, |object| answer(StatusCode::OK, object));
        }
        let selector = call
            .query
            .get("labelSelector")
            .map(String::as_str)
            .unwrap_or_default();
        let pairs = selector.split(',').filter_map(|pair| pair.split_once('='));
        let selector = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let (plural, namespace) = (call.key.0.clone(), call.key.1.clone());
        if call.query.contains_key("watch") {
            let since = call
                .query
                .get("resourceVersion")
                .and_then(|v| v.parse().ok());
            return self.watch(plural, namespace, selector, since.unwrap_or(0));
        }
        let of = |(key, object): &(&Key, &Value)| {
            key.0 == plural
                && (namespace.is_empty() || key.1 == namespace)
                && carries(object, &selector)
        };
        let items: Vec<Value> = self
            .objects
            .iter()
            .filter(of)
            .map(|(_, object)| object.clone())
            .collect();
        let version = self.version.to_string();
        let list = json!({
            "apiVersion": "v1", "kind": "List",
            "metadata": { "resourceVersion": version }, "items": items,
        });
        answer(StatusCode::OK, &list)
    }

    fn watch(
        &mut self,
        plural: String,
        namespace: String,
        selector: BTreeMap<String, String>,
        since: u64,
    ) -> Answer {
        if since < self.oldest {
            return refusal(StatusCode::GONE);
        }
        let (events, queue) = mpsc::channel::<Bytes>(WATCH_QUEUE);
        let watch = Watch {
            plural,
            namespace,
            selector,
            events,
        };
        for (version, key, event) in &self.history {
            if *version > since && watch.wants(key, &event["object"]) {
                let _ = watch.events.try_send(line(event));
            }
        }
        self.watches.push(watch);
        let frames = stream::unfold(queue, |mut queue| async move {
            let bytes = queue.recv().await?;
            Some((Ok::<_, Infallible>(Frame::data(bytes)), queue))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    /// All watches end with 410, and what happened before cannot be watched again.
    pub(crate) fn expire(&mut self) {
        let gone = json!({ "type": "ERROR", "object": status_of(StatusCode::GONE) });
        for watch in self.watches.drain(..) {
            let _ = watch.events.try_send(line(&gone));
        }
        self.history.clear();
        self.version += 1;
        self.oldest = self.version;
    }

    fn create(&mut self, call: &Call) -> Result<Value, StatusCode> {
        let name = call.body["metadata"]["name"].as_str().unwrap_or_default();
        let key = key(&call.key.0, &call.key.1, name);
        if self.objects.contains_key(&key) {
            return Err(StatusCode::CONFLICT);
        }
        Ok(self.store(&key, call.body.clone()))
    }

    fn replace(&mut self, call: &Call) -> Result<Value, StatusCode> {
        let found = self.objects.get(&call.key).ok_or(StatusCode::NOT_FOUND)?;
        if found["metadata"]["resourceVersion"] != call.body["metadata"]["resourceVersion"] {
            return Err(StatusCode::CONFLICT);
        }
        let mut object = call.body.clone();
        object["metadata"]["uid"] = found["metadata"]["uid"].clone();
        object["metadata"]["creationTimestamp"] = found["metadata"]["creationTimestamp"].clone();
        Ok(self.store(&call.key, object))
    }

    fn patch(&mut self, call: &Call) -> Result<Value, StatusCode> {
        let mut object = self
            .objects
            .get(&call.key)
            .ok_or(StatusCode::NOT_FOUND)?
            .clone();
        for field in ["uid", "resourceVersion"] {
            let asked = &call.body["metadata"][field];
            if !asked.is_null() && *asked != object["metadata"][field] {
                return Err(StatusCode::CONFLICT);
            }
        }
        merge(&mut object, &call.body);
        Ok(self.store(&call.key, object))
    }

    fn apply(&mut self, call: &Call) -> Result<Value, StatusCode> {
        let manager = call.query.get("fieldManager").cloned().unwrap_or_default();
        let part = if call.status { "status" } else { "main" };
        let owner = (call.key.clone(), format!("{manager} {part}"));
        let before = self.applied.get(&owner).cloned().unwrap_or_default();
        let object = match self.objects.get(&call.key) {
            Some(object) => {
                // The role of a binding is immutable.
                let (role, wanted) = (&object["roleRef"], &call.body["roleRef"]);
                if !role.is_null() && role != wanted {
                    return Err(StatusCode::UNPROCESSABLE_ENTITY);
                }
                apply(object.clone(), &before, &call.body)
            }
            None if call.status => return Err(StatusCode::NOT_FOUND),
            None => call.body.clone(),
        };
        self.applied.insert(owner, call.body.clone());
        Ok(self.store(&call.key, object))
    }

    fn remove(&mut self, call: &Call) -> Result<Value, StatusCode> {
        let found = self
            .objects
            .get(&call.key)
            .cloned()
            .ok_or(StatusCode::NOT_FOUND)?;
        self.delete(&call.key);
        Ok(found)
    }

    fn put(&mut self, plural: &str, object: Value) {
        let metadata = &object["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let name = metadata["name"].as_str().unwrap_or_default();
        let key = key(plural, namespace, name);
        self.store(&key, object);
    }

    /// Deletes, or marks for deletion while there are finalizers.
    pub(crate) fn delete(&mut self, key: &Key) {
        let Some(mut object) = self.objects.get(key).cloned() else {
            return;
        };
        if object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|list| !list.is_empty())
        {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
            self.store(key, object);
        } else {
            self.forget(key);
        }
    }

    fn forget(&mut self, key: &Key) {
        let Some(mut object) = self.objects.remove(key) else {
            return;
        };
        self.applied.retain(|(other, _), _| other != key);
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let uid = object["metadata"]["uid"].clone();
        self.tell(key.clone(), "DELETED", object);
        // The garbage collector, at once.
        let owned = |object: &Value| {
            let owners = object["metadata"]["ownerReferences"].as_array();
            owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid))
        };
        let orphans: Vec<Key> = self
            .objects
            .iter()
            .filter(|(_, o)| owned(o))
            .map(|(key, _)| key.clone())
            .collect();
        for key in orphans {
            self.delete(&key);
        }
        self.settle(&key.0);
    }

    fn store(&mut self, key: &Key, mut object: Value) -> Value {
        let before = self.objects.get(key).cloned();
        if let Some(before) = &before {
            let metadata = &mut object["metadata"];
            metadata["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
            metadata["uid"] = before["metadata"]["uid"].clone();
            metadata["creationTimestamp"] = before["metadata"]["creationTimestamp"].clone();
            if object == *before {
                return object;
            }
            let generation = before["metadata"]["generation"].as_u64().unwrap_or(1);
            let changed = u64::from(object["spec"] != before["spec"]);
            object["metadata"]["generation"] = json!(generation + changed);
        } else {
            self.uids += 1;
            let metadata = &mut object["metadata"];
            metadata["uid"] = json!(format!("{:08x}-0000-4000-8000-000000000000", self.uids));
            let second = self.uids % 60;
            metadata["creationTimestamp"] = json!(format!("2020-01-01T00:00:{second:02}Z"));
            metadata["generation"] = json!(1);
            if !key.1.is_empty() {
                metadata["namespace"] = json!(key.1);
            }
        }
        let is_leaving = !object["metadata"]["deletionTimestamp"].is_null();
        let is_held = object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|l| !l.is_empty());
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.objects.insert(key.clone(), object.clone());
        if is_leaving && !is_held {
            self.forget(key);
            return object;
        }
        let kind = if before.is_some() {
            "MODIFIED"
        } else {
            "ADDED"
        };
        self.tell(key.clone(), kind, object.clone());
        self.settle(&key.0);
        object
    }

    /// What the controllers of Kubernetes and kubelets do, at once.
    fn settle(&mut self, plural: &str) {
        if !["nodes", "statefulsets", "daemonsets", "pods"].contains(&plural) {
            return;
        }
        if self.has_pods {
            self.settle_pods();
        }
        let mut nodes_with = BTreeMap::new();
        for (key, node) in &self.objects {
            if key.0 == "nodes" {
                for label in node["metadata"]["labels"].as_object().into_iter().flatten() {
                    *nodes_with.entry(label.0.clone()).or_insert(0) += 1;
                }
            }
        }
        let mut changes = Vec::new();
        for (key, object) in &self.objects {
            let status = match key.0.as_str() {
                "statefulsets" if self.has_pods => json!({
                    "readyReplicas": object["spec"]["replicas"],
                    "observedGeneration": object["metadata"]["generation"],
                    "updateRevision": revision(object),
                }),
                "statefulsets" if self.masters_hang => json!({ "readyReplicas": 0 }),
                "statefulsets" => match self.masters_ready {
                    Some(ready) => json!({ "readyReplicas": ready }),
                    None => json!({ "readyReplicas": object["spec"]["replicas"] }),
                },
                "daemonsets" => {
                    let selector = &object["spec"]["template"]["spec"]["nodeSelector"];
                    let label = selector.as_object().and_then(|s| s.keys().next().cloned());
                    let ready = label.and_then(|l| nodes_with.get(&l).copied()).unwrap_or(0);
                    json!({ "numberReady": ready })
                }
                _ => continue,
            };
            if object["status"] != status {
                changes.push((key.clone(), status));
            }
        }
        for (key, status) in changes {
            let mut object = self.objects[&key].clone();
            object["status"] = status;
            self.store(&key, object);
        }
    }

    /// Pods of StatefulSets: as many as there shall be, new ones from the present template.
    fn settle_pods(&mut self) {
        let of_kind = |plural: &str| -> Vec<(Key, Value)> {
            let objects = self.objects.iter().filter(|(key, _)| key.0 == plural);
            objects
                .map(|(key, object)| (key.clone(), object.clone()))
                .collect()
        };
        let (sets, mut pods) = (of_kind("statefulsets"), of_kind("pods"));
        for ((_, namespace, name), set) in sets {
            let count = set["spec"]["replicas"].as_u64().unwrap_or(0);
            for ordinal in 0..count {
                let key = key("pods", &namespace, &format!("{name}-{ordinal}"));
                pods.retain(|(pod, _)| *pod != key);
                if self.objects.contains_key(&key) {
                    continue;
                }
                let mut labels = set["spec"]["template"]["metadata"]["labels"].clone();
                labels["controller-revision-hash"] = json!(revision(&set));
                let owner = json!({ "kind": "StatefulSet", "name": name,
                    "uid": set["metadata"]["uid"], "apiVersion": "apps/v1" });
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "name": key.2, "namespace": namespace, "labels": labels,
                        "ownerReferences": [owner],
                    },
                    "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
                });
                self.store(&key, pod);
            }
        }
        for (key, _) in pods {
            self.delete(&key);
        }
    }

    fn tell(&mut self, key: Key, kind: &str, object: Value) {
        let event = json!({ "type": kind, "object": object });
        let bytes = line(&event);
        let is_untold = self.untold.contains(&key.0);
        self.watches.retain(|watch| {
            is_untold
                || !watch.wants(&key, &event["object"])
                || watch.events.try_send(bytes.clone()).is_ok()
        });
        self.history.push((self.version, key, event));
    }

    /// The status of a condition, as `True/Reason`.
    pub(crate) fn condition(
        &self,
        plural: &str,
        namespace: &str,
        name: &str,
        kind: &str,
    ) -> String {
        let object = self.objects.get(&key(plural, namespace, name));
        let list = object.and_then(|object| object["status"]["conditions"].as_array());
        let found = list.and_then(|list| list.iter().find(|one| one["type"] == kind));
        let text = |field: &str| found.and_then(|one| one[field].as_str()).unwrap_or("-");
        format!("{}/{}", text("status"), text("reason"))
    }
}

impl Watch {
    fn wants(&self, key: &Key, object: &Value) -> bool {
        self.plural == key.0
            && (self.namespace.is_empty() || self.namespace == key.1)
            && carries(object, &self.selector)
    }
}

/// The name of a template, as the controller of StatefulSets gives it one.
fn revision(set: &Value) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    set["spec"]["template"].to_string().hash(&mut hasher);
    format!("r{:x}", hasher.finish())
}

fn carries(object: &Value, selector: &BTreeMap<String, String>) -> bool {
    selector
        .iter()
        .all(|(key, value)| object["metadata"]["labels"][key] == json!(value))
}

fn line(event: &Value) -> Bytes {
    Bytes::from(format!("{event}\n"))
}

fn status_of(code: StatusCode) -> Value {
    let reason = match code {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        _ => "Expired",
    };
    json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "reason": reason, "message": reason, "code": code.as_u16(),
    })
}

fn refusal(code: StatusCode) -> Answer {
    answer(code, &status_of(code))
}

fn answer(code: StatusCode, body: &Value) -> Answer {
    let mut answer = Response::new(Full::from(body.to_string()).boxed_unsync());
    *answer.status_mut() = code;
    answer
}
