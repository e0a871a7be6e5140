//! From a checked pool to the objects that shall exist. Pure, and it cannot fail.

use std::collections::BTreeSet;

use larder_crds::TenantSettings;
use serde_json::{Value, json};

use super::validate::ValidPool;
use crate::child::{Child, ChildKey, ChildKind};
use crate::config::Config;
use crate::names::{
    ANNOTATION_CONFIG, LABEL_COMPONENT, LABEL_POOL, LABEL_POOL_NAMESPACE, LABEL_POOL_UID,
    MANAGED_BY, MANAGER, PoolId,
};
use crate::quota::shares::Shares;

pub mod access;
pub mod agent;
pub mod cache_node;
pub mod files;
pub mod identity;
pub mod master;

/// What the objects depend on besides the pool.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// How many masters there are for now: more than the spec wants while some still vote that
    /// are to go.
    pub masters: u32,
    /// The operator's configuration.
    pub config: &'a Config,
    /// The operator's ServiceAccount as `namespace/name`.
    pub operator_account: &'a str,
    /// Accepted tenants.
    pub tenants: &'a [TenantSettings],
    /// Who shares which quota.
    pub shares: &'a Shares,
    /// Nodes that have a CacheNode.
    pub nodes: &'a BTreeSet<String>,
}

/// Everything that shall exist, in the order in which it is written: what others need comes first.
#[must_use]
pub fn build(pool: &ValidPool, inputs: &Inputs<'_>) -> Vec<Child> {
    let owner = Owner::new(&pool.id);
    let master_files = files::masters(pool, inputs.masters);
    // Those that are to go end as they are.
    let staying = (0..pool.settings.masters).map(|one| pool.id.master_pod(one));
    let staying: String = staying
        .filter_map(|name| master_files.get(&format!("{name}.json")).cloned())
        .collect();
    let agent_file = files::agent(pool);
    let mut children = access::build(&owner, inputs.config);
    children.push(owner.config_map(
        pool.id.identity(),
        "master",
        &json!({
            "subjects.json": identity::file(&pool.id, inputs.operator_account, inputs.tenants),
        }),
    ));
    children.push(owner.config_map(
        pool.id.tenants(),
        "master",
        &json!({
            "tenants.json": files::tenants(inputs.tenants, inputs.shares),
            "quotas.json": files::quotas(inputs.shares),
        }),
    ));
    children.push(owner.config_map(pool.id.master(), "master", &json!(master_files)));
    children.push(owner.config_map(
        pool.id.agent(),
        "agent",
        &json!({
            "agent.json": agent_file,
        }),
    ));
    children.extend(master::services(&owner, pool));
    children.extend(master::disruption_budget(&owner, pool, inputs.masters));
    children.push(master::stateful_set(&owner, pool, inputs, &staying));
    children.push(agent::daemon_set(&owner, pool, inputs.config, &agent_file));
    children.extend(
        inputs
            .nodes
            .iter()
            .map(|node| cache_node::build(&owner, node)),
    );
    children
}

/// Makes children that belong to one pool.
#[derive(Clone, Debug)]
pub struct Owner<'a> {
    /// The pool.
    pub id: &'a PoolId,
    reference: Value,
}

impl<'a> Owner<'a> {
    /// The owner of a pool's children.
    #[must_use]
    pub fn new(id: &'a PoolId) -> Self {
        let reference = json!({
            "apiVersion": format!("{}/{}", larder_crds::GROUP, larder_crds::VERSION),
            "kind": "CachePool",
            "name": id.name,
            "uid": id.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        Self { id, reference }
    }

    /// The owner reference of every child.
    #[must_use]
    pub fn reference(&self) -> &Value {
        &self.reference
    }

    /// The labels by which pods of a component are found.
    #[must_use]
    pub fn selector(&self, component: &str) -> Value {
        json!({ LABEL_POOL: self.id.name, LABEL_COMPONENT: component })
    }

    /// All labels of a child.
    #[must_use]
    pub fn labels(&self, component: &str) -> Value {
        json!({
            "app.kubernetes.io/name": "larder",
            "app.kubernetes.io/instance": self.id.name,
            LABEL_COMPONENT: component,
            MANAGED_BY: MANAGER,
            LABEL_POOL: self.id.name,
            LABEL_POOL_UID: self.id.uid,
        })
    }

    /// A child in the pool's namespace.
    #[must_use]
    pub fn child(&self, kind: ChildKind, name: String, component: &str, rest: Value) -> Child {
        let namespace = Some(self.id.namespace.clone());
        let key = ChildKey {
            kind,
            namespace,
            name,
        };
        Child::new(key, &self.labels(component), Some(&self.reference), rest)
    }

    /// A child without a namespace. It cannot have an owner in one, so labels tell whose it is.
    #[must_use]
    pub fn cluster_child(&self, kind: ChildKind, name: String, rest: Value) -> Child {
        let mut labels = self.labels("master");
        labels[LABEL_POOL_NAMESPACE] = json!(self.id.namespace);
        Child::new(
            ChildKey {
                kind,
                namespace: None,
                name,
            },
            &labels,
            None,
            rest,
        )
    }

    fn config_map(&self, name: String, component: &str, data: &Value) -> Child {
        self.child(
            ChildKind::ConfigMap,
            name,
            component,
            json!({ "data": data }),
        )
    }

    /// Metadata of a pod template; another `file` rolls the pods.
    #[must_use]
    pub fn template_metadata(&self, component: &str, file: &str) -> Value {
        let hash = crate::names::hash(file.as_bytes());
        json!({ "labels": self.labels(component), "annotations": { ANNOTATION_CONFIG: hash } })
    }
}

/// The container settings that all pods share: no rights beyond those of a plain process.
fn container(name: &str, config: &Config) -> Value {
    json!({
        "name": name,
        "image": config.image,
        "imagePullPolicy": config.image_pull_policy,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": { "drop": ["ALL"] },
        },
    })
}

/// A probe of the port named `port`.
fn probe(path: &str, port: &str, period_seconds: u32, failures: u32) -> Value {
    json!({
        "httpGet": { "path": path, "port": port },
        "periodSeconds": period_seconds,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    })
}

/// A variable of a container, from a field of its pod.
fn field(name: &str, path: &str) -> Value {
    json!({ "name": name, "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": path } } })
}

/// References to the Secrets that pull the image.
fn pull_secrets(config: &Config) -> Value {
    config
        .image_pull_secrets
        .iter()
        .map(|name| json!({ "name": name }))
        .collect()
}
