//! Masters that get another configuration, lose a node, or become more or fewer, while engines put
//! and get.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use larder_e2e::cluster::{Look, until};
use serde_json::{Value, json};

use crate::Test;
use crate::cluster_masters::{
    AFTER, BYTES, DEADLINE, NO_MASTER, OLD, get_all, leader, put_all, replicated,
};
use crate::cluster_pods::Pool;
use crate::scene::{LIMIT, Scene};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        Test::new("cluster_masters_are_rolled_without_a_failed_call", roll),
        Test::new("cluster_masters_without_volumes_stay_as_many", resize),
        Test::new(
            "cluster_masters_go_on_without_the_leaders_node",
            lose_a_node,
        ),
    ]
}

/// Puts one object after another until `stop`; none may fail. `larder` tells a person at once that
/// no master leads, where the client of an engine waits within the deadline of its call.
pub(crate) fn put_each(pool: &Pool<'_>, stop: &AtomicBool, done: &AtomicUsize) -> Result<()> {
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = format!("new/{number}");
        let end = Instant::now() + DEADLINE;
        loop {
            match pool.put("engine-0", &key, BYTES) {
                Err(error) if format!("{error:#}").contains(NO_MASTER) && Instant::now() < end => {}
                put => {
                    put.with_context(|| format!("the put of {key}"))?;
                    break;
                }
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

pub(crate) fn fill(pool: &Pool<'_>) -> Result<()> {
    for number in 0..OLD {
        pool.put("engine-0", &format!("old/{number}"), BYTES)?;
    }
    Ok(())
}

pub(crate) fn check(pool: &Pool<'_>, kind: &str, count: usize) -> Result<()> {
    for number in 0..count {
        let key = format!("{kind}/{number}");
        pool.check("engine-1", &key, BYTES)
            .with_context(|| format!("the put of {key} was acknowledged"))?;
    }
    Ok(())
}

pub(crate) fn change(pool: &Pool<'_>, masters: &Value) -> Result<()> {
    let patch = json!({ "spec": { "masters": masters } }).to_string();
    let words = ["patch", &pool.object(), "--type=merge", "-p", &patch];
    pool.scene.kubectl(&words).map(drop)
}

/// The uids of the masters' pods.
fn lives(pool: &Pool<'_>) -> Result<BTreeSet<String>> {
    let uid = |pod: &Value| {
        pod["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    Ok(pool.pods("master")?.iter().map(uid).collect())
}

/// Waits until so many masters run as the present spec says.
pub(crate) fn await_masters(pool: &Pool<'_>, count: u32) -> Result<()> {
    until(
        &format!("{count} masters as the spec says"),
        2 * LIMIT,
        || {
            let found = pool.scene.get(&[&pool.object()])?;
            let status = &found["status"];
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let mut of_masters = conditions.filter(|one| {
                one["type"] == json!("MastersUpdated")
                    && one["status"] == json!("True")
                    && one["observedGeneration"] == found["metadata"]["generation"]
            });
            let masters = json!({ "desired": count, "ready": count });
            let holds = of_masters.next().is_some()
                && status["masters"] == masters
                && pool.pods("master")?.len() == count as usize;
            Ok(Look::holds(holds, &status.to_string()))
        },
    )
}

/// The leader's pod, and no other, carries the label by which the Service of the leader selects.
fn only_the_leader_is_marked(pool: &Pool<'_>) -> Result<()> {
    until("one pod that is marked", LIMIT, || {
        let marked = ["pods", "-l", "larder.dev/leader=true"];
        let marked = pool.scene.list(&marked)?;
        let names: Vec<_> = marked.iter().map(|pod| &pod["metadata"]["name"]).collect();
        let holds = names == [&json!(leader(pool)?)];
        Ok(Look::holds(holds, &format!("{names:?}")))
    })?;
    until("the address of the leader's Service", LIMIT, || {
        let found = pool.scene.get(&["endpoints/small-leader"])?;
        let addresses = found["subsets"][0]["addresses"].as_array();
        let count = addresses.map_or(0, Vec::len);
        Ok(Look::holds(count == 1, &found.to_string()))
    })
}

fn roll(scene: &Scene<'_>) -> Result<()> {
    let pool = replicated(scene)?;
    await_masters(&pool, 3)?;
    only_the_leader_is_marked(&pool)?;
    fill(&pool)?;
    let before = lives(&pool)?;
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (rolled, put, got) = thread::scope(|scope| {
        let puts = scope.spawn(|| put_each(&pool, &stop, &done));
        let gets = scope.spawn(|| get_all(&pool, &stop));
        let rolled = change(&pool, &json!({ "oplog": { "intervalMs": 30 } }))
            .and_then(|()| {
                until("all masters to be made again", 2 * LIMIT, || {
                    let now = lives(&pool)?;
                    let holds = now.len() == 3 && now.is_disjoint(&before);
                    Ok(Look::holds(holds, &format!("{now:?}")))
                })
            })
            .and_then(|()| await_masters(&pool, 3));
        stop.store(true, Ordering::Relaxed);
        (rolled, puts.join(), gets.join())
    });
    rolled?;
    put.map_err(|_| anyhow!("the puts panicked"))?
        .context("a put failed while the masters were rolled")?;
    got.map_err(|_| anyhow!("the gets panicked"))?
        .context("a get failed while the masters were rolled")?;
    let count = done.load(Ordering::Relaxed);
    ensure!(count >= AFTER, "{count} puts were acknowledged");
    check(&pool, "new", count)?;
    only_the_leader_is_marked(&pool)
}

/// Masters without volumes would forget with the pods that a smaller number makes again.
fn resize(scene: &Scene<'_>) -> Result<()> {
    let pool = replicated(scene)?;
    await_masters(&pool, 3)?;
    for replicas in [1, 5] {
        let refused = change(&pool, &json!({ "replicas": replicas }));
        let said = format!("{:#}", refused.err().context("it was taken")?);
        ensure!(said.contains("can only be changed with storage"), "{said}");
    }
    await_masters(&pool, 3)
}

/// Three nodes, and agents on two: the third is lost with its master, which leads.
fn lose_a_node(scene: &Scene<'_>) -> Result<()> {
    let pool = replicated(scene)?;
    await_masters(&pool, 3)?;
    fill(&pool)?;
    let members = pool.nodes()?;
    let is_apart = |pod: &&Value| {
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        !members.iter().any(|member| member == node)
    };
    let masters = pool.pods("master")?;
    let lost = masters.iter().find(is_apart).context("no master apart")?;
    let name = |field: &str, part: &str| lost[field][part].as_str().unwrap_or_default().to_owned();
    let (node, master) = (name("spec", "nodeName"), name("metadata", "name"));
    let old = leader(&pool)?;
    let leads = |pod: &&Value| pod["metadata"]["name"] == json!(old);
    let leading = masters.iter().find(leads).context("no leader's pod")?;
    pool.master_does(leading, "POST", &format!("/v1/masters/{master}/promote"))?;
    until("the master apart to lead", LIMIT, || {
        let now = leader(&pool)?;
        Ok(Look::holds(now == master, &now))
    })?;
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (went_on, put, got) = thread::scope(|scope| {
        let puts = scope.spawn(|| put_all(&pool, &stop, &done));
        let gets = scope.spawn(|| get_all(&pool, &stop));
        let went_on = scene
            .cluster
            .node(&node)
            .and_then(|node| node.power_off())
            .and_then(|()| {
                let start = done.load(Ordering::Relaxed);
                until("puts after the node is gone", LIMIT, || {
                    let now = done.load(Ordering::Relaxed);
                    Ok(Look::holds(now >= start + AFTER, &format!("{now} puts")))
                })
            });
        stop.store(true, Ordering::Relaxed);
        (went_on, puts.join(), gets.join())
    });
    went_on?;
    let keys = put.map_err(|_| anyhow!("the puts panicked"))??;
    got.map_err(|_| anyhow!("the gets panicked"))?
        .context("a get failed while the node was lost")?;
    until("another leader in the status", LIMIT, || {
        let now = leader(&pool)?;
        Ok(Look::holds(!now.is_empty() && now != master, &now))
    })?;
    for key in &keys {
        pool.check("engine-1", key, BYTES)
            .with_context(|| format!("the put of {key} was acknowledged"))?;
    }
    scene.cluster.node(&node)?.power_on()?;
    await_masters(&pool, 3)
}
