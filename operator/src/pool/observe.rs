//! What there is of a pool: from the watches, and from its master.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use larder_crds::{CachePool, MastersStatus};
use serde_json::Value;

use crate::child::{ChildKey, ChildKind, Standing};
use crate::context::Context;
use crate::master_api::{Looks, MasterError, MasterView};
use crate::masters::{self, MastersSeen, roll};
use crate::names::PoolId;
use crate::node::facts::NodeFacts;
use crate::reasons::{ConditionType, Reason};

/// Most events that are read; the controller repeats one rather than writing many.
const EVENTS_MAX: u32 = 20;

/// What a reconcile goes by.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The pool.
    pub id: PoolId,
    /// Children of this very pool, as the watches know them.
    pub standing: Standing,
    /// Every node.
    pub nodes: Vec<NodeFacts>,
    /// How many masters there should be and how many are ready.
    pub masters: MastersStatus,
    /// Their pods and what is to be done with them.
    pub pods: MastersSeen,
    /// The master that leads.
    pub master: MasterSeen,
    /// Why agents' pods cannot be made, if they cannot.
    pub refusal: Option<String>,
}

/// What is known of the master.
#[derive(Clone, Debug)]
pub enum MasterSeen {
    /// No pod of it is ready.
    Starting,
    /// It did not answer; the text says why.
    Silent(String),
    /// None of several leads that did before; these answer.
    Leaderless(Vec<String>),
    /// It answered.
    Leads(Looks),
}

impl Seen {
    /// What the leader says of the masters.
    #[must_use]
    pub fn roll_view(&self) -> Option<roll::View> {
        masters::view(&self.id, &self.master.view()?.masters)
    }

    /// What the next step with the masters' pods follows from, if that is known.
    #[must_use]
    pub fn roll(&self) -> Option<roll::Masters> {
        masters::masters(&self.pods, self.masters.desired, self.roll_view().as_ref())
    }

    /// How many masters there are to be for now.
    #[must_use]
    pub fn masters_now(&self) -> u32 {
        let desired = self.masters.desired;
        roll::count(desired, self.pods.count, self.roll_view().as_ref())
    }
}

impl MasterSeen {
    /// What it answered.
    #[must_use]
    pub fn view(&self) -> Option<&MasterView> {
        match self {
            Self::Leads(looks) => Some(&looks.now),
            _ => None,
        }
    }
}

/// Looks at everything. It asks the master, and reads nothing from the API server: the watches
/// know it already.
pub async fn observe(context: &Context, pool: &CachePool) -> Seen {
    let id = &PoolId::of(pool);
    let standing = context.stores.of_pool(id);
    let nodes = context.stores.nodes.state();
    let mut nodes: Vec<NodeFacts> = nodes.iter().map(|node| NodeFacts::of(node)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let key = |kind, name| ChildKey {
        kind,
        namespace: Some(id.namespace.clone()),
        name,
    };
    let masters = standing.get(&key(ChildKind::StatefulSet, id.master()));
    let pods = MastersSeen {
        pods: context.stores.masters_of(id),
        has_volumes: pool.spec.masters.storage.is_some(),
        has_led: has_led(pool),
        ..MastersSeen::default()
    };
    let pods = pods.of_set(masters);
    let ready = masters
        .and_then(|set| set["status"]["readyReplicas"].as_u64())
        .and_then(|ready| u32::try_from(ready).ok())
        .unwrap_or(0);
    let masters = MastersStatus {
        desired: pool.spec.masters.replicas,
        ready,
    };
    // While masters are to go they make up the quorum still.
    let is_plural = masters.desired.max(pods.count.unwrap_or(0)) > 1;
    let may_be_leaderless = is_plural && pods.has_led;
    let master = look(context, id, &masters, may_be_leaderless).await;
    let refusal = match lacking_agents(&standing) {
        Some(set) => refusal(context, id, set).await,
        None => None,
    };
    Seen {
        id: id.clone(),
        standing,
        nodes,
        masters,
        pods,
        master,
        refusal,
    }
}

/// The uid of the DaemonSet while it has fewer pods than it should, as far as its controller knows.
fn lacking_agents(standing: &Standing) -> Option<&str> {
    let (_, set) = standing
        .iter()
        .find(|(key, _)| key.kind == ChildKind::DaemonSet)?;
    let count = |field: &str| set["status"][field].as_u64().unwrap_or(0);
    let lacks = count("currentNumberScheduled") < count("desiredNumberScheduled");
    set["metadata"]["uid"].as_str().filter(|_| lacks)
}

/// What the controller of the DaemonSet said last about pods that it could not make. Only an event
/// tells it: the status of a DaemonSet has no word for it.
async fn refusal(context: &Context, id: &PoolId, set: &str) -> Option<String> {
    let events: Api<Event> = Api::namespaced(context.client.clone(), &id.namespace);
    let fields = format!("involvedObject.uid={set},reason=FailedCreate");
    let params = ListParams::default().fields(&fields).limit(EVENTS_MAX);
    match events.list(&params).await {
        // Which of them is the newest matters little: all are about the same template.
        Ok(found) => Some(reason_of(found.items.last()?.message.as_deref()?).to_owned()),
        Err(error) => {
            tracing::warn!(pool = id.key(), %error, "events about agents cannot be read");
            None
        }
    }
}

/// Whether a master of the pool led before. Then no ready one means a loss and not a beginning.
fn has_led(pool: &CachePool) -> bool {
    let conditions = pool.status.as_ref().map(|status| &status.conditions);
    let kind = ConditionType::LeaderElected.text();
    let found = conditions
        .into_iter()
        .flatten()
        .find(|one| one.type_ == kind);
    let after = [
        Reason::MasterNotReached,
        Reason::Electing,
        Reason::QuorumLost,
    ];
    found.is_some_and(|one| {
        one.status == "True" || after.iter().any(|reason| reason.text() == one.reason)
    })
}

async fn look(
    context: &Context,
    id: &PoolId,
    masters: &MastersStatus,
    may_be_leaderless: bool,
) -> MasterSeen {
    // One that is alone and not ready need not be asked.
    if masters.ready == 0 && !may_be_leaderless {
        context.masters.forget(&id.uid);
        return MasterSeen::Starting;
    }
    let error = match context.master_api.look(id).await {
        Ok(view) => {
            context.masters.set(&id.uid, Arc::new(view));
            let looks = context.masters.get(&id.uid);
            return looks.map_or(MasterSeen::Starting, MasterSeen::Leads);
        }
        Err(error) => error,
    };
    context.masters.forget(&id.uid);
    let answered = match &error {
        MasterError::NoLeader { answered, .. } => Some(answered.clone()),
        MasterError::Unreachable { .. } | MasterError::Slow { .. } if masters.ready == 0 => {
            Some(Vec::new())
        }
        _ => None,
    };
    let error = larder_telemetry::error_chain(&error);
    tracing::warn!(pool = id.key(), error, "the master was not reached");
    match answered {
        Some(answered) if may_be_leaderless => MasterSeen::Leaderless(answered),
        Some(_) => MasterSeen::Starting,
        None => MasterSeen::Silent(error),
    }
}

/// The part of `pods "NAME" is forbidden: REASON` that stays the same from try to try: the name is
/// another one each time, and a condition must not change for that.
fn reason_of(said: &str) -> &str {
    said.split_once("is forbidden: ")
        .map_or(said, |(_, reason)| reason)
}

/// The nodes that have a CacheNode.
pub fn node_names(standing: &Standing) -> impl Iterator<Item = String> {
    let cache_nodes = standing
        .iter()
        .filter(|(key, _)| key.kind == ChildKind::CacheNode);
    cache_nodes.filter_map(|(_, node)| node["spec"]["nodeName"].as_str().map(str::to_owned))
}

/// How many agents' pods are ready.
#[must_use]
pub fn ready_agents(standing: &Standing) -> u32 {
    let set = standing
        .iter()
        .find(|(key, _)| key.kind == ChildKind::DaemonSet);
    let ready = set.and_then(|(_, set): (_, &Value)| set["status"]["numberReady"].as_u64());
    ready
        .and_then(|ready| u32::try_from(ready).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::reason_of;

    #[test]
    fn what_differs_from_try_to_try_is_left_out() {
        let said =
            |name: &str| format!("Error creating: pods \"{name}\" is forbidden: no hostPath");
        assert_eq!(reason_of(&said("a-1")), "no hostPath");
        assert_eq!(reason_of(&said("a-1")), reason_of(&said("a-2")));
        assert_eq!(reason_of("no room"), "no room");
    }
}
