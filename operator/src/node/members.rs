//! Which nodes belong to a pool: a pure choice that moves as few nodes as it can.

use std::collections::{BTreeMap, BTreeSet};

use larder_crds::{NodeDrain, PoolSettings};

use super::facts::NodeFacts;
use crate::master_api::MasterView;

/// What was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Nodes that belong to the pool from now on, sorted.
    pub nodes: BTreeSet<String>,
    /// Nodes that get the label.
    pub joining: BTreeSet<String>,
    /// Nodes that should leave; they are members until they are in `leaving`.
    pub departing: BTreeSet<String>,
    /// Of those, nodes that lose the label now.
    pub leaving: BTreeSet<String>,
    /// The others, with what stands in their CacheNodes.
    pub draining: BTreeMap<String, NodeDrain>,
    /// Nodes that stay after all, but the master has not ended their drain yet.
    pub returning: BTreeSet<String>,
    /// How many nodes match the selector.
    pub matching: usize,
    /// Matching nodes without enough memory.
    pub too_small: BTreeSet<String>,
    /// How many nodes the pool should have.
    pub desired: usize,
}

/// Chooses the members among `nodes`. `label` marks the present ones, `need_bytes` is the memory
/// of an agent, `marks` are the nodes that have begun to leave.
#[must_use]
pub fn choose(
    pool: &PoolSettings,
    label: &str,
    need_bytes: u64,
    nodes: &[NodeFacts],
    view: Option<&MasterView>,
    marks: &BTreeMap<String, NodeDrain>,
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
    // Who has begun to leave goes first, so that a drain ends what it began; then the emptiest,
    // since that moves least, and the last by name, so that the choice is the same each time.
    let held = |node: &NodeFacts| held_bytes(view, &node.name);
    staying.sort_by_key(|node| {
        (
            marks.contains_key(&node.name),
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
    members.departing = surplus
        .into_iter()
        .chain(unfit)
        .map(|node| node.name.clone())
        .collect();
    members
        .nodes
        .extend(staying.iter().chain(&free).map(|node| node.name.clone()));
    members.nodes.extend(members.departing.iter().cloned());
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

    type Marks = BTreeMap<String, NodeDrain>;

    fn settings(count: Option<u32>) -> PoolSettings {
        PoolSettings {
            namespace: "apps".into(),
            name: "p".into(),
            masters: 1,
            master_storage: None,
            node_selector: BTreeMap::new(),
            node_count: count,
            drain_deadline_s: 600,
            rack_label: "topology.larder.dev/rack".into(),
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
                ..AgentDocument::default()
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
        let all = choose(&settings(None), LABEL, 1, &nodes, None, &Marks::new());
        assert_eq!((names(&all.joining), all.desired), (vec!["a", "b", "c"], 3));
        let mut nodes = nodes;
        nodes[0].is_ready = false;
        let two = choose(&settings(Some(2)), LABEL, 1, &nodes, None, &Marks::new());
        assert_eq!(names(&two.joining), ["b", "c"], "ready ones first");
        let many = choose(&settings(Some(9)), LABEL, 1, &nodes, None, &Marks::new());
        assert_eq!((many.nodes.len(), many.desired, many.matching), (3, 9, 3));
    }

    #[test]
    fn the_emptiest_leave_first_and_who_has_begun_goes_on() {
        let nodes = [node("a", true), node("b", true), node("c", true)];
        let chosen = |count, held: Option<&MasterView>, marks: &Marks| {
            choose(&settings(Some(count)), LABEL, 1, &nodes, held, marks).departing
        };
        let held = view(&[("a", 1), ("b", 3), ("c", 2)]);
        assert_eq!(names(&chosen(1, Some(&held), &Marks::new())), ["a", "c"]);
        assert_eq!(names(&chosen(2, Some(&held), &Marks::new())), ["a"]);
        assert_eq!(names(&chosen(2, None, &Marks::new())), ["c"]);
        let now = jiff::Timestamp::UNIX_EPOCH;
        let begun = |node: &str| (node.to_owned(), crate::node::drain::begun(now));
        let marks = [begun("b"), begun("c")].into();
        assert_eq!(
            names(&chosen(2, Some(&held), &marks)),
            ["c"],
            "the fuller one returns"
        );
        assert_eq!(names(&chosen(2, None, &marks)), ["c"]);
        let all = choose(&settings(Some(1)), LABEL, 1, &nodes, Some(&held), &marks);
        assert_eq!(
            (all.nodes.len(), names(&all.departing)),
            (3, vec!["b", "c"])
        );
    }

    #[test]
    fn too_small_nodes_do_not_join() {
        let mut nodes = [node("a", false), node("b", false)];
        nodes[0].memory_bytes = Some(1);
        let members = choose(&settings(None), LABEL, 1 << 30, &nodes, None, &Marks::new());
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
        /// Whatever is there: nobody who leaves holds more than one that stays and matches, and
        /// doing what was chosen settles it.
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
            let first = choose(&settings(count), LABEL, 1, &nodes, Some(&view), &Marks::new());
            prop_assert!(first.departing.is_subset(&first.nodes));
            let most = |leave: bool| {
                let stays = |one: &&NodeFacts| !one.is_tainted && one.labels.contains_key(LABEL);
                let of = nodes.iter().filter(stays);
                let of = of.filter(|one| first.departing.contains(&one.name) == leave);
                of.map(|one| view.agents[&one.name].held_bytes()).collect::<Vec<_>>()
            };
            let (leave, stay) = (most(true), most(false));
            if let (Some(leave), Some(stay)) = (leave.iter().max(), stay.iter().min()) {
                prop_assert!(leave <= stay);
            }
            let after: BTreeSet<String> =
                first.nodes.difference(&first.departing).cloned().collect();
            for node in &mut nodes {
                if after.contains(&node.name) {
                    node.labels.insert(LABEL.into(), "p".into());
                } else {
                    node.labels.remove(LABEL);
                }
            }
            let second = choose(&settings(count), LABEL, 1, &nodes, Some(&view), &Marks::new());
            prop_assert_eq!(&second.nodes, &after);
            prop_assert!(second.joining.is_empty() && second.departing.is_empty());
        }
    }
}
