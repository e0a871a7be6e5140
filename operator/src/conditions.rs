//! Conditions: a new list from an old one, and the events that the difference is.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use larder_crds::{Condition, rounded};

use crate::reasons::{ConditionType, Reason};

/// Longest message of a condition or event, in bytes; the API server takes 1,024 in an event.
const MESSAGE_BYTES_MAX: usize = 1000;

/// What a condition shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The type.
    pub condition: ConditionType,
    /// The status; there is no `Unknown` in ours: not knowing is a reason of `False`.
    pub status: bool,
    /// The reason.
    pub reason: Reason,
    /// A sentence with the figures.
    pub message: String,
}

impl Wanted {
    /// A wanted condition.
    pub fn new(
        condition: ConditionType,
        status: bool,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            let mut end = MESSAGE_BYTES_MAX;
            while !message.is_char_boundary(end) {
                end -= 1;
            }
            message.truncate(end);
        }
        Self {
            condition,
            status,
            reason,
            message,
        }
    }

    fn status_text(&self) -> &'static str {
        if self.status { "True" } else { "False" }
    }
}

/// The list that stands in the status: the time of a condition moves only with its status.
/// Conditions of other writers stay.
#[must_use]
pub fn merge(
    old: &[Condition],
    wanted: &[Wanted],
    generation: Option<i64>,
    now: Timestamp,
) -> Vec<Condition> {
    let mut list: Vec<Condition> = old.to_vec();
    for want in wanted {
        let known = list
            .iter_mut()
            .find(|one| one.type_ == want.condition.text());
        match known {
            Some(known) => {
                if known.status != want.status_text() {
                    known.status = want.status_text().to_owned();
                    known.last_transition_time = Time(now);
                }
                known.reason = want.reason.text().to_owned();
                known.message.clone_from(&want.message);
                known.observed_generation = generation;
            }
            None => list.push(Condition {
                type_: want.condition.text().to_owned(),
                status: want.status_text().to_owned(),
                reason: want.reason.text().to_owned(),
                message: want.message.clone(),
                observed_generation: generation,
                last_transition_time: Time(now),
            }),
        }
    }
    list
}

/// The conditions whose status or reason is new: each is an event. So is each loss of objects, and
/// each generation that a pool was made again in.
#[must_use]
pub fn changed<'a>(old: &[Condition], wanted: &'a [Wanted]) -> Vec<&'a Wanted> {
    let tells_each = |reason| matches!(reason, Reason::ObjectsLost | Reason::InventoryTaken);
    let is_new = |want: &&Wanted| {
        !old.iter().any(|one| {
            one.type_ == want.condition.text()
                && one.status == want.status_text()
                && one.reason == want.reason.text()
                && (!tells_each(want.reason) || one.message == want.message)
        })
    };
    wanted.iter().filter(is_new).collect()
}

/// Whether what a spec guarantees is there. `known` is what the master was told and what that
/// comes to; nothing is said before it has been told.
#[must_use]
pub fn guaranteed(spec_bytes: u64, is_refused: bool, known: Option<(u64, u64)>) -> Option<Wanted> {
    let wanted = |status, reason, message: String| {
        Some(Wanted::new(
            ConditionType::Guaranteed,
            status,
            reason,
            message,
        ))
    };
    let bytes = rounded(spec_bytes);
    if spec_bytes == 0 {
        let message = "the spec guarantees nothing".to_owned();
        return wanted(false, Reason::NoGuarantee, message);
    }
    if is_refused {
        let message = format!("the guarantees of older tenants and quotas leave less than {bytes}");
        return wanted(false, Reason::GuaranteeRefused, message);
    }
    match known {
        Some((told, comes_to)) if told == spec_bytes && comes_to >= spec_bytes => {
            let message = format!("{bytes} are kept for it");
            wanted(true, Reason::GuaranteeHeld, message)
        }
        Some((told, comes_to)) if told == spec_bytes => {
            let message = format!("of {bytes} the pool has {}", rounded(comes_to));
            wanted(false, Reason::GuaranteeScaled, message)
        }
        _ => None,
    }
}

/// Most names in a message.
const NAMED_MAX: usize = 5;

/// A few names, and how many more there are.
#[must_use]
pub fn named<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    let more = names.len().saturating_sub(NAMED_MAX);
    let mut text = names
        .take(NAMED_MAX)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// Whether a condition of this type is `True`.
#[must_use]
pub fn is_true(list: &[Condition], condition: ConditionType) -> bool {
    list.iter()
        .any(|one| one.type_ == condition.text() && one.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn ready(status: bool, reason: Reason) -> Wanted {
        Wanted::new(ConditionType::Ready, status, reason, "words")
    }

    #[test]
    fn the_time_moves_with_the_status_only() {
        let first = merge(&[], &[ready(false, Reason::MasterStarting)], Some(1), at(1));
        let second = merge(
            &first,
            &[ready(false, Reason::MasterNotReached)],
            Some(2),
            at(2),
        );
        assert_eq!(second[0].last_transition_time, Time(at(1)));
        assert_eq!(second[0].reason, "MasterNotReached");
        assert_eq!(second[0].observed_generation, Some(2));
        let third = merge(&second, &[ready(true, Reason::Serving)], Some(2), at(3));
        assert_eq!(third[0].last_transition_time, Time(at(3)));
        assert_eq!(
            merge(&third, &[ready(true, Reason::Serving)], Some(2), at(9)),
            third
        );
    }

    #[test]
    fn conditions_of_others_stay_and_only_news_are_events() {
        let mut old = merge(&[], &[ready(true, Reason::Serving)], None, at(1));
        old[0].type_ = "Theirs".to_owned();
        let wanted = [ready(true, Reason::Serving)];
        assert_eq!(changed(&old, &wanted).len(), 1);
        let new = merge(&old, &wanted, None, at(2));
        assert_eq!(new.len(), 2);
        assert!(changed(&new, &wanted).is_empty());
        assert!(is_true(&new, ConditionType::Ready));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let long = Wanted::new(
            ConditionType::Ready,
            true,
            Reason::Serving,
            "ä".repeat(2000),
        );
        assert!(long.message.len() <= MESSAGE_BYTES_MAX);
    }
}
