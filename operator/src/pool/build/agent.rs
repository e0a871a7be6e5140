//! The agents: one per member node, by a DaemonSet.

use serde_json::{Value, json};

use super::files::{CONFIG_FOLDER, TOKEN_FOLDER};
use super::master::{extend, mount};
use super::{Owner, container, field, probe, pull_secrets};
use crate::child::{Child, ChildKind};
use crate::config::Config;
use crate::names::{AGENT_METRICS_PORT, AGENT_PORT, SOCKET_ROOT, STATE_ROOT};
use crate::pool::validate::ValidPool;

/// Life of the token that agents show to masters, in seconds. Kubelet renews it in time.
const TOKEN_SECONDS: u32 = 3600;

pub(super) fn daemon_set(
    owner: &Owner<'_>,
    pool: &ValidPool,
    config: &Config,
    file: &str,
) -> Child {
    let spec = json!({
        "spec": {
            "selector": { "matchLabels": owner.selector("agent") },
            // A restarted agent starts empty, so nodes are rolled one by one and the pool never
            // loses more than one node's bytes at a time.
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": { "maxUnavailable": 1, "maxSurge": 0 },
            },
            "template": {
                "metadata": owner.template_metadata("agent", file),
                "spec": pod(pool, config),
            },
        },
    });
    owner.child(ChildKind::DaemonSet, pool.id.agent(), "agent", spec)
}

fn pod(pool: &ValidPool, config: &Config) -> Value {
    json!({
        "serviceAccountName": pool.id.agent(),
        "imagePullSecrets": pull_secrets(config),
        // Time to unmount at the master, so that it forgets the node before its bytes are gone.
        "terminationGracePeriodSeconds": 60,
        "nodeSelector": { pool.id.node_label(): pool.id.name },
        // What `node/facts.rs` tolerates when it chooses members. The taints of Kubernetes itself
        // are tolerated by every DaemonSet.
        "tolerations": [{ "key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule" }],
        "securityContext": {
            // Root without any capability: the folders on the node are made by kubelet and belong
            // to root. Memory and tcp need no privilege.
            "runAsUser": 0,
            "runAsGroup": 0,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [agent(pool, config)],
        "volumes": [
            { "name": "config", "configMap": { "name": pool.id.agent() } },
            { "name": "token", "projected": { "sources": [{ "serviceAccountToken": {
                "audience": pool.id.audience(), "expirationSeconds": TOKEN_SECONDS, "path": "token",
            } }] } },
            // The folders above the pool's own, so that the agent can remove its own at the end.
            host("sockets", SOCKET_ROOT),
            host("state", STATE_ROOT),
        ],
    })
}

fn host(name: &str, path: &str) -> Value {
    json!({ "name": name, "hostPath": { "path": path, "type": "DirectoryOrCreate" } })
}

fn agent(pool: &ValidPool, config: &Config) -> Value {
    let memory = quantity(pool.agent_memory_bytes);
    let mut container = container("agent", config);
    let more = json!({
        "command": ["/usr/bin/larder-agent"],
        "args": [
            "--config", format!("{CONFIG_FOLDER}/agent.json"),
            "--name", "$(NODE_NAME)",
            "--advertise-addr", "$(POD_IP)",
            "--cache-node", format!("{}/{}-$(NODE_NAME)", pool.id.namespace, pool.id.name),
            "--pod-uid", "$(POD_UID)",
        ],
        "env": [
            field("NODE_NAME", "spec.nodeName"),
            field("POD_IP", "status.podIP"),
            field("POD_UID", "metadata.uid"),
        ],
        "ports": [
            { "name": "data", "containerPort": AGENT_PORT, "protocol": "TCP" },
            { "name": "metrics", "containerPort": AGENT_METRICS_PORT, "protocol": "TCP" },
        ],
        // Slabs are memory of this container, so request and limit are equal.
        "resources": {
            "requests": { "cpu": "100m", "memory": memory },
            "limits": { "memory": memory },
        },
        "readinessProbe": probe("/readyz", "metrics", 2, 2),
        "livenessProbe": probe("/healthz", "metrics", 10, 6),
        "volumeMounts": [
            mount("config", CONFIG_FOLDER),
            mount("token", TOKEN_FOLDER),
            { "name": "sockets", "mountPath": SOCKET_ROOT },
            { "name": "state", "mountPath": STATE_ROOT },
        ],
    });
    extend(&mut container, more);
    container
}

/// Bytes, rounded up to MiB, as the API server would write them: another spelling of the same
/// number would look like a change at every reconcile.
fn quantity(bytes: u64) -> String {
    let mut number = bytes.div_ceil(1 << 20);
    for unit in ["Mi", "Gi", "Ti"] {
        if !number.is_multiple_of(1024) {
            return format!("{number}{unit}");
        }
        number /= 1024;
    }
    format!("{number}Pi")
}

#[cfg(test)]
mod tests {
    use super::quantity;

    #[test]
    fn quantities_are_canonical() {
        assert_eq!(quantity(1), "1Mi");
        assert_eq!(quantity(544 << 20), "544Mi");
        assert_eq!(quantity(1 << 30), "1Gi");
        assert_eq!(quantity((1 << 30) + 1), "1025Mi");
        assert_eq!(quantity(3 << 50), "3Pi");
    }
}
