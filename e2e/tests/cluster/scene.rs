//! What one test works with: the cluster and a namespace of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use larder_e2e::cluster::{Cluster, Kubectl, Look, until};
use serde_json::{Value, json};

use crate::operator::Release;
use crate::rig::Rig;

/// Whatever a busy machine makes of seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// Longest part of a test's name in its namespace. Socket folders hold it besides a pool's name.
const NAME_MAX: usize = 24;
/// Tests whose names begin so share one namespace, with a pool that all of them leave as it was.
const SHARING: &str = "cluster_sample_";
const SHARED: &str = "sample";
/// Most bytes of a log in the report of a failure.
const LOG_BYTES_MAX: usize = 4000;

/// What one test works with.
pub(crate) struct Scene<'r> {
    rig: &'r Rig,
    pub(crate) cluster: &'r Cluster,
    /// The test's own namespace, in which pods may have folders of their node.
    pub(crate) namespace: String,
    folder: tempfile::TempDir,
}

impl<'r> Scene<'r> {
    /// Makes the namespace, and the cluster if this is the first test.
    pub(crate) fn open(rig: &'r Rig, test: &str) -> Result<Self> {
        let scene = Self {
            rig,
            cluster: rig.cluster()?,
            namespace: if test.starts_with(SHARING) {
                SHARED.to_owned()
            } else {
                namespace_of(test, rig.next())
            },
            folder: tempfile::tempdir()?,
        };
        scene.make_namespace(&scene.namespace)?;
        Ok(scene)
    }

    fn make_namespace(&self, name: &str) -> Result<()> {
        let labels = json!({ "pod-security.kubernetes.io/enforce": "privileged" });
        self.cluster.kubectl().apply(&json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": name, "labels": labels },
        }))?;
        // A pod needs it.
        let account = [
            "wait",
            "--for=create",
            "--timeout=60s",
            "serviceaccount/default",
        ];
        self.cluster
            .kubectl()
            .run(&[&["-n", name], &account[..]].concat())?;
        Ok(())
    }

    /// Tells of the namespace if the test failed, and removes it.
    pub(crate) fn close(self, result: Result<()>) -> Result<()> {
        let result = result.map_err(|error| anyhow!("{error:#}\n{}", self.report()));
        let removed = self.remove();
        result.and(removed)
    }

    fn remove(&self) -> Result<()> {
        if self.namespace == SHARED {
            return Ok(());
        }
        let kubectl = self.cluster.kubectl();
        // The test's own operator is gone, and would have taken these off.
        if !self.rig.has_operator() {
            for kind in [
                "cachesnapshots",
                "cachequotas",
                "cachetenants",
                "cachepools",
            ] {
                let found = self.kubectl(&["get", kind, "-o", "name"])?;
                for name in found.split_whitespace() {
                    let none = r#"{"metadata":{"finalizers":null}}"#;
                    self.kubectl(&["patch", name, "--type=merge", "-p", none])?;
                }
            }
        }
        let delete = [
            "delete",
            "namespace",
            &self.namespace,
            "--wait=false",
            "--ignore-not-found",
        ];
        kubectl.run(&delete).map(drop)
    }

    /// Files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The same cluster with the chart's operator at work and the product's images on all nodes.
    pub(crate) fn with_operator(&self) -> Result<&Cluster> {
        self.rig.cluster_with_operator()
    }

    /// A release of the chart for this namespace only, whose operator can be run as a process.
    pub(crate) fn release(&self) -> Result<Release<'_>> {
        Release::install(self)
    }

    /// `kubectl` in the namespace.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_as(self.cluster.kubectl(), arguments)
    }

    /// The same as somebody else.
    pub(crate) fn kubectl_as(&self, kubectl: &Kubectl, arguments: &[&str]) -> Result<String> {
        let all = [&["-n", self.namespace.as_str()], arguments].concat();
        kubectl.run(&all)
    }

    /// Objects of the namespace: `["pods"]`.
    pub(crate) fn get(&self, arguments: &[&str]) -> Result<Value> {
        let all = [arguments, &["-n", self.namespace.as_str()]].concat();
        self.cluster.kubectl().get(&all)
    }

    /// The objects of a list: `["pods"]`.
    pub(crate) fn list(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let mut found = self.get(arguments)?;
        let items = found["items"].as_array_mut().context("no list")?;
        Ok(std::mem::take(items))
    }

    /// Applies objects in the namespace.
    pub(crate) fn apply(&self, objects: &[Value]) -> Result<()> {
        let mut objects = objects.to_vec();
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        self.cluster.kubectl().apply(&json!(objects)).map(drop)
    }

    /// Waits for a condition of an object, as `("cachepool/small", "Ready", "True")`. The value
    /// may be a reason too.
    pub(crate) fn await_condition(&self, object: &str, kind: &str, value: &str) -> Result<Value> {
        until(&format!("{kind}={value} of {object}"), LIMIT, || {
            let found = self.get(&[object])?;
            let conditions = found["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let condition = conditions
                .into_iter()
                .find(|one| one["type"] == json!(kind));
            Ok(match condition {
                Some(one) if one["status"] == json!(value) || one["reason"] == json!(value) => {
                    Look::Content(one)
                }
                other => Look::NotYet(format!("{other:?}")),
            })
        })
    }

    /// What a person would look at first after a failure.
    fn report(&self) -> String {
        let mut text = format!("--- namespace {}\n", self.namespace);
        let mut add = |title: &str, part: Result<String>| {
            let part = part.unwrap_or_else(|error| format!("{error:#}"));
            let start = part.len().saturating_sub(LOG_BYTES_MAX);
            let start = (start..=part.len())
                .find(|at| part.is_char_boundary(*at))
                .unwrap_or(0);
            text.push_str(&format!("--- {title}\n{}\n", &part[start..]));
        };
        let kinds = "larder,pods,statefulsets,daemonsets";
        add("objects", self.kubectl(&["get", kinds, "-o", "wide"]));
        add(
            "statuses",
            self.kubectl(&["get", "larder", "-o", "jsonpath={.items[*].status}"]),
        );
        add(
            "events",
            self.kubectl(&["get", "events", "--sort-by=.lastTimestamp"]),
        );
        let pods = self
            .kubectl(&["get", "pods", "-o", "name"])
            .unwrap_or_default();
        for pod in pods.split_whitespace() {
            let all = ["logs", pod, "--all-containers", "--tail=40"];
            add(pod, self.kubectl(&all));
        }
        for log in logs_in(self.folder()) {
            let title = log.display().to_string();
            add(&title, std::fs::read_to_string(&log).map_err(Into::into));
        }
        text
    }
}

fn logs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension().is_some_and(|end| end == "log"))
        .collect()
}

/// `apiserver_a_b` becomes `t0-a-b`.
fn namespace_of(test: &str, number: usize) -> String {
    let (_, name) = test.split_once('_').unwrap_or(("", test));
    let name: String = name.replace('_', "-").chars().take(NAME_MAX).collect();
    format!("t{number}-{}", name.trim_end_matches('-'))
}
