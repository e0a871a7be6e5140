//! Objects that the operator makes: their kinds, how two states of one compare, and writing them.

use std::collections::BTreeMap;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::{ANNOTATION_APPLIED, MANAGED_BY, MANAGER, hash};

/// Every kind of child that is watched, applied and removed. The Secret is none of them: the
/// operator may create Secrets and nothing else, so it never reads one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChildKind {
    /// Who masters and agents are.
    ServiceAccount,
    /// What agents may do in the namespace.
    RoleBinding,
    /// What masters may do in the cluster.
    ClusterRoleBinding,
    /// Configuration and connections.
    ConfigMap,
    /// How masters are found.
    Service,
    /// How many masters may be evicted at a time.
    PodDisruptionBudget,
    /// The masters.
    StatefulSet,
    /// The agents.
    DaemonSet,
    /// One per member node.
    CacheNode,
}

impl ChildKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::ServiceAccount,
        Self::RoleBinding,
        Self::ClusterRoleBinding,
        Self::ConfigMap,
        Self::Service,
        Self::PodDisruptionBudget,
        Self::StatefulSet,
        Self::DaemonSet,
        Self::CacheNode,
    ];

    /// The kind's name.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::ServiceAccount => "ServiceAccount",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
            Self::ConfigMap => "ConfigMap",
            Self::Service => "Service",
            Self::PodDisruptionBudget => "PodDisruptionBudget",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
            Self::CacheNode => "CacheNode",
        }
    }

    /// Group, version and plural.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        let (group, version, plural) = match self {
            Self::ServiceAccount => ("", "v1", "serviceaccounts"),
            Self::RoleBinding => ("rbac.authorization.k8s.io", "v1", "rolebindings"),
            Self::ClusterRoleBinding => ("rbac.authorization.k8s.io", "v1", "clusterrolebindings"),
            Self::ConfigMap => ("", "v1", "configmaps"),
            Self::Service => ("", "v1", "services"),
            Self::PodDisruptionBudget => ("policy", "v1", "poddisruptionbudgets"),
            Self::StatefulSet => ("apps", "v1", "statefulsets"),
            Self::DaemonSet => ("apps", "v1", "daemonsets"),
            Self::CacheNode => (larder_crds::GROUP, larder_crds::VERSION, "cachenodes"),
        };
        let gvk = GroupVersionKind::gvk(group, version, self.text());
        ApiResource::from_gvk_with_plural(&gvk, plural)
    }

    /// The API of this kind, in a namespace or for the whole cluster.
    #[must_use]
    pub fn api(self, client: kube::Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.resource()),
            None => Api::all_with(client, &self.resource()),
        }
    }
}

/// Names one child.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildKey {
    /// Its kind.
    pub kind: ChildKind,
    /// Its namespace, where the kind has one.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for ChildKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind.text(), self.name),
            None => write!(f, "{} {}", self.kind.text(), self.name),
        }
    }
}

/// A child as it shall be.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// Which one.
    pub key: ChildKey,
    /// The whole object, `ANNOTATION_APPLIED` included.
    pub body: Value,
}

impl Child {
    /// A child from what differs from others: labels, owner and the rest of the object.
    #[must_use]
    pub fn new(key: ChildKey, labels: &Value, owner: Option<&Value>, rest: Value) -> Self {
        let resource = key.kind.resource();
        let mut metadata = json!({ "name": key.name, "labels": labels });
        if let Some(namespace) = &key.namespace {
            metadata["namespace"] = json!(namespace);
        }
        if let Some(owner) = owner {
            metadata["ownerReferences"] = json!([owner]);
        }
        let mut body = rest;
        body["apiVersion"] = json!(resource.api_version);
        body["kind"] = json!(resource.kind);
        body["metadata"] = metadata;
        // Maps of serde_json are sorted, so equal objects have equal texts.
        let applied = hash(body.to_string().as_bytes());
        body["metadata"]["annotations"] = json!({ ANNOTATION_APPLIED: applied });
        Self { key, body }
    }
}

/// The children that stand in the cluster, as the watches know them.
pub type Standing = BTreeMap<ChildKey, Value>;

/// Whether everything in `wanted` stands in `found`. The API server adds defaults, so `found` may
/// have more fields; lists must have equal length, since their elements have no names here.
#[must_use]
pub fn covers(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => wanted.iter().all(|(key, value)| {
            // An empty map or list is dropped by the API server.
            found
                .get(key)
                .map_or_else(|| is_empty(value), |found| covers(value, found))
        }),
        (Value::Array(wanted), Value::Array(found)) => {
            wanted.len() == found.len() && wanted.iter().zip(found).all(|(w, f)| covers(w, f))
        }
        (wanted, found) => wanted == found,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Null => true,
        _ => false,
    }
}

/// What an object in the cluster is to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Made for this very owner.
    Ours,
    /// Made for an earlier life of an owner; the garbage collector is at it.
    Earlier,
    /// Made by somebody else.
    Foreign,
}

/// What `found` is to the owner with `owner_uid`. `labels.larder.dev/pool-uid` tells for children
/// without an owner reference.
#[must_use]
pub fn relation(found: &Value, owner_uid: &str) -> Relation {
    let metadata = &found["metadata"];
    if metadata["labels"][MANAGED_BY] != json!(MANAGER) {
        return Relation::Foreign;
    }
    let owners = metadata["ownerReferences"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let label = &metadata["labels"][crate::names::LABEL_POOL_UID];
    if owners.iter().any(|owner| owner["uid"] == json!(owner_uid)) {
        return Relation::Ours;
    }
    if owners.is_empty() && (label.is_null() || *label == json!(owner_uid)) {
        return Relation::Ours;
    }
    Relation::Earlier
}

/// Writes what differs, in the order given. Returns how many objects were written.
///
/// # Errors
/// [`ReconcileError::NameTaken`] and [`ReconcileError::OldObjectsRemain`] before anything of that
/// name is touched, or what the API server said. What comes later in the order is not written.
pub async fn apply(
    context: &Context,
    wanted: &[Child],
    standing: &Standing,
    owner_uid: &str,
) -> Result<u32, ReconcileError> {
    let mut written = 0;
    for child in wanted {
        let found = match standing.get(&child.key) {
            Some(found) => Some(found.clone()),
            // The watch sees only our own children; somebody else's may have the name.
            None => read(context, &child.key).await?,
        };
        if let Some(found) = found {
            match relation(&found, owner_uid) {
                Relation::Ours if covers(&child.body, &found) => continue,
                // The role of a binding cannot be changed, only the binding made anew.
                Relation::Ours if !covers(&child.body["roleRef"], &found["roleRef"]) => {
                    remove(context, std::slice::from_ref(&child.key)).await?;
                }
                Relation::Ours => {}
                Relation::Earlier => {
                    return Err(ReconcileError::OldObjectsRemain(child.key.clone()));
                }
                Relation::Foreign => return Err(ReconcileError::NameTaken(child.key.clone())),
            }
        }
        write(context, child).await?;
        written += 1;
    }
    Ok(written)
}

/// Deletes children that stand and are not wanted.
///
/// # Errors
/// What the API server said; an object that is gone already is no error.
pub async fn remove(context: &Context, orphans: &[ChildKey]) -> Result<(), ReconcileError> {
    for key in orphans {
        let api = key
            .kind
            .api(context.client.clone(), key.namespace.as_deref());
        tracing::info!(child = %key, "removing an object that is not wanted as it is");
        match api.delete(&key.name, &DeleteParams::background()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(source) => return Err(ReconcileError::api("remove", key, source)),
        }
        context.metrics.wrote(key.kind.text(), "delete");
    }
    Ok(())
}

async fn read(context: &Context, key: &ChildKey) -> Result<Option<Value>, ReconcileError> {
    let api = key
        .kind
        .api(context.client.clone(), key.namespace.as_deref());
    let failed = |source| ReconcileError::api("read", key, source);
    let found = api.get_opt(&key.name).await.map_err(failed)?;
    Ok(found.map(|object| value_of(key.kind, &object)))
}

async fn write(context: &Context, child: &Child) -> Result<(), ReconcileError> {
    let key = &child.key;
    let api = key
        .kind
        .api(context.client.clone(), key.namespace.as_deref());
    // Forced: the children are ours alone. Objects of users are never written like this.
    let params = PatchParams::apply(MANAGER).force();
    tracing::info!(child = %key, "writing");
    let sent = api
        .patch(&key.name, &params, &Patch::Apply(&child.body))
        .await;
    sent.map_err(|source| ReconcileError::api("apply", key, source))?;
    context.metrics.wrote(key.kind.text(), "apply");
    Ok(())
}

/// An object as a value. What cannot be one compares as nothing, so it is written again. The items
/// of a list do not say what they are, and a watch begins with one: that is added.
pub(crate) fn value_of(kind: ChildKind, object: &DynamicObject) -> Value {
    let Ok(mut value) = serde_json::to_value(object) else {
        return Value::Null;
    };
    let resource = kind.resource();
    value["apiVersion"] = json!(resource.api_version);
    value["kind"] = json!(resource.kind);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_do_not_differ_but_values_do() {
        let wanted = json!({"a": 1, "list": [{"x": 1}], "none": {}});
        let found = json!({"a": 1, "b": 2, "list": [{"x": 1, "y": 2}]});
        assert!(covers(&wanted, &found));
        assert!(!covers(&wanted, &json!({"a": 2, "list": [{"x": 1}]})));
        assert!(!covers(
            &wanted,
            &json!({"a": 1, "list": [{"x": 1}, {"x": 2}]})
        ));
        assert!(!covers(&wanted, &json!({"a": 1})));
    }

    #[test]
    fn a_dropped_field_changes_the_hash() {
        let key = ChildKey {
            kind: ChildKind::ConfigMap,
            namespace: Some("n".to_owned()),
            name: "c".to_owned(),
        };
        let child = |rest| Child::new(key.clone(), &json!({}), None, rest);
        let (two, one) = (
            child(json!({"data": {"a": "1", "b": "2"}})),
            child(json!({"data": {}})),
        );
        assert!(!covers(&one.body, &two.body));
    }

    #[test]
    fn an_item_of_a_list_covers_too() {
        let key = ChildKey {
            kind: ChildKind::StatefulSet,
            namespace: Some("n".to_owned()),
            name: "s".to_owned(),
        };
        let child = Child::new(key, &json!({}), None, json!({"spec": {"replicas": 3}}));
        let mut item = child.body.clone();
        let fields = item.as_object_mut().expect("an object");
        fields.retain(|name, _| !["apiVersion", "kind"].contains(&name.as_str()));
        let item: DynamicObject = serde_json::from_value(item).expect("as in a list");
        assert_eq!(item.types, None);
        assert!(covers(&child.body, &value_of(child.key.kind, &item)));
    }

    #[test]
    fn only_our_own_objects_are_ours() {
        let owned = |uid: &str| {
            json!({"metadata": {
                "labels": {MANAGED_BY: MANAGER},
                "ownerReferences": [{"uid": uid}],
            }})
        };
        assert_eq!(relation(&owned("u"), "u"), Relation::Ours);
        assert_eq!(relation(&owned("v"), "u"), Relation::Earlier);
        assert_eq!(
            relation(&json!({"metadata": {"name": "x"}}), "u"),
            Relation::Foreign
        );
        let labelled = |uid: &str| {
            json!({"metadata": {"labels": {
                MANAGED_BY: MANAGER, crate::names::LABEL_POOL_UID: uid,
            }}})
        };
        assert_eq!(relation(&labelled("u"), "u"), Relation::Ours);
        assert_eq!(relation(&labelled("v"), "u"), Relation::Earlier);
    }
}
