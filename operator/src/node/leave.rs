//! Nodes that should leave a pool: their drains are begun, watched, told and ended here.
//!
//! A mark in the CacheNode comes before the order to the master. So a later operator knows which
//! drains are its own: it goes on with them, and ends them when the node is to stay. A drain that
//! an administrator began has no mark, and is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use larder_crds::{DrainState, NodeDrain};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::drain::{Held, begun, is_news, step};
use super::members::Members;
use crate::child::{ChildKey, ChildKind, Standing};
use crate::context::Context;
use crate::error::ReconcileError;
use crate::master_api::{AgentDocument, DrainDocument, MasterError};
use crate::names::{MANAGER, PoolId};
use crate::pool::observe::Seen;

/// A drain is asked about no sooner than this after the last time: just below the pause between
/// two looks at a pool from which a node leaves.
const POLL_PAUSE: Duration = Duration::from_secs(4);
/// Figures of a drain are written no sooner than this after the last time.
const WRITE_PAUSE: Duration = Duration::from_secs(10);
/// The most drains that one look asks about. The others show what the list of agents says; so
/// hundreds of nodes that leave together cost 8 calls and 4 writes a second.
const POLLS_MAX: usize = 32;

/// A node that leaves, as this operator knows it.
#[derive(Clone, Debug, Default)]
struct Known {
    polled: Option<(Instant, DrainDocument)>,
    written: Option<Instant>,
}

/// When drains were asked about and told last, by uid of the pool and node. As many as nodes that
/// leave.
#[derive(Debug)]
pub struct Drains(watch::Sender<BTreeMap<(String, String), Known>>);

impl Default for Drains {
    fn default() -> Self {
        Self(watch::Sender::new(BTreeMap::new()))
    }
}

impl Drains {
    fn get(&self, pool: &PoolId, node: &str) -> Known {
        let key = (pool.uid.clone(), node.to_owned());
        self.0.borrow().get(&key).cloned().unwrap_or_default()
    }

    fn change(&self, pool: &PoolId, node: &str, change: impl FnOnce(&mut Known)) {
        self.0.send_modify(|all| {
            change(all.entry((pool.uid.clone(), node.to_owned())).or_default());
        });
    }

    fn keep(&self, pool: &PoolId, nodes: &BTreeSet<String>) {
        self.0.send_if_modified(|all| {
            let before = all.len();
            all.retain(|(uid, node), _| *uid != pool.uid || nodes.contains(node));
            all.len() != before
        });
    }

    /// Forgets a pool that is gone.
    pub fn forget(&self, pool: &PoolId) {
        self.keep(pool, &BTreeSet::new());
    }
}

/// The marks of a pool's CacheNodes, by node.
#[must_use]
pub fn marks(standing: &Standing) -> BTreeMap<String, NodeDrain> {
    let nodes = standing
        .iter()
        .filter(|(key, _)| key.kind == ChildKind::CacheNode);
    let mark = |(_, object): (&ChildKey, &Value)| {
        let node = object["spec"]["nodeName"].as_str()?.to_owned();
        // One that nobody can read was not written by an operator.
        let mark = serde_json::from_value(object["status"]["drain"].clone()).ok()?;
        Some((node, mark))
    };
    nodes.filter_map(mark).collect()
}

/// Takes every node that should leave one step further, and ends the drains of those that stay.
/// Who waits stays among the members; who is done with it loses the label in this pass.
///
/// # Errors
/// What the API server said. A master that fails is waited for.
pub async fn advance(
    context: &Context,
    pool: &PoolId,
    deadline_s: u32,
    members: &mut Members,
    seen: &Seen,
) -> Result<(), ReconcileError> {
    let marks = marks(&seen.standing);
    context.drains.keep(pool, &members.departing);
    end_others(context, pool, members, seen, &marks).await?;
    let mut polls = POLLS_MAX;
    for node in members.departing.clone() {
        let child = cache_node(&seen.standing, &node);
        // One that was to stay begins anew: its deadline counts from now.
        let begun_before = marks.get(&node).filter(|mark| !is_ending(mark));
        let mut mark = begun_before.cloned();
        let agent = seen.master.view().map(|view| view.agents.get(&node));
        let is_empty = |agent: &AgentDocument| agent.segments.is_empty();
        let held = match agent {
            None => Held::Unknown,
            Some(agent) if agent.is_none_or(is_empty) => Held::Nothing,
            // It has no CacheNode, but will have one in this pass.
            Some(_) if child.is_none() => Held::Unknown,
            Some(agent) => {
                if let (None, Some(child), 1..) = (&mark, child, deadline_s) {
                    let first = begun((context.now)());
                    write(context, child, Some(&first)).await?;
                    mark = Some(first);
                }
                let is_ordered = deadline_s == 0 || agent.is_some_and(|agent| agent.draining);
                let asked = ask(context, pool, &node, is_ordered, &mut polls).await;
                asked.unwrap_or_else(|| Held::Left(DrainDocument::of(agent)))
            }
        };
        let step = step(mark.as_ref(), &held, deadline_s, (context.now)());
        if let (Some(drain), Some(child)) = (&step.drain, child) {
            tell(context, pool, (&node, child), mark.as_ref(), drain).await?;
        }
        if step.leaves {
            tracing::info!(pool = pool.key(), node, "a node leaves the pool");
            members.nodes.remove(&node);
            members.leaving.insert(node);
        } else if let Some(drain) = step.drain {
            members.draining.insert(node, drain);
        }
    }
    Ok(())
}

fn cache_node<'s>(standing: &'s Standing, node: &str) -> Option<&'s ChildKey> {
    let mut nodes = standing
        .iter()
        .filter(|(key, _)| key.kind == ChildKind::CacheNode);
    let of = |(_, object): &(&ChildKey, &Value)| object["spec"]["nodeName"] == json!(node);
    nodes.find(of).map(|(key, _)| key)
}

/// Orders the drain unless that was done, and asks how far it is; `None` if that is not its turn.
async fn ask(
    context: &Context,
    pool: &PoolId,
    node: &str,
    is_ordered: bool,
    polls: &mut usize,
) -> Option<Held> {
    let failed = |error: &MasterError| {
        let text = larder_telemetry::error_chain(error);
        tracing::warn!(
            pool = pool.key(),
            node,
            error = text,
            "a drain is tried again"
        );
        if error.is_retryable() {
            Held::Unknown
        } else {
            Held::Refused(text)
        }
    };
    if !is_ordered {
        tracing::info!(
            pool = pool.key(),
            node,
            "moving the objects of a node that leaves"
        );
        if let Err(error) = context.master_api.drain(pool, node).await {
            return Some(failed(&error));
        }
    }
    let known = context.drains.get(pool, node).polled;
    let fresh = known.filter(|(at, _)| is_ordered && at.elapsed() < POLL_PAUSE);
    if let Some((_, document)) = fresh {
        return Some(Held::Left(document));
    }
    *polls = polls.checked_sub(1)?;
    match context.master_api.drain_status(pool, node).await {
        Ok(document) => {
            let polled = Some((Instant::now(), document.clone()));
            context
                .drains
                .change(pool, node, |known| known.polled = polled);
            Some(Held::Left(document))
        }
        Err(error) => Some(failed(&error)),
    }
}

/// Writes what is new: figures seldom, all else at once.
async fn tell(
    context: &Context,
    pool: &PoolId,
    (node, child): (&str, &ChildKey),
    old: Option<&NodeDrain>,
    new: &NodeDrain,
) -> Result<(), ReconcileError> {
    let written = context.drains.get(pool, node).written;
    let rests = written.is_some_and(|at| at.elapsed() < WRITE_PAUSE);
    if old == Some(new) || (rests && !is_news(old, new)) {
        return Ok(());
    }
    write(context, child, Some(new)).await?;
    let now = Instant::now();
    context
        .drains
        .change(pool, node, |known| known.written = Some(now));
    Ok(())
}

/// Ends the drains of nodes that stay after all, and those that are left of nodes that went: the
/// master keeps the order for a name, and a node that returns would get nothing.
async fn end_others(
    context: &Context,
    pool: &PoolId,
    members: &mut Members,
    seen: &Seen,
    marks: &BTreeMap<String, NodeDrain>,
) -> Result<(), ReconcileError> {
    let stays =
        |node: &&String| members.nodes.contains(*node) && !members.departing.contains(*node);
    let back: Vec<String> = marks.keys().filter(stays).cloned().collect();
    let Some(view) = seen.master.view() else {
        for node in &back {
            mark_ending(context, seen, (node, marks.get(node))).await?;
        }
        members.returning.extend(back);
        return Ok(());
    };
    let label = pool.node_label();
    let labelled = seen
        .nodes
        .iter()
        .filter(|node| node.labels.contains_key(&label));
    let labelled: BTreeSet<&str> = labelled.map(|node| node.name.as_str()).collect();
    let agents = view.agents.values().filter(|agent| agent.draining);
    let is_left_over = |agent: &&AgentDocument| {
        let comes = members.joining.contains(&agent.name);
        !labelled.contains(agent.name.as_str()) && (comes || agent.segments.is_empty())
    };
    let left_over = agents.filter(is_left_over).map(|agent| agent.name.clone());
    for node in left_over.chain(back).collect::<BTreeSet<_>>() {
        if view.agents.get(&node).is_some_and(|agent| agent.draining)
            && let Err(error) = context.master_api.undrain(pool, &node).await
        {
            let error = larder_telemetry::error_chain(&error);
            tracing::warn!(
                pool = pool.key(),
                node,
                error,
                "a drain does not end; tried again"
            );
            mark_ending(context, seen, (&node, marks.get(&node))).await?;
            members.returning.insert(node);
            continue;
        }
        if let (Some(_), Some(child)) = (marks.get(&node), cache_node(&seen.standing, &node)) {
            tracing::info!(pool = pool.key(), node, "a node stays after all");
            write(context, child, None).await?;
        }
    }
    Ok(())
}

fn is_ending(mark: &NodeDrain) -> bool {
    mark.state == DrainState::Ending
}

/// A node is to stay and the master cannot be told. Its mark must not count if the node is to
/// leave again before that: it would do so at once, with a deadline that passed meanwhile.
async fn mark_ending(
    context: &Context,
    seen: &Seen,
    (node, mark): (&str, Option<&NodeDrain>),
) -> Result<(), ReconcileError> {
    let mark = mark.filter(|mark| !is_ending(mark));
    if let (Some(mark), Some(child)) = (mark, cache_node(&seen.standing, node)) {
        let ending = NodeDrain {
            state: DrainState::Ending,
            ..mark.clone()
        };
        write(context, child, Some(&ending)).await?;
    }
    Ok(())
}

/// Of the status only this field is ours, and a merge touches no other.
async fn write(
    context: &Context,
    child: &ChildKey,
    drain: Option<&NodeDrain>,
) -> Result<(), ReconcileError> {
    let namespace = child.namespace.as_deref().unwrap_or_default();
    let resource = ChildKind::CacheNode.resource();
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &resource);
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let body = json!({ "status": { "drain": drain.map(body) } });
    match api
        .patch_status(&child.name, &params, &Patch::Merge(&body))
        .await
    {
        Ok(_) => context.metrics.wrote("CacheNode", "status"),
        // It went in between.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(source) => return Err(ReconcileError::api("write the status of", child, source)),
    }
    Ok(())
}

/// With nulls, which take away what stood there.
fn body(drain: &NodeDrain) -> Value {
    json!({
        "state": drain.state,
        "startedAt": drain.started_at,
        "objectsLeft": drain.objects_left,
        "bytesLeft": drain.bytes_left,
        "extentsLeft": drain.extents_left,
        "message": drain.message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mut mark = begun(jiff::Timestamp::from_second(7).expect("in range"));
        mark.bytes_left = Some(3);
        let key = ChildKey {
            kind: ChildKind::CacheNode,
            namespace: Some("apps".to_owned()),
            name: "small-n1".to_owned(),
        };
        let object =
            |drain: Value| json!({ "spec": { "nodeName": "n1" }, "status": { "drain": drain } });
        let read = |drain| marks(&[(key.clone(), object(drain))].into());
        assert_eq!(read(body(&mark)), [("n1".to_owned(), mark)].into());
        assert!(read(json!({ "state": "Gone" })).is_empty());
        assert!(read(Value::Null).is_empty());
    }
}
