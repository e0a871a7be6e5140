//! Shows that the cluster does what it should: starts one, checks it, and takes it down.

mod checks;
mod residue;

use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Cluster, Image, Options, Say, Temporary};
use checks::CHECKS;
use residue::Residue;

/// What the pods of the checks run: this very program.
const IMAGE: &str = "localhost/larder-selftest:1";
const PROGRAM: &str = "/bin/cluster";
/// The last check. It is not one of the table, since it needs the cluster gone.
const NOTHING_LEFT: &str = "down_leaves_nothing";

/// What a check works with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check<'c> {
    cluster: &'c Cluster,
    /// A namespace of its own.
    namespace: &'c str,
}

/// Runs the checks whose names contain one of `names`, or all.
///
/// # Errors
/// If one fails, after the others have run.
pub fn run(names: &[String], say: Say) -> Result<()> {
    // What was left by an earlier cluster is not what this one leaves.
    Cluster::down(say)?;
    let before = Residue::now()?;
    let cluster = Temporary::up(&Options {
        say,
        ..Options::default()
    })?;
    load_own_image(&cluster)?;
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|part| name.contains(part));
    let mut failed = Vec::new();
    let mut report = |name: &'static str, check: &dyn Fn() -> Result<()>| {
        let started = Instant::now();
        let result = check();
        let taken = started.elapsed().as_secs_f32();
        match result {
            Ok(()) => say(&format!("ok     {name} ({taken:.1} s)")),
            Err(error) => {
                say(&format!("FAILED {name} ({taken:.1} s): {error:#}"));
                failed.push(name);
            }
        }
    };
    for (number, (name, check)) in CHECKS
        .iter()
        .enumerate()
        .filter(|(_, (name, _))| is_wanted(name))
    {
        let namespace = format!("check-{number}");
        report(name, &|| {
            let check_in = Check {
                cluster: &cluster,
                namespace: &namespace,
            };
            check_in.prepare()?;
            check(check_in)
        });
    }
    let members = residue::members()?;
    let started = Instant::now();
    cluster.down()?;
    say(&format!(
        "down after {:.1} s",
        started.elapsed().as_secs_f32()
    ));
    report(NOTHING_LEFT, &|| {
        residue::check_gone(&members)?;
        Residue::now()?.check_against(&before)
    });
    if !failed.is_empty() {
        bail!("{} failed: {}", failed.len(), failed.join(", "));
    }
    Ok(())
}

fn load_own_image(cluster: &Cluster) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("selftest.tar");
    let own = std::env::current_exe().context("the program does not know its own file")?;
    Image::new(IMAGE)
        .file(own, PROGRAM)?
        .entrypoint(&[PROGRAM, "probe"])
        .write(&archive)?;
    cluster.load_image(&archive)
}

impl Check<'_> {
    /// Makes the namespace; a pod needs its ServiceAccount.
    fn prepare(&self) -> Result<()> {
        let kubectl = self.cluster.kubectl();
        kubectl.run(&["create", "namespace", self.namespace])?;
        let wait = [
            "wait",
            "--for=create",
            "--timeout=60s",
            "serviceaccount/default",
        ];
        self.kubectl(&wait).map(drop)
    }

    fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        let all = ["-n", self.namespace]
            .iter()
            .chain(arguments)
            .copied()
            .collect::<Vec<_>>();
        self.cluster.kubectl().run(&all)
    }

    fn get(&self, arguments: &[&str]) -> Result<Value> {
        let all = arguments
            .iter()
            .chain(&["-n", self.namespace])
            .copied()
            .collect::<Vec<_>>();
        self.cluster.kubectl().get(&all)
    }

    fn apply(&self, objects: &[Value]) -> Result<()> {
        let mut objects = objects.to_vec();
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        self.cluster.kubectl().apply(&json!(objects)).map(drop)
    }

    /// Waits for a condition, as `--for=condition=Ready`.
    fn wait(&self, what: &str, condition: &str) -> Result<()> {
        self.kubectl(&["wait", what, condition, "--timeout=120s"])
            .map(drop)
    }

    fn rollout(&self, what: &str) -> Result<()> {
        self.kubectl(&["rollout", "status", what, "--timeout=120s"])
            .map(drop)
    }

    /// Runs one of the probes in a pod.
    fn in_pod(&self, pod: &str, words: &[&str]) -> Result<String> {
        let head = ["exec", pod, "--", PROGRAM, "probe"];
        let all = head.iter().chain(words).copied().collect::<Vec<_>>();
        Ok(self.kubectl(&all)?.trim().to_owned())
    }
}

/// A pod that serves.
fn pod(name: &str, node: &str, more: &Value) -> Value {
    let mut spec = pod_spec();
    spec["nodeName"] = json!(node);
    merge(&mut spec, more);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "labels": { "app": name } }, "spec": spec,
    })
}

fn pod_spec() -> Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "main", "image": IMAGE, "args": ["serve"], "imagePullPolicy": "Never",
            "readinessProbe": { "tcpSocket": { "port": super::probe::PORT }, "periodSeconds": 1 },
        }],
    })
}

/// A DaemonSet of serving pods.
fn daemon_set(name: &str, more: &Value) -> Value {
    let mut spec = pod_spec();
    merge(&mut spec, more);
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": name },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": spec },
        },
    })
}

/// Adds fields to an object, and fields of elements to an array's elements, at every depth.
fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(more)) if into.len() == more.len() => {
            into.iter_mut()
                .zip(more)
                .for_each(|(into, more)| merge(into, more));
        }
        (into, more) => *into = more.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_added_at_every_depth() {
        let mut into = json!({ "a": [{ "b": 1 }], "c": 2 });
        merge(&mut into, &json!({ "a": [{ "d": 3 }], "c": [4] }));
        assert_eq!(into, json!({ "a": [{ "b": 1, "d": 3 }], "c": [4] }));
    }
}
