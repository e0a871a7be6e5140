//! Crashes, partitions, two operators and watches that expire.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api_server::{ApiServer, Key, key};
use crate::world::{Operator, cluster, condition, pool, tenant, wait};

/// What is left when what differs in each run is taken off.
async fn settled(api: &ApiServer) -> BTreeMap<Key, Value> {
    api.with(|state| {
        let objects = state.objects.iter().filter(|(key, _)| key.0 != "events");
        let strip = |(key, object): (&Key, &Value)| {
            let mut object = object.clone();
            for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                object["metadata"][field] = json!(null);
            }
            let conditions = object["status"]["conditions"].as_array_mut();
            for condition in conditions.into_iter().flatten() {
                condition["lastTransitionTime"] = json!(null);
            }
            if key.0 == "secrets" {
                object["stringData"] = json!(null);
            }
            (key.clone(), object)
        };
        objects.map(strip).collect()
    })
    .await
}

async fn both_ready(api: &ApiServer) {
    condition(api, "cachepools", "small", "Ready", "True").await;
    condition(api, "cachetenants", "team-a", "Ready", "True").await;
    wait(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn killed_after_each_write_it_ends_in_the_same_place() {
    let mut reference = None;
    for writes in 0..200 {
        let (api, master) = cluster().await;
        api.put("cachepools", pool("small", Some(2))).await;
        api.put("cachetenants", tenant("team-a", "small")).await;
        if writes == 0 {
            // Nobody is killed: what the others are compared with.
            let _operator = Operator::alone(&api, &master);
            both_ready(&api).await;
            reference = Some(settled(&api).await);
            continue;
        }
        api.with(move |state| state.writes_left = Some(writes))
            .await;
        let first = Operator::alone(&api, &master);
        wait(Duration::from_secs(20)).await;
        drop(first);
        let left = api.with(|state| state.writes_left.take()).await;
        let _second = Operator::alone(&api, &master);
        both_ready(&api).await;
        let found = settled(&api).await;
        let reference = reference.as_ref().expect("the first run");
        for (key, object) in reference {
            assert_eq!(
                found.get(key),
                Some(object),
                "{key:?} after {writes} writes"
            );
        }
        assert_eq!(found.len(), reference.len(), "after {writes} writes");
        if left.is_some_and(|left| left > 0) {
            assert!(writes > 15, "the whole run took only {writes} writes");
            return;
        }
    }
    panic!("200 writes were not enough for two objects");
}

#[tokio::test(start_paused = true)]
async fn killed_while_it_deletes_it_leaves_nothing() {
    for writes in 0..30 {
        let (api, master) = cluster().await;
        api.put("cachepools", pool("small", Some(3))).await;
        let first = Operator::alone(&api, &master);
        condition(&api, "cachepools", "small", "Ready", "True").await;
        wait(Duration::from_secs(60)).await;
        api.with(move |state| state.writes_left = Some(writes))
            .await;
        api.delete("cachepools", "apps", "small").await;
        wait(Duration::from_secs(20)).await;
        drop(first);
        let left = api.with(|state| state.writes_left.take()).await;
        let _second = Operator::alone(&api, &master);
        api.until("nothing is left", |state| {
            state
                .objects
                .iter()
                .all(|(key, object)| match key.0.as_str() {
                    "nodes" => object["metadata"]["labels"]
                        .as_object()
                        .is_some_and(|l| l.len() == 1),
                    kind => kind == "events",
                })
        })
        .await;
        if left.is_some_and(|left| left > 0) {
            assert!(
                writes >= 8,
                "3 CacheNodes, 3 labels, a binding and a finalizer"
            );
            return;
        }
    }
    panic!("30 writes were not enough to delete one pool");
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_is_begun_anew_and_misses_nothing() {
    let (api, master) = cluster().await;
    api.put("cachepools", pool("small", Some(2))).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, "cachepools", "small", "Ready", "True").await;
    wait(Duration::from_secs(60)).await;
    // Everything that happens between the break and the new list would be lost to a watch.
    api.with(|state| {
        state.expire();
        state.delete(&key("services", "apps", "small-master"));
        state.expire();
    })
    .await;
    let again = key("services", "apps", "small-master");
    api.until("the Service again", move |state| {
        state.objects.contains_key(&again)
    })
    .await;
    api.delete("services", "apps", "small-masters").await;
    let again = key("services", "apps", "small-masters");
    api.until("the watch lives", move |state| {
        state.objects.contains_key(&again)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn of_two_operators_only_the_holder_writes() {
    let (api, master) = cluster().await;
    api.put("cachepools", pool("small", Some(2))).await;
    let a = Operator::elected(&api, &master, "a");
    condition(&api, "cachepools", "small", "Ready", "True").await;
    let b = Operator::elected(&api, &master, "b");
    wait(Duration::from_secs(60)).await;
    let writes = api.take_writes().await;
    assert!(
        writes.iter().all(|write| write.starts_with("a ")),
        "{writes:?}"
    );

    // a is cut off for longer than its lease; something changes meanwhile.
    api.with(|state| state.cut.insert("a".to_owned())).await;
    api.delete("services", "apps", "small-master").await;
    let again = key("services", "apps", "small-master");
    api.until("b repairs it", move |state| {
        state.objects.contains_key(&again)
    })
    .await;
    api.with(|state| state.cut.clear()).await;
    wait(Duration::from_secs(120)).await;
    api.delete("services", "apps", "small-masters").await;
    wait(Duration::from_secs(120)).await;
    let writes = api.take_writes().await;
    assert!(
        writes.len() >= 2 && writes.iter().all(|w| w.starts_with("b ")),
        "{writes:?}"
    );
    let holder = |name: &'static str| {
        move |state: &crate::api_server::State| {
            let lease = &state.objects[&key("leases", "larder-system", "larder-operator")];
            lease["spec"]["holderIdentity"] == name
        }
    };
    api.until("b holds the Lease", holder("b")).await;
    // A full resync by the next leader, also after a kill without a hand-over.
    drop(b);
    api.delete("services", "apps", "small-master").await;
    let again = key("services", "apps", "small-master");
    api.until("a repairs it", move |state| {
        state.objects.contains_key(&again)
    })
    .await;
    api.until("a holds the Lease", holder("a")).await;
    drop(a);
}
