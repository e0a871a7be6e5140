//! Who masters and agents are, and what they may do.
//!
//! The two ClusterRoles come with the installation, so the operator binds them and needs no right
//! to write roles: `larder-agent` lets an agent read CacheNodes and write their status in the
//! pool's namespace (an admission policy narrows that to its own), `larder-master` lets a master
//! create TokenReviews and nothing else.

use serde_json::{Value, json};

use super::Owner;
use crate::child::{Child, ChildKind};
use crate::config::Config;

pub(super) fn build(owner: &Owner<'_>, config: &Config) -> Vec<Child> {
    let id = owner.id;
    let account = |name: String, component: &str| {
        owner.child(ChildKind::ServiceAccount, name, component, json!({}))
    };
    let agents = json!({
        "roleRef": role(&config.agent_cluster_role),
        "subjects": [subject(&id.agent(), &id.namespace)],
    });
    let masters = json!({
        "roleRef": role(&config.master_cluster_role),
        "subjects": [subject(&id.master(), &id.namespace)],
    });
    vec![
        account(id.master(), "master"),
        account(id.agent(), "agent"),
        owner.child(ChildKind::RoleBinding, id.agent(), "agent", agents),
        owner.cluster_child(ChildKind::ClusterRoleBinding, id.cluster_binding(), masters),
    ]
}

fn role(name: &str) -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name })
}

fn subject(name: &str, namespace: &str) -> Value {
    json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
}
