//! The history checker: by hand, against all orders, and against registers that are right.

mod file;
mod generated;
mod hand_made;
mod oracle;
mod register;

use larder_sim::history::{Call, History, Limits, Losses, Operation, Outcome, Report, check};

/// An operation of client 1 on key `k`; without an end if that is 0.
fn operation(call: Call, outcome: Outcome, invoked_ns: u64, ended_ns: u64) -> Operation {
    Operation {
        client: 1,
        key: "k".to_owned(),
        call,
        invoked_ns,
        ended_ns: (ended_ns > 0).then_some(ended_ns),
        outcome,
    }
}

fn judged(operations: &[Operation], losses: &Losses) -> Report {
    let history = History::new(operations.to_vec()).expect("operations that fit");
    check(&history, losses, Limits::default())
}
