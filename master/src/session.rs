//! The connections that were let in: who they are and what is waiting to be sent to them.

use std::collections::{BTreeSet, HashMap};

use larder_types::{AgentName, Principal, SessionId, TenantId};
use larder_wire::frame::NO_DEADLINE;
use larder_wire::{Frame, Kind, Purpose, Refused, RefusedReason, encode_frame};
use serde::Serialize;
use tokio::sync::mpsc;

use crate::calls::CallId;
use crate::event::{ConnectionId, Outgoing};

/// The most bytes that wait for one connection whose outbox is full. Only pushes to agents can
/// get there, since replies are bounded by the calls in flight: eight full frames of commands.
const PENDING_MAX_BYTES: usize = 8 * 1024 * 1024;

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) principal: Principal,
    pub(crate) purpose: Purpose,
    pub(crate) session: SessionId,
    /// Its calls that are not answered.
    pub(crate) calls: BTreeSet<CallId>,
    outbox: mpsc::Sender<Outgoing>,
    pending: Vec<u8>,
    replies: usize,
    is_closing: bool,
}

impl Link {
    pub(crate) fn new(
        session: SessionId,
        principal: Principal,
        purpose: Purpose,
        outbox: mpsc::Sender<Outgoing>,
    ) -> Self {
        Self {
            principal,
            purpose,
            session,
            calls: BTreeSet::new(),
            outbox,
            pending: Vec::new(),
            replies: 0,
            is_closing: false,
        }
    }

    /// The tenant, on a client's connection.
    pub(crate) fn tenant(&self) -> Option<&TenantId> {
        self.principal.tenant()
    }

    /// The agent's name, on an agent's connection.
    pub(crate) fn agent_name(&self) -> Option<&AgentName> {
        match &self.principal {
            Principal::Agent(name) => Some(name),
            _ => None,
        }
    }
}

/// All connections. Bounded by the listener, which lets in at most `max_connections`.
#[derive(Debug, Default)]
pub(crate) struct Links {
    by_id: HashMap<ConnectionId, Link>,
    /// Those with something to send.
    dirty: BTreeSet<ConnectionId>,
}

impl Links {
    pub(crate) fn insert(&mut self, connection: ConnectionId, link: Link) {
        self.by_id.insert(connection, link);
    }

    pub(crate) fn get(&self, connection: ConnectionId) -> Option<&Link> {
        self.by_id.get(&connection)
    }

    pub(crate) fn get_mut(&mut self, connection: ConnectionId) -> Option<&mut Link> {
        self.by_id.get_mut(&connection)
    }

    pub(crate) fn remove(&mut self, connection: ConnectionId) -> Option<Link> {
        self.dirty.remove(&connection);
        self.by_id.remove(&connection)
    }

    /// How many connections of clients there are.
    pub(crate) fn clients(&self) -> usize {
        self.by_id
            .values()
            .filter(|link| link.purpose == Purpose::Client)
            .count()
    }

    /// Lets `write` append one reply to a connection.
    pub(crate) fn reply(&mut self, connection: ConnectionId, write: impl FnOnce(&mut Vec<u8>)) {
        if let Some(link) = self.by_id.get_mut(&connection)
            && !link.is_closing
        {
            write(&mut link.pending);
            link.replies += 1;
            self.dirty.insert(connection);
        }
    }

    /// Appends a frame that answers nothing.
    pub(crate) fn push<T: Serialize>(&mut self, connection: ConnectionId, kind: Kind, body: &T) {
        if let Some(link) = self.by_id.get_mut(&connection)
            && !link.is_closing
        {
            push_frame(&mut link.pending, link.session, kind, body);
            self.dirty.insert(connection);
        }
    }

    /// Says why and closes a connection. What was written before still goes out.
    pub(crate) fn close(&mut self, connection: ConnectionId, reason: RefusedReason, detail: &str) {
        self.say_goodbye(connection, &Refused::new(reason, detail));
    }

    fn say_goodbye(&mut self, connection: ConnectionId, refused: &Refused) {
        self.push(connection, Kind::Goodbye, refused);
        if let Some(link) = self.by_id.get_mut(&connection) {
            link.is_closing = true;
        }
    }

    /// Closes every connection of a tenant.
    pub(crate) fn close_tenant(&mut self, tenant: &TenantId) {
        let of_tenant = |link: &Link| link.tenant() == Some(tenant);
        let found: Vec<ConnectionId> = self
            .by_id
            .iter()
            .filter(|(_, link)| of_tenant(link))
            .map(|(id, _)| *id)
            .collect();
        for connection in found {
            self.close(
                connection,
                RefusedReason::Credential,
                "the tenant was deleted",
            );
        }
    }

    /// Closes every connection.
    pub(crate) fn close_all(&mut self, refused: &Refused) {
        let all: Vec<ConnectionId> = self.by_id.keys().copied().collect();
        for connection in all {
            self.say_goodbye(connection, refused);
        }
    }

    /// Drops what was written and not handed to the connections.
    pub(crate) fn forget_unsent(&mut self) {
        for link in self.by_id.values_mut() {
            link.pending.clear();
            link.replies = 0;
        }
    }

    /// Hands what was written to the connections: agents first, because they must hear that a
    /// tenant is gone before the tenant does. Returns those that could not take any more and are
    /// given up.
    pub(crate) fn flush(&mut self) -> Vec<ConnectionId> {
        let mut dirty: Vec<ConnectionId> = std::mem::take(&mut self.dirty).into_iter().collect();
        dirty.sort_by_key(|id| {
            self.by_id
                .get(id)
                .is_none_or(|link| link.purpose != Purpose::Agent)
        });
        let mut given_up = Vec::new();
        for connection in dirty {
            let Some(link) = self.by_id.get_mut(&connection) else {
                continue;
            };
            let bytes = std::mem::take(&mut link.pending);
            let outgoing = Outgoing {
                bytes,
                replies: link.replies,
                close: link.is_closing,
            };
            match link.outbox.try_send(outgoing) {
                Ok(()) => link.replies = 0,
                Err(mpsc::error::TrySendError::Full(outgoing)) => {
                    link.pending = outgoing.bytes;
                    if link.pending.len() > PENDING_MAX_BYTES {
                        given_up.push(connection);
                    } else {
                        self.dirty.insert(connection);
                    }
                }
                // Its task ended; that it closed stands in the event channel.
                Err(mpsc::error::TrySendError::Closed(_)) => {}
            }
        }
        given_up
    }
}

/// Appends a frame that answers nothing.
pub(crate) fn push_frame<T: Serialize>(
    out: &mut Vec<u8>,
    session: SessionId,
    kind: Kind,
    body: &T,
) {
    let frame = Frame::request(kind, 0, low_bits(session), NO_DEADLINE);
    if let Err(error) = encode_frame(out, frame, body) {
        tracing::error!(%error, kind = kind.name(), "a frame does not encode");
    }
}

/// A session as it stands in headers.
pub(crate) const fn low_bits(session: SessionId) -> u32 {
    (session.0 & 0xffff_ffff) as u32
}
