//! The order in which a history of one key is walked.

use super::losses::Losses;
use super::operation::Operation;

/// A moment of a history. At one time they come in this order, so that what touches overlaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// Losses are allowed from now on.
    Opens,
    /// This operation, by its place, is called.
    Called(usize),
    /// This operation is answered.
    Answered(usize),
    /// This operation can take effect no more.
    Expired(usize),
    /// Losses are no longer allowed.
    Closes,
}

/// The events of one key in order. Operations that say nothing are left out, and those of unknown
/// outcome are never answered, but some expire.
pub(super) fn events(operations: &[&Operation], losses: &Losses) -> Vec<Event> {
    let mut timed = Vec::with_capacity(operations.len() * 2);
    for (index, operation) in operations.iter().enumerate() {
        if !operation.matters() {
            continue;
        }
        timed.push((operation.invoked_ns, Event::Called(index)));
        match operation.ended_ns {
            Some(ended_ns) if operation.expires() => {
                timed.push((ended_ns, Event::Expired(index)));
            }
            Some(ended_ns) if !operation.is_unknown() => {
                timed.push((ended_ns, Event::Answered(index)));
            }
            _ => {}
        }
    }
    for interval in losses.intervals() {
        timed.push((interval.from_ns, Event::Opens));
        timed.push((interval.to_ns, Event::Closes));
    }
    timed.sort_unstable();
    timed.into_iter().map(|(_, event)| event).collect()
}
