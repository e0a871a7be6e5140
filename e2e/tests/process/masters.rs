//! Several masters of which some die, sleep or lose their disk, under load.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use larder_client::Reason;
use larder_e2e::chaos::masters::{self, kill, leader, standby, status, until_whole};
use larder_e2e::chaos::round::{Outcome, run};
use larder_e2e::chaos::scene::Scene;
use larder_e2e::chaos::{Fault, Plan, pool_file};
use larder_e2e::pool::Pool;
use rustix::process::Signal;

use crate::rig::{client, http_with, key, pattern, runtime, until};

const OBJECT_BYTES: usize = 16 << 10;

/// Runs rounds of a fault; whatever it costs, nothing may be lost and nothing wrong.
pub(crate) fn chaos(fault: Fault, rounds: u32) -> Result<(Scene, Outcome)> {
    let label = format!("m-{fault}");
    let plan = Plan {
        fault,
        seed: 7,
        rounds,
        puts_per_round: 1_024,
        length: Duration::from_millis(2_500),
        full: false,
    };
    let mut scene = Scene::start(&label, &plan, false)?;
    let outcome = run(&mut scene, &plan, |text| println!("{text}"))?;
    let found = &outcome.tally;
    ensure!(outcome.is_clean(), "{:?} {found:?}", found.findings);
    ensure!(
        outcome.rounds == rounds && found.puts >= 1_024,
        "{outcome:?}"
    );
    Ok((scene, outcome))
}

pub(crate) fn leader_killed() -> Result<()> {
    let (scene, outcome) = chaos(Fault::Kill9, 2)?;
    let (pool, found) = (&scene.pool, &outcome.tally);
    ensure!(found.gets_failed == 0, "gets failed: {found:?}");
    let down = pool.down()?;
    ensure!(down.status.success(), "{down:?}");
    let left = larder_e2e::proc::with_argument(&pool.home().to_string_lossy());
    ensure!(left.is_empty(), "processes are left: {left:?}");
    Ok(())
}

pub(crate) fn leader_paused() -> Result<()> {
    let (_, outcome) = chaos(Fault::Pause, 1)?;
    ensure!(outcome.woken_reads > 0, "nobody asked the woken leader");
    let found = &outcome.tally;
    ensure!(found.gets_failed == 0, "gets failed: {found:?}");
    Ok(())
}

pub(crate) fn all_killed() -> Result<()> {
    chaos(Fault::Down, 1)?;
    Ok(())
}

pub(crate) fn standby_killed() -> Result<()> {
    let (scene, outcome) = chaos(Fault::Standby, 1)?;
    let (pool, found) = (&scene.pool, &outcome.tally);
    ensure!(found.errors.is_empty(), "somebody noticed: {found:?}");
    // The leader that there was at the start is there still: its process never changed.
    let first = pool.document.masters.iter().map(|one| (&one.name, one.pid));
    let now = until_whole(pool)?;
    let kept = now.masters.iter().map(|one| (&one.name, one.pid));
    let same = first.zip(kept).filter(|(one, two)| one == two).count();
    ensure!(
        same == 2,
        "one of three was started again: {:?}",
        now.masters
    );
    Ok(())
}

/// A standby that comes back without its disk is another replica of the same name.
pub(crate) fn standby_without_disk() -> Result<()> {
    let pool = Pool::start("m-disk", &pool_file("masters", 3, 2, 64))?;
    let runtime = runtime()?;
    let near = runtime.block_on(client(&pool, "load", None))?;
    let value = pattern(1, OBJECT_BYTES);
    for index in 0..64 {
        runtime.block_on(near.put(key(&format!("before/{index}"))?, value.clone()))?;
    }
    let victim = standby(&until_whole(&pool)?, 0)?.clone();
    // Stopped first, so that it is not started again before its folder is gone.
    masters::signal(victim.pid, Signal::STOP)?;
    let state = pool.folder.join("state").join(&victim.name);
    std::fs::remove_dir_all(&state).with_context(|| format!("remove {}", state.display()))?;
    kill(&[victim.pid])?;
    until("it is started again and follows", || {
        let now = status(&pool)?;
        let found = now.masters.iter().find(|one| one.name == victim.name);
        let found = found.context("it is not in the document")?;
        Ok((found.pid != victim.pid && found.role == "standby").then_some(()))
    })?;
    until_whole(&pool)?;
    // It counts again: with one of the others gone, it and the third are a majority.
    let now = status(&pool)?;
    kill(&[leader(&now)?.pid])?;
    for index in 0..64 {
        let got = runtime.block_on(near.get(key(&format!("before/{index}"))?))?;
        ensure!(got == value, "wrong bytes");
    }
    runtime.block_on(near.put(key("after")?, value.clone()))?;
    match runtime.block_on(near.get(key("never")?)) {
        Err(error) => ensure!(error.reason() == Some(Reason::NotFound), "{error}"),
        Ok(_) => anyhow::bail!("an object that nobody put"),
    }
    Ok(())
}

/// What the leader says on its admin port.
fn told(pool: &Pool, path: &str) -> Result<serde_json::Value> {
    let now = until_whole(pool)?;
    let headers = format!("Authorization: Bearer {}\r\n", pool.token("operator")?);
    let (code, body) = http_with(&leader(&now)?.admin_addr, &format!("GET {path}"), &headers)?;
    ensure!(code == 200, "{path}: {code} {body}");
    serde_json::from_str(&body).with_context(|| format!("{path}: {body}"))
}

/// All masters lose their disks at once: what agents hold is found again.
pub(crate) fn all_without_disks() -> Result<()> {
    without_disks("m-wiped", 3)
}

/// As above, for a pool of one master.
pub(crate) fn lone_without_disk() -> Result<()> {
    without_disks("m-lone", 1)
}

fn without_disks(label: &str, masters: usize) -> Result<()> {
    let pool = Pool::start(label, &pool_file("masters", masters, 2, 64))?;
    let runtime = runtime()?;
    let near = runtime.block_on(client(&pool, "load", None))?;
    let value = |index: u64| pattern(index, OBJECT_BYTES);
    for index in 0..64 {
        runtime.block_on(near.put(key(&format!("k/{index}"))?, value(index)))?;
    }
    for index in 0..16 {
        runtime.block_on(near.remove(key(&format!("k/{index}"))?))?;
    }
    for index in 16..32 {
        let put = near.upsert(key(&format!("k/{index}"))?, value(index + 100));
        runtime.block_on(put)?;
    }
    // What was removed is erased by the agents some moments later; until then a pool that loses
    // its log would find it again.
    until("everything removed is erased", || {
        let told = told(&pool, "/v1/status")?;
        Ok((told["releasing_bytes"] == 0).then_some(()))
    })?;
    let before = told(&pool, "/v1/status")?["epoch"]["generation"].as_u64();
    let now = until_whole(&pool)?;
    for one in &now.masters {
        masters::signal(one.pid, Signal::STOP)?;
    }
    for one in &now.masters {
        let state = pool.folder.join("state").join(&one.name);
        std::fs::remove_dir_all(&state).with_context(|| format!("remove {}", state.display()))?;
    }
    kill(&now.masters.iter().map(|one| one.pid).collect::<Vec<_>>())?;
    until("the pool is served again", || {
        let is_there = runtime.block_on(near.exists(key("k/63")?));
        Ok(is_there.is_ok().then_some(()))
    })?;
    for index in 0..64 {
        let got = runtime.block_on(near.get(key(&format!("k/{index}"))?));
        match (index, got) {
            (0..16, Err(error)) => ensure!(error.reason() == Some(Reason::NotFound), "{error}"),
            (16..32, Ok(got)) => ensure!(got == value(index + 100), "wrong bytes of {index}"),
            (32.., Ok(got)) => ensure!(got == value(index), "wrong bytes of {index}"),
            (_, got) => anyhow::bail!("k/{index}: {:?}", got.map(|bytes| bytes.len())),
        }
    }
    let after = told(&pool, "/v1/status")?["epoch"]["generation"].as_u64();
    ensure!(after > before, "{after:?} follows {before:?}");
    for index in 0..64 {
        let put = near.upsert(key(&format!("k/{index}"))?, value(index + 200));
        runtime.block_on(put)?;
        let got = runtime.block_on(near.get(key(&format!("k/{index}"))?))?;
        ensure!(got == value(index + 200), "wrong bytes of {index}");
    }
    let findings = told(&pool, "/v1/check")?;
    ensure!(findings["findings"] == serde_json::json!([]), "{findings}");
    Ok(())
}
