//! What is told for autoscaling, of the pool and of each tenant, and where eviction begins.

use larder_telemetry::exposition::value;
use serde_json::{Value, json};

use crate::peer::{AgentPeer, Client};
use crate::rig::{Rig, soon};

#[tokio::test]
async fn hits_are_told_of_each_tenant_and_of_the_pool() {
    let rig = Rig::start().await;
    let unknown = rig.document("/v1/status").await["signals"].clone();
    let nothing = json!({
        "hit_ratio_per_mille": null, "ghost_ratio_per_mille": null, "eviction_age_ms": null,
        "pressure_per_mille": null,
    });
    assert_eq!(unknown, nothing, "nothing is known, and that is not zero");
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut a = Client::connect(&rig, "a").await;
    let mut b = Client::connect(&rig, "b").await;
    a.put("k", 1000, &[&agent]).await.expect("put");
    a.get(&["k"]).await.remove(0).expect("there");
    b.get(&["k"])
        .await
        .remove(0)
        .expect_err("not of this tenant");
    let signals = rig.document("/v1/status").await["signals"].clone();
    assert_eq!(signals["hit_ratio_per_mille"], 500);
    assert_eq!(signals["ghost_ratio_per_mille"], 0);
    assert_eq!(signals["eviction_age_ms"], Value::Null);
    assert!(signals["pressure_per_mille"].is_u64(), "{signals}");
    let page = rig.metrics().await;
    let of = |name: &str, tenant: &str| value(&page, name, &[("tenant", tenant)]);
    for (name, expected) in [
        ("larder_master_hits_total", [1.0, 0.0]),
        ("larder_master_misses_total", [0.0, 1.0]),
        ("larder_master_ghost_hits_total", [0.0, 0.0]),
    ] {
        let found = ["a", "b"].map(|tenant| of(name, tenant));
        assert_eq!(found, expected.map(Some), "{name}");
    }
    let ratio = |tenant| {
        let labels = [("tenant", tenant), ("minutes", "5")];
        value(&page, "larder_master_hit_ratio_per_mille", &labels)
    };
    assert_eq!([ratio("a"), ratio("b")], [Some(1000.0), Some(0.0)]);
}

#[tokio::test]
async fn eviction_begins_where_the_file_says() {
    let rig = Rig::start_with(|config| {
        config.eviction.high_watermark_percent = 30;
        config.eviction.low_watermark_percent = 10;
    })
    .await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    let capacity = rig.document("/v1/status").await["capacity_bytes"].clone();
    let object_bytes = capacity.as_u64().expect("a number") / 16;
    // Seven sixteenths: below the default of nine tenths, and above three.
    for at in 0..7 {
        let key = format!("k{at}");
        client
            .put(&key, object_bytes, &[&agent])
            .await
            .expect("put");
    }
    let evicted = async {
        loop {
            let page = rig.metrics().await;
            let labels = [("tenant", "a"), ("cause", "watermark")];
            if value(&page, "larder_master_evicted_total", &labels) > Some(0.0) {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("an eviction", evicted).await;
    rig.check().await;
}
