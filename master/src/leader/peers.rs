//! What connections say: openings, calls of clients and agents, ends.

use larder_store::Request;
use larder_types::{Key, Principal, Reason, SessionId};
use larder_wire::agent::{Done, Heartbeat, Mount, Unmount};
use larder_wire::frame::NO_DEADLINE;
use larder_wire::{
    CallError, CallResult, Header, Purpose, Refused, RefusedReason, SessionClaims, Welcome,
};

use super::decide::refused;
use super::{DEADLINE_MS, DEADLINE_MS_MAX, Ended, Leading};
use crate::calls::{Call, MountFacts, Origin};
use crate::event::{Called, ConnectionId, Opened};
use crate::line;
use crate::log::Log;
use crate::rpc::{self, Body, Caller};
use crate::session::Link;

/// So many keys that are looked up at once take as long as one item that is decided.
const PROBES_PER_ITEM: usize = 8;

impl<L: Log> Leading<L> {
    /// Lets a connection in, or says why not.
    pub(super) fn open(&mut self, opened: Opened) {
        let connection = opened.connection;
        // Connections are counted over the life of the process, so a session is never met twice.
        let session = SessionId(connection.0);
        let welcome = self.welcome(&opened, session);
        let accepted = welcome.is_ok();
        let Opened {
            principal,
            purpose,
            outbox,
            reply,
            ..
        } = opened;
        let heard = reply.send(welcome).is_ok();
        if accepted && heard {
            self.links
                .insert(connection, Link::new(session, principal, purpose, outbox));
        }
    }

    fn welcome(&self, opened: &Opened, session: SessionId) -> Result<Welcome, Refused> {
        let epoch = self.core.epoch();
        let now = self.core.now;
        let refuse = |reason, detail: String| Err(Refused::new(reason, detail));
        let mut session_token = Vec::new();
        let session_token_ms = self.core.rules.session_token_ms;
        if let Principal::Tenant(tenant) = &opened.principal {
            if self
                .core
                .state
                .tenant(tenant)
                .is_none_or(|known| known.is_deleting())
            {
                let detail = format!("{} ({tenant})", Reason::TenantUnknown.advice());
                return refuse(RefusedReason::Credential, detail);
            }
            let deadline = now.plus_ms(session_token_ms);
            let principal = opened.principal.clone();
            let claims = SessionClaims {
                principal,
                session,
                epoch,
                deadline,
            };
            match self.core.keys.signer.sign(&claims) {
                Ok(token) => token.as_bytes().clone_into(&mut session_token),
                Err(error) => {
                    tracing::error!(%error, "a session token was not signed");
                    return refuse(RefusedReason::Busy, Reason::Internal.advice().to_owned());
                }
            }
        }
        Ok(Welcome {
            protocol: opened.protocol,
            features: 0,
            session,
            principal: opened.principal.clone(),
            incarnation: self.core.rules.incarnation,
            epoch,
            pool_time: now,
            session_token,
            session_token_ms,
            name: self.core.rules.name.clone(),
        })
    }

    /// A connection ended, or is given up: what it waited for is forgotten.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.remove(connection) else {
            return;
        };
        if let Some(events) = &mut self.events {
            events.forget_connection(connection);
        }
        // Before the end of the session is decided: nothing of it may come after.
        for id in link.calls {
            self.calls.remove(id);
        }
        self.line.forget(line::Caller::Peer(connection));
        if let Some((agent, incarnation)) = self.agents.disconnect(connection) {
            self.begin_own(Request::AgentGone { agent, incarnation });
        }
        if link.purpose == Purpose::Client {
            self.begin_own(Request::SessionClosed {
                session: link.session,
            });
        }
    }

    /// A call of a connection.
    pub(super) fn call(&mut self, called: Called) {
        let Called {
            connection,
            header,
            body,
            at,
        } = called;
        let Some(link) = self.links.get(connection) else {
            return;
        };
        let deadline = self.core.now.plus_ms(limit_ms(&header, &body));
        let new = |items| Call::new(Origin::Peer(connection, header), items, deadline, at);
        match body {
            Body::Mount(mount) => self.mount(connection, new(1), &header, mount),
            Body::Heartbeat(beat) => {
                let item = self.heartbeat(connection, &beat);
                self.begin_peer(connection, new(1), vec![item]);
            }
            Body::Inventory(page) => {
                let item = self
                    .check_current(connection, page.agent, page.incarnation)
                    .and_then(|()| rpc::inventory_request(page));
                self.begin_peer(connection, new(1), vec![item]);
            }
            Body::Unmount(unmount) => {
                let item = self.unmount(connection, &unmount);
                self.begin_peer(connection, new(1), vec![item]);
            }
            Body::Done(done) => {
                let items = self.agent_items(connection, done);
                self.begin_peer(connection, new(items.len()), items);
            }
            Body::Subscribe(call) => self.subscribe(connection, &header, call),
            // Behind an earlier call of the same connection it stands in line like any other.
            Body::Exists(probe)
                if !probe.lease && !self.line.has(line::Caller::Peer(connection)) =>
            {
                self.probe(connection, &header, new(0), &probe.keys);
            }
            body => {
                let Some(tenant) = link.tenant() else { return };
                let keys = match &body {
                    Body::PutStart(call) => call.items.iter().map(|i| i.key.clone()).collect(),
                    _ => Vec::new(),
                };
                let caller = Caller {
                    session: link.session,
                    tenant,
                    agents: &self.agents,
                    state: &self.core.state,
                    replica_factor: self.core.rules.replica_factor,
                    epoch: self.core.epoch(),
                };
                match rpc::client_requests(body, &caller) {
                    Ok(items) => {
                        let mut call = new(items.len());
                        call.keys = keys;
                        self.begin_peer(connection, call, items);
                    }
                    Err(error) => self.refuse_call(connection, &header, &error),
                }
            }
        }
    }

    /// Answers whether keys exist, all at once: the memory of all is fetched side by side.
    fn probe(&mut self, connection: ConnectionId, header: &Header, mut call: Call, keys: &[Key]) {
        if let Err(error) = rpc::check_batch(keys.len()) {
            return self.refuse_call(connection, header, &error);
        }
        let Some(link) = self.links.get_mut(connection) else {
            return;
        };
        let Some(tenant) = link.tenant() else { return };
        let core = &mut self.core;
        let keys: Vec<&Key> = keys.iter().collect();
        match core.leader.exists_all(&core.state, tenant, &keys, core.now) {
            Ok((exist, saw_index)) => {
                call.exist = Some(exist);
                call.saw_index = saw_index;
            }
            Err(refusal) => {
                let refused = || Some(Err(refused(refusal.clone())));
                call.results = keys.iter().map(|_| refused()).collect();
            }
        }
        self.touched += 1 + keys.len() / PROBES_PER_ITEM;
        link.calls.insert(self.calls.insert(call));
    }

    fn begin_peer(
        &mut self,
        connection: ConnectionId,
        call: Call,
        items: Vec<CallResult<Request>>,
    ) {
        let id = self.begin(call, items);
        if let Some(link) = self.links.get_mut(connection) {
            link.calls.insert(id);
        }
    }

    fn begin_own(&mut self, request: Request) {
        let deadline = self.core.now.plus_ms(DEADLINE_MS_MAX);
        let call = Call::new(Origin::Own, 1, deadline, tokio::time::Instant::now());
        self.begin(call, vec![Ok(request)]);
    }

    fn mount(&mut self, connection: ConnectionId, mut call: Call, header: &Header, mount: Mount) {
        let name = self
            .links
            .get(connection)
            .and_then(|link| link.agent_name());
        if name != Some(&mount.name) {
            let detail = "an agent mounts under the name that its credential proves";
            self.links.close(connection, RefusedReason::Role, detail);
            return;
        }
        let epoch = self.core.epoch();
        // An agent learns an epoch from the answer to its mount, so one that knows ours before it
        // mounted here learned it from another life: one whose generation was lost, as it is with
        // the disk of a pod that is replaced.
        let is_lived = mount.highest_epoch == epoch && !self.told.contains(&mount.name);
        if mount.highest_epoch.generation == epoch.generation && mount.highest_epoch > epoch {
            // Another master leads, or a log was lost that had come further. Which of the two, a
            // quorum says; the agent comes back.
            let mark = self.core.log.mark();
            self.outdone.get_or_insert((mount.highest_epoch, mark));
            self.refuse_call(connection, header, &CallError::new(Reason::Overloaded));
            return;
        }
        // With numbers that this log never gave it comes from such a life too, though that one had
        // not come as far.
        let core = &self.core;
        let is_strange = mount.kept.as_ref().is_some_and(|kept| {
            mount.highest_epoch.generation == epoch.generation
                && core
                    .leader
                    .is_of_another_log(&core.state, &mount.name, kept.agent)
        });
        if mount.highest_epoch > epoch || is_lived || is_strange {
            // Its bytes and its refusals belong to a life of the pool that this master has
            // forgotten. To command it, the pool has to live above that.
            let (agent, seen) = (&mount.name, mount.highest_epoch);
            tracing::warn!(%agent, %seen, %epoch, "starting over above an agent");
            self.ended = Some(Ended::StartOver {
                above: seen.generation,
            });
            return;
        }
        self.told.insert(mount.name.clone());
        match rpc::mount_request(&mount) {
            Ok(request) => {
                let Mount {
                    name,
                    incarnation,
                    data_addr,
                    ..
                } = mount;
                call.mount = Some(MountFacts {
                    name,
                    incarnation,
                    data_addr,
                });
                self.begin_peer(connection, call, vec![Ok(request)]);
            }
            Err(error) => self.refuse_call(connection, header, &error),
        }
    }

    /// An agent knew a higher term: if a quorum still follows this master, that term belongs to a
    /// log that is lost, and the pool has to live above it.
    pub(super) fn judge_outdone(&mut self) {
        let Some((seen, mark)) = self.outdone else {
            return;
        };
        if self.core.log.is_certain_since(mark) {
            let epoch = self.core.epoch();
            tracing::warn!(%seen, %epoch, "starting over above an agent: a former log is lost");
            self.ended = Some(Ended::StartOver {
                above: seen.generation,
            });
        }
    }

    fn heartbeat(&self, connection: ConnectionId, beat: &Heartbeat) -> CallResult<Request> {
        let Heartbeat {
            agent,
            incarnation,
            load_permille,
            ..
        } = *beat;
        let request = Request::Heartbeat {
            agent,
            incarnation,
            load_permille,
        };
        self.check_current(connection, agent, incarnation)
            .map(|()| request)
    }

    fn unmount(&self, connection: ConnectionId, unmount: &Unmount) -> CallResult<Request> {
        let Unmount { agent, incarnation } = *unmount;
        self.check_current(connection, agent, incarnation)
            .map(|()| Request::Unmount { agent })
    }

    fn agent_items(&self, connection: ConnectionId, done: Done) -> Vec<CallResult<Request>> {
        if let Err(error) = self.check_current(connection, done.agent, done.incarnation) {
            tracing::debug!(agent = %done.agent, %error, "events of a former life are dropped");
            return Vec::new();
        }
        let (requests, foreign) = rpc::agent_requests(done);
        if foreign > 0 {
            tracing::warn!(
                foreign,
                "an agent speaks of another agent's bytes; that is dropped"
            );
        }
        requests.into_iter().map(Ok).collect()
    }

    /// Whether a call comes from the agent that it names, in its present incarnation. The
    /// connection may be another than the one that mounted: heartbeats may have their own.
    fn check_current(
        &self,
        connection: ConnectionId,
        agent: larder_types::AgentId,
        incarnation: larder_types::Incarnation,
    ) -> CallResult<()> {
        let name = self
            .links
            .get(connection)
            .and_then(|link| link.agent_name());
        let is_current = name.is_some_and(|n| self.agents.is_current(agent, n, incarnation));
        if is_current {
            Ok(())
        } else {
            Err(CallError::new(Reason::SegmentUnknown))
        }
    }
}

/// How long a call may take, in ms. A page of an inventory that names no deadline waits for the
/// pages before it to be in the log of others.
fn limit_ms(header: &Header, body: &Body) -> u64 {
    match (header.remaining_ms, body) {
        (NO_DEADLINE, Body::Inventory(_)) => DEADLINE_MS_MAX,
        (NO_DEADLINE, _) => DEADLINE_MS,
        (remaining_ms, _) => u64::from(remaining_ms).min(DEADLINE_MS_MAX),
    }
}
