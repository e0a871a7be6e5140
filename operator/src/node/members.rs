//! Which nodes belong to a pool: a pure choice that moves as few nodes as it can.

use std::collections::{BTreeMap, BTreeSet};

use larder_crds::PoolSettings;

use super::facts::NodeFacts;
use crate::master_api::MasterView;

/// What was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Nodes that belong to the pool from now on, sorted.
    pub nodes: BTreeSet<String>,
    /// Nodes that get the label.
    pub joining: BTreeSet<String>,
    /// Nodes that lose the label.
    pub leaving: BTreeSet<String>,
    /// Nodes that should leave and stay, with the bytes they hold; `None` if nobody knows.
    pub blocked: BTreeMap<String, Option<u64>>,
    /// How many nodes match the selector.
    pub matching: usize,
    /// Matching nodes without enough memory.
    pub too_small: BTreeSet<String>,
    /// How many nodes the pool should have.
    pub desired: usize,
}

/// Chooses the members among `nodes`. `label` marks the present ones, `need_bytes` is the memory
/// of an agent. A node leaves only when the master says that it holds nothing.
#[must_use]
pub fn choose(
    pool: &PoolSettings,
    label: &str,
    need_bytes: u64,
    nodes: &[NodeFacts],
    view: Option<&MasterView>,
) -> Members {
    let matching: Vec<&NodeFacts> = nodes
        .iter()
        .filter(|n| n.matches(&pool.node_selector))
        .collect();
    let is_member = |node: &NodeFacts| node.labels.contains_key(label);
    // A member stays although its memory became too small, as long as it matches: its agent runs.
    let matching_count = matching.len();
    let (fit, small): (Vec<&NodeFacts>, Vec<&NodeFacts>) = matching
        .into_iter()
        .partition(|node| node.has_room(need_bytes) || is_member(node));
    let desired = pool
        .node_count
        .map_or(matching_count, |count| count as usize);

    let (mut staying, mut free): (Vec<&NodeFacts>, Vec<&NodeFacts>) =
        fit.into_iter().partition(|node| is_member(node));
    // Empty ones go first, then the last by name, so that the choice is the same each time.
    let held = |node: &NodeFacts| held_bytes(view, &node.name);
    staying.sort_by_key(|node| {
        (
            std::cmp::Reverse(held(node).unwrap_or(u64::MAX)),
            &node.name,
        )
    });
    let surplus = staying.split_off(staying.len().min(desired));
    free.sort_by_key(|node| (!node.is_ready, &node.name));
    free.truncate(desired.saturating_sub(staying.len()));

    let unfit = nodes
        .iter()
        .filter(|node| is_member(node) && !node.matches(&pool.node_selector));
    let mut members = Members {
        matching: matching_count,
        too_small: small.iter().map(|node| node.name.clone()).collect(),
        desired,
        ..Members::default()
    };
    for node in surplus.into_iter().chain(unfit) {
        match held(node) {
            Some(0) => {
                members.leaving.insert(node.name.clone());
            }
            held => {
                members.blocked.insert(node.name.clone(), held);
                members.nodes.insert(node.name.clone());
            }
        }
    }
    members
        .nodes
        .extend(staying.iter().chain(&free).map(|node| node.name.clone()));
    members.joining = free.iter().map(|node| node.name.clone()).collect();
    members
}

/// Nodes whose Node object is gone but whose agent the master has not lost yet: their CacheNode
/// stays until it has, or as long as nobody knows.
#[must_use]
pub fn lingering(
    cache_nodes: impl IntoIterator<Item = String>,
    nodes: &[NodeFacts],
    view: Option<&MasterView>,
) -> BTreeSet<String> {
    let present: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    cache_nodes
        .into_iter()
        .filter(|name| !present.contains(name.as_str()))
        .filter(|name| {
            view.is_none_or(|v| {
                v.agents
                    .get(name)
                    .is_some_and(|agent| !agent.segments.is_empty())
            })
        })
        .collect()
}

/// Bytes that an agent holds; 0 if the master knows no such agent, `None` if nobody can say.
fn held_bytes(view: Option<&MasterView>, node: &str) -> Option<u64> {
    view.map(|view| view.agents.get(node).map_or(0, |agent| agent.held_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::master_api::{AgentDocument, SegmentDocument};

    const LABEL: &str = "pool.larder.dev/u";

    fn settings(count: Option<u32>) -> PoolSettings {
        PoolSettings {
            namespace: "apps".into(),
            name: "p".into(),
            masters: 1,
            node_selector: BTreeMap::new(),
            node_count: count,
            agents: 1,
            dram_tier: "memory".into(),
            node_dram_bytes: 1 << 30,
            slab_bytes: 2 << 20,
            replica_factor: 1,
            overcommit: larder_crds::Overcommit::Warn,
            master: larder_crds::MasterSettings::default(),
        }
    }

    fn node(name: &str, member: bool) -> NodeFacts {
        let labels = member.then(|| (LABEL.to_owned(), "p".to_owned()));
        NodeFacts {
            name: name.into(),
            labels: labels.into_iter().collect(),
            is_leaving: false,
            is_ready: true,
            is_tainted: false,
            memory_bytes: Some(8 << 30),
        }
    }

    fn view(held: &[(&str, u64)]) -> MasterView {
        let agent = |(name, slabs): &(&str, u64)| {
            let segment = SegmentDocument {
                slab_bytes: 2,
                slabs: 100,
                free_slabs: 100 - slabs,
            };
            let agent = AgentDocument {
                name: (*name).to_owned(),
                segments: vec![segment],
            };
            ((*name).to_owned(), agent)
        };
        MasterView {
            agents: held.iter().map(agent).collect(),
            ..MasterView::default()
        }
    }

    fn names(set: &BTreeSet<String>) -> Vec<&str> {
        set.iter().map(String::as_str).collect()
    }

    #[test]
    fn all_matching_or_as_many_as_asked() {
        let nodes = [node("a", false), node("b", false), node("c", false)];
        let all = choose(&settings(None), LABEL, 1, &nodes, None);
        assert_eq!((names(&all.joining), all.desired), (vec!["a", "b", "c"], 3));
        let mut nodes = nodes;
        nodes[0].is_ready = false;
        let two = choose(&settings(Some(2)), LABEL, 1, &nodes, None);
        assert_eq!(names(&two.joining), ["b", "c"], "ready ones first");
        let many = choose(&settings(Some(9)), LABEL, 1, &nodes, None);
        assert_eq!((many.nodes.len(), many.desired, many.matching), (3, 9, 3));
    }

    #[test]
    fn a_node_that_holds_objects_stays() {
        let nodes = [node("a", true), node("b", true), node("c", true)];
        let held = view(&[("a", 0), ("b", 3), ("c", 0)]);
        let one = choose(&settings(Some(1)), LABEL, 1, &nodes, Some(&held));
        assert_eq!(names(&one.nodes), ["b"]);
        assert_eq!(names(&one.leaving), ["a", "c"]);
        let full = view(&[("a", 1), ("b", 3), ("c", 2)]);
        let one = choose(&settings(Some(1)), LABEL, 1, &nodes, Some(&full));
        assert_eq!(one.nodes.len(), 3);
        assert_eq!(
            one.blocked,
            BTreeMap::from([("a".into(), Some(2)), ("c".into(), Some(4))])
        );
        let unknown = choose(&settings(Some(1)), LABEL, 1, &nodes, None);
        assert_eq!((unknown.leaving.len(), unknown.blocked.len()), (0, 2));
    }

    #[test]
    fn too_small_nodes_do_not_join() {
        let mut nodes = [node("a", false), node("b", false)];
        nodes[0].memory_bytes = Some(1);
        let members = choose(&settings(None), LABEL, 1 << 30, &nodes, None);
        assert_eq!(
            (names(&members.nodes), names(&members.too_small)),
            (vec!["b"], vec!["a"])
        );
        assert_eq!(members.desired, 2);
    }

    #[test]
    fn a_lost_node_lingers_until_the_master_lost_it() {
        let nodes = [node("a", true)];
        let known = || ["a".to_owned(), "b".to_owned()];
        assert_eq!(names(&lingering(known(), &nodes, None)), ["b"]);
        assert_eq!(
            names(&lingering(known(), &nodes, Some(&view(&[("b", 1)])))),
            ["b"]
        );
        assert!(lingering(known(), &nodes, Some(&view(&[]))).is_empty());
    }

    proptest! {
        /// Whatever is there: who holds something stays, and doing what was chosen settles it.
        #[test]
        fn choices_are_safe_and_settle(
            kinds in prop::collection::vec((any::<bool>(), any::<bool>(), 0..3u64), 0..12),
            count in prop::option::of(0..8u32),
        ) {
            let mut nodes = Vec::new();
            let mut held = Vec::new();
            for (at, (member, matches, slabs)) in kinds.iter().enumerate() {
                let mut one = node(&format!("n{at:02}"), *member);
                one.is_tainted = !matches;
                nodes.push(one);
                held.push((format!("n{at:02}"), *slabs));
            }
            let held: Vec<(&str, u64)> = held.iter().map(|(n, s)| (n.as_str(), *s)).collect();
            let view = view(&held);
            let first = choose(&settings(count), LABEL, 1, &nodes, Some(&view));
            for name in &first.leaving {
                prop_assert_eq!(view.agents[name].held_bytes(), 0);
                prop_assert!(!first.nodes.contains(name));
            }
            for node in &mut nodes {
                if first.nodes.contains(&node.name) {
                    node.labels.insert(LABEL.into(), "p".into());
                } else {
                    node.labels.remove(LABEL);
                }
            }
            let second = choose(&settings(count), LABEL, 1, &nodes, Some(&view));
            prop_assert_eq!(&second.nodes, &first.nodes);
            prop_assert!(second.joining.is_empty() && second.leaving.is_empty());
        }
    }
}
