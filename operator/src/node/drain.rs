//! What a node that should leave does next: a pure choice from what the master says and the clock.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_crds::{DrainState, NodeDrain};

use crate::master_api::DrainDocument;

/// The message of a drain while nobody can say how it goes.
pub const SILENT: &str = "the master does not answer the operator";
/// Longest message, in bytes; the schema takes so many.
const MESSAGE_BYTES_MAX: usize = 1_000;

/// What is known of the bytes on a node that should leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// The master does not answer.
    Unknown,
    /// The master has no segment of the node.
    Nothing,
    /// The master does not take the order to drain; what it said.
    Refused(String),
    /// How far the drain is.
    Left(DrainDocument),
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Whether it leaves now.
    pub leaves: bool,
    /// What shall stand in its CacheNode; `None` leaves that as it is.
    pub drain: Option<NodeDrain>,
}

/// The mark of a node that begins to leave.
#[must_use]
pub fn begun(now: Timestamp) -> NodeDrain {
    // Seconds are what the API server keeps.
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    NodeDrain {
        state: DrainState::Draining,
        started_at: Time(second),
        objects_left: None,
        bytes_left: None,
        extents_left: None,
        message: None,
    }
}

/// What a node that should leave does next; `mark` stands in its CacheNode.
///
/// When the deadline has passed that is written first, and the node leaves with the next look: an
/// operator that dies in between still says what was lost.
#[must_use]
pub fn step(mark: Option<&NodeDrain>, held: &Held, deadline_s: u32, now: Timestamp) -> Step {
    let leaves = |drain| Step {
        leaves: true,
        drain,
    };
    if *held == Held::Nothing || mark.is_some_and(|mark| mark.state == DrainState::TimedOut) {
        return leaves(None);
    }
    // A clock that was put back must not make the wait longer than the deadline.
    let mark = mark.filter(|mark| mark.started_at.0 <= now).cloned();
    let mut drain = mark.unwrap_or_else(|| begun(now));
    let waited_s = now.as_second() - drain.started_at.0.as_second();
    let overdue = waited_s >= i64::from(deadline_s);
    let (state, message) = match held {
        Held::Left(left) => {
            drain.objects_left = left.objects_left;
            drain.bytes_left = Some(left.bytes_left);
            drain.extents_left = left.extents_left;
            if left.slabs_left == 0 && (left.is_draining() || deadline_s == 0) {
                drain.state = DrainState::Drained;
                drain.message = None;
                return leaves(Some(drain));
            }
            (DrainState::Draining, left.blocked.clone())
        }
        Held::Refused(said) => (DrainState::Failed, Some(said.clone())),
        Held::Unknown | Held::Nothing => (DrainState::Draining, Some(SILENT.to_owned())),
    };
    (drain.state, drain.message) = match (overdue, deadline_s) {
        (false, _) => (state, message.map(cut)),
        (true, 0) => {
            let message = "spec.nodes.drain.deadlineSeconds is 0: nothing was moved";
            (DrainState::TimedOut, Some(message.to_owned()))
        }
        (true, _) => {
            let why = message.map_or_else(String::new, |message| format!(": {message}"));
            let message = format!("{deadline_s} s have passed{why}");
            (DrainState::TimedOut, Some(cut(message)))
        }
    };
    Step {
        leaves: false,
        drain: Some(drain),
    }
}

fn cut(mut text: String) -> String {
    let mut end = MESSAGE_BYTES_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// Whether the difference is told at once: all but figures, which change all the time.
#[must_use]
pub fn is_news(old: Option<&NodeDrain>, new: &NodeDrain) -> bool {
    old.is_none_or(|old| {
        (old.state, &old.started_at, &old.message) != (new.state, &new.started_at, &new.message)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn left(slabs_left: u64, state: &str) -> Held {
        Held::Left(DrainDocument {
            state: state.to_owned(),
            slabs_left,
            bytes_left: slabs_left * 10,
            extents_left: Some(slabs_left * 2),
            objects_left: Some(slabs_left),
            blocked: None,
        })
    }

    fn of(step: &Step) -> DrainState {
        step.drain.as_ref().expect("something to tell").state
    }

    #[test]
    fn a_node_leaves_when_it_is_empty_and_not_before() {
        let first = step(None, &left(3, "draining"), 600, at(10));
        assert!(!first.leaves);
        let mark = first.drain.expect("a mark");
        assert_eq!(
            (mark.state, mark.bytes_left),
            (DrainState::Draining, Some(30))
        );
        assert_eq!(mark.started_at, Time(at(10)));
        let second = step(Some(&mark), &left(1, "draining"), 600, at(609));
        assert!(!second.leaves);
        assert_eq!(
            second.drain.as_ref().expect("a mark").started_at,
            Time(at(10))
        );
        let empty_but_open = step(Some(&mark), &left(0, "active"), 600, at(20));
        assert!(
            !empty_but_open.leaves,
            "something new may still be put there"
        );
        let last = step(Some(&mark), &left(0, "drained"), 600, at(609));
        assert!(last.leaves && of(&last) == DrainState::Drained);
        assert!(step(None, &Held::Nothing, 600, at(1)).leaves);
    }

    #[test]
    fn the_deadline_is_told_before_the_node_leaves() {
        let mark = begun(at(10));
        let mut stuck = left(3, "draining");
        if let Held::Left(document) = &mut stuck {
            document.blocked = Some("no space".to_owned());
        }
        let late = step(Some(&mark), &stuck, 600, at(610));
        assert!(!late.leaves && of(&late) == DrainState::TimedOut);
        let late = late.drain.expect("a mark");
        assert_eq!(late.message.as_deref(), Some("600 s have passed: no space"));
        assert_eq!(late.bytes_left, Some(30));
        assert!(step(Some(&late), &stuck, 600, at(611)).leaves);
        let silent = step(Some(&mark), &Held::Unknown, 600, at(610));
        assert_eq!(of(&silent), DrainState::TimedOut);
    }

    #[test]
    fn without_a_deadline_nothing_is_moved_and_a_loss_is_told() {
        assert!(
            step(None, &left(0, "active"), 0, at(1)).leaves,
            "nothing is lost"
        );
        let lost = step(None, &left(2, "active"), 0, at(1));
        assert!(!lost.leaves && of(&lost) == DrainState::TimedOut);
        assert_eq!(lost.drain.expect("a mark").bytes_left, Some(20));
    }

    #[test]
    fn a_master_that_is_silent_or_refuses_is_waited_for_with_what_was_known() {
        let mark = step(None, &left(3, "draining"), 600, at(10))
            .drain
            .expect("a mark");
        let silent = step(Some(&mark), &Held::Unknown, 600, at(11))
            .drain
            .expect("a mark");
        assert_eq!(
            (silent.bytes_left, silent.message.as_deref()),
            (Some(30), Some(SILENT))
        );
        assert!(is_news(Some(&mark), &silent));
        let refused = step(Some(&mark), &Held::Refused("no".repeat(900)), 600, at(11));
        assert_eq!(of(&refused), DrainState::Failed);
        let message = refused
            .drain
            .and_then(|drain| drain.message)
            .expect("a message");
        assert_eq!(message.len(), MESSAGE_BYTES_MAX);
        let fewer = step(Some(&mark), &left(2, "draining"), 600, at(11))
            .drain
            .expect("a mark");
        assert!(!is_news(Some(&mark), &fewer));
    }

    proptest! {
        /// Whatever the master says and whatever the clock does: a node is gone at the latest two
        /// looks after the deadline, and without a loss only when it is empty.
        #[test]
        fn it_always_ends(
            looks in prop::collection::vec((0..5_u8, 0..3_u64, -50..200_i64), 1..40),
            deadline_s in prop::sample::select(vec![0, 1, 600]),
        ) {
            let (mut mark, mut now) = (None, 1_000_000_i64);
            for (kind, slabs, passed_s) in looks {
                now += passed_s;
                let held = match kind {
                    0 => Held::Unknown,
                    1 => Held::Nothing,
                    2 => Held::Refused("no".to_owned()),
                    3 => left(slabs, "active"),
                    _ => left(slabs, if slabs == 0 { "drained" } else { "draining" }),
                };
                let step = step(mark.as_ref(), &held, deadline_s, at(now));
                let timed_out = |mark: &NodeDrain| mark.state == DrainState::TimedOut;
                if step.leaves {
                    let empty = matches!(&held, Held::Left(left) if left.slabs_left == 0);
                    let told = mark.as_ref().is_some_and(timed_out);
                    prop_assert!(empty || told || held == Held::Nothing);
                    return Ok(());
                }
                let next = step.drain.expect("whoever waits is marked");
                let waited_s = now - next.started_at.0.as_second();
                prop_assert!(waited_s >= 0);
                prop_assert_eq!(timed_out(&next), waited_s >= i64::from(deadline_s));
                mark = Some(next);
            }
        }
    }
}
