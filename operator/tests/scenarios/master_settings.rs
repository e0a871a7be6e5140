//! What a pool's spec says to its masters, and what its status says of how they do.

use std::time::Duration;

use larder_operator::master_api::SignalsDocument;
use serde_json::{Value, json};

use crate::api_server::{ApiServer, key};
use crate::world::{Operator, cluster, condition, pool, tenant, wait};

const POOLS: &str = "cachepools";
const TENANTS: &str = "cachetenants";

/// The configuration of the pool's masters, and the mark by which its change rolls them.
async fn told(api: &ApiServer) -> (Value, Value) {
    let file = api.get("configmaps", "apps", "small-master").await;
    let file = file.expect("the file");
    let text = file["data"]["small-master-0.json"]
        .as_str()
        .expect("a text");
    let set = api.get("statefulsets", "apps", "small-master").await;
    let template = set.expect("masters")["spec"]["template"].clone();
    let file = serde_json::from_str(text).expect("JSON");
    (file, template["metadata"]["annotations"].clone())
}

#[tokio::test(start_paused = true)]
async fn eviction_and_moves_reach_the_masters_and_roll_them() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(1))).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    let (before, mark) = told(&api).await;
    assert_eq!(before["eviction"]["high_watermark_percent"], 90);
    assert_eq!(before["moves"]["max_concurrent"], 32);
    assert_eq!(before["events"], Value::Null, "off unless asked for");
    let spec = json!({ "spec": {
        "eviction": { "highWatermarkPercent": 70, "lowWatermarkPercent": 60 },
        "moves": { "maxConcurrent": 2, "bytesPerSecond": "8Mi" },
    } });
    api.edit(POOLS, "apps", "small", spec).await;
    let file = key("configmaps", "apps", "small-master");
    api.until("the new file", move |state| {
        let text = state.objects[&file]["data"]["small-master-0.json"].as_str();
        text.is_some_and(|text| text.contains("8388608"))
    })
    .await;
    wait(Duration::from_secs(60)).await;
    let (after, new_mark) = told(&api).await;
    assert_eq!(
        (&after["eviction"], &after["moves"]),
        (
            &json!({ "high_watermark_percent": 70, "low_watermark_percent": 60 }),
            &json!({ "max_concurrent": 2, "bytes_per_s": 8 << 20 })
        )
    );
    assert_ne!(mark, new_mark, "another file rolls the masters");
}

#[tokio::test(start_paused = true)]
async fn endpoints_have_ports_and_their_tenants_are_looked_for() {
    let (api, master) = cluster().await;
    let mut small = pool("small", Some(1));
    small["spec"]["events"] = json!({ "zmq": [
        { "tenant": "team-a", "port": 5557, "replayPort": 5558 },
    ] });
    api.put(POOLS, small).await;
    let _operator = Operator::alone(&api, &master);
    let published = "EventsPublished";
    condition(&api, POOLS, "small", published, "False/EventTenantUnknown").await;
    condition(&api, POOLS, "small", "Ready", "True").await;
    let (file, _) = told(&api).await;
    let endpoint = &file["events"]["zmq"][0];
    assert_eq!(endpoint["addr"], "0.0.0.0:5557");
    assert_eq!(endpoint["beyond_loopback"], true);
    let service = api.get("services", "apps", "small-master").await;
    let service = service.expect("the Service");
    let ports: Vec<_> = service["spec"]["ports"]
        .as_array()
        .expect("ports")
        .iter()
        .map(|port| (port["name"].clone(), port["port"].clone()))
        .collect();
    assert_eq!(
        ports[2..],
        [
            (json!("zmq-5557"), json!(5557)),
            (json!("zmq-5558"), json!(5558))
        ]
    );
    api.put(TENANTS, tenant("team-a", "small")).await;
    condition(&api, POOLS, "small", published, "True/EventTenantsKnown").await;
    // Without endpoints there is nothing to say of them.
    api.edit(
        POOLS,
        "apps",
        "small",
        json!({ "spec": { "events": null } }),
    )
    .await;
    let small = key(POOLS, "apps", "small");
    api.until("no word of endpoints", move |state| {
        !state.objects[&small]["status"]["conditions"]
            .to_string()
            .contains(published)
    })
    .await;
    wait(Duration::from_secs(60)).await;
    let service = api.get("services", "apps", "small-master").await;
    let ports = service.expect("the Service")["spec"]["ports"].clone();
    assert_eq!(ports.as_array().map(Vec::len), Some(2), "{ports}");
}

#[tokio::test(start_paused = true)]
async fn signals_are_told_in_round_figures_and_seldom() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(1))).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    let signals = || async {
        let small = api.get(POOLS, "apps", "small").await.expect("the pool");
        small["status"]["signals"].clone()
    };
    wait(Duration::from_secs(120)).await;
    assert_eq!(signals().await, Value::Null, "unknown is absent, not zero");
    let say = |hits: u64, age_ms: Option<u64>| {
        master.with(|state| {
            state.signals = SignalsDocument {
                hit_ratio_per_mille: Some(hits),
                ghost_ratio_per_mille: None,
                eviction_age_ms: age_ms,
                pressure_per_mille: Some(871),
            };
        });
    };
    say(613, Some(12_345));
    wait(Duration::from_secs(40)).await;
    assert_eq!(
        signals().await,
        json!({ "hitRatioPercent": 60, "evictionAgeSeconds": 12, "pressurePercent": 85 })
    );
    // An hour of small waves is no news.
    api.take_writes().await;
    for wave in 0..60 {
        say(560 + wave * 37 % 90, Some(12_000 + wave * 17));
        wait(Duration::from_secs(60)).await;
    }
    assert_eq!(api.take_writes().await, Vec::<String>::new());
    // Waves of any height are news once a minute at most, but for jumps.
    for wave in 0..60 {
        say(if wave % 2 == 0 { 480 } else { 620 }, None);
        wait(Duration::from_secs(30)).await;
    }
    let writes = api.take_writes().await;
    assert!(!writes.is_empty() && writes.len() <= 32, "{writes:?}");
    say(100, None);
    wait(Duration::from_secs(31)).await;
    assert_eq!(
        signals().await["hitRatioPercent"],
        10,
        "a jump is told at once"
    );
}
