//! Makes the controller of a pool's DaemonSet count its nodes once more.
//!
//! That controller looks at a DaemonSet when the DaemonSet or a node changes, and only then. One
//! that is made while pods of an earlier DaemonSet of its name still end may be counted wrong, and
//! nothing makes the controller look again: the pool would wait for an agent for ever.

use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::child::{ChildKey, ChildKind, Standing};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::names::{MANAGER, PoolId};
use crate::node::members::Members;

/// On a DaemonSet: how often it was touched in its life, and when last.
const ANNOTATION: &str = "larder.dev/looked-again";
/// How long the first shortage must last; each later pause is twice the one before.
const PAUSE_FIRST_SECONDS: i64 = 10;
/// Most touches in the life of a DaemonSet, the last one 310 s after the first shortage: pods of
/// an earlier one have ended by then, and what is still missing has another cause.
const TOUCHES_MAX: u32 = 5;

/// Touches the DaemonSet if its controller knows of too few nodes.
///
/// # Errors
/// [`ReconcileError::Api`]; a DaemonSet that is gone is no error.
pub async fn nudge(
    context: &Context,
    id: &PoolId,
    members: &Members,
    standing: &Standing,
) -> Result<(), ReconcileError> {
    let key = ChildKey {
        kind: ChildKind::DaemonSet,
        namespace: Some(id.namespace.clone()),
        name: id.agent(),
    };
    // Nodes that join carry the label since a moment ago, and a taint keeps agents from some that
    // stay although they should leave.
    let is_counted =
        |node: &&String| !members.joining.contains(*node) && !members.blocked.contains_key(*node);
    let counted = members.nodes.iter().filter(is_counted).count();
    let set = standing.get(&key);
    let Some(touch) = set.and_then(|set| next_touch(set, counted, (context.now)())) else {
        return Ok(());
    };
    tracing::info!(child = %key, touch, "its controller misses nodes; making it look again");
    let body = json!({ "metadata": { "annotations": { ANNOTATION: touch } } });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let api = key
        .kind
        .api(context.client.clone(), key.namespace.as_deref());
    match api
        .patch_metadata(&key.name, &params, &Patch::Merge(&body))
        .await
    {
        Ok(_) => context.metrics.wrote(key.kind.text(), "touch"),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(source) => return Err(ReconcileError::api("touch", key, source)),
    }
    Ok(())
}

/// The next value of the annotation, if it is time for one. All that it goes by stands in the
/// object, so a new leader goes on where the last one stopped.
fn next_touch(set: &Value, counted: usize, now: Timestamp) -> Option<String> {
    let (metadata, status) = (&set["metadata"], &set["status"]);
    let observed = status["observedGeneration"].as_u64()?;
    if metadata["generation"].as_u64() != Some(observed) {
        return None;
    }
    if status["desiredNumberScheduled"].as_u64()? >= counted as u64 {
        return None;
    }
    let (touches, last) = match metadata["annotations"][ANNOTATION].as_str() {
        Some(before) => {
            let (touches, last) = before.split_once(' ')?;
            (touches.parse::<u32>().ok()?, last)
        }
        None => (0, metadata["creationTimestamp"].as_str()?),
    };
    if touches >= TOUCHES_MAX {
        return None;
    }
    let pause = SignedDuration::from_secs(PAUSE_FIRST_SECONDS << touches);
    let is_due = now.duration_since(last.parse().ok()?) >= pause;
    is_due.then(|| format!("{} {now:.0}", touches + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(desired: u64, touched: Option<&str>) -> Value {
        json!({
            "metadata": {
                "generation": 2,
                "creationTimestamp": "1970-01-01T00:00:00Z",
                "annotations": { ANNOTATION: touched },
            },
            "status": { "observedGeneration": 2, "desiredNumberScheduled": desired },
        })
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn only_a_shortage_that_lasts_is_touched() {
        let due = at(PAUSE_FIRST_SECONDS);
        assert!(next_touch(&set(2, None), 3, due).is_some());
        assert_eq!(next_touch(&set(2, None), 3, at(9)), None, "just made");
        assert_eq!(
            next_touch(&set(3, None), 3, due),
            None,
            "nothing is missing"
        );
        let mut unseen = set(2, None);
        unseen["metadata"]["generation"] = json!(3);
        assert_eq!(
            next_touch(&unseen, 3, due),
            None,
            "it is to be looked at yet"
        );
        assert_eq!(next_touch(&set(2, Some("theirs")), 3, due), None);
    }

    #[test]
    fn touches_become_rare_and_end() {
        let (mut touched, mut seconds) = (None, Vec::new());
        for second in 0..10_000 {
            let next = next_touch(&set(0, touched.as_deref()), 1, at(second));
            if let Some(next) = next {
                seconds.push(second);
                touched = Some(next);
            }
        }
        assert_eq!(seconds, [10, 30, 70, 150, 310]);
    }
}
