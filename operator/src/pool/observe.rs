//! What there is of a pool: from the watches, and from its master.

use std::sync::Arc;

use serde_json::Value;

use crate::child::{ChildKey, ChildKind, Standing};
use crate::context::Context;
use crate::master_api::{Looks, MasterView};
use crate::names::{LABEL_POOL_UID, PoolId};
use crate::node::facts::NodeFacts;

/// What a reconcile goes by.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Children of this very pool, as the watches know them.
    pub standing: Standing,
    /// Every node.
    pub nodes: Vec<NodeFacts>,
    /// The master.
    pub master: MasterSeen,
}

/// What is known of the master.
#[derive(Clone, Debug)]
pub enum MasterSeen {
    /// No pod of it is ready.
    Starting,
    /// It did not answer; the text says why.
    Silent(String),
    /// It answered.
    Leads(Looks),
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
pub async fn observe(context: &Context, id: &PoolId) -> Seen {
    let standing = context.stores.labelled(LABEL_POOL_UID, &id.uid);
    let nodes = context.stores.nodes.state();
    let mut nodes: Vec<NodeFacts> = nodes.iter().map(|node| NodeFacts::of(node)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let key = |kind, name| ChildKey {
        kind,
        namespace: Some(id.namespace.clone()),
        name,
    };
    let masters = standing.get(&key(ChildKind::StatefulSet, id.master()));
    let ready = masters
        .and_then(|set| set["status"]["readyReplicas"].as_u64())
        .unwrap_or(0);
    let master = if ready == 0 {
        context.masters.forget(&id.uid);
        MasterSeen::Starting
    } else {
        look(context, id).await
    };
    Seen {
        standing,
        nodes,
        master,
    }
}

async fn look(context: &Context, id: &PoolId) -> MasterSeen {
    match context.master_api.look(id).await {
        Ok(view) => {
            context.masters.set(&id.uid, Arc::new(view));
            match context.masters.get(&id.uid) {
                Some(looks) => MasterSeen::Leads(looks),
                None => MasterSeen::Starting,
            }
        }
        Err(error) => {
            context.masters.forget(&id.uid);
            let error = larder_telemetry::error_chain(&error);
            tracing::warn!(pool = id.key(), error, "the master was not reached");
            MasterSeen::Silent(error)
        }
    }
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
