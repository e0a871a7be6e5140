//! Thousands of objects at once.

use std::time::Duration;

use crate::world::{Operator, cluster, pool, tenant, wait};

/// So many tenants are listed at once, each reconcile calls a master that takes 50 ms, and four
/// run at a time: all are served, and none is forgotten.
#[tokio::test(start_paused = true)]
async fn two_thousand_tenants_are_all_served() {
    const TENANTS: usize = 2000;
    let (api, master) = cluster().await;
    master.with(|state| state.delay = Duration::from_millis(50));
    api.put("cachepools", pool("small", Some(1))).await;
    for at in 0..TENANTS {
        api.put("cachetenants", tenant(&format!("t{at:04}"), "small"))
            .await;
    }
    let operator = Operator::alone(&api, &master);
    // 2,000 calls of 50 ms, four at a time, take 25 s; the rest is room.
    for _ in 0..120 {
        if master.with(|state| state.tenants.len()) == TENANTS {
            break;
        }
        wait(Duration::from_secs(1)).await;
    }
    api.until("all are served", |state| {
        let served = |(key, object): (&crate::api_server::Key, &serde_json::Value)| {
            key.0 == "cachetenants"
                && object["status"]["conditions"]
                    .as_array()
                    .is_some_and(|list| list.iter().any(|c| c["reason"] == "Serving"))
        };
        state
            .objects
            .iter()
            .filter(|(key, object)| served((key, object)))
            .count()
            == TENANTS
    })
    .await;
    let (set, peak) = master.with(|state| (state.tenants.len(), state.peak.0));
    assert_eq!(set, TENANTS);
    // Four tenants and one look at the pool.
    assert!(peak <= 5, "{peak} calls at once");
    assert!(
        operator
            .metrics
            .page(true)
            .contains("larder_operator_reconciles_total")
    );
}
