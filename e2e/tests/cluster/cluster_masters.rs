//! A pool with three masters: the one that leads dies while engines put and get.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::json;

use crate::Test;
use crate::cluster_pods::{Pool, is_ready, pool_object, tenant_object};
use crate::scene::{LIMIT, Scene};

pub(crate) const BYTES: usize = 16 << 10;
/// Objects that are put before, and which are read all the time.
pub(crate) const OLD: usize = 8;
/// How long a get may take, as `larder` has it for its calls.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);
/// What `larder` says when it finds no leader; nothing was asked then.
pub(crate) const NO_MASTER: &str = "no master answers";
/// Acknowledged puts that must follow the death of the leader.
pub(crate) const AFTER: usize = 10;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test::new(
        "cluster_masters_go_on_without_their_leader",
        without_leader,
    )]
}

pub(crate) fn replicated<'s>(scene: &'s Scene<'_>) -> Result<Pool<'s>> {
    scene.with_operator()?;
    let pool = Pool {
        scene,
        name: "small".to_owned(),
    };
    let mut object = pool_object(&pool.name, &json!({ "count": 2 }));
    object["spec"]["masters"] = json!({ "replicas": 3 });
    scene.apply(&[object, tenant_object(&pool.name, "team", &["team"], 1024)])?;
    pool.account("team")?;
    pool.await_ready(2)?;
    pool.await_tenant("team")?;
    let engines: Vec<_> = pool.nodes()?;
    let engines: Vec<_> = engines
        .iter()
        .enumerate()
        .map(|(at, node)| pool.engine(&format!("engine-{at}"), "team", "team", node))
        .collect();
    scene.apply(&engines)?;
    pool.await_pods()?;
    Ok(pool)
}

/// The master that leads, as the pool's status has it.
pub(crate) fn leader(pool: &Pool<'_>) -> Result<String> {
    let found = pool.scene.get(&[&pool.object()])?;
    let leader = found["status"]["leader"].as_str();
    Ok(leader.unwrap_or_default().to_owned())
}

/// Puts one object after another until `stop`, and gives the keys whose puts were acknowledged.
pub(crate) fn put_all(
    pool: &Pool<'_>,
    stop: &AtomicBool,
    done: &AtomicUsize,
) -> Result<Vec<String>> {
    let mut keys = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("new/{number}");
        // A put that fails promised nothing.
        if pool.put("engine-0", &key, BYTES).is_ok() {
            keys.push(key);
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(keys)
}

/// Gets what was there before, again and again: none may fail.
pub(crate) fn get_all(pool: &Pool<'_>, stop: &AtomicBool) -> Result<()> {
    for number in (0..OLD).cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        get_in_time(pool, &format!("old/{number}"))?;
    }
    Ok(())
}

/// A get as an engine makes it. `larder` tells a person at once that no master leads, where the
/// client of an engine waits within the deadline of its call.
fn get_in_time(pool: &Pool<'_>, key: &str) -> Result<()> {
    let end = Instant::now() + DEADLINE;
    loop {
        let got = pool.check("engine-1", key, BYTES);
        match got {
            Err(error) if format!("{error:#}").contains(NO_MASTER) && Instant::now() < end => {}
            got => return got,
        }
    }
}

/// Kills the leader's pod and waits until another one leads and puts are acknowledged again.
fn kill_leader(pool: &Pool<'_>, done: &AtomicUsize) -> Result<()> {
    let progress = |what: &str, more: usize| {
        let start = done.load(Ordering::Relaxed);
        until(what, LIMIT, || {
            let now = done.load(Ordering::Relaxed);
            Ok(Look::holds(now >= start + more, &format!("{now} puts")))
        })
    };
    progress("puts before the leader dies", 2)?;
    let old = leader(pool)?;
    let before = pool.scene.get(&["pod", &old])?;
    let delete = ["delete", "pod", &old, "--grace-period=0", "--force"];
    pool.scene.kubectl(&delete)?;
    progress("puts after the leader died", AFTER)?;
    until("another leader in the status", LIMIT, || {
        let now = leader(pool)?;
        Ok(Look::holds(!now.is_empty() && now != old, &now))
    })?;
    until("the dead master to be back", LIMIT, || {
        let pods = pool.pods("master")?;
        let pod = pods
            .iter()
            .find(|pod| pod["metadata"]["name"] == json!(old));
        let holds = pod.is_some_and(|pod| {
            is_ready(pod) && pod["metadata"]["uid"] != before["metadata"]["uid"]
        });
        Ok(Look::holds(holds, &format!("{pod:?}")))
    })
}

fn without_leader(scene: &Scene<'_>) -> Result<()> {
    let pool = replicated(scene)?;
    scene.await_condition(&pool.object(), "MastersReady", "AllMastersReady")?;
    until("one master that may be evicted", LIMIT, || {
        let found = scene.get(&["poddisruptionbudget/small-master"])?;
        let allowed = &found["status"]["disruptionsAllowed"];
        Ok(Look::holds(
            *allowed == json!(1),
            &found["status"].to_string(),
        ))
    })?;
    for number in 0..OLD {
        pool.put("engine-0", &format!("old/{number}"), BYTES)?;
    }
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (killed, put, got) = thread::scope(|scope| {
        let puts = scope.spawn(|| put_all(&pool, &stop, &done));
        let gets = scope.spawn(|| get_all(&pool, &stop));
        let killed = kill_leader(&pool, &done);
        stop.store(true, Ordering::Relaxed);
        (killed, puts.join(), gets.join())
    });
    killed?;
    let keys = put.map_err(|_| anyhow!("the puts panicked"))??;
    got.map_err(|_| anyhow!("the gets panicked"))?
        .context("a get failed while the leader changed")?;
    ensure!(keys.len() >= AFTER, "{} puts were acknowledged", keys.len());
    for key in &keys {
        pool.check("engine-1", key, BYTES)
            .with_context(|| format!("the put of {key} was acknowledged"))?;
    }
    pool.await_ready(2)?;
    scene
        .await_condition(&pool.object(), "MastersReady", "True")
        .map(drop)
}
