//! What matters of a master's pod.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use crate::feed::{Feed, Trigger, digest_of};
use crate::names::{LABEL_LEADER, LABEL_POOL, LABEL_POOL_UID, PoolId};
use crate::stores::without_managed_fields;

/// On the pods of StatefulSets, by their controller: from which revision a pod was made.
const LABEL_REVISION: &str = "controller-revision-hash";

/// What matters of a master's pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PodFacts {
    /// Its number in its StatefulSet.
    pub ordinal: u32,
    /// Names this life of it.
    pub uid: String,
    /// The revision of the StatefulSet that it was made from.
    pub revision: String,
    /// Whether its probe succeeds: it leads, or follows in sync.
    pub is_ready: bool,
    /// Whether it is being deleted.
    pub is_leaving: bool,
    /// Whether its container ever ran: only then its folder holds anything.
    pub has_run: bool,
    /// Whether its container runs now.
    pub is_running: bool,
    /// Whether it is marked as the leader.
    pub is_marked: bool,
}

impl PodFacts {
    /// Of a pod; `None` if it is no master of this pool.
    #[must_use]
    pub fn of(pod: &Pod, pool: &PoolId) -> Option<Self> {
        let labels = pod.labels();
        let name = pod.name_any();
        let (set, ordinal) = name.rsplit_once('-')?;
        let is_ours = pod.namespace().as_deref() == Some(&*pool.namespace)
            && labels.get(LABEL_POOL_UID) == Some(&pool.uid)
            && set == pool.master();
        if !is_ours {
            return None;
        }
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref());
        let is_ready = conditions
            .unwrap_or_default()
            .iter()
            .any(|one| one.type_ == "Ready" && one.status == "True");
        let containers = status.and_then(|status| status.container_statuses.as_deref());
        let containers = containers.unwrap_or_default();
        let waits = |container: &ContainerStatus| {
            let state = container.state.as_ref();
            state.is_none_or(|state| state.waiting.is_some())
        };
        let runs = |container: &ContainerStatus| {
            let state = container.state.as_ref();
            state.is_some_and(|state| state.running.is_some())
        };
        Some(Self {
            ordinal: ordinal.parse().ok()?,
            uid: pod.uid()?,
            revision: labels.get(LABEL_REVISION).cloned().unwrap_or_default(),
            is_ready,
            is_leaving: pod.metadata.deletion_timestamp.is_some(),
            has_run: containers
                .iter()
                .any(|one| one.restart_count > 0 || !waits(one)),
            is_running: containers.iter().any(runs),
            is_marked: labels.get(LABEL_LEADER).is_some_and(|mark| mark == "true"),
        })
    }
}

/// A master's pod concerns its pool when it comes, goes, becomes ready or ceases to be.
#[must_use]
pub fn feed() -> Feed<Pod> {
    Feed {
        kind: "Pod",
        slim: |pod| {
            without_managed_fields(pod);
            pod.spec = None;
        },
        digest: |pod| digest_of(pod_pool(pod).and_then(|pool| PodFacts::of(pod, &pool))),
        route: Arc::new(|pod| {
            let pool = pod_pool(pod);
            pool.map(|pool| Trigger::pool(&pool.namespace, &pool.name))
                .into_iter()
                .collect()
        }),
    }
}

/// The pool that a pod says it is of.
fn pod_pool(pod: &Pod) -> Option<PoolId> {
    let label = |key| pod.labels().get(key).cloned();
    Some(PoolId {
        namespace: pod.namespace()?,
        name: label(LABEL_POOL)?,
        uid: label(LABEL_POOL_UID)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts(name: &str, uid: &str, state: &Value) -> Option<PodFacts> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "apps", "uid": "p-1",
                "labels": { LABEL_POOL_UID: uid, LABEL_REVISION: "small-master-7" },
            },
            "status": {
                "conditions": [{ "type": "Ready", "status": "False" }],
                "containerStatuses": [{
                    "name": "master", "image": "i", "imageID": "", "ready": false,
                    "restartCount": 0, "state": state,
                }],
            },
        });
        let pool = PoolId {
            namespace: "apps".to_owned(),
            name: "small".to_owned(),
            uid: "u-1".to_owned(),
        };
        PodFacts::of(&serde_json::from_value(pod).expect("a pod"), &pool)
    }

    #[test]
    fn facts_are_read() {
        let waiting = json!({ "waiting": { "reason": "ErrImagePull" } });
        let found = facts("small-master-2", "u-1", &waiting).expect("ours");
        assert_eq!((found.ordinal, found.has_run), (2, false));
        assert!(!found.is_running);
        assert_eq!(found.revision, "small-master-7");
        assert!(!found.is_ready && !found.is_leaving && !found.is_marked);
        let running = json!({ "running": {} });
        let found = facts("small-master-0", "u-1", &running).expect("ours");
        assert!(found.has_run && found.is_running);
        assert_eq!(facts("small-master-0", "u-2", &running), None);
        assert_eq!(facts("other-master-0", "u-1", &running), None);
        assert_eq!(facts("small-master-x", "u-1", &running), None);
    }
}
