//! What a pool says of nodes that leave it.

use std::collections::BTreeMap;

use larder_crds::{Condition, DrainState, NodeDrain, rounded};

use crate::conditions::{Wanted, named};
use crate::node::drain::SILENT;
use crate::node::members::Members;
use crate::reasons::{ConditionType, Reason};

/// The condition. Without figures of drains under way: they change all the time, and a condition
/// must not.
pub(super) fn condition(members: &Members) -> Wanted {
    let wanted = |status, reason, message: String| {
        Wanted::new(ConditionType::ScaleInBlocked, status, reason, message)
    };
    let draining = &members.draining;
    let is = |state| move |drain: &NodeDrain| drain.state == state;
    let lost = of(draining, is(DrainState::TimedOut));
    let silent = of(draining, |drain| drain.message.as_deref() == Some(SILENT));
    let refused = of(draining, is(DrainState::Failed));
    let stalled = of(draining, |drain| drain.message.is_some());
    let why = |nodes: &BTreeMap<&String, &NodeDrain>| {
        let first = nodes
            .values()
            .next()
            .and_then(|drain| drain.message.as_deref());
        format!(
            "{}: {}",
            named(nodes.keys().copied()),
            first.unwrap_or_default()
        )
    };
    if !lost.is_empty() {
        wanted(false, Reason::ObjectsLost, loss(&lost))
    } else if !silent.is_empty() {
        let names = named(silent.keys().copied());
        let message = format!("{names} should leave, and {SILENT}");
        wanted(true, Reason::MasterNotReached, message)
    } else if !refused.is_empty() {
        wanted(true, Reason::DrainRefused, why(&refused))
    } else if !stalled.is_empty() {
        wanted(true, Reason::DrainStalled, why(&stalled))
    } else if !draining.is_empty() {
        let message = format!(
            "{} move their objects before they leave",
            named(draining.keys())
        );
        wanted(false, Reason::NodesDraining, message)
    } else if !members.returning.is_empty() {
        let names = named(members.returning.iter());
        let message = format!("{names} stay after all, and {SILENT}");
        wanted(true, Reason::MasterNotReached, message)
    } else {
        let message = "no node has to leave".to_owned();
        wanted(false, Reason::NothingToRemove, message)
    }
}

fn of(
    draining: &BTreeMap<String, NodeDrain>,
    is: impl Fn(&NodeDrain) -> bool,
) -> BTreeMap<&String, &NodeDrain> {
    draining.iter().filter(|(_, drain)| is(drain)).collect()
}

/// Whose bytes were lost, how many, and why.
fn loss(nodes: &BTreeMap<&String, &NodeDrain>) -> String {
    let names = named(nodes.keys().copied());
    let known = nodes.values().filter_map(|drain| drain.bytes_left);
    let bytes = known.fold(0, u64::saturating_add);
    let all_known = nodes.values().all(|drain| drain.bytes_left.is_some());
    let figure = match (all_known, bytes) {
        (true, bytes) => format!("{bytes} bytes ({})", rounded(bytes)),
        (false, 0) => "an unknown number of bytes".to_owned(),
        (false, bytes) => format!("more than {bytes} bytes ({})", rounded(bytes)),
    };
    let first = nodes
        .values()
        .next()
        .and_then(|drain| drain.message.as_deref());
    format!(
        "{names} left with {figure} that were not moved: {}",
        first.unwrap_or_default()
    )
}

/// A loss is told until the spec changes: the nodes that it is about are gone at the next look.
pub(super) fn keep_loss(old: &[Condition], generation: Option<i64>, wanted: &mut [Wanted]) {
    let scale_in = |one: &&mut Wanted| one.reason == Reason::NothingToRemove;
    let lost = old.iter().find(|one| {
        one.reason == Reason::ObjectsLost.text() && one.observed_generation == generation
    });
    if let (Some(lost), Some(want)) = (lost, wanted.iter_mut().find(scale_in)) {
        want.reason = Reason::ObjectsLost;
        want.message.clone_from(&lost.message);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::conditions::{changed, merge};
    use crate::node::drain::begun;

    fn members(nodes: &[(&str, DrainState, Option<&str>)]) -> Members {
        let drain = |(name, state, message): &(&str, DrainState, Option<&str>)| {
            let drain = NodeDrain {
                state: *state,
                message: message.map(str::to_owned),
                bytes_left: Some(3 << 20),
                ..begun(Timestamp::UNIX_EPOCH)
            };
            ((*name).to_owned(), drain)
        };
        Members {
            draining: nodes.iter().map(drain).collect(),
            ..Members::default()
        }
    }

    #[test]
    fn the_worst_is_told() {
        use DrainState::{Draining, Failed, TimedOut};
        let mut nodes = vec![("n1", Draining, None)];
        let mut told = Vec::new();
        for more in [
            ("n2", Draining, Some("no space")),
            ("n3", Failed, Some("403")),
            ("n4", Draining, Some(SILENT)),
            ("n5", TimedOut, Some("600 s have passed")),
        ] {
            told.push(condition(&members(&nodes)).reason);
            nodes.push(more);
        }
        let last = condition(&members(&nodes));
        let order = [
            Reason::NodesDraining,
            Reason::DrainStalled,
            Reason::DrainRefused,
            Reason::MasterNotReached,
        ];
        assert_eq!(told, order);
        assert_eq!(
            last.message,
            "n5 left with 3145728 bytes (3Mi) that were not moved: 600 s have passed"
        );
        assert_eq!(condition(&members(&[])).reason, Reason::NothingToRemove);
    }

    #[test]
    fn a_loss_stands_until_the_spec_changes_and_each_is_an_event() {
        let lost = |name| {
            [condition(&members(&[(
                name,
                DrainState::TimedOut,
                Some("late"),
            )]))]
        };
        let old = merge(&[], &lost("n1"), Some(1), Timestamp::UNIX_EPOCH);
        let mut next = [condition(&members(&[]))];
        keep_loss(&old, Some(2), &mut next);
        assert_eq!(next[0].reason, Reason::NothingToRemove);
        keep_loss(&old, Some(1), &mut next);
        assert_eq!(next, lost("n1"));
        assert!(changed(&old, &next).is_empty());
        assert_eq!(changed(&old, &lost("n2")).len(), 1);
    }
}
