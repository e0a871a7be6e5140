//! Answers: from outcomes to the bytes of a connection, or to the admin port.

use larder_store::{Command, Reply};
use larder_types::Reason;
use larder_wire::{CallError, Header, Kind, RefusedReason};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Leading;
use crate::admin::objects::hex;
use crate::agents::{AgentEntry, KEY_ID};
use crate::calls::{Call, CallId, ItemResult, MountFacts, Origin};
use crate::event::ConnectionId;
use crate::log::Log;
use crate::rpc::{self, COMMANDS_MAX};

impl<L: Log> Leading<L> {
    /// Answers a call that has every outcome, or no time left.
    pub(super) fn answer(&mut self, id: CallId, mut call: Call) {
        if let Origin::Peer(connection, header) = &call.origin {
            let (connection, header) = (*connection, *header);
            if let Some(exist) = call.take_exist(self.told_through()) {
                return self.answer_probe(id, connection, &header, (&exist, call.started));
            }
        }
        let results = call.take_results(self.told_through());
        match call.origin {
            Origin::Peer(connection, header) => {
                if let Some(link) = self.links.get_mut(connection) {
                    link.calls.remove(&id);
                }
                self.metrics.answered(header.kind, &results, call.started);
                match (header.kind, call.mount) {
                    (Kind::Done, _) => {}
                    (Kind::Mount, Some(facts)) => {
                        self.answer_mount(connection, &header, facts, results);
                    }
                    _ => self.reply(connection, &header, &call.keys, results),
                }
            }
            Origin::Admin(reply) => {
                let result = results.into_iter().next();
                let result = result.unwrap_or_else(|| Err(CallError::new(Reason::Internal)));
                // Whoever asked may have gone.
                drop(reply.send(result.map(admin_document)));
            }
            Origin::AdminMany(reply) => {
                let done = results.iter().filter(|result| result.is_ok()).count();
                let refused = results.len() - done;
                drop(reply.send(Ok(json!({ "done": done, "refused": refused }))));
            }
            Origin::Own => {
                for error in results.into_iter().filter_map(Result::err) {
                    tracing::debug!(%error, "an event changed nothing");
                }
            }
        }
    }

    fn answer_probe(
        &mut self,
        id: CallId,
        connection: ConnectionId,
        header: &Header,
        (exist, started): (&[bool], Instant),
    ) {
        if let Some(link) = self.links.get_mut(connection) {
            link.calls.remove(&id);
        }
        self.metrics.answered_probe(exist.len(), started);
        // Request 0 wants no reply.
        if header.request != 0 {
            let desk = self.core.desk(&self.agents);
            self.links.reply(connection, |out| {
                rpc::answer_probe(out, header, exist, &desk)
            });
        }
    }

    fn reply(
        &mut self,
        connection: ConnectionId,
        header: &Header,
        keys: &[larder_types::Key],
        results: Vec<ItemResult>,
    ) {
        // Request 0 wants no reply.
        if header.request == 0 {
            return;
        }
        let tenant = self
            .links
            .get(connection)
            .and_then(|link| link.tenant())
            .cloned();
        let desk = self.core.desk(&self.agents);
        self.links.reply(connection, |out| {
            rpc::answer(out, header, tenant.as_ref(), keys, results, &desk);
        });
    }

    /// The agent is mounted now: commands go to this connection from here on, beginning with
    /// everything that is still to be done.
    fn answer_mount(
        &mut self,
        connection: ConnectionId,
        header: &Header,
        facts: MountFacts,
        mut results: Vec<ItemResult>,
    ) {
        let mut rest = Vec::new();
        let mut mounted_as = None;
        if let Some(Ok(Reply::Mounted {
            agent, outstanding, ..
        })) = results.first_mut()
        {
            let agent = *agent;
            mounted_as = Some(agent);
            let MountFacts {
                name,
                incarnation,
                data_addr,
            } = facts;
            tracing::info!(agent = %name, number = %agent, data_addr, "agent mounted");
            let key = self.core.keys.root.agent_key(&name, incarnation, KEY_ID);
            let connection = Some(connection);
            let entry = AgentEntry {
                name,
                incarnation,
                data_addr,
                key,
                connection,
            };
            if let Some(former) = self.agents.mount(agent, entry) {
                let detail = "another connection of this agent mounted after this one";
                self.links.close(former, RefusedReason::Busy, detail);
            }
            // Asked again now: the state may have moved since the mount was decided. What this
            // turn had for the agent is part of it.
            *outstanding = self.core.leader.outstanding(&self.core.state, agent);
            // The orders of copies stand at the end and are long: they follow in frames of their
            // own.
            let is_order = |command: &Command| matches!(command, Command::Copy(_));
            let short = outstanding.iter().position(is_order);
            let short = short.unwrap_or(outstanding.len());
            rest = outstanding.split_off(short.min(COMMANDS_MAX));
            self.commands.remove(&agent);
        }
        self.reply(connection, header, &[], results);
        if let Some(agent) = mounted_as {
            self.send_commands(agent, rest);
        }
    }

    /// Answers a whole call with an error.
    pub(super) fn refuse_call(
        &mut self,
        connection: ConnectionId,
        header: &Header,
        error: &CallError,
    ) {
        self.metrics.refused_call(header.kind, error);
        if header.request != 0 {
            self.links
                .reply(connection, |out| rpc::fail(out, header, error));
        }
    }
}

/// What the admin port hears of a request that was done.
fn admin_document(reply: Reply) -> Value {
    match reply {
        Reply::Listed { entries, more } => {
            let entries = entries.into_iter();
            let keys: Vec<Value> = entries
                .map(|(key, size_bytes)| json!([hex(key.as_bytes()), size_bytes]))
                .collect();
            json!({ "keys": keys, "more": more })
        }
        _ => Value::Null,
    }
}
