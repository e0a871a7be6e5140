//! Pools with pods that use them as engines do, and what masters and agents say about them.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use larder_e2e::cluster::{Look, product, until};
use serde_json::{Value, json};

use crate::rig::{SYSTEM, tree};
use crate::scene::{LIMIT, Scene};

/// The port of a master for administration, and that of an agent for metrics.
const ADMIN_PORT: u16 = 7401;
const METRICS_PORT: u16 = 7411;
/// Who runs engines: nobody special.
const USER: u32 = 10_001;
/// How long one answer of a page may take.
const PAGE_LIMIT: Duration = Duration::from_secs(10);
/// The pool of `manifests/samples/pool-small.yaml`.
pub(crate) const SAMPLE: &str = "pool-small";

/// What a command in a pod answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: Vec<u8>,
    pub(crate) said: String,
}

/// One pool of a namespace.
pub(crate) struct Pool<'s> {
    pub(crate) scene: &'s Scene<'s>,
    pub(crate) name: String,
}

/// A CachePool with small tiers; `nodes` is its `spec.nodes`.
pub(crate) fn pool_object(name: &str, nodes: &Value) -> Value {
    json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CachePool", "metadata": { "name": name },
        "spec": {
            "nodes": nodes,
            "tiers": [{ "name": "memory", "medium": "Dram", "size": "64Mi", "slabSize": "4Mi" }],
        },
    })
}

/// A CacheTenant of a pool, with the ServiceAccounts of its namespace that act as it.
pub(crate) fn tenant_object(pool: &str, name: &str, accounts: &[&str], limit_mib: u32) -> Value {
    let subjects: Vec<_> = accounts
        .iter()
        .map(|account| json!({ "serviceAccount": { "name": account } }))
        .collect();
    json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheTenant", "metadata": { "name": name },
        "spec": {
            "poolRef": { "name": pool }, "subjects": subjects,
            "limit": { "bytes": format!("{limit_mib}Mi") },
        },
    })
}

impl<'s> Pool<'s> {
    /// The sample of the tree, with its tenants and an engine of `team-a` on each of its nodes:
    /// `engine-0` and `engine-1`, and beside the first one `rival` of `team-b`. The first test
    /// makes them, others find them.
    pub(crate) fn sample(scene: &'s Scene<'s>) -> Result<Self> {
        scene.with_operator()?;
        let file = tree().join("manifests/samples/pool-small.yaml");
        let file = file.to_str().context("the tree's path is no text")?;
        // Taken back from a test that changed it and failed.
        let apply = ["apply", "--server-side", "--force-conflicts", "-f", file];
        scene.kubectl(&apply)?;
        let pool = Self {
            scene,
            name: SAMPLE.to_owned(),
        };
        pool.await_ready(2)?;
        for tenant in ["team-a", "team-b"] {
            pool.await_tenant(tenant)?;
            pool.account(tenant)?;
        }
        let nodes = pool.nodes()?;
        let mut engines = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            engines.push(pool.engine(&format!("engine-{at}"), "team-a", "team-a", node));
        }
        engines.push(pool.engine("rival", "team-b", "team-b", &nodes[0]));
        scene.apply(&engines)?;
        pool.await_pods()?;
        Ok(pool)
    }

    /// A small pool with the tenant `team` and its ServiceAccount, ready with `count` agents.
    pub(crate) fn small(scene: &'s Scene<'s>, nodes: &Value, count: u32) -> Result<Self> {
        scene.with_operator()?;
        let pool = Self {
            scene,
            name: "small".to_owned(),
        };
        scene.apply(&[
            pool_object(&pool.name, nodes),
            tenant_object(&pool.name, "team", &["team"], 1024),
        ])?;
        pool.account("team")?;
        pool.await_ready(count)?;
        pool.await_tenant("team")?;
        Ok(pool)
    }

    /// Makes a ServiceAccount.
    pub(crate) fn account(&self, name: &str) -> Result<()> {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": name },
        });
        self.scene.apply(&[account])
    }

    /// How `kubectl` names the pool.
    pub(crate) fn object(&self) -> String {
        format!("cachepool/{}", self.name)
    }

    /// Waits until all of `count` agents serve.
    pub(crate) fn await_ready(&self, count: u32) -> Result<()> {
        let what = format!("{} to serve on {count} nodes", self.object());
        until(&what, LIMIT, || {
            let found = self.scene.get(&[&self.object()])?;
            let status = &found["status"];
            let is_of_now = status["observedGeneration"] == found["metadata"]["generation"];
            let holds = is_of_now
                && status["phase"] == json!("Ready")
                && status["nodes"]["ready"] == json!(count);
            Ok(Look::holds(holds, &status.to_string()))
        })?;
        let nodes = format!("cachenodes of {}", self.name);
        until(&nodes, LIMIT, || {
            let nodes = self.cache_nodes()?;
            let ready = nodes.iter().filter(|node| is_ready(node)).count();
            let found = json!(nodes.iter().map(|node| &node["status"]).collect::<Vec<_>>());
            Ok(Look::holds(
                ready == count as usize && nodes.len() == ready,
                &found.to_string(),
            ))
        })
    }

    /// Waits until a tenant is served.
    pub(crate) fn await_tenant(&self, tenant: &str) -> Result<()> {
        let object = format!("cachetenant/{tenant}");
        self.scene
            .await_condition(&object, "Ready", "True")
            .map(drop)
    }

    /// The pool's CacheNodes.
    pub(crate) fn cache_nodes(&self) -> Result<Vec<Value>> {
        let mut nodes = self.scene.list(&["cachenodes"])?;
        nodes.retain(|node| node["spec"]["poolRef"]["name"] == json!(self.name));
        Ok(nodes)
    }

    /// Names of its nodes, in order.
    pub(crate) fn nodes(&self) -> Result<Vec<String>> {
        let nodes = self.cache_nodes()?;
        let names = nodes
            .iter()
            .filter_map(|node| node["spec"]["nodeName"].as_str());
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// A pod as `docs/kubernetes.md` describes it.
    pub(crate) fn engine(&self, name: &str, account: &str, tenant: &str, node: &str) -> Value {
        let folder = format!("/run/larder/{}.{}", self.scene.namespace, self.name);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "labels": { "app": "engine" } },
            "spec": {
                "serviceAccountName": account, "nodeName": node,
                "terminationGracePeriodSeconds": 0,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                },
                "containers": [{
                    "name": "engine", "image": product::ENGINE, "imagePullPolicy": "Never",
                    "envFrom": [{ "configMapRef": { "name": format!("{tenant}-connection") } }],
                    "volumeMounts": [
                        { "name": "larder-token", "mountPath": "/var/run/larder-token",
                          "readOnly": true },
                        { "name": "larder-socket", "mountPath": folder, "readOnly": true },
                    ],
                }],
                "volumes": [
                    { "name": "larder-token", "projected": { "sources": [
                        { "serviceAccountToken": {
                            "audience": self.audience(), "path": "token",
                        } },
                    ] } },
                    { "name": "larder-socket",
                      "hostPath": { "path": folder, "type": "Directory" } },
                ],
            },
        })
    }

    /// Waits until all engines run.
    pub(crate) fn await_pods(&self) -> Result<()> {
        let ready = [
            "wait",
            "pod",
            "-l",
            "app=engine",
            "--for=condition=Ready",
            "--timeout=120s",
        ];
        self.scene.kubectl(&ready).map(drop)
    }

    /// Runs `larder` in a pod, whatever it answers.
    pub(crate) fn ask(&self, pod: &str, words: &[&str], input: &str) -> Result<Answer> {
        let namespace = self.scene.namespace.as_str();
        let mut all = vec!["-n", namespace, "exec", "-i", pod, "--", "larder"];
        all.extend(words);
        let output = self.scene.cluster.kubectl().output(&all, input)?;
        let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        Ok(Answer {
            code: output.status.code().context("kubectl was killed")?,
            said: said.concat(),
            out: output.stdout,
        })
    }

    /// Runs `larder` in a pod, which must succeed.
    pub(crate) fn larder(&self, pod: &str, words: &[&str]) -> Result<Vec<u8>> {
        let answer = self.ask(pod, words, "")?;
        ensure!(answer.code == 0, "{pod}: larder {words:?}: {answer:?}");
        Ok(answer.out)
    }

    /// Puts a text of `bytes` bytes.
    pub(crate) fn put(&self, pod: &str, key: &str, bytes: usize) -> Result<String> {
        let text = text_of(key, bytes);
        let answer = self.ask(pod, &["put", key, "-"], &text)?;
        ensure!(answer.code == 0, "{pod}: larder put {key}: {answer:?}");
        Ok(text)
    }

    /// Gets a key and compares it with what [`Pool::put`] put.
    pub(crate) fn check(&self, pod: &str, key: &str, bytes: usize) -> Result<()> {
        let found = self.larder(pod, &["get", key, "-"])?;
        ensure!(
            found == text_of(key, bytes).as_bytes(),
            "{pod}: {key} has other bytes"
        );
        Ok(())
    }

    /// Runs `larder` in a pod, which must end with `code`, and gives what it said.
    pub(crate) fn refused(&self, pod: &str, code: i32, words: &[&str]) -> Result<String> {
        let answer = self.ask(pod, words, "")?;
        ensure!(
            answer.code == code,
            "{pod}: larder {words:?}: not {code}: {answer:?}"
        );
        Ok(answer.said)
    }

    /// The pods of a component, by node.
    pub(crate) fn pods(&self, component: &str) -> Result<Vec<Value>> {
        let labels = format!(
            "larder.dev/pool={},app.kubernetes.io/component={component}",
            self.name
        );
        self.scene.list(&["pods", "-l", &labels])
    }

    /// The pod of the agent on a node.
    pub(crate) fn agent_on(&self, node: &str) -> Result<Value> {
        let pods = self.pods("agent")?;
        let found = pods
            .into_iter()
            .find(|pod| pod["spec"]["nodeName"] == json!(node));
        found.with_context(|| format!("no agent on {node}"))
    }

    /// The audience of tokens for this pool.
    fn audience(&self) -> String {
        format!("larder.{}.{}", self.scene.namespace, self.name)
    }

    /// `GET` of the master's administration port as the operator.
    pub(crate) fn master_says(&self, path: &str) -> Result<Value> {
        let pods = self.pods("master")?;
        let pod = pods.first().context("no master")?;
        self.master_does(pod, "GET", path)
    }

    /// A call of the administration port of a master's pod, as the operator.
    pub(crate) fn master_does(&self, pod: &Value, method: &str, path: &str) -> Result<Value> {
        let audience = format!("--audience={}", self.audience());
        let ask = [
            "-n",
            SYSTEM,
            "create",
            "token",
            "larder-operator",
            &audience,
        ];
        let token = self.scene.cluster.kubectl().run(&ask)?;
        let call = format!("{method} {path}");
        let text = self.page(pod, ADMIN_PORT, &call, Some(token.trim()))?;
        serde_json::from_str(&text).with_context(|| format!("{path}: {text}"))
    }

    /// The sum of an agent's metric over the labels that hold `label`.
    pub(crate) fn agent_counts(&self, node: &str, metric: &str, label: &str) -> Result<f64> {
        let text = self.page(&self.agent_on(node)?, METRICS_PORT, "GET /metrics", None)?;
        let lines = text
            .lines()
            .filter(|line| line.starts_with(metric) && line.contains(label));
        Ok(lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    fn page(&self, pod: &Value, port: u16, call: &str, token: Option<&str>) -> Result<String> {
        let address = pod["status"]["podIP"]
            .as_str()
            .context("the pod has no address")?;
        let address = SocketAddr::new(address.parse()?, port);
        let mut stream = self.scene.cluster.connect(address, PAGE_LIMIT)?;
        let token = token.map_or(String::new(), |token| {
            format!("Authorization: Bearer {token}\r\n")
        });
        write!(stream, "{call} HTTP/1.0\r\nHost: {address}\r\n{token}\r\n")?;
        let mut text = String::new();
        stream.set_read_timeout(Some(PAGE_LIMIT))?;
        stream.read_to_string(&mut text)?;
        let (head, body) = text
            .split_once("\r\n\r\n")
            .context("no end of the HTTP head")?;
        if !head.starts_with("HTTP/1.0 200") && !head.starts_with("HTTP/1.1 200") {
            bail!("{call} at {address}: {text}");
        }
        Ok(body.to_owned())
    }
}

/// Whether an object has the condition `Ready`.
pub(crate) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == json!("Ready") && one["status"] == json!("True"))
}

/// Text that depends on its key and on the place in it, so that a mix of two shows.
fn text_of(key: &str, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + key.len() + 16);
    let mut line = 0_u64;
    while text.len() < bytes {
        text.push_str(&format!("{key} {line:x}\n"));
        line += 1;
    }
    text.truncate(bytes);
    text
}
