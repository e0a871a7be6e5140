//! Where nodes stand: the master is told the zone, rack and host of each agent, from the labels of
//! its Node.

use std::collections::BTreeMap;

use larder_crds::PoolSettings;
use tokio::sync::watch;

use super::facts::NodeFacts;
use crate::context::Context;
use crate::master_api::{AgentLabels, MasterError, MasterView};
use crate::names::PoolId;

/// The label of Kubernetes that names a node's zone.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";
/// Longest label that a master takes, in bytes; that of a Node is never longer, its name may be.
const LABEL_BYTES_MAX: usize = 63;
/// The most agents that one look tells about: a second of calls. The next look goes on.
const TOLD_MAX: usize = 256;

/// What was told: the labels, and what the master showed before.
type Told = BTreeMap<(String, String), (AgentLabels, AgentLabels)>;

/// What masters were told and do not show, by uid of the pool and node. A master may keep a label
/// that the agent itself brought, so what it shows need not become what it was told. As many as
/// nodes of which that is so.
#[derive(Debug)]
pub struct Topology(watch::Sender<Told>);

impl Default for Topology {
    fn default() -> Self {
        Self(watch::Sender::new(Told::new()))
    }
}

impl Topology {
    /// Forgets a pool that is gone.
    pub fn forget(&self, pool: &PoolId) {
        self.retain(|uid, _| *uid != pool.uid);
    }

    fn retain(&self, keep: impl Fn(&String, &String) -> bool) {
        self.0.send_if_modified(|told| {
            let before = told.len();
            told.retain(|(uid, node), _| keep(uid, node));
            told.len() != before
        });
    }
}

/// The labels of an agent on this node.
#[must_use]
pub fn labels_of(node: &NodeFacts, rack_label: &str) -> AgentLabels {
    let fits = |text: &&String| (1..=LABEL_BYTES_MAX).contains(&text.len());
    let label = |key: &str| node.labels.get(key).filter(fits).cloned();
    AgentLabels {
        host: Some(&node.name).filter(fits).cloned(),
        rack: label(rack_label),
        zone: label(ZONE_LABEL),
    }
}

/// Whom to tell what: agents that the master shows with other labels. A master that shows none
/// does not know labels.
fn missing<'a>(
    rack_label: &'a str,
    nodes: &'a [NodeFacts],
    view: &'a MasterView,
) -> impl Iterator<Item = (&'a NodeFacts, AgentLabels, AgentLabels)> {
    nodes.iter().filter_map(|node| {
        let shown = view.agents.get(&node.name)?.labels.clone()?;
        let wanted = labels_of(node, rack_label);
        (shown != wanted).then_some((node, wanted, shown))
    })
}

/// Tells the master what it does not know. Returns whether more is to be told. A failure is no
/// reason to stop: placement works without.
pub async fn tell(
    context: &Context,
    pool: &PoolId,
    settings: &PoolSettings,
    nodes: &[NodeFacts],
    view: &MasterView,
) -> bool {
    let missing: Vec<_> = missing(&settings.rack_label, nodes, view).collect();
    context.topology.retain(|uid, known| {
        *uid != pool.uid || missing.iter().any(|(node, ..)| node.name == *known)
    });
    let mut left = TOLD_MAX;
    for (node, wanted, shown) in missing {
        let key = (pool.uid.clone(), node.name.clone());
        let said = (wanted, shown);
        if context.topology.0.borrow().get(&key) == Some(&said) {
            continue;
        }
        if left == 0 {
            return true;
        }
        left -= 1;
        match context
            .master_api
            .set_labels(pool, &node.name, &said.0)
            .await
        {
            Ok(()) => tracing::info!(pool = pool.key(), node = node.name, labels = ?said.0, "told"),
            // It went in between, or the master is of a version that takes no labels.
            Err(MasterError::Refused {
                status: 404 | 405, ..
            }) => tracing::debug!(node = node.name, "the master takes no labels of the agent"),
            Err(error) => {
                let is_retryable = error.is_retryable();
                let error = larder_telemetry::error_chain(&error);
                tracing::warn!(
                    pool = pool.key(),
                    node = node.name,
                    error,
                    "labels are not told"
                );
                if is_retryable {
                    return true;
                }
            }
        }
        context.topology.0.send_modify(|told| {
            told.insert(key, said);
        });
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master_api::AgentDocument;

    fn node(name: &str, labels: &[(&str, &str)]) -> NodeFacts {
        let labels = labels
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        NodeFacts {
            name: name.to_owned(),
            labels: labels.collect(),
            is_leaving: false,
            is_ready: true,
            is_tainted: false,
            memory_bytes: None,
        }
    }

    #[test]
    fn labels_come_from_the_node() {
        let long = "n".repeat(64);
        let found = labels_of(&node("n1", &[(ZONE_LABEL, "z1"), ("rack", "")]), "rack");
        let wanted = AgentLabels {
            host: Some("n1".to_owned()),
            rack: None,
            zone: Some("z1".to_owned()),
        };
        assert_eq!(found, wanted);
        assert_eq!(labels_of(&node(&long, &[]), "rack"), AgentLabels::default());
    }

    #[test]
    fn only_what_differs_is_told_and_nothing_to_a_master_without_labels() {
        let nodes = [
            node("right", &[("rack", "r1")]),
            node("wrong", &[("rack", "r2")]),
            node("old-master", &[]),
            node("no-agent", &[]),
        ];
        let agent = |name: &str, labels: Option<AgentLabels>| {
            let agent = AgentDocument {
                name: name.to_owned(),
                labels,
                ..AgentDocument::default()
            };
            (name.to_owned(), agent)
        };
        let labels = |host: &str| {
            Some(AgentLabels {
                host: Some(host.to_owned()),
                rack: Some("r1".to_owned()),
                zone: None,
            })
        };
        let agents = [
            agent("right", labels("right")),
            agent("wrong", labels("wrong")),
            agent("old-master", None),
        ];
        let view = MasterView {
            agents: agents.into(),
            ..MasterView::default()
        };
        let told: Vec<_> = missing("rack", &nodes, &view).collect();
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].0.name.as_str(), told[0].1.rack.as_deref()),
            ("wrong", Some("r2"))
        );
    }
}
