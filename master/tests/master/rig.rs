//! The rig: a master in this process, on its own thread, with files in a folder of its own.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use larder_master::{Config, Master, MasterError};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// A hang of anything ends a test after this long. Nothing is judged by it.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Awaits something that comes soon, or never; `what` is told if it hangs.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, future).await.expect(what)
}

/// The token of a principal in these tests.
pub(crate) fn token(name: &str) -> String {
    format!("secret-{name}")
}

/// A folder that goes with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("master-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file for the test");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

fn identity(principal: Value, name: &str) -> Value {
    let token = token(name);
    let hash = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    let hex: String = hash
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    json!({ "principal": principal, "sha256": hex })
}

/// The files of a pool with two tenants and three agents, and its configuration.
pub(crate) fn prepare(folder: &Folder) -> Config {
    let root_key = folder.write("root.key", &format!("{}\n", "5c".repeat(32)));
    std::fs::set_permissions(&root_key, std::fs::Permissions::from_mode(0o600)).expect("mode");
    let mut identities = vec![
        identity(json!("Operator"), "operator"),
        identity(json!("Admin"), "admin"),
        identity(json!("Master"), "master"),
    ];
    identities.extend(["a", "b", "c"].map(|name| identity(json!({ "Tenant": name }), name)));
    identities.extend(
        ["node-0", "node-1", "node-2"].map(|name| identity(json!({ "Agent": name }), name)),
    );
    let identities = folder.write("identities.json", &json!(identities).to_string());
    let tenants = json!([
        { "tenant": "a", "access": "ReadWrite", "limit_bytes": 64 << 20 },
        { "tenant": "b", "access": "ReadOnly", "limit_bytes": null, "limit_objects": 10 },
    ]);
    let tenants = folder.write("tenants.json", &tenants.to_string());
    let config = json!({
        "pool": "small",
        "name": "small-master-0",
        "client_addr": "127.0.0.1:0",
        "admin_addr": "127.0.0.1:0",
        "state_dir": folder.0.join("state"),
        "root_key_file": root_key,
        "identities_file": identities,
        "tenants_file": tenants,
        // Agents of these tests are silent: only the tests of silence judge by it.
        "agent_suspect_ms": 60_000,
        "agent_ttl_ms": 120_000,
        "ready_file": folder.0.join("ready.json"),
    });
    let path = folder.write("master.json", &config.to_string());
    Config::load(&path).expect("a valid configuration")
}

/// A running master.
pub(crate) struct Rig {
    pub(crate) client_addr: SocketAddr,
    pub(crate) admin_addr: SocketAddr,
    pub(crate) folder: Folder,
    pub(crate) config: Config,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), MasterError>>>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = Folder::new();
        let mut config = prepare(&folder);
        change(&mut config);
        Self::start_in(folder, config).await
    }

    pub(crate) async fn start_in(folder: Folder, config: Config) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let (bound, addrs) = oneshot::channel();
        let for_thread = config.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async move {
                let master = Master::bind(for_thread).await?;
                let _ = bound.send((master.client_addr(), master.admin_addr()));
                master.serve(async move { drop(stopped.await) }).await
            })
        });
        let (client_addr, admin_addr) = soon("binding", addrs).await.expect("bound");
        let (stop, thread) = (Some(stop), Some(thread));
        Self {
            client_addr,
            admin_addr,
            folder,
            config,
            stop,
            thread,
        }
    }

    /// Stops the master and gives its folder back.
    pub(crate) fn stop(mut self) -> (Result<(), MasterError>, Folder, Config) {
        let result = self.end();
        let folder = std::mem::replace(&mut self.folder, Folder(PathBuf::new()));
        (result, folder, self.config.clone())
    }

    /// Waits for a master that stops by itself.
    pub(crate) async fn ended(mut self) -> Result<(), MasterError> {
        let thread = self.thread.take().expect("it runs");
        let joined = tokio::task::spawn_blocking(move || thread.join());
        let joined = soon("the end of the master", joined).await.expect("joined");
        joined.expect("no panic in the master")
    }

    fn end(&mut self) -> Result<(), MasterError> {
        drop(self.stop.take());
        self.thread.take().map_or(Ok(()), |thread| {
            thread.join().expect("no panic in the master")
        })
    }

    /// The status and the body of one call of the admin port.
    pub(crate) async fn http(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> (u16, String) {
        let mut stream = TcpStream::connect(self.admin_addr)
            .await
            .expect("the admin port");
        let credential = token.map_or_else(String::new, |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: pool\r\nConnection: close\r\n{credential}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = String::new();
        soon("the admin port", stream.read_to_string(&mut answer))
            .await
            .expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// A document of the admin port, asked as the operator.
    pub(crate) async fn document(&self, path: &str) -> Value {
        let (status, body) = self.http("GET", path, Some(&token("operator")), "").await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    /// The page of metrics, read strictly.
    pub(crate) async fn metrics(&self) -> Vec<larder_telemetry::exposition::Family> {
        let (status, page) = self.http("GET", "/metrics", None, "").await;
        assert_eq!(status, 200);
        larder_telemetry::exposition::parse(&page).expect("a valid page")
    }

    /// Asks until a value of the page is the one expected.
    pub(crate) async fn until_metric(&self, name: &str, labels: &[(&str, &str)], expected: f64) {
        let turns = async {
            loop {
                let page = self.metrics().await;
                let value = larder_telemetry::exposition::value(&page, name, labels);
                if value.is_some_and(|value| value.total_cmp(&expected).is_eq()) {
                    break;
                }
                tokio::task::yield_now().await;
            }
        };
        soon(&format!("{name} {labels:?} = {expected}"), turns).await;
    }

    /// Asserts that the state contradicts itself nowhere.
    pub(crate) async fn check(&self) {
        let found = self.document("/v1/check").await;
        assert_eq!(found["findings_total"], 0, "{found}");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        drop(self.end());
    }
}
