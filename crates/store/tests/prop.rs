//! Random requests through a log that delays, reorders and loses its leader: what must hold.
//!
//! After each commit the world checks state, overlay and the standby's digest; its agents panic
//! when anything is written over a record that nobody erased.

mod acts;
mod clients;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use acts::{Act, acts};
use clients::Clients;

const TENANTS: [&str; 3] = ["red", "green", "blue"];
const AGENTS: usize = 4;

/// Runs one sequence to its end; what happened in it.
fn run(seed: u64, acts: Vec<Act>) -> BTreeMap<String, u64> {
    let mut clients = Clients::new(seed);
    for act in acts {
        clients.act(act);
    }
    clients.world.quiesce();
    clients.learn();
    clients.check_acknowledged();
    let acknowledged = clients.acknowledged.len() as u64;
    clients.wind_up();
    clients
        .world
        .seen
        .insert("acknowledged".to_owned(), acknowledged);
    clients.world.seen
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_is_asked_everything_holds(seed in any::<u64>(), acts in acts()) {
        run(seed, acts);
    }
}

/// The sequences above are worth something only if they get everywhere.
#[test]
fn random_requests_reach_every_op_wait_and_reason() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::new();
    for seed in 0..900 {
        let acts = acts().new_tree(&mut runner).expect("a sequence").current();
        for (what, count) in run(seed, acts) {
            *seen.entry(what).or_insert(0) += count;
        }
    }
    for what in EVERYTHING {
        assert!(
            seen.contains_key(*what),
            "never seen: {what}; seen {seen:?}"
        );
    }
}

const EVERYTHING: &[&str] = &[
    "acknowledged",
    "put in pieces",
    "copied in pieces",
    "AgentMounted",
    "SegmentLost",
    "SegmentSwept",
    "SlabGive",
    "SlabReady",
    "SlabTake",
    "SlabReturned",
    "TenantSet",
    "TenantDelete",
    "TenantPurge",
    "TenantForgotten",
    "PutEnd",
    "Remove",
    "PinSet",
    "Released",
    "ReplicaDropped",
    "evicted",
    "ReplicaAdded",
    "AgentDrain",
    "AgentLabels",
    "TaskCreated",
    "TaskEnded",
    "wait Key",
    "wait Slab",
    "wait Space",
    "wait Erased",
    "wait Agent",
    "wait Tenant",
    "being_written",
    "already_exists",
    "not_found",
    "not_ready",
    "no_space",
    "no_agents",
    "too_few_agents",
    "too_few_hosts",
    "too_large",
    "quota_bytes",
    "quota_pinned_bytes",
    "lease_held",
    "quota_borrow",
    "QuotaSet",
    "QuotaDelete",
    "tenant_unknown",
    "stale_owner",
    "stale_epoch",
    "session_unknown",
];
