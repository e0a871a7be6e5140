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

use crate::rig::{client, key, pattern, runtime, until};

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
    ensure!(outcome.is_clean(&plan), "{:?} {found:?}", found.findings);
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
