//! Snapshots, from their first reconcile to their end, and pools that keep them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::api_server::ApiServer;
use crate::world::{FakeMaster, Operator, cluster, condition, pool, wait};

const POOLS: &str = "cachepools";
const SNAPSHOTS: &str = "cachesnapshots";

fn snapshot(name: &str, policy: &str) -> Value {
    json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheSnapshot",
        "metadata": { "name": name, "namespace": "apps" },
        "spec": { "poolRef": { "name": "small" }, "deletionPolicy": policy },
    })
}

/// The master has finished what it was taking.
fn finish(master: &FakeMaster, name: &str) {
    master.with(|state| {
        let taken = state.snapshots.get_mut(name).expect("it was asked for");
        taken.phase = "Ready".to_owned();
        taken.location = format!("s3://bucket/apps/small/{name}");
        taken.master = "small-master-0".to_owned();
        taken.objects = 7;
        taken.size_bytes = 1536;
        taken.digest = "00000000000000aa".to_owned();
        (taken.epoch.generation, taken.epoch.term) = (2, 3);
        taken.taken_unix_ms = 1_767_225_600_123;
    });
}

fn changes(master: &FakeMaster, of: &str) -> Vec<String> {
    let all = master.with(|state| state.changes.clone());
    all.into_iter().filter(|one| one.contains(of)).collect()
}

async fn status(api: &ApiServer, name: &str) -> Value {
    let found = api.get(SNAPSHOTS, "apps", name).await.expect("a snapshot");
    found["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_taken_once_and_goes_with_its_object() {
    let (api, master) = cluster().await;
    api.put(SNAPSHOTS, snapshot("before", "Delete")).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, SNAPSHOTS, "before", "Accepted", "False/PoolNotFound").await;
    assert_eq!(status(&api, "before").await["phase"], "Pending");
    api.put(POOLS, pool("small", Some(1))).await;
    condition(&api, SNAPSHOTS, "before", "Ready", "False/SnapshotUnderWay").await;
    assert_eq!(status(&api, "before").await["phase"], "Taking");
    finish(&master, "before");
    condition(&api, SNAPSHOTS, "before", "Ready", "True/SnapshotKept").await;
    let told = status(&api, "before").await;
    let expected = json!({
        "phase": "Ready", "sizeBytes": 1536, "size": "1.5Ki", "objects": 7, "epoch": "2.3",
        "digest": "00000000000000aa", "location": "s3://bucket/apps/small/before",
        "master": "small-master-0", "takenAt": "2026-01-01T00:00:00Z",
    });
    for (field, value) in expected.as_object().expect("fields") {
        assert_eq!(&told[field], value, "{field}");
    }
    assert_eq!(changes(&master, "take "), ["take apps/small before"]);

    // It rests: nothing is written, and none is taken again.
    wait(Duration::from_secs(120)).await;
    api.take_writes().await;
    wait(Duration::from_secs(7200)).await;
    assert_eq!(api.take_writes().await, Vec::<String>::new());
    assert_eq!(changes(&master, "take ").len(), 1);

    api.delete(SNAPSHOTS, "apps", "before").await;
    wait(Duration::from_secs(30)).await;
    assert!(api.get(SNAPSHOTS, "apps", "before").await.is_none());
    assert_eq!(
        changes(&master, "no snapshot"),
        ["no snapshot apps/small before"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_may_outlive_its_object_and_is_found_again() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(1))).await;
    api.put(SNAPSHOTS, snapshot("kept", "Retain")).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, SNAPSHOTS, "kept", "Ready", "False/SnapshotUnderWay").await;
    finish(&master, "kept");
    condition(&api, SNAPSHOTS, "kept", "Ready", "True/SnapshotKept").await;
    api.delete(SNAPSHOTS, "apps", "kept").await;
    wait(Duration::from_secs(30)).await;
    assert!(api.get(SNAPSHOTS, "apps", "kept").await.is_none());
    assert_eq!(changes(&master, "no snapshot"), Vec::<String>::new());
    api.put(SNAPSHOTS, snapshot("kept", "Delete")).await;
    condition(&api, SNAPSHOTS, "kept", "Ready", "True/SnapshotKept").await;
    assert_eq!(changes(&master, "take ").len(), 1);

    // Its pool goes first: nobody can be told, and nothing is stuck.
    api.delete(POOLS, "apps", "small").await;
    condition(&api, SNAPSHOTS, "kept", "Accepted", "False/PoolNotFound").await;
    assert_eq!(
        status(&api, "kept").await["phase"],
        "Ready",
        "what is known stays"
    );
    api.delete(SNAPSHOTS, "apps", "kept").await;
    wait(Duration::from_secs(30)).await;
    assert!(api.get(SNAPSHOTS, "apps", "kept").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn what_was_not_taken_says_why() {
    let (api, master) = cluster().await;
    api.put(POOLS, pool("small", Some(1))).await;
    master.with(|state| state.refuses = Some(409));
    api.put(SNAPSHOTS, snapshot("one", "Delete")).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, SNAPSHOTS, "one", "Ready", "False/SnapshotWaits").await;
    master.with(|state| state.refuses = None);
    condition(&api, SNAPSHOTS, "one", "Ready", "False/SnapshotUnderWay").await;
    master.with(|state| {
        let taken = state.snapshots.get_mut("one").expect("it was asked for");
        taken.phase = "Failed".to_owned();
        taken.reason = "no room".to_owned();
    });
    condition(&api, SNAPSHOTS, "one", "Ready", "False/SnapshotFailed").await;
    let told = status(&api, "one").await;
    assert_eq!(told["phase"], "Failed");
    assert!(told.to_string().contains("no room"), "{told}");

    // One that was there and is lost is not taken again under its name.
    api.put(SNAPSHOTS, snapshot("two", "Delete")).await;
    condition(&api, SNAPSHOTS, "two", "Ready", "False/SnapshotUnderWay").await;
    finish(&master, "two");
    condition(&api, SNAPSHOTS, "two", "Ready", "True/SnapshotKept").await;
    // It may be with the one that does not answer.
    master.with(|state| {
        state.snapshots.clear();
        state.answering = Some(0);
    });
    condition(&api, SNAPSHOTS, "two", "Ready", "False/MasterNotReached").await;
    assert_eq!(status(&api, "two").await["phase"], "Ready");
    master.with(|state| state.answering = None);
    condition(&api, SNAPSHOTS, "two", "Ready", "False/SnapshotLost").await;
    wait(Duration::from_secs(3600)).await;
    assert_eq!(changes(&master, "take ").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn masters_are_told_where_snapshots_are_kept() {
    let (api, master) = cluster().await;
    let mut small = pool("small", Some(1));
    small["spec"]["snapshots"] = json!({ "objectStore": {
        "endpoint": "http://store:9000", "bucket": "snapshots",
        "credentialsSecret": { "name": "keys" },
    } });
    small["spec"]["bootstrap"] = json!({ "fromSnapshot": { "name": "before" } });
    api.put(POOLS, small).await;
    let _operator = Operator::alone(&api, &master);
    condition(&api, POOLS, "small", "Accepted", "True/Accepted").await;
    condition(&api, POOLS, "small", "Ready", "True/Serving").await;
    let files = api.get("configmaps", "apps", "small-master").await;
    let files = files.expect("the file of the master");
    let file = files["data"]["small-master-0.json"]
        .as_str()
        .expect("a file");
    let file: Value = serde_json::from_str(file).expect("JSON");
    assert_eq!(
        file["bootstrap"],
        json!({ "from_snapshot": { "name": "before" } })
    );
    let expected = json!({ "object_store": {
        "endpoint": "http://store:9000", "region": "us-east-1", "bucket": "snapshots",
        "prefix": "apps/small",
        "access_key_id_file": "/etc/larder/object-store/accessKeyId",
        "secret_access_key_file": "/etc/larder/object-store/secretAccessKey",
    } });
    assert_eq!(file["snapshots"], expected);
    let set = api.get("statefulsets", "apps", "small-master").await;
    let pod = set.expect("the masters")["spec"]["template"]["spec"].clone();
    let volume = json!({
        "name": "object-store", "secret": { "secretName": "keys", "defaultMode": 0o440 },
    });
    let volumes = pod["volumes"].as_array().expect("volumes");
    assert!(volumes.contains(&volume), "{volumes:?}");
    let mount = json!({
        "name": "object-store", "mountPath": "/etc/larder/object-store", "readOnly": true,
    });
    let mounts = pod["containers"][0]["volumeMounts"]
        .as_array()
        .expect("mounts");
    assert!(mounts.contains(&mount), "{mounts:?}");
}
