//! The masters: their Services and their StatefulSet.

use larder_crds::{EventsSettings, Quantity};
use serde_json::{Value, json};

use super::files::{
    CONFIG_FOLDER, IDENTITY_FOLDER, MASTER_STATE_FOLDER, ROOT_KEY_FOLDER, TENANTS_FOLDER,
};
use super::{Owner, container, probe, pull_secrets};
use crate::child::{Child, ChildKind};
use crate::config::Config;
use crate::names::{MASTER_ADMIN_PORT, MASTER_PORT};
use crate::pool::validate::ValidPool;

/// The user of the master's process; it owns nothing on a node.
const USER: u32 = 65_532;
/// What a master asks for without events.
const MEMORY_BYTES: u64 = 128 << 20;

/// One Service for whoever asks the masters, one that gives each of them a name.
pub(super) fn services(owner: &Owner<'_>, pool: &ValidPool) -> Vec<Child> {
    let ports: Value = ports(pool)
        .map(|(name, port)| {
            json!({ "name": name, "port": port, "targetPort": name, "protocol": "TCP" })
        })
        .collect();
    let selector = owner.selector("master");
    let client = json!({
        "spec": { "type": "ClusterIP", "selector": selector, "ports": ports },
    });
    let headless = json!({
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            // Masters must find one another before any of them is ready.
            "publishNotReadyAddresses": true,
            "selector": selector,
            "ports": ports,
        },
    });
    vec![
        owner.child(ChildKind::Service, owner.id.master(), "master", client),
        owner.child(ChildKind::Service, owner.id.masters(), "master", headless),
    ]
}

/// The ports of a master by name. Those of ZMQ endpoints are only there if the spec names them.
fn ports(pool: &ValidPool) -> impl Iterator<Item = (String, u16)> {
    let own = [("client", MASTER_PORT), ("admin", MASTER_ADMIN_PORT)];
    let own = own.map(|(name, port)| (name.to_owned(), port));
    let events = pool.settings.master.events.as_ref();
    let zmq = events.into_iter().flat_map(EventsSettings::ports);
    // At most 15 characters, as Kubernetes wants it.
    own.into_iter()
        .chain(zmq.map(|port| (format!("zmq-{port}"), port)))
}

/// What a master asks its node for, in bytes: little for itself, and room for events.
fn memory_bytes(pool: &ValidPool) -> u64 {
    let events = pool.settings.master.events.as_ref();
    let events_bytes = events.map_or(0, EventsSettings::memory_bytes);
    MEMORY_BYTES.saturating_add(events_bytes)
}

pub(super) fn stateful_set(
    owner: &Owner<'_>,
    pool: &ValidPool,
    config: &Config,
    file: &str,
) -> Child {
    let spec = json!({
        "spec": {
            "replicas": pool.settings.masters,
            "serviceName": pool.id.masters(),
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": owner.selector("master") },
            "updateStrategy": { "type": "RollingUpdate" },
            "template": {
                "metadata": owner.template_metadata("master", file),
                "spec": pod(pool, config),
            },
        },
    });
    owner.child(ChildKind::StatefulSet, pool.id.master(), "master", spec)
}

fn pod(pool: &ValidPool, config: &Config) -> Value {
    json!({
        "serviceAccountName": pool.id.master(),
        "imagePullSecrets": pull_secrets(config),
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [master(pool, config)],
        "volumes": [
            { "name": "config", "configMap": { "name": pool.id.master() } },
            { "name": "identity", "configMap": { "name": pool.id.identity() } },
            { "name": "tenants", "configMap": { "name": pool.id.tenants() } },
            // Only masters mount it. Readable by their group: that is how Kubernetes gives a
            // file to a process that is not root.
            {
                "name": "root-key",
                "secret": { "secretName": pool.id.root_key(), "defaultMode": 0o440 },
            },
            // Not a volume that outlives the pod: with one master a restart empties the pool
            // anyway, and agents remember the generation. Replicated masters will claim volumes.
            { "name": "state", "emptyDir": {} },
        ],
    })
}

fn master(pool: &ValidPool, config: &Config) -> Value {
    let mut container = container("master", config);
    let ports: Value = ports(pool)
        .map(|(name, port)| json!({ "name": name, "containerPort": port, "protocol": "TCP" }))
        .collect();
    let memory = Quantity::from_bytes(memory_bytes(pool));
    let more = json!({
        "command": ["/usr/bin/larder-master"],
        "args": ["--config", format!("{CONFIG_FOLDER}/master.json")],
        "ports": ports,
        "resources": { "requests": { "cpu": "100m", "memory": memory } },
        "readinessProbe": probe("/readyz", "admin", 2, 2),
        "livenessProbe": probe("/healthz", "admin", 10, 6),
        "volumeMounts": [
            mount("config", CONFIG_FOLDER),
            mount("identity", IDENTITY_FOLDER),
            mount("tenants", TENANTS_FOLDER),
            mount("root-key", ROOT_KEY_FOLDER),
            { "name": "state", "mountPath": MASTER_STATE_FOLDER },
        ],
    });
    extend(&mut container, more);
    container
}

/// A read-only mount.
pub(super) fn mount(name: &str, path: &str) -> Value {
    json!({ "name": name, "mountPath": path, "readOnly": true })
}

/// Adds the fields of `more` to an object.
pub(super) fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}
