//! What a loss of the log may bring back, though nobody asks for it.
//!
//! With the policy `Interval` the last moment of the log is lost with the power of all masters, and
//! all of it with their disks. The pool is made again from what agents hold. An acknowledged put
//! stays, as its bytes do. A removal that the log has lost is undone if an agent had not erased the
//! bytes yet. And a put that was written but never ended is found whole like any other, whatever
//! its client thinks of it.

use crate::history::{Call, Operation, Outcome};

/// How long the bytes of a put that was never ended may lie at an agent, in ns: until the put is
/// discarded, and the agent has heard of it.
const FORSAKEN_NS: u64 = 2_500_000_000;
/// Who brings back what comes back.
const NOBODY: u32 = 0;

/// A loss of the log, or of its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLoss {
    /// When it was.
    pub(super) at_ns: u64,
    /// How long before that a removal may have been that is undone, in ns.
    pub(super) undone_ns: u64,
    /// When the pool was made again.
    pub(super) until_ns: u64,
}

/// What may come back: writes that take effect between the loss and the moment when the pool is
/// made again, or never.
pub(super) fn may_return(operations: &[Operation], loss: LogLoss) -> Vec<Operation> {
    let before = operations.iter().filter(|one| one.invoked_ns < loss.at_ns);
    let before: Vec<&Operation> = before.collect();
    let mut returning = Vec::new();
    for write in &before {
        let Some(call) = returns(write, &before, loss) else {
            continue;
        };
        returning.push(Operation {
            client: NOBODY,
            key: write.key.clone(),
            call,
            invoked_ns: loss.at_ns,
            ended_ns: Some(loss.until_ns),
            outcome: Outcome::Maybe,
        });
    }
    returning
}

/// As what a write may come back, if it may.
fn returns(write: &Operation, before: &[&Operation], loss: LogLoss) -> Option<Call> {
    let (Call::Put(value) | Call::Upsert(value)) = write.call else {
        return None;
    };
    let ended_ns = write.ended_ns.unwrap_or(u64::MAX);
    match write.outcome {
        // What is there stays; so it comes back only where nothing is.
        Outcome::Done | Outcome::Unknown => {
            let mut others = before.iter().filter(|one| one.key == write.key);
            let is_gone = others.any(|one| {
                let is_after = write.outcome == Outcome::Done && one.invoked_ns > ended_ns;
                is_after && ends_before(one, loss.at_ns.saturating_sub(loss.undone_ns))
            });
            (!is_gone).then_some(Call::Put(value))
        }
        Outcome::Failed | Outcome::AlreadyExists => {
            (ended_ns >= loss.at_ns.saturating_sub(FORSAKEN_NS)).then_some(write.call)
        }
        _ => None,
    }
}

/// Whether it took away what the key held, and that so early that it cannot be undone.
fn ends_before(one: &Operation, synced_ns: u64) -> bool {
    let takes_away = matches!(one.call, Call::Remove | Call::Put(_) | Call::Upsert(_));
    let is_done = one.outcome == Outcome::Done;
    takes_away && is_done && one.ended_ns.is_some_and(|ended_ns| ended_ns < synced_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Value;

    const MS: u64 = 1_000_000;
    const LOSS: LogLoss = LogLoss {
        at_ns: 5_000 * MS,
        undone_ns: 300 * MS,
        until_ns: 5_900 * MS,
    };

    fn operation(call: Call, outcome: Outcome, ended_ms: u64) -> Operation {
        Operation {
            client: 7,
            key: "k".to_owned(),
            call,
            invoked_ns: (ended_ms - 20) * MS,
            ended_ns: Some(ended_ms * MS),
            outcome,
        }
    }

    fn returning(operations: &[Operation]) -> Vec<Call> {
        let returning = may_return(operations, LOSS);
        let times = |one: &Operation| (one.invoked_ns, one.ended_ns, one.outcome);
        let at = (LOSS.at_ns, Some(LOSS.until_ns), Outcome::Maybe);
        assert!(returning.iter().all(|one| times(one) == at));
        returning.into_iter().map(|one| one.call).collect()
    }

    #[test]
    fn only_a_removal_of_the_last_moment_is_undone() {
        let put = operation(Call::Put(Value(1)), Outcome::Done, 1_000);
        let removed = |ended_ms| operation(Call::Remove, Outcome::Done, ended_ms);
        assert_eq!(returning(&[put.clone(), removed(4_600)]), []);
        let back = [Call::Put(Value(1))];
        assert_eq!(returning(&[put.clone(), removed(4_800)]), back);
        let elsewhere = Operation {
            key: "other".to_owned(),
            ..removed(4_600)
        };
        assert_eq!(returning(&[put.clone(), elsewhere]), back);
        // What was replaced long ago is gone; what replaced it stays, and comes back if need be.
        let upsert = operation(Call::Upsert(Value(2)), Outcome::Done, 2_000);
        let over = [put, upsert, removed(4_900)];
        assert_eq!(returning(&over), [Call::Put(Value(2))]);
    }

    #[test]
    fn a_put_that_was_not_ended_may_be_found_until_it_is_discarded() {
        let given_up = |call, ended_ms| operation(call, Outcome::Failed, ended_ms);
        let upsert = Call::Upsert(Value(3));
        assert_eq!(returning(&[given_up(upsert, 4_000)]), [upsert]);
        assert_eq!(returning(&[given_up(upsert, 2_000)]), []);
        assert_eq!(returning(&[given_up(Call::Remove, 4_000)]), []);
        let later = given_up(upsert, 5_030);
        assert_eq!(returning(&[later]), [], "it was asked after the loss");
    }
}
