//! The masters: their Services, their StatefulSet, and how many may be evicted at a time.

use larder_crds::{EventsSettings, ObjectStoreSettings, Quantity, StorageSettings};
use serde_json::{Value, json};

use super::files::{
    CONFIG_FOLDER, IDENTITY_FOLDER, MASTER_STATE_FOLDER, ROOT_KEY_FOLDER, TENANTS_FOLDER,
};
use super::{Owner, container, field, probe, pull_secrets};
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
    let mut spec = json!({
        "spec": {
            "replicas": pool.settings.masters,
            "serviceName": pool.id.masters(),
            // A pool begins when all of its masters answer, and after the loss of a quorum it goes
            // on with any that make one: none of them may wait for another.
            "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": owner.selector("master") },
            "updateStrategy": { "type": "RollingUpdate" },
            "template": {
                "metadata": owner.template_metadata("master", file),
                "spec": pod(owner, pool, config),
            },
        },
    });
    if let Some(storage) = &pool.settings.master_storage {
        spec["spec"]["volumeClaimTemplates"] = json!([claim(owner, storage)]);
    }
    owner.child(ChildKind::StatefulSet, pool.id.master(), "master", spec)
}

/// The volume of one master. It belongs to the pool and not to the StatefulSet: it survives when
/// that one is made again, and a later pool of the same name finds no log of this one.
fn claim(owner: &Owner<'_>, storage: &StorageSettings) -> Value {
    let mut reference = owner.reference().clone();
    if let Some(reference) = reference.as_object_mut() {
        // The controller of StatefulSets may not have the right that these two ask for.
        reference.remove("controller");
        reference.remove("blockOwnerDeletion");
    }
    let mut claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "state",
            "labels": owner.labels("master"),
            "ownerReferences": [reference],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": Quantity::from_bytes(storage.size_bytes) } },
        },
    });
    if let Some(name) = &storage.class_name {
        claim["spec"]["storageClassName"] = json!(name);
    }
    claim
}

/// So many masters may be evicted at a time that a quorum stays. With one master there is no
/// budget: it would keep its node from ever being drained.
pub(super) fn disruption_budget(owner: &Owner<'_>, pool: &ValidPool) -> Option<Child> {
    let spare = pool.settings.masters / 2;
    let spec = json!({
        "spec": {
            "maxUnavailable": spare,
            "selector": { "matchLabels": owner.selector("master") },
        },
    });
    let kind = ChildKind::PodDisruptionBudget;
    (spare > 0).then(|| owner.child(kind, owner.id.master(), "master", spec))
}

/// Masters on hosts and in zones of their own where there are so many.
fn apart(owner: &Owner<'_>) -> Value {
    let from = |weight: u32, topology: &str| {
        json!({
            "weight": weight,
            "podAffinityTerm": {
                "labelSelector": { "matchLabels": owner.selector("master") },
                "topologyKey": topology,
            },
        })
    };
    // Not required: a cluster of two nodes would never have a leader.
    json!({ "podAntiAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [
        from(100, "kubernetes.io/hostname"),
        from(50, "topology.kubernetes.io/zone"),
    ] } })
}

fn pod(owner: &Owner<'_>, pool: &ValidPool, config: &Config) -> Value {
    let mut pod = json!({
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
        ],
    });
    if let Some(store) = &pool.settings.master.snapshots.object_store
        && let Some(volumes) = pod["volumes"].as_array_mut()
    {
        volumes.push(json!({
            "name": "object-store",
            "secret": { "secretName": store.secret, "defaultMode": 0o440 },
        }));
    }
    if pool.settings.masters > 1 {
        pod["affinity"] = apart(owner);
    }
    if pool.settings.master_storage.is_none()
        && let Some(volumes) = pod["volumes"].as_array_mut()
    {
        // Outlives the container and not the pod. A master that comes back without joins anew.
        volumes.push(json!({ "name": "state", "emptyDir": {} }));
    }
    pod
}

fn master(pool: &ValidPool, config: &Config) -> Value {
    let mut container = container("master", config);
    let ports: Value = ports(pool)
        .map(|(name, port)| json!({ "name": name, "containerPort": port, "protocol": "TCP" }))
        .collect();
    let memory = Quantity::from_bytes(memory_bytes(pool));
    let more = json!({
        "command": ["/usr/bin/larder-master"],
        "args": ["--config", format!("{CONFIG_FOLDER}/$(POD_NAME).json")],
        "env": [field("POD_NAME", "metadata.name")],
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
    if pool.settings.master.snapshots.object_store.is_some()
        && let Some(mounts) = container["volumeMounts"].as_array_mut()
    {
        mounts.push(mount("object-store", ObjectStoreSettings::KEYS_FOLDER));
    }
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
