//! What a pool says whose masters lost their log and made it again from what agents hold.

use std::time::Duration;

use larder_operator::master_api::{EpochDocument, StatusDocument};
use serde_json::json;

use crate::api_server::{ApiServer, key};
use crate::world::{FakeMaster, Operator, cluster, condition, pool, wait};

const POOLS: &str = "cachepools";
const RECOVERED: &str = "RecoveredFromInventory";

fn life(generation: u64) -> StatusDocument {
    StatusDocument {
        epoch: EpochDocument { generation },
        ..StatusDocument::default()
    }
}

fn made_again(generation: u64) -> StatusDocument {
    StatusDocument {
        of_inventory: true,
        ..life(generation)
    }
}

fn lives(master: &FakeMaster, life: StatusDocument) {
    master.with(|state| state.life = life);
}

async fn message(api: &ApiServer) -> String {
    let found = api.get(POOLS, "apps", "small").await.expect("the pool");
    let conditions = found["status"]["conditions"].as_array();
    let mut conditions = conditions.expect("conditions").iter();
    let found = conditions.find(|one| one["type"] == RECOVERED);
    found.expect("the condition")["message"].to_string()
}

/// How often an event of this reason was told; one that comes again soon is counted up.
async fn told(api: &ApiServer, reason: &'static str) -> u64 {
    api.with(move |state| {
        let events = state.objects.iter().filter(|(key, _)| key.0 == "events");
        let events = events.filter(|(_, event)| event["reason"] == reason);
        let counts = events.map(|(_, event)| event["series"]["count"].as_u64().unwrap_or(1));
        counts.sum()
    })
    .await
}

/// Nothing is said of how the pool came to be.
async fn is_silent(api: &ApiServer) -> bool {
    api.with(|state| {
        let small = &state.objects[&key(POOLS, "apps", "small")];
        !small["status"]["conditions"]
            .to_string()
            .contains(RECOVERED)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_began_from_a_snapshot_was_not_recovered() {
    let (api, master) = cluster().await;
    lives(&master, life(5));
    api.put(POOLS, pool("small", Some(1))).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    wait(Duration::from_secs(120)).await;
    assert!(is_silent(&api).await);
}

#[tokio::test(start_paused = true)]
async fn a_recovery_is_told_while_it_lasts_and_afterwards() {
    let (api, master) = cluster().await;
    lives(&master, life(1));
    api.put(POOLS, pool("small", Some(1))).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Ready", "True").await;
    assert!(is_silent(&api).await);

    let going_on = StatusDocument {
        rebuilding: true,
        agents: 3,
        agents_told: Some(1),
        ..made_again(2)
    };
    lives(&master, going_on);
    condition(&api, POOLS, "small", RECOVERED, "False/Rebuilding").await;
    condition(&api, POOLS, "small", "Ready", "False/Rebuilding").await;
    let said = message(&api).await;
    assert!(
        said.contains("generation 2") && said.contains("1 of 3"),
        "{said}"
    );

    // It is looked at again soon, ready or not.
    lives(&master, made_again(2));
    wait(Duration::from_secs(10)).await;
    condition(&api, POOLS, "small", RECOVERED, "True/InventoryTaken").await;
    condition(&api, POOLS, "small", "Ready", "True").await;
    let said = message(&api).await;
    assert!(said.contains("generation 2"), "{said}");
    assert_eq!(told(&api, "InventoryTaken").await, 1);

    // It stays so without a word, also while no master answers.
    wait(Duration::from_secs(60)).await;
    api.take_writes().await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(api.take_writes().await, Vec::<String>::new());
    master.with(|state| state.is_silent = true);
    condition(&api, POOLS, "small", "LeaderElected", "False").await;
    condition(&api, POOLS, "small", RECOVERED, "True/InventoryTaken").await;
    master.with(|state| state.is_silent = false);

    // Another one that was over between two looks.
    lives(&master, made_again(3));
    let small = key(POOLS, "apps", "small");
    api.until("the next generation", move |state| {
        let conditions = &state.objects[&small]["status"]["conditions"];
        conditions.to_string().contains("generation 3")
    })
    .await;
    wait(Duration::from_secs(10)).await;
    assert_eq!(told(&api, "InventoryTaken").await, 2);

    // And a beginning, after which there is nothing to say.
    lives(&master, life(4));
    wait(Duration::from_secs(60)).await;
    condition(&api, POOLS, "small", "Ready", "True").await;
    assert!(is_silent(&api).await);
    let edit = json!({ "metadata": { "annotations": { "looked": "again" } } });
    api.edit(POOLS, "apps", "small", edit).await;
    wait(Duration::from_secs(60)).await;
    assert!(is_silent(&api).await);
}
