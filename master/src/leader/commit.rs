//! Committing: from ops to the log, and from what is committed to answers, commands and wakes.

use std::task::{Context, Poll, Waker};

use larder_store::{Command, Effects, Op};
use larder_types::AgentId;
use larder_wire::Kind;
use larder_wire::agent::Commands;

use super::{Ended, Leading, TURN_ITEMS};
use crate::flaw::Mistake;
use crate::log::{Entry, Log};
use crate::rpc::{COMMANDS_BYTES_MAX, COMMANDS_MAX, command_bytes, wire_command};

/// An entry holds no more than this by [`size_bytes`], unless one op makes more: what fits into one
/// frame to another master with room to spare. The largest op, of a put in many pieces, came to
/// this master in a frame that was larger.
const ENTRY_BYTES_MAX: usize = 512 * 1024;

/// The bytes of an op in the log, from above.
fn size_bytes(op: &Op) -> usize {
    match op {
        Op::PutEnd { key, replicas, .. } => {
            let extents: usize = replicas.iter().map(Vec::len).sum();
            160 + key.as_bytes().len() + 48 * extents
        }
        Op::AgentMounted { segments, .. } => 2_048 + 48 * segments.len(),
        // The longest key of all, and a hundred numbers.
        _ => 5_120,
    }
}

impl<L: Log> Leading<L> {
    /// Proposes, applies, answers and decides again what was woken, until all is quiet or the
    /// turn is long enough.
    pub(super) fn settle(&mut self) {
        loop {
            self.append();
            // The waker of the loop is set when it waits; here only what is there is taken.
            let mut context = Context::from_waker(Waker::noop());
            while self.ended.is_none()
                && let Poll::Ready(entry) = self.core.log.poll_committed(&mut context)
            {
                match entry {
                    Ok(entry) => self.commit(entry),
                    Err(error) => self.ended = Some(Ended::Log(error)),
                }
            }
            let told = self.told_through();
            while let Some((id, call)) = self.calls.next_complete(told) {
                self.answer(id, call);
            }
            if self.touched >= TURN_ITEMS || self.ended.is_some() || !self.core.log.has_room() {
                break;
            }
            let is_quiet = !self.decide_woken(TURN_ITEMS - self.touched);
            if is_quiet && self.core.entry.is_empty() {
                break;
            }
        }
    }

    /// Answers that saw nothing above this index may be told.
    pub(super) fn told_through(&self) -> u64 {
        if self.core.rules.flaw.is(Mistake::ToldBeforeCommitted) {
            return u64::MAX;
        }
        self.core.committed
    }

    /// Puts ops into the entry of this turn, and into further ones when that is full: a turn of
    /// evictions may have more than one holds. The index of the last of them is
    /// [`Log::next_index`] afterwards.
    pub(super) fn propose(&mut self, ops: Vec<Op>) {
        for op in ops {
            let bytes = size_bytes(&op);
            if self.core.entry_bytes + bytes > ENTRY_BYTES_MAX {
                self.append();
            }
            self.core.entry_bytes += bytes;
            self.core.entry.push(op);
        }
    }

    pub(super) fn append(&mut self) {
        if self.core.entry.is_empty() || self.ended.is_some() {
            return;
        }
        self.core.entry_bytes = 0;
        let ops = std::mem::take(&mut self.core.entry);
        self.core.leader.proposed(self.core.log.next_index(), &ops);
        if let Err(error) = self.core.log.append(ops) {
            self.ended = Some(Ended::Log(error));
        }
    }

    /// Applies a committed entry.
    pub(super) fn commit(&mut self, entry: Entry) {
        for op in &entry.ops {
            let core = &mut self.core;
            let mut effects = core
                .leader
                .committed(&mut core.state, entry.index, op, core.now);
            // What objects an op has taken away counts like as many ops.
            self.touched += 1 + effects.gone.len();
            let gone = std::mem::take(&mut effects.gone);
            if let Some(events) = &mut self.events {
                events.take(op, gone);
            }
            self.route(effects);
            match op {
                Op::TenantDelete { tenant } => self.tenants_gone.push(tenant.clone()),
                Op::TenantForgotten { tenant } => self.metrics.forget_tenant(tenant),
                Op::AgentForgotten { agent } => self.agents.forget(*agent),
                _ => {}
            }
            if self.ended.is_some() {
                return;
            }
        }
        self.core.committed = entry.index;
    }

    /// Sends what follows from ops and events on its way.
    pub(super) fn route(&mut self, effects: Effects) {
        for (agent, command) in effects.commands {
            self.commands.entry(agent).or_default().push(command);
        }
        for (cause, count) in effects.discards.iter() {
            self.metrics.discarded(cause, count);
        }
        for on in &effects.wakes {
            self.calls.wake(on);
        }
        if effects.replicas_lost > 0 {
            let (replicas, objects) = (effects.replicas_lost, effects.objects_lost);
            tracing::warn!(replicas, objects, "replicas were lost with their agents");
        }
        if let Some(corruption) = effects.corruption {
            tracing::error!(error = %corruption, "the state is broken; this master stops");
            self.ended = Some(Ended::Corrupt(corruption));
        }
    }

    /// Hands every connection what this turn has for it, once: answers and commands alike, if it
    /// is certain at this moment that nobody else leads. Else they wait, and with them everything
    /// new, until it is certain again or another master leads.
    pub(super) fn flush(&mut self) {
        for (agent, commands) in std::mem::take(&mut self.commands) {
            self.send_commands(agent, commands);
        }
        self.tell_events();
        for tenant in std::mem::take(&mut self.tenants_gone) {
            self.links.close_tenant(&tenant);
        }
        self.is_held = !self.core.log.is_certain();
        if self.is_held {
            return;
        }
        for connection in self.links.flush() {
            tracing::warn!(
                connection = connection.0,
                "a connection does not take its frames"
            );
            self.close(connection);
        }
    }

    /// Writes commands for an agent. One without a connection hears them when it mounts again.
    pub(super) fn send_commands(&mut self, agent: AgentId, commands: Vec<Command>) {
        let Some(connection) = self.agents.get(agent).and_then(|entry| entry.connection) else {
            return;
        };
        let (epoch, pool_time) = (self.core.epoch(), self.core.now);
        let desk = self.core.desk(&self.agents);
        let mut commands = commands
            .into_iter()
            .filter_map(|one| wire_command(one, &desk))
            .peekable();
        while commands.peek().is_some() {
            let mut bytes = 0;
            let fit = |command: &_| {
                let fits = bytes < COMMANDS_BYTES_MAX;
                bytes += command_bytes(command);
                fits
            };
            let next = std::iter::from_fn({
                let mut fit = fit;
                let commands = &mut commands;
                move || commands.next_if(&mut fit)
            });
            let commands: Vec<_> = next.take(COMMANDS_MAX).collect();
            let body = Commands {
                epoch,
                pool_time,
                commands,
            };
            self.links.push(connection, Kind::Commands, &body);
        }
    }
}
