//! One short injection of each fault of the harness, and a proof that its faults are there.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use larder_e2e::chaos::masters::{kill, leader, standby, status, until_whole};
use larder_e2e::chaos::scene::Scene;
use larder_e2e::chaos::{Dice, Fault, Plan, network};

use crate::rig::{client, key, pattern, runtime, until};

const OBJECT_BYTES: usize = 16 << 10;
/// Places of [`larder_e2e::chaos::faults::Control::seen`].
const REFUSED: usize = 2;
const DELAYED: usize = 3;

/// One injection of a fault of disks, clocks, power or agents.
pub(crate) fn once(fault: Fault) -> Result<()> {
    crate::masters::chaos(fault, 1)?;
    Ok(())
}

/// The faults that need networks of their own run in the program, which makes them.
pub(crate) fn partitions() -> Result<()> {
    let faults = ["--fault", "partition,partition_pair", "--rounds", "1"];
    let load = ["--puts", "512", "--empty", "--length-ms", "2000"];
    let output = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(faults)
        .args(load)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    let is_left_out = said.contains("is left out");
    ensure!(is_left_out == network::check().is_err(), "{said}");
    Ok(())
}

/// That each fault of the harness reaches the real program: else nothing else here proves anything.
pub(crate) fn faults_reach() -> Result<()> {
    let plan = Plan {
        fault: Fault::DiskFull,
        seed: 7,
        rounds: 0,
        puts_per_round: 0,
        length: Duration::ZERO,
        full: false,
    };
    let mut scene = Scene::start("m-faults", &plan, false)?;
    let runtime = runtime()?;
    let near = runtime.block_on(client(&scene.pool, "load", None))?;
    let mut puts = 0;
    let mut put = || -> Result<()> {
        puts += 1;
        let name = key(&format!("put/{puts}"))?;
        let put = near.put(name, pattern(puts, OBJECT_BYTES));
        Ok(runtime.block_on(put).map(drop)?)
    };
    put()?;
    all_seen(&scene)?;
    disk_reached(&scene, &mut put)?;
    clock_reached(&scene)?;
    power_reached(&mut scene, &mut put)
}

fn all_seen(scene: &Scene) -> Result<()> {
    for master in &scene.masters {
        let [syncs, writes, _, _, clock_reads, boot_reads] = master.control.seen()?;
        let name = &master.name;
        ensure!(syncs > 0 && writes > 0, "{name}: no syncs or writes seen");
        ensure!(clock_reads > 0, "{name}: no wall clock seen");
        ensure!(boot_reads > 0, "{name}: no boot id seen");
        let files = master.control.files()?;
        let is_synced = files
            .iter()
            .any(|file| file.is_linked && file.synced_bytes > 0);
        ensure!(is_synced, "{name}: nothing durable: {files:?}");
    }
    Ok(())
}

/// The number of a master that follows.
fn follower(scene: &Scene) -> Result<usize> {
    scene.master(&standby(&until_whole(&scene.pool)?, 0)?.name)
}

fn disk_reached(scene: &Scene, put: &mut impl FnMut() -> Result<()>) -> Result<()> {
    let control = &scene.masters[follower(scene)?].control;
    let before = control.seen()?;
    control.slow_disk(5, 5)?;
    until("a write is delayed", || {
        put()?;
        Ok((control.seen()?[DELAYED] > before[DELAYED]).then_some(()))
    })?;
    control.slow_disk(0, 0)?;
    control.limit_disk(0)?;
    until("a write is refused", || {
        put()?;
        Ok((control.seen()?[REFUSED] > before[REFUSED]).then_some(()))
    })?;
    control.unlimit_disk()
}

/// The clock shows in the log: what a master says when its role changes is of another day.
fn clock_reached(scene: &Scene) -> Result<()> {
    let victim = &scene.masters[follower(scene)?];
    let log = scene.pool.folder.join(format!("log/{}.log", victim.name));
    let day = |line: Option<&str>| -> Result<String> {
        let line = line.context("its log is empty")?;
        Ok(line.chars().take_while(|char| *char != 'T').collect())
    };
    let first = std::fs::read_to_string(&log)?;
    let today = day(first.lines().next())?;
    victim.control.shift_clock(24 * 3_600)?;
    kill(&[leader(&status(&scene.pool)?)?.pid])?;
    until("a line of its log is of another day", || {
        let text = std::fs::read_to_string(&log)?;
        let last = day(text.lines().next_back())?;
        Ok((last != today && last.len() == today.len()).then_some(()))
    })?;
    victim.control.shift_clock(0)
}

fn power_reached(scene: &mut Scene, put: &mut impl FnMut() -> Result<()>) -> Result<()> {
    let mut dice = Dice::new(7);
    until("a loss of power takes something", || {
        let found = standby(&until_whole(&scene.pool)?, 0)?.clone();
        let at = scene.master(&found.name)?;
        let machine = &mut scene.masters[at];
        machine.control.slow_disk(300, 0)?;
        put()?;
        put()?;
        machine.control.turn_off()?;
        kill(&[found.pid])?;
        machine.control.until_off()?;
        let cut = machine.lose_power(&mut dice)?;
        machine.control.slow_disk(0, 0)?;
        machine.control.turn_on()?;
        Ok((cut.bytes > 0).then_some(()))
    })?;
    until_whole(&scene.pool).map(drop)
}
