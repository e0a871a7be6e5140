//! What each fault does to the pool.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use larder_client::Client;
use rustix::process::Signal;

use crate::chaos::ledger::Span;
use crate::chaos::load::{DEADLINE, Load, TENANT, connect, key};
use crate::chaos::masters::{kill, leader, signal, standby, status};
use crate::chaos::probe::{Probe, Waiting};
use crate::chaos::round::Run;
use crate::chaos::{Fault, now_ns};
use crate::pool::Document;

/// Gets that wait at a leader which is stopped or cut off.
const WAITING: usize = 8;
/// The most bytes that a disk takes until it is full.
const ROOM_BYTES: u64 = 64 << 10;
/// An hour, by which clocks are set off.
const HOUR_S: i64 = 3_600;
/// How often it is tried to hand the office over.
const PROMOTIONS: u32 = 5;
/// How long after the end of a fault its cost to writes is looked for.
pub(super) const AFTER: Duration = Duration::from_secs(2);

impl Run<'_> {
    pub(super) fn inject(&mut self, probe: &mut Probe, load: &Load) -> Result<()> {
        let document = status(&self.scene.pool)?;
        probe.injected = Instant::now();
        match self.plan.fault {
            Fault::Kill9 => self.kill(&[leader(&document)?.pid], probe),
            Fault::Standby => {
                let at = self.dice.place(2);
                self.kill(&[standby(&document, at)?.pid], probe)
            }
            Fault::Down => self.kill(&masters(&document), probe),
            Fault::Pause | Fault::LongPause => self.pause(&document, probe),
            Fault::Partition => self.partition(&document, probe),
            Fault::PartitionPair => self.partition_pair(&document, probe),
            Fault::FollowerCut => self.follower_cut(&document, probe),
            Fault::Switchover => self.switchover(&document, probe),
            Fault::DiskFull | Fault::SlowDisk => self.bad_disk(&document, probe),
            Fault::Clock => self.clock(&document, probe),
            Fault::PowerOne => self.power_one(&document, probe),
            Fault::PowerAll | Fault::PowerAllAlways => self.power_all(&document, probe, load),
            Fault::Wiped => self.wiped(&document, probe),
            Fault::AgentKill9 | Fault::AgentPause => self.agent(&document, probe),
        }
    }

    fn kill(&mut self, pids: &[u32], probe: &mut Probe) -> Result<()> {
        self.note(format!("kill -9 of {pids:?}"));
        kill(pids)?;
        self.first_put(probe)
    }

    /// The time until a put works again, from now on.
    pub(super) fn first_put(&mut self, probe: &mut Probe) -> Result<()> {
        probe.injected = Instant::now();
        let first = self.runtime.block_on(probe.first_put(&mut self.dice))?;
        self.outcome.first_put.push(first);
        self.note(format!("first put after {:.3} s", first.as_secs_f64()));
        Ok(())
    }

    /// Stops the leader, lets another one take over and change an object, and wakes it while
    /// gets of that object wait in its socket.
    fn pause(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let pid = leader(document)?.pid;
        self.note(format!("the leader {pid} is stopped"));
        let begin = |_: &mut Self| signal(pid, Signal::STOP);
        self.while_out(document, probe, begin, |_| signal(pid, Signal::CONT))
    }

    /// The leader is out between `begin` and `end`. Gets that only it can answer are called after
    /// another leader changed their object.
    pub(super) fn while_out(
        &mut self,
        document: &Document,
        probe: &mut Probe,
        begin: impl FnOnce(&mut Self) -> Result<()>,
        end: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let addr = leader(document)?.client_addr.clone();
        let stays = connect(&self.scene.pool, TENANT, vec![addr]);
        let stays = self.runtime.block_on(stays)?;
        let at = self.runtime.block_on(probe.certain(&mut self.dice))?;
        let text = probe.ledger.key(at);
        // Its connection is used once before.
        let _ = self.runtime.block_on(stays.get(key(&text)?));
        let begun = begin(self);
        let stopped = Instant::now();
        let waiting = begun.and_then(|()| self.wait_out(&stays, at, probe, stopped));
        // Whatever came of it, it must not stay so.
        end(self)?;
        self.note("the leader is back".to_owned());
        let waiting = waiting?;
        self.outcome.woken_reads += waiting.len() as u64;
        let judged = self.runtime.block_on(probe.judge_late(at, waiting))?;
        self.outcome.woken_failed += judged;
        Ok(())
    }

    fn wait_out(
        &mut self,
        stays: &Client,
        at: usize,
        probe: &mut Probe,
        stopped: Instant,
    ) -> Result<Vec<Waiting>> {
        self.first_put(probe)?;
        self.runtime.block_on(probe.change(at, &mut self.dice))?;
        // It knows no other master: the woken one refuses it, and that it may.
        let left = self.plan.length().saturating_sub(stopped.elapsed());
        let stays = stays.with_deadline(left + DEADLINE);
        let name = key(&probe.ledger.key(at))?;
        let mut waiting = Vec::with_capacity(WAITING);
        for _ in 0..WAITING {
            let (stays, name) = (stays.clone(), name.clone());
            waiting.push(self.runtime.spawn(async move { stays.get(name).await }));
        }
        self.last(stopped);
        Ok(waiting)
    }

    /// Waits until the fault is over that began then.
    pub(super) fn last(&self, begun: Instant) {
        // The length of the fault.
        std::thread::sleep(self.plan.length().saturating_sub(begun.elapsed()));
    }

    fn switchover(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let chosen = self.dice.place(2);
        let next = standby(document, chosen)?.name.clone();
        self.note(format!("{next} is to lead"));
        let from_ns = now_ns();
        let mut tries = 0;
        loop {
            let output = self.scene.pool.run(&["promote", &next])?;
            if output.status.success() {
                break;
            }
            // It may be too far behind, or too slow; then the old one leads on.
            tries += 1;
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            self.note(format!("the office was not handed over: {why}"));
            ensure!(tries < PROMOTIONS, "{next} cannot be promoted: {why}");
        }
        self.first_put(probe)?;
        std::thread::sleep(AFTER);
        self.windows.push(("switchover", from_ns, now_ns()));
        Ok(())
    }

    /// Some masters by the dice: the leader, a standby, or all.
    fn victims(&mut self, document: &Document) -> Result<Vec<usize>> {
        Ok(match self.dice.below(3) {
            0 => vec![self.scene.master(&leader(document)?.name)?],
            1 => {
                let chosen = self.dice.place(2);
                vec![self.scene.master(&standby(document, chosen)?.name)?]
            }
            _ => (0..self.scene.masters.len()).collect(),
        })
    }

    fn bad_disk(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let victims = self.victims(document)?;
        let begun = Instant::now();
        let is_full = self.plan.fault == Fault::DiskFull;
        let room = self.dice.below(ROOM_BYTES);
        let (sync_ms, write_ms) = (100 + self.dice.below(900), self.dice.below(50));
        for at in &victims {
            let control = &self.scene.masters[*at].control;
            match is_full {
                true => control.limit_disk(room)?,
                false => control.slow_disk(sync_ms, write_ms)?,
            }
        }
        self.note(match is_full {
            true => format!("the disks of {victims:?} take {room} bytes more"),
            false => format!("the disks of {victims:?}: {sync_ms} ms a sync, {write_ms} a write"),
        });
        self.last(begun);
        for at in &victims {
            let control = &self.scene.masters[*at].control;
            control.unlimit_disk()?;
            control.slow_disk(0, 0)?;
        }
        self.note("the disks are well again".to_owned());
        self.first_put(probe)
    }

    fn clock(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let victims = self.victims(document)?;
        let with_agents = self.dice.below(2) == 0;
        let by_s = if self.dice.below(2) == 0 {
            HOUR_S
        } else {
            -HOUR_S
        };
        self.note(format!(
            "the clocks of {victims:?} go {by_s} s off; those of agents too: {with_agents}"
        ));
        let begun = Instant::now();
        let shift = |run: &Self, by_s: i64| -> Result<()> {
            for at in &victims {
                run.scene.masters[*at].control.shift_clock(by_s)?;
            }
            let mut agents = run.scene.agents.iter().filter(|_| with_agents);
            agents.try_for_each(|agent| agent.control.shift_clock(by_s))
        };
        shift(self, by_s)?;
        self.first_put(probe)?;
        self.last(begun);
        shift(self, 0)?;
        self.note("the clocks are right again".to_owned());
        Ok(())
    }

    fn power_one(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let at = self.dice.place(self.scene.masters.len());
        let name = self.scene.masters[at].name.clone();
        let found = document.masters.iter().find(|one| one.name == name);
        let found = found.with_context(|| format!("{name} is not in the document"))?;
        self.scene.masters[at].control.turn_off()?;
        kill(&[found.pid])?;
        self.note(format!("{name} ({}) loses its power", found.role));
        let put = self.first_put(probe);
        self.power_on(&[at])?;
        put
    }

    /// Cuts the disks of machines that are off or going off, and turns them on.
    fn power_on(&mut self, machines: &[usize]) -> Result<()> {
        for at in machines {
            self.scene.masters[*at].control.until_off()?;
            let cut = self.scene.masters[*at].lose_power(&mut self.dice)?;
            self.note(format!("master {at}: {cut:?}"));
            self.outcome.cut_bytes += cut.bytes;
        }
        for master in &self.scene.masters {
            master.control.slow_disk(0, 0)?;
        }
        for at in machines {
            self.scene.masters[*at].control.turn_on()?;
        }
        Ok(())
    }

    fn all_off(&mut self, document: &Document) -> Result<Vec<usize>> {
        for master in &self.scene.masters {
            master.control.turn_off()?;
        }
        kill(&masters(document))?;
        self.note("all masters are gone at once".to_owned());
        for master in &self.scene.masters {
            master.control.until_off()?;
        }
        Ok((0..self.scene.masters.len()).collect())
    }

    fn power_all(&mut self, document: &Document, probe: &mut Probe, load: &Load) -> Result<()> {
        let all = self.all_off(document)?;
        if self.plan.fault.may_undo() {
            // What a majority had synced is in the longest log: any entry that was acknowledged
            // until then was in the log of one of them.
            let synced: Result<Vec<u64>> = self
                .scene
                .masters
                .iter()
                .map(|master| master.control.last_sync_ns())
                .collect();
            let mut synced = synced?;
            synced.sort_unstable_by(|one, other| other.cmp(one));
            let span = Span {
                from_ns: synced[synced.len() / 2],
                to_ns: now_ns(),
            };
            load.forgive(span);
            probe.ledger.forgive(span);
        }
        self.power_on(&all)?;
        self.first_put(probe)
    }

    fn wiped(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let all = self.all_off(document)?;
        for at in &all {
            let disk = &self.scene.masters[*at].disk;
            let state = disk.parent().context("the disk is in the state folder")?;
            fs::remove_dir_all(state).with_context(|| format!("remove {}", state.display()))?;
        }
        for at in &all {
            self.scene.masters[*at].control.turn_on()?;
        }
        self.note("they are back without their disks".to_owned());
        self.first_put(probe)
    }

    fn agent(&mut self, document: &Document, probe: &mut Probe) -> Result<()> {
        let chosen = self.dice.place(document.agents.len());
        let pid = document.agents[chosen].pid;
        if self.plan.fault == Fault::AgentKill9 {
            return self.kill(&[pid], probe);
        }
        self.note(format!("the agent {chosen} is stopped"));
        let begun = Instant::now();
        signal(pid, Signal::STOP)?;
        self.last(begun);
        signal(pid, Signal::CONT)?;
        self.note("it is woken".to_owned());
        self.first_put(probe)
    }
}

fn masters(document: &Document) -> Vec<u32> {
    document.masters.iter().map(|one| one.pid).collect()
}
