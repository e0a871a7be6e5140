//! What faults do to a pool, and how each is mended.

use std::sync::atomic::Ordering;

use super::super::disk::MachineDisk;
use super::super::faults::{Class, Fault};
use super::super::network::{Cut, Node};
use super::super::stage::StageError;
use super::{MS, Machine, Pool, PoolMistake, RESTART_NS};

/// The longest leap of a clock, in ms. More than an agent may be silent would be the end of all
/// agents, and rightly.
const LEAP_MS_MAX: u64 = 2_500;

/// How long it takes until a majority has synced what was acknowledged, in ns, if no disk is slow.
const UNSYNCED_NS: u64 = 300 * MS;
/// How long it takes until an agent has erased what was removed, in ns: it may be out of reach.
const FORGOTTEN_NS: u64 = 3_000 * MS;

impl Pool {
    /// Lets a quantum pass, and begins and ends what is due.
    pub(super) fn step(&mut self) -> Result<(), StageError> {
        let (before_ns, now_ns) = (self.stage.now_ns(), self.stage.now_ns() + MS);
        let within = |at_ns: u64| before_ns < at_ns && at_ns <= now_ns;
        for place in 0..self.faults.len() {
            let fault = self.faults[place].clone();
            if within(fault.from_ns) {
                self.trace.note(before_ns, format_args!("begins: {fault}"));
                self.coverage.count(fault.class);
                self.begin(place, &fault);
            }
            if within(fault.until_ns) {
                self.trace.note(before_ns, format_args!("ends: {fault}"));
                self.end(place, &fault)?;
            }
        }
        self.stage.pass()?;
        let mut judge = self.judge.borrow_mut();
        for (agent, folder) in &self.agents {
            judge.see_epoch(*agent, folder.epoch());
        }
        drop(judge);
        self.restart_ended()
    }

    /// Starts again what ended by itself.
    fn restart_ended(&mut self) -> Result<(), StageError> {
        let now_ns = self.stage.now_ns();
        let machines = self.machines.keys().chain(self.agents.keys());
        let ended = machines.filter(|node| !self.stage.is_running(**node));
        let ended: Vec<Node> = ended
            .filter(|node| self.down.get(node).is_none_or(Vec::is_empty))
            .copied()
            .collect();
        for node in ended {
            if !self.restarts.contains_key(&node) {
                self.trace.note(now_ns, format_args!("{node} ended"));
                self.gone(node);
            }
            let restart_ns = *self.restarts.entry(node).or_insert(now_ns + RESTART_NS);
            if restart_ns <= now_ns {
                self.start(node)?;
            }
        }
        Ok(())
    }

    fn start(&mut self, node: Node) -> Result<(), StageError> {
        if self.machines.contains_key(&node) {
            self.start_master(node)
        } else {
            self.start_agent(node)
        }
    }

    /// A process is gone; of an agent its bytes too.
    fn gone(&mut self, node: Node) {
        self.judge.borrow_mut().forget(node);
        if self.agents.contains_key(&node) {
            self.lost_ns.get_or_insert(self.stage.now_ns());
        }
    }

    fn kill(&mut self, place: usize, node: Node) {
        self.stage.kill(node);
        self.gone(node);
        self.down.entry(node).or_default().push(place);
    }

    fn begin(&mut self, place: usize, fault: &Fault) {
        let amount = u64::try_from(fault.amount).unwrap_or(0);
        let now_ns = self.stage.now_ns();
        if let Some(storm) = fault.storm() {
            self.stage.network.begin_storm(place as u64, storm);
        }
        match fault.class {
            Class::PowerAll if !self.is_always => {
                self.dark.push((now_ns, self.unsynced_ns(now_ns)))
            }
            Class::WipeAll => {
                self.dark.push((now_ns, FORGOTTEN_NS));
                self.judge.borrow_mut().wiped();
            }
            _ => {}
        }
        let cut = |(from, to): (&[Node], &[Node])| self.stage.network.cut(from, to);
        let cuts: Vec<Cut> = fault.cuts().into_iter().map(cut).collect();
        self.cuts.push((place, cuts));
        for node in fault.nodes.iter().copied() {
            match fault.class {
                Class::Kill | Class::AgentKill => self.kill(place, node),
                Class::PowerOne | Class::PowerAll => {
                    self.kill(place, node);
                    if let Some(machine) = self.machines.get_mut(&node) {
                        machine.lose_power(amount.wrapping_add(node.0.into()));
                    }
                }
                Class::WipeAll => {
                    self.kill(place, node);
                    if let Some(machine) = self.machines.get_mut(&node) {
                        machine.lose_disk();
                    }
                }
                Class::Upgrade => self.upgrade(place, node),
                Class::DiskFull => self.limit_free(node, Some(amount)),
                Class::DiskSlow => self.set_sync_ns(node, amount),
                Class::ClockLeap => {
                    let leap_ms = amount / MS % LEAP_MS_MAX;
                    self.stage.clock(node).leap(leap_ms * MS);
                }
                Class::ClockDrift => {
                    let ppm = i32::try_from(fault.amount).unwrap_or(0);
                    self.stage.clock(node).drift(now_ns, ppm);
                }
                Class::WallJump => self.set_wall(node, fault.amount),
                Class::Pause | Class::AgentPause => self.stage.pause(node, true),
                _ => {}
            }
        }
    }

    pub(super) fn end(&mut self, place: usize, fault: &Fault) -> Result<(), StageError> {
        let now_ns = self.stage.now_ns();
        self.stage.network.end_storm(place as u64);
        let mended = |(of, _): &mut (usize, Vec<Cut>)| *of == place;
        for (_, cuts) in self.cuts.extract_if(.., mended).collect::<Vec<_>>() {
            for cut in cuts {
                self.stage.network.mend(now_ns, cut);
            }
        }
        for node in fault.nodes.iter().copied() {
            match fault.class {
                Class::Kill
                | Class::AgentKill
                | Class::PowerOne
                | Class::PowerAll
                | Class::WipeAll => {
                    let down = self.down.entry(node).or_default();
                    down.retain(|down| *down != place);
                    if down.is_empty() {
                        self.start(node)?;
                    }
                }
                Class::Upgrade => {
                    let down = self.down.entry(node).or_default();
                    let was_down = down.contains(&place);
                    down.retain(|down| *down != place);
                    if was_down && down.is_empty() {
                        self.start(node)?;
                    }
                }
                Class::DiskFull => self.limit_free(node, None),
                Class::DiskSlow => self.set_sync_ns(node, 0),
                Class::ClockDrift => self.stage.clock(node).drift(now_ns, 0),
                Class::Pause | Class::AgentPause => self.stage.pause(node, false),
                _ => {}
            }
        }
        Ok(())
    }

    /// The first master of an older release is started with the next one; the others follow with
    /// the next faults of this kind, or never: a pool stays between two releases for long.
    fn upgrade(&mut self, place: usize, node: Node) {
        let under_way = self.down.values().any(|down| down.contains(&place));
        if let Some(machine) = self.machines.get_mut(&node)
            && !under_way
            && !machine.is_upgraded
        {
            machine.is_upgraded = true;
            self.kill(place, node);
        }
    }

    fn limit_free(&self, node: Node, free_bytes: Option<u64>) {
        if let Some(machine) = self.machines.get(&node) {
            machine.disk.limit_free(free_bytes);
        }
    }

    fn set_sync_ns(&self, node: Node, sync_ns: u64) {
        if let Some(machine) = self.machines.get(&node) {
            machine.disk.set_sync_ns(sync_ns);
        }
    }

    /// How long before now something may have been acknowledged that no majority has synced.
    fn unsynced_ns(&self, now_ns: u64) -> u64 {
        let slow = self.faults.iter().filter(|fault| {
            let until_ns = fault.until_ns + UNSYNCED_NS;
            fault.class == Class::DiskSlow && fault.from_ns <= now_ns && now_ns <= until_ns
        });
        // A sync that was begun just before does not count.
        let slowest_ns = slow
            .filter_map(|fault| u64::try_from(fault.amount).ok())
            .max();
        UNSYNCED_NS + 2 * slowest_ns.unwrap_or(0)
    }

    /// Somebody sets the wall clock of a machine, which nothing may go by.
    fn set_wall(&mut self, node: Node, by_ns: i64) {
        self.stage.clock(node).set_wall(by_ns);
        if let Some(machine) = self.machines.get(&node)
            && self.mistake == Some(PoolMistake::WallClock)
        {
            let by_ms = by_ns / 1_000_000;
            machine.ahead_ms.fetch_add(by_ms, Ordering::Relaxed);
        }
    }
}

impl Machine {
    fn lose_power(&mut self, seed: u64) {
        self.disk.lose_power(seed);
        self.boot = self.boot.wrapping_add(1);
    }

    /// It gets an empty one.
    fn lose_disk(&mut self) {
        self.disk = MachineDisk::new();
        self.boot = self.boot.wrapping_add(1);
    }
}
