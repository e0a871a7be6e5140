//! Snapshots that are kept under a name, and a pool that begins from one.

use std::path::{Path, PathBuf};

use larder_master::MasterError;
use larder_master::config::FromSnapshotConfig;
use larder_master::snapshots::{Manifest, RestoreError, SnapshotName, StoreError};
use serde_json::{Value, json};

use crate::peer::{AgentPeer, Client};
use crate::rig::{Folder, Rig, soon, token};

async fn post(rig: &Rig, body: &str) -> (u16, Value) {
    let (status, body) = rig
        .http("POST", "/v1/snapshots", Some(&token("operator")), body)
        .await;
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

/// Takes a snapshot and waits for it.
async fn take(rig: &Rig, name: &str) -> Value {
    let (status, document) = post(rig, &json!({ "name": name }).to_string()).await;
    assert_eq!(
        (status, &document["phase"]),
        (202, &json!("Taking")),
        "{document}"
    );
    taken(rig, name).await
}

async fn taken(rig: &Rig, name: &str) -> Value {
    let path = format!("/v1/snapshots/{name}");
    let done = async {
        loop {
            let document = rig.document(&path).await;
            if !matches!(document["phase"].as_str(), Some("Taking" | "Uploading")) {
                return document;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("a snapshot", done).await
}

fn root(rig: &Rig) -> PathBuf {
    rig.config.state_dir.join("snapshots")
}

fn manifest(folder: &Path) -> Manifest {
    let bytes = std::fs::read(folder.join("manifest.json")).expect("a manifest");
    Manifest::decode(&bytes, "here").expect("whole")
}

#[tokio::test]
async fn a_snapshot_is_taken_told_of_and_deleted() {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let mut client = Client::connect(&rig, "a").await;
    for key in ["k", "l", "m"] {
        client.put(key, 10, &[&agent]).await.expect("put");
    }
    let before = rig.document("/v1/status").await;
    let document = take(&rig, "before-upgrade").await;
    assert_eq!(document["phase"], "Ready", "{document}");
    assert_eq!(
        document["digest"], before["digest"],
        "the state of the moment"
    );
    assert_eq!(
        (&document["objects"], &document["pool"]),
        (&json!(3), &json!("small"))
    );
    assert_eq!(document["epoch"], before["epoch"]);
    let folder = root(&rig).join("before-upgrade");
    assert_eq!(document["location"], folder.display().to_string());
    let manifest = manifest(&folder);
    assert_eq!(document["checksum"], manifest.checksum);
    let file = std::fs::metadata(folder.join(manifest.file_name())).expect("its file");
    assert_eq!(file.len(), manifest.size_bytes);

    // One of its name is not replaced, and the pool goes on.
    let (status, error) = post(&rig, r#"{"name":"before-upgrade"}"#).await;
    assert_eq!(
        (status, &error["error"]["reason"]),
        (409, &json!("snapshot_exists"))
    );
    client.put("n", 10, &[&agent]).await.expect("put");
    assert_eq!(take(&rig, "later").await["objects"], 4);
    let list = rig.document("/v1/snapshots").await;
    let names = list["snapshots"].as_array().expect("a list").iter();
    let names: Vec<_> = names.map(|one| one["name"].as_str()).collect();
    assert_eq!(names, [Some("before-upgrade"), Some("later")]);

    let delete = async |name: &str| {
        let path = format!("/v1/snapshots/{name}");
        rig.http("DELETE", &path, Some(&token("admin")), "").await.0
    };
    assert_eq!(delete("later").await, 204);
    assert_eq!(delete("later").await, 404);
    let (status, _) = rig
        .http("GET", "/v1/snapshots/later", Some(&token("admin")), "")
        .await;
    assert_eq!(status, 404);
    rig.check().await;
}

#[tokio::test]
async fn what_cannot_be_taken_is_refused() {
    let rig = Rig::start().await;
    Client::connect(&rig, "a").await;
    for body in [
        r#"{"name":"../a"}"#,
        r#"{"nam":"a"}"#,
        r#"{"name":""}"#,
        "",
        "[]",
    ] {
        assert_eq!(post(&rig, body).await.0, 400, "{body}");
    }
    // What is there and is no snapshot is told of, and counts.
    std::fs::create_dir_all(root(&rig).join("broken")).expect("made");
    std::fs::write(root(&rig).join("broken/manifest.json"), "{}").expect("written");
    let broken = rig.document("/v1/snapshots/broken").await;
    assert_eq!(broken["phase"], "Failed", "{broken}");
    for number in 0..15 {
        assert_eq!(take(&rig, &format!("s-{number}")).await["phase"], "Ready");
    }
    let (status, error) = post(&rig, r#"{"name":"one-more"}"#).await;
    assert_eq!(
        (status, &error["error"]["reason"]),
        (409, &json!("snapshots_full"))
    );
    let (status, _) = rig
        .http(
            "DELETE",
            "/v1/snapshots/broken",
            Some(&token("operator")),
            "",
        )
        .await;
    assert_eq!(status, 204);
    assert_eq!(take(&rig, "one-more").await["phase"], "Ready");
}

#[tokio::test]
async fn a_snapshot_that_was_not_kept_says_why_and_is_taken_again() {
    let rig = Rig::start().await;
    Client::connect(&rig, "a").await;
    // A file where its folder has to be made.
    std::fs::write(root(&rig), "").expect("written");
    let (status, error) = post(&rig, r#"{"name":"a"}"#).await;
    assert_eq!(
        (status, &error["error"]["reason"]),
        (503, &json!("snapshot_store"))
    );
    std::fs::remove_file(root(&rig)).expect("removed");
    // A file in the way of a folder that is made on the way.
    let staging = root(&rig).join(".small-master-0~new");
    std::fs::create_dir_all(root(&rig)).expect("made");
    std::fs::write(&staging, "").expect("written");
    let failed = take(&rig, "a").await;
    assert_eq!(failed["phase"], "Failed", "{failed}");
    assert!(
        failed["reason"]
            .as_str()
            .is_some_and(|why| why.contains("~new")),
        "{failed}"
    );
    std::fs::remove_file(&staging).expect("removed");
    assert_eq!(take(&rig, "a").await["phase"], "Ready");
}

/// A pool with tenants, quotas and objects, and a snapshot `s` of it in the folder given back.
async fn source() -> (Folder, PathBuf) {
    let rig = Rig::start().await;
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    let put = async |path: &str, body: Value| {
        let body = body.to_string();
        let (status, body) = rig.http("PUT", path, Some(&token("operator")), &body).await;
        assert_eq!(status, 204, "{body}");
    };
    put("/v1/quotas/team", json!({ "limit_bytes": 1_000_000 })).await;
    put(
        "/v1/tenants/c",
        json!({ "cohort": "team", "limit_objects": 7 }),
    )
    .await;
    put("/v1/tenants/gone", json!({})).await;
    let mut client = Client::connect(&rig, "c").await;
    client.put("k", 10, &[&agent]).await.expect("put");
    let (status, _) = rig
        .http("DELETE", "/v1/tenants/gone", Some(&token("operator")), "")
        .await;
    assert_eq!(status, 204);
    assert_eq!(take(&rig, "s").await["phase"], "Ready");
    let (stopped, folder, config) = rig.stop();
    stopped.expect("a graceful stop");
    (folder, config.state_dir.join("snapshots"))
}

fn from(folder: &Path, name: &str) -> Option<FromSnapshotConfig> {
    Some(FromSnapshotConfig {
        name: SnapshotName::new(name).expect("a name"),
        folder: Some(folder.to_owned()),
        object_store: None,
    })
}

#[tokio::test]
async fn a_pool_begins_with_the_tenants_and_quotas_of_a_snapshot() {
    let (_source, snapshots) = source().await;
    let rig =
        Rig::start_with(|config| config.bootstrap.from_snapshot = from(&snapshots, "s")).await;
    let mut client = Client::connect(&rig, "c").await;
    let status = rig.document("/v1/status").await;
    // Above that of the snapshot, which was 1.
    assert_eq!(status["epoch"]["generation"], 2, "{status}");
    assert_eq!(status["objects"], 0);
    let tenants = rig.document("/v1/tenants").await;
    let names = tenants["tenants"].as_array().expect("a list").iter();
    let names: Vec<_> = names
        .into_iter()
        .map(|one| one["tenant"].as_str())
        .collect();
    assert_eq!(names, [Some("a"), Some("b"), Some("c")]);
    let c = &tenants["tenants"][2];
    assert_eq!(
        (&c["cohort"], &c["limit_objects"]),
        (&json!("team"), &json!(7))
    );
    let quota = rig.document("/v1/quotas/team").await;
    assert_eq!(quota["limit_bytes"], 1_000_000, "{quota}");
    rig.check().await;
    assert!(
        !rig.config.state_dir.join("bootstrap").exists(),
        "it is tidied up"
    );

    // What comes later stays: a restart finds a log, and asks for no snapshot.
    let agent = AgentPeer::mount(&rig, "node-0", 5).await.serve();
    client.put("new", 10, &[&agent]).await.expect("put");
    let (status, _) = rig
        .http("PUT", "/v1/tenants/c", Some(&token("operator")), "{}")
        .await;
    assert_eq!(status, 204);
    let (stopped, folder, config) = rig.stop();
    stopped.expect("a graceful stop");
    std::fs::remove_dir_all(&snapshots).expect("removed");
    let rig = Rig::start_in(folder, config).await;
    let mut client = Client::connect(&rig, "c").await;
    AgentPeer::mount(&rig, "node-0", 5).await.serve();
    assert_eq!(client.exists(&["new"]).await, [Ok(true)]);
    let status = rig.document("/v1/status").await;
    assert_eq!(status["epoch"]["generation"], 2);
    let tenants = rig.document("/v1/tenants").await;
    assert_eq!(tenants["tenants"][2]["limit_objects"], Value::Null);
    rig.check().await;
}

/// Starts a pool from a snapshot, which must fail; the error.
async fn refused(snapshots: &Path, name: &str, pool: &str) -> RestoreError {
    let rig = Rig::start_with(|config| {
        config.bootstrap.from_snapshot = from(snapshots, name);
        config.pool = pool.to_owned();
    })
    .await;
    // It ends by itself.
    match rig.ended().await {
        Err(MasterError::Restore(error)) => error,
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn a_pool_never_begins_empty_in_the_place_of_a_snapshot() {
    let (_source, snapshots) = source().await;
    let kept = manifest(&snapshots.join("s"));
    let path = snapshots.join("s/manifest.json");
    let whole = std::fs::read(&path).expect("readable");

    let error = refused(&snapshots, "none", "small").await;
    assert!(matches!(&error, RestoreError::Missing { .. }), "{error}");
    let error = refused(&snapshots, "s", "large").await;
    assert!(matches!(&error, RestoreError::OtherPool { .. }), "{error}");
    assert!(
        !error.is_retryable() && error.to_string().contains("`small`"),
        "{error}"
    );

    let write = |change: &dyn Fn(&mut Value)| {
        let mut value: Value = serde_json::from_slice(&whole).expect("JSON");
        change(&mut value);
        std::fs::write(&path, value.to_string()).expect("written");
    };
    write(&|value| value["format"] = json!(2));
    let error = refused(&snapshots, "s", "small").await;
    let newer = matches!(
        &error,
        RestoreError::Store(StoreError::Newer { format: 2, .. })
    );
    assert!(newer, "{error}");
    write(&|value| value["digest"] = json!("00"));
    let error = refused(&snapshots, "s", "small").await;
    assert!(matches!(&error, RestoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("digest"), "{error}");
    write(&|value| value["name"] = json!("t"));
    let error = refused(&snapshots, "s", "small").await;
    assert!(error.to_string().contains("`t`"), "{error}");

    // A bit of its file, with the checksum that such a file has.
    std::fs::write(&path, &whole).expect("written");
    let file = snapshots.join("s").join(kept.file_name());
    let mut bytes = std::fs::read(&file).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, &bytes).expect("written");
    let error = refused(&snapshots, "s", "small").await;
    assert!(error.to_string().contains("checksum"), "{error}");
    let sum = format!("{:08x}", crc32c::crc32c(&bytes));
    write(&|value| value["checksum"] = json!(sum));
    let error = refused(&snapshots, "s", "small").await;
    assert!(matches!(&error, RestoreError::File { .. }), "{error}");
    std::fs::remove_file(&file).expect("removed");
    let error = refused(&snapshots, "s", "small").await;
    assert!(
        matches!(&error, RestoreError::Store(StoreError::File { .. })),
        "{error}"
    );
}
