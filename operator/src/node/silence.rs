//! A dead agent cannot say that it is dead: who is told so by the master.
//!
//! As the node controller does with kubelets, the operator sets `Ready` of a CacheNode to
//! `Unknown` where the agent's own word is old. The agent takes the condition back when it lives.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::child::{ChildKey, ChildKind, Standing};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::{Looks, MasterView};
use crate::names::MANAGER;
use crate::reasons::{ConditionType, Reason};

/// CacheNodes that call themselves ready while the master has had no segment of theirs in its last
/// two looks: one look may fall between a start of the master and the agent's return to it.
pub fn silent<'a>(
    standing: &'a Standing,
    looks: &Looks,
) -> impl Iterator<Item = (&'a ChildKey, &'a Value)> {
    let lost = |view: &MasterView, node: &str| {
        let agent = view.agents.get(node);
        agent.is_none_or(|agent| agent.segments.is_empty())
    };
    let before = looks.before.clone();
    let now = looks.now.clone();
    standing
        .iter()
        .filter(|(key, _)| key.kind == ChildKind::CacheNode)
        .filter(move |(_, object)| {
            let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
            let before = before.as_deref();
            is_ready(object) && lost(&now, node) && before.is_some_and(|before| lost(before, node))
        })
}

fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == ConditionType::Ready.text() && one["status"] == "True")
}

/// Says of each that its agent is silent.
///
/// # Errors
/// [`ReconcileError::Api`]; one that changed or went in between is no error.
pub async fn tell(
    context: &Context,
    standing: &Standing,
    looks: &Looks,
) -> Result<(), ReconcileError> {
    for (key, object) in silent(standing, looks) {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(
            context.client.clone(),
            namespace,
            &ChildKind::CacheNode.resource(),
        );
        let body = patch(object, &(context.now)().to_string());
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match api
            .patch_status(&key.name, &params, &Patch::Merge(&body))
            .await
        {
            Ok(_) => context.metrics.wrote("CacheNode", "status"),
            // The agent, or somebody else, was faster; the next look sees it.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(source) => {
                let object = format!("CacheNode {namespace}/{}", key.name);
                return Err(ReconcileError::api("write the status of", object, source));
            }
        }
    }
    Ok(())
}

/// With the resource version, so that a word of the agent in between is never overwritten. A merge
/// replaces the list, so the conditions of others stand in it too.
fn patch(object: &Value, now: &str) -> Value {
    let mut conditions = object["status"]["conditions"].clone();
    for one in conditions.as_array_mut().into_iter().flatten() {
        if one["type"] == ConditionType::Ready.text() {
            one["status"] = json!("Unknown");
            one["reason"] = json!(Reason::AgentSilent.text());
            one["message"] = json!("the master does not hear the agent; check its pod and node");
            one["lastTransitionTime"] = json!(now);
        }
    }
    json!({
        "metadata": { "resourceVersion": object["metadata"]["resourceVersion"] },
        "status": { "conditions": conditions },
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::master_api::{AgentDocument, SegmentDocument};

    fn node(name: &str, ready: &str) -> (ChildKey, Value) {
        let key = ChildKey {
            kind: ChildKind::CacheNode,
            namespace: Some("apps".to_owned()),
            name: format!("small-{name}"),
        };
        let object = json!({
            "metadata": { "resourceVersion": "7" },
            "spec": { "nodeName": name },
            "status": { "conditions": [
                { "type": "Other", "status": "True" },
                { "type": "Ready", "status": ready, "reason": "Serving", "message": "old" },
            ] },
        });
        (key, object)
    }

    fn view(agents: &[(&str, usize)]) -> Arc<MasterView> {
        let segment = SegmentDocument {
            slab_bytes: 1,
            slabs: 1,
            free_slabs: 1,
        };
        let agent = |(name, count): &(&str, usize)| {
            let segments = vec![segment.clone(); *count];
            let name = (*name).to_owned();
            let agent = AgentDocument {
                name: name.clone(),
                segments,
                ..AgentDocument::default()
            };
            (name, agent)
        };
        Arc::new(MasterView {
            agents: agents.iter().map(agent).collect(),
            ..MasterView::default()
        })
    }

    #[test]
    fn only_who_was_missed_twice_and_says_ready_is_silent() {
        let standing: Standing = [
            node("alive", "True"),
            node("lost", "True"),
            node("unheard", "True"),
            node("honest", "False"),
            node("new", "True"),
        ]
        .into();
        let now = view(&[("alive", 1), ("lost", 0), ("honest", 0)]);
        let before = view(&[("alive", 1), ("lost", 0), ("new", 1)]);
        let names = |looks: &Looks| -> Vec<String> {
            silent(&standing, looks)
                .map(|(key, _)| key.name.clone())
                .collect()
        };
        let mut looks = Looks { now, before: None };
        assert_eq!(names(&looks), [""; 0], "one look is not enough");
        looks.before = Some(before);
        assert_eq!(names(&looks), ["small-lost", "small-unheard"]);
    }

    #[test]
    fn the_patch_changes_one_condition_of_the_version_that_was_seen() {
        let (_, object) = node("lost", "True");
        let body = patch(&object, "2026-01-01T00:00:00Z");
        assert_eq!(body["metadata"]["resourceVersion"], "7");
        let conditions = body["status"]["conditions"].as_array().expect("a list");
        assert_eq!(conditions[0], object["status"]["conditions"][0]);
        assert_eq!(conditions[1]["status"], "Unknown");
        assert_eq!(conditions[1]["reason"], "AgentSilent");
    }
}
