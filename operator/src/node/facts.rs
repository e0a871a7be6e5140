//! What matters of a Node: the rest changes each minute and concerns nobody here.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use larder_crds::Quantity;

use crate::names::NODE_NAME_BYTES_MAX;

/// Taints with these beginnings do not keep an agent away: Kubernetes sets the first ones for
/// passing troubles, and a node with GPUs is where a cache is wanted.
pub const TOLERATED: [&str; 2] = ["node.kubernetes.io/", "nvidia.com/gpu"];

/// What matters of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether its kubelet reports and it takes new pods.
    pub is_ready: bool,
    /// Whether a taint keeps agents away.
    pub is_tainted: bool,
    /// Memory for pods, in bytes, if it says.
    pub memory_bytes: Option<u64>,
}

impl NodeFacts {
    /// Of a Node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let conditions = status
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        let ready = conditions
            .iter()
            .any(|one| one.type_ == "Ready" && one.status == "True");
        let cordoned = spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
        let taints = spec
            .and_then(|spec| spec.taints.as_deref())
            .unwrap_or_default();
        let keeps_away = |taint: &k8s_openapi::api::core::v1::Taint| {
            taint.effect != "PreferNoSchedule"
                && !TOLERATED.iter().any(|start| taint.key.starts_with(start))
        };
        let allocatable = status.and_then(|status| status.allocatable.as_ref());
        let memory = allocatable.and_then(|allocatable| allocatable.get("memory"));
        Self {
            name: node.name_any(),
            labels: node.labels().clone(),
            is_leaving: node.metadata.deletion_timestamp.is_some(),
            is_ready: ready && !cordoned,
            is_tainted: taints.iter().any(keeps_away),
            memory_bytes: memory.and_then(|memory| Quantity::new(&memory.0).bytes().ok()),
        }
    }

    /// Whether it carries all of these labels and may carry an agent.
    #[must_use]
    pub fn matches(&self, selector: &BTreeMap<String, String>) -> bool {
        !self.is_leaving
            && !self.is_tainted
            && self.name.len() <= NODE_NAME_BYTES_MAX
            && selector
                .iter()
                .all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// Whether its memory suffices, as far as is known.
    #[must_use]
    pub fn has_room(&self, need_bytes: u64) -> bool {
        self.memory_bytes
            .is_none_or(|memory_bytes| memory_bytes >= need_bytes)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(spec: serde_json::Value) -> NodeFacts {
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "n1", "labels": { "disk": "fast" } },
            "spec": spec,
            "status": {
                "allocatable": { "memory": "16331752Ki", "cpu": "4" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        NodeFacts::of(&serde_json::from_value(node).expect("a node"))
    }

    #[test]
    fn facts_are_read() {
        let facts = node(json!({}));
        assert_eq!(facts.memory_bytes, Some(16_331_752 << 10));
        assert!(facts.is_ready && !facts.is_tainted && !facts.is_leaving);
        assert!(facts.matches(&BTreeMap::new()));
        assert!(facts.matches(&BTreeMap::from([("disk".into(), "fast".into())])));
        assert!(!facts.matches(&BTreeMap::from([("disk".into(), "slow".into())])));
        assert!(facts.has_room(16 << 30) ^ (16_331_752_u64 << 10 < 16 << 30));
    }

    #[test]
    fn taints_that_stay_keep_agents_away() {
        let taint =
            |key: &str, effect: &str| node(json!({"taints": [{"key": key, "effect": effect}]}));
        assert!(taint("node-role.kubernetes.io/control-plane", "NoSchedule").is_tainted);
        assert!(!taint("node.kubernetes.io/unreachable", "NoExecute").is_tainted);
        assert!(!taint("nvidia.com/gpu", "NoSchedule").is_tainted);
        assert!(!taint("mine", "PreferNoSchedule").is_tainted);
        assert!(!node(json!({"unschedulable": true})).is_ready);
    }
}
