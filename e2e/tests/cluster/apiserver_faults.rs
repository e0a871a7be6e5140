//! The operator is killed after each write in turn, and whoever comes next ends in the same place.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use larder_e2e::cluster::{Kubectl, Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::scene::{LIMIT, Scene};
use crate::simulated::{Nodes, tenant};

/// More than the operator needs for one pool with one tenant.
const WRITES_MAX: usize = 60;
/// Fewer would mean that writes are not seen.
const WRITES_MIN: usize = 18;
/// Between two looks at whether the operator has come to its end unharmed.
const LOOK: Duration = Duration::from_millis(300);

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new(
        "apiserver_killed_after_each_write_it_converges",
        converges,
    )]
}

/// Each pool is begun by one operator, which dies after so many writes for it, and is ended by
/// the next, which dies over the pool after it. The last one is left alone.
fn converges(scene: &Scene<'_>) -> Result<()> {
    let nodes = Nodes::add(scene, 2)?;
    let release = scene.release()?;
    let way = Way::open(&release.kubectl())?;
    let kubeconfig = scene.folder().join("counted.kubeconfig");
    std::fs::write(&kubeconfig, kubeconfig_of(way.address).to_string())?;
    let begin =
        |name: &str| scene.apply(&[nodes.pool(name, None), tenant(&format!("{name}-t"), name)]);
    let mut pools = Vec::new();
    for writes in 1..=WRITES_MAX {
        let name = format!("p{writes:02}");
        begin(&name)?;
        pools.push(name.clone());
        let limit = Limit::new(&name, writes);
        way.limits.send(limit.0)?;
        let operator = release.start_with(&kubeconfig)?;
        let mut is_done = false;
        until("the write that is the last", LIMIT, || {
            if limit.1.recv_timeout(LOOK).is_ok() {
                return Ok(Look::Content(()));
            }
            let state = State::of(scene, &nodes, &name)?;
            is_done = state.is_complete();
            Ok(Look::holds(
                is_done,
                &format!(
                    "after {} writes: {state:?}",
                    limit.2.load(Ordering::Relaxed)
                ),
            ))
        })?;
        drop(operator);
        if is_done {
            break;
        }
    }
    ensure!(
        pools.len() > WRITES_MIN,
        "a pool took only {} writes",
        pools.len()
    );
    ensure!(
        pools.len() < WRITES_MAX,
        "{WRITES_MAX} writes are not enough for a pool"
    );
    // Nobody disturbs the last, and its own pool is what the others are compared with.
    begin("quiet")?;
    let _operator = release.start()?;
    until("the undisturbed pool", LIMIT, || {
        let state = State::of(scene, &nodes, "quiet")?;
        Ok(Look::holds(state.is_complete(), &format!("{state:?}")))
    })?;
    for name in &pools {
        until(
            &format!("{name} to be as undisturbed ones are"),
            LIMIT,
            || {
                // Looked at each time: a status may stand before the nodes that it counts.
                let reference = State::of(scene, &nodes, "quiet")?;
                let state = State::of(scene, &nodes, name)?;
                let is_equal = reference.is_complete() && state == reference;
                Ok(Look::holds(is_equal, &state.difference(&reference)))
            },
        )?;
    }
    Ok(())
}

/// All of a pool and its tenant, without what differs between two lives.
#[derive(Debug, PartialEq)]
struct State(BTreeMap<String, Value>);

impl State {
    fn of(scene: &Scene<'_>, nodes: &Nodes<'_>, pool: &str) -> Result<Self> {
        let kinds = "serviceaccounts,rolebindings,configmaps,services,statefulsets,daemonsets,\
                     cachenodes,secrets";
        // What has the statuses first: they are written after all else, so what is listed after
        // them is all that there is.
        let tenant = format!("{pool}-t");
        let named = [
            format!("cachepool/{pool}"),
            format!("cachetenant/{tenant}"),
            format!("configmap/{tenant}-connection"),
        ];
        let mut ask = vec!["--ignore-not-found"];
        ask.extend(named.iter().map(String::as_str));
        let mut objects = scene.list(&ask)?;
        objects.extend(scene.list(&[kinds, "-l", &format!("larder.dev/pool={pool}")])?);
        let mark = format!(
            "larder.dev/pool={pool},larder.dev/pool-namespace={}",
            scene.namespace
        );
        let bindings = scene
            .cluster
            .kubectl()
            .get(&["clusterrolebindings", "-l", &mark])?;
        objects.extend(bindings["items"].as_array().cloned().unwrap_or_default());
        let uid = |kind: &str| {
            let one = objects.iter().find(|object| object["kind"] == json!(kind));
            one.and_then(|one| one["metadata"]["uid"].as_str())
                .unwrap_or("none")
                .to_owned()
        };
        let (pool_uid, tenant_uid) = (uid("CachePool"), uid("CacheTenant"));
        let plain = |text: String| {
            let text = text
                .replace(&pool_uid, "POOL-UID")
                .replace(&tenant_uid, "TENANT-UID");
            text.replace(&pool_uid[..8.min(pool_uid.len())], "POOL-U")
                .replace(pool, "POOL")
        };
        let mut state = BTreeMap::new();
        for object in objects {
            let object = without_life(object);
            let name = format!("{} {}", object["kind"], object["metadata"]["name"]);
            state.insert(
                plain(name),
                serde_json::from_str(&plain(object.to_string()))?,
            );
        }
        let label = format!("pool.larder.dev/{pool_uid}");
        for node in nodes.list()? {
            let value = plain(node["metadata"]["labels"][&label].to_string());
            state.insert(
                format!("label of {}", node["metadata"]["name"]),
                json!(value),
            );
        }
        Ok(Self(state))
    }

    /// Whether everything stands: statuses are written after all else.
    fn is_complete(&self) -> bool {
        let has_status = |kind: &str| {
            let one = self.0.iter().find(|(name, _)| name.starts_with(kind));
            one.is_some_and(|(_, object)| object["status"]["conditions"].is_array())
        };
        // This one only after the StatefulSet's controller has looked.
        let looked = self.0.iter().any(|(name, object)| {
            let conditions = object["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            name.starts_with("\"CachePool\"")
                && conditions.any(|one| one["type"] == json!("MastersUpdated"))
        });
        looked && has_status("\"CachePool\"") && has_status("\"CacheTenant\"")
    }

    fn difference(&self, other: &Self) -> String {
        let names = self.0.keys().chain(other.0.keys());
        let mut differ: Vec<_> = names
            .filter(|name| self.0.get(*name) != other.0.get(*name))
            .collect();
        differ.sort_unstable();
        differ.dedup();
        let first = differ
            .first()
            .map(|name| (self.0.get(*name), other.0.get(*name)));
        format!("{differ:?} differ, the first as {first:?}")
    }
}

/// Takes off what each life of an object has of its own.
fn without_life(mut object: Value) -> Value {
    let metadata = object["metadata"].take();
    let keep = ["name", "labels", "ownerReferences", "finalizers"];
    object["metadata"] = keep
        .iter()
        .map(|field| ((*field).to_owned(), metadata[*field].clone()))
        .collect();
    // Hashes of what holds names and uids.
    let names = metadata["annotations"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, _)| name.clone());
    object["metadata"]["annotations"] = names
        .filter(|name| name.starts_with("larder.dev/"))
        .collect();
    if let Some(hash) = object.pointer_mut("/spec/template/metadata/annotations/larder.dev~1config")
    {
        *hash = json!("HASH");
    }
    for field in ["clusterIP", "clusterIPs"] {
        if object["kind"] == json!("Service") && object["spec"][field] != json!("None") {
            object["spec"][field] = Value::Null;
        }
    }
    match object["kind"].as_str() {
        Some("Secret") => object["data"] = Value::Null,
        Some("CachePool" | "CacheTenant") => {
            let conditions = object["status"]["conditions"].as_array_mut();
            for condition in conditions.into_iter().flatten() {
                condition["lastTransitionTime"] = Value::Null;
            }
        }
        // What others report.
        _ => object["status"] = Value::Null,
    }
    object
}

fn kubeconfig_of(address: SocketAddr) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "counted",
        "clusters": [{ "name": "counted", "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": "counted", "user": {} }],
        "contexts": [{ "name": "counted", "context": { "cluster": "counted", "user": "counted" } }],
    })
}

/// After how many writes that name a pool nobody hears an answer any more.
struct Counted {
    pool: String,
    writes: usize,
    seen: Arc<AtomicUsize>,
    reached: SyncSender<()>,
}

struct Limit(Counted, Receiver<()>, Arc<AtomicUsize>);

impl Limit {
    fn new(pool: &str, writes: usize) -> Self {
        let (reached, is_reached) = sync_channel(1);
        let seen = Arc::new(AtomicUsize::new(0));
        let counted = Counted {
            pool: pool.to_owned(),
            writes,
            seen: seen.clone(),
            reached,
        };
        Self(counted, is_reached, seen)
    }
}

/// A way to the API server that counts writes: plain HTTP, one request on a connection. Behind it
/// `kubectl proxy` adds the operator's token and TLS.
struct Way {
    address: SocketAddr,
    limits: SyncSender<Counted>,
    proxy: Child,
}

impl Way {
    fn open(kubectl: &Kubectl) -> Result<Self> {
        let mut proxy = kubectl.command();
        proxy
            .args(["proxy", "--port=0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        // It tells of every connection that a killed operator leaves.
        proxy.stderr(Stdio::null());
        let mut proxy = proxy.spawn()?;
        let mut line = String::new();
        let said = proxy.stdout.take().context("no output")?;
        BufReader::new(said).read_line(&mut line)?;
        let behind = line.rsplit(' ').next().unwrap_or_default().trim().parse();
        let behind: SocketAddr = behind.with_context(|| format!("kubectl proxy says {line:?}"))?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (limits, next) = sync_channel(1);
        std::thread::spawn(move || serve(&listener, behind, &next));
        Ok(Self {
            address,
            limits,
            proxy,
        })
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

/// Until the test's process ends: threads of a test that is over find nobody to talk to.
fn serve(listener: &TcpListener, behind: SocketAddr, limits: &Receiver<Counted>) {
    let mut limit: Option<Arc<Counted>> = None;
    for near in listener.incoming().map_while(Result::ok) {
        if let Ok(next) = limits.try_recv() {
            limit = Some(Arc::new(next));
        }
        let limit = limit.clone();
        std::thread::spawn(move || pass(near, behind, limit.as_deref()));
    }
}

/// One request and its answer. After the last write that is allowed the answer is kept back: the
/// operator is killed in the belief that it may not have been heard.
fn pass(mut near: TcpStream, behind: SocketAddr, limit: Option<&Counted>) -> Option<()> {
    let mut request = Vec::new();
    let mut reader = BufReader::new(near.try_clone().ok()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader
            .read_line(&mut line)
            .ok()
            .filter(|bytes| *bytes > 0)?;
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            request.extend(b"connection: close\r\n\r\n");
            break;
        }
        request.extend(line.as_bytes());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    request.extend(&body);
    let mut far = TcpStream::connect(behind).ok()?;
    far.write_all(&request).ok()?;
    let is_last = limit.is_some_and(|limit| {
        is_write_for(&request, &limit.pool)
            && limit.seen.fetch_add(1, Ordering::SeqCst) + 1 >= limit.writes
    });
    if is_last {
        // It is written once there is an answer.
        let _ = far.read(&mut [0; 1]);
        let _ = limit?.reached.try_send(());
        // Until the operator is killed.
        let _ = near.read(&mut [0; 1]);
        return None;
    }
    // A watch ends when the operator does.
    let watched = near.try_clone().ok()?;
    let ended = far.try_clone().ok()?;
    std::thread::spawn(move || {
        let _ = (&watched).read(&mut [0; 1]);
        let _ = ended.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut far, &mut near);
    let _ = near.shutdown(Shutdown::Both);
    Some(())
}

/// Whether a request changes something of a pool: its name stands in the path or in the body.
fn is_write_for(request: &[u8], pool: &str) -> bool {
    let text = String::from_utf8_lossy(request);
    !text.starts_with("GET ") && text.contains(pool)
}
