//! Nodes that exist as objects only: no kubelet, no room for pods. What the operator does with
//! them is the same, and hundreds cost nothing.

use anyhow::Result;
use serde_json::{Value, json};

use crate::scene::Scene;

/// The label of all simulated nodes of a test; its value is the test's namespace.
const LABEL: &str = "e2e.larder.dev/scene";
/// What each offers. Without processors no pod is ever bound to one, so none waits there for a
/// kubelet to confirm its end.
const MEMORY: &str = "16Gi";

/// The simulated nodes of a test; they are removed when this is dropped.
pub(crate) struct Nodes<'s> {
    scene: &'s Scene<'s>,
    pub(crate) names: Vec<String>,
}

impl<'s> Nodes<'s> {
    /// Makes `count` nodes.
    pub(crate) fn add(scene: &'s Scene<'s>, count: usize) -> Result<Self> {
        let names: Vec<_> = (0..count)
            .map(|at| format!("{}-{at:03}", scene.namespace))
            .collect();
        let nodes = Self { scene, names };
        let node = |name: &String| {
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": name, "labels": { LABEL: scene.namespace } },
                "status": {
                    "allocatable": { "memory": MEMORY }, "capacity": { "memory": MEMORY },
                    "conditions": [{ "type": "Ready", "status": "True" }],
                },
            })
        };
        let items: Vec<_> = nodes.names.iter().map(node).collect();
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
        scene
            .cluster
            .kubectl()
            .feed(&["create", "-f", "-"], &list.to_string())?;
        Ok(nodes)
    }

    /// A pool of these nodes, of `count` of them if one is given.
    pub(crate) fn pool(&self, name: &str, count: Option<usize>) -> Value {
        let mut pool = json!({
            "apiVersion": "larder.dev/v1alpha1", "kind": "CachePool",
            "metadata": { "name": name, "namespace": self.scene.namespace },
            "spec": {
                "nodes": { "selector": { LABEL: self.scene.namespace } },
                "tiers": [{
                    "name": "memory", "medium": "Dram", "size": "64Mi", "slabSize": "16Mi",
                }],
            },
        });
        if let Some(count) = count {
            pool["spec"]["nodes"]["count"] = json!(count);
        }
        pool
    }

    /// All of them as they stand.
    pub(crate) fn list(&self) -> Result<Vec<Value>> {
        let selector = format!("{LABEL}={}", self.scene.namespace);
        let found = self
            .scene
            .cluster
            .kubectl()
            .get(&["nodes", "-l", &selector])?;
        Ok(found["items"].as_array().cloned().unwrap_or_default())
    }

    /// How many carry a pool's label.
    pub(crate) fn members(&self) -> Result<usize> {
        let is_member = |node: &&Value| {
            let labels = node["metadata"]["labels"].as_object();
            labels.is_some_and(|all| all.keys().any(|key| key.starts_with("pool.larder.dev/")))
        };
        Ok(self.list()?.iter().filter(is_member).count())
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        // What stays ends with the cluster.
        let selector = format!("{LABEL}={}", self.scene.namespace);
        let all = ["delete", "nodes", "-l", &selector, "--wait=false"];
        let _ = self.scene.cluster.kubectl().run(&all);
    }
}

/// A tenant of a pool whose ServiceAccount has its name.
pub(crate) fn tenant(name: &str, pool: &str) -> Value {
    json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheTenant",
        "metadata": { "name": name },
        "spec": {
            "poolRef": { "name": pool },
            "subjects": [{ "serviceAccount": { "name": name } }],
            "limit": { "bytes": "16Mi" },
        },
    })
}
