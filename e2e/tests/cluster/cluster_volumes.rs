//! Masters with volumes: they become more and fewer while engines put and get, and a pool begins
//! from a snapshot of another.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::cluster_masters::{AFTER, OLD, get_all};
use crate::cluster_pods::{Pool, pool_object, tenant_object};
use crate::cluster_rolls::{await_masters, change, check, fill, put_each};
use crate::object_store::{BUCKET, ObjectStore};
use crate::scene::{LIMIT, Scene};

/// Volumes of a node: for masters of the present pool, and of the one before.
const VOLUMES: usize = 2;
/// Where they lie on a node.
const FOLDER: &str = "/var/lib/volumes";
const SNAPSHOT: &str = "before";
const QUOTA: &str = "research";

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new(
        "cluster_volumes_let_masters_change_and_begin_again",
        change_and_begin_again,
    )]
}

/// Volumes of a class that is the test's own; they go when this is dropped.
struct Volumes<'s> {
    scene: &'s Scene<'s>,
    objects: Vec<String>,
}

impl<'s> Volumes<'s> {
    fn make(scene: &'s Scene<'_>) -> Result<Self> {
        let class = &scene.namespace;
        let mut made = Self {
            scene,
            objects: vec![format!("storageclass/{class}")],
        };
        let mut objects = vec![json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
            "metadata": { "name": class },
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        })];
        for node in scene.cluster.nodes() {
            for number in 0..VOLUMES {
                let name = format!("{class}-{}-{number}", node.name());
                let folder = format!("{FOLDER}/{name}");
                node.run(&["mkdir", "-p", &folder])?;
                made.objects.push(format!("persistentvolume/{name}"));
                objects.push(json!({
                    "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": name },
                    "spec": {
                        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
                        "persistentVolumeReclaimPolicy": "Retain", "storageClassName": class,
                        "local": { "path": folder },
                        "nodeAffinity": { "required": { "nodeSelectorTerms": [{
                            "matchExpressions": [{
                                "key": "kubernetes.io/hostname", "operator": "In",
                                "values": [node.name()],
                            }],
                        }] } },
                    },
                }));
            }
        }
        scene.cluster.kubectl().apply(&json!(objects))?;
        Ok(made)
    }
}

impl Drop for Volumes<'_> {
    fn drop(&mut self) {
        // One that is in use goes with its claim. The folders are the nodes', and go with them.
        let mut delete = vec!["delete", "--wait=false", "--ignore-not-found"];
        delete.extend(self.objects.iter().map(String::as_str));
        let _ = self.scene.cluster.kubectl().run(&delete);
    }
}

/// A pool with one master that has a volume, and a store for its snapshots.
fn with_volume(scene: &Scene<'_>, store: &ObjectStore) -> Result<Value> {
    let mut object = pool_object("small", &json!({ "count": 2 }));
    object["spec"]["masters"] = json!({
        "replicas": 1,
        "storage": { "size": "1Gi", "storageClassName": scene.namespace },
    });
    object["spec"]["snapshots"] = json!({ "objectStore": {
        "endpoint": store.endpoint()?, "bucket": BUCKET,
        "credentialsSecret": { "name": "store" },
    } });
    Ok(object)
}

fn start<'s>(scene: &'s Scene<'_>, object: Value) -> Result<Pool<'s>> {
    let secret = json!({ "accessKeyId": "someone", "secretAccessKey": "something" });
    scene.apply(&[
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "store" },
            "stringData": secret,
        }),
        object,
        tenant_object("small", "team", &["team"], 1024),
        json!({
            "apiVersion": "larder.dev/v1alpha1", "kind": "CacheQuota",
            "metadata": { "name": QUOTA },
            "spec": {
                "poolRef": { "name": "small" }, "tenants": ["team"],
                "limit": { "bytes": "2Gi" },
            },
        }),
    ])?;
    let pool = Pool {
        scene,
        name: "small".to_owned(),
    };
    pool.account("team")?;
    pool.await_ready(2)?;
    pool.await_tenant("team")?;
    scene.await_condition(&format!("cachequota/{QUOTA}"), "Ready", "True")?;
    let nodes = pool.nodes()?;
    let engine =
        |(at, node): (usize, &String)| pool.engine(&format!("engine-{at}"), "team", "team", node);
    let engines: Vec<_> = nodes.iter().enumerate().map(engine).collect();
    scene.apply(&engines)?;
    pool.await_pods()?;
    Ok(pool)
}

fn resize(pool: &Pool<'_>, done: &AtomicUsize) -> Result<()> {
    for count in [3, 1] {
        change(pool, &json!({ "replicas": count }))?;
        await_masters(pool, count)?;
        let start = done.load(Ordering::Relaxed);
        until("puts with another number of masters", LIMIT, || {
            let now = done.load(Ordering::Relaxed);
            Ok(Look::holds(now >= start + AFTER, &format!("{now} puts")))
        })?;
    }
    Ok(())
}

fn change_and_begin_again(scene: &Scene<'_>) -> Result<()> {
    scene.with_operator()?;
    let _volumes = Volumes::make(scene)?;
    let store = ObjectStore::start(scene.cluster)?;
    let object = with_volume(scene, &store)?;
    let pool = start(scene, object.clone())?;
    await_masters(&pool, 1)?;
    fill(&pool)?;
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (resized, put, got) = thread::scope(|scope| {
        let puts = scope.spawn(|| put_each(&pool, &stop, &done));
        let gets = scope.spawn(|| get_all(&pool, &stop));
        let resized = resize(&pool, &done);
        stop.store(true, Ordering::Relaxed);
        (resized, puts.join(), gets.join())
    });
    put.map_err(|_| anyhow!("the puts panicked"))?
        .context("a put failed while the number of masters changed")?;
    got.map_err(|_| anyhow!("the gets panicked"))?
        .context("a get failed while the number of masters changed")?;
    resized?;
    check(&pool, "new", done.load(Ordering::Relaxed))?;
    check(&pool, "old", OLD)?;
    begin_again(&pool, object)
}

/// Takes a snapshot, removes the pool with its tenant, quota and volumes, and begins another one of
/// that name from the snapshot.
fn begin_again(pool: &Pool<'_>, mut object: Value) -> Result<()> {
    let scene = pool.scene;
    scene.apply(&[json!({
        "apiVersion": "larder.dev/v1alpha1", "kind": "CacheSnapshot",
        "metadata": { "name": SNAPSHOT },
        "spec": { "poolRef": { "name": "small" } },
    })])?;
    let snapshot = format!("cachesnapshot/{SNAPSHOT}");
    scene.await_condition(&snapshot, "Ready", "True")?;
    let taken = scene.get(&[&snapshot])?["status"].clone();
    let location = format!("s3://{BUCKET}/{}/small/{SNAPSHOT}", scene.namespace);
    ensure!(taken["location"] == json!(location), "{taken}");
    // The first pool's own claims of volumes would outlive it, with its log.
    let quota = format!("cachequota/{QUOTA}");
    for words in [
        ["delete", &pool.object(), "--timeout=120s"],
        ["delete", "cachetenant/team", "--timeout=60s"],
        ["delete", &quota, "--timeout=60s"],
        ["delete", "pods,pvc", "--all"],
    ] {
        scene.kubectl(&words[..])?;
    }
    object["spec"]["bootstrap"] = json!({ "fromSnapshot": { "name": SNAPSHOT } });
    scene.apply(&[object])?;
    pool.await_ready(2)?;
    // No CacheTenant says so.
    let tenants = pool.master_says("/v1/tenants")?;
    let tenant = &tenants["tenants"][0];
    let id = format!("{}.team", scene.namespace);
    ensure!(tenant["tenant"] == json!(id), "{tenants}");
    ensure!(tenant["limit_bytes"] == json!(1_u64 << 30), "{tenant}");
    ensure!(tenant["objects"] == json!(0), "{tenant}");
    // The operator takes a quota away that no CacheQuota names, so only the log tells of it.
    let said = scene.kubectl(&["logs", "small-master-0"])?;
    let begun = said
        .lines()
        .find(|line| line.contains("begins from a snapshot"));
    let begun = begun.with_context(|| format!("no word of the snapshot: {said}"))?;
    ensure!(begun.contains(r#""quotas":1"#), "{begun}");
    is_new(pool)
}

/// A pool that began, if from a snapshot, was not recovered.
fn is_new(pool: &Pool<'_>) -> Result<()> {
    let status = pool.master_says("/v1/status")?;
    ensure!(status["epoch"]["generation"].as_u64() > Some(1), "{status}");
    ensure!(status["of_inventory"] == json!(false), "{status}");
    let found = pool.scene.get(&[&pool.object()])?;
    let conditions = found["status"]["conditions"].to_string();
    ensure!(
        !conditions.contains("RecoveredFromInventory"),
        "{conditions}"
    );
    Ok(())
}
