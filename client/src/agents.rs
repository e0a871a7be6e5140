//! Which transport reaches which agent: the local one by shared memory, the others by tcp.

use std::collections::HashMap;
use std::sync::Arc;

use larder_transfer::transport::{
    SessionSource, ShmTransport, TcpOptions, TcpTransport, TransferError, Transport,
};
use larder_types::{AgentId, AgentName, Incarnation};
use larder_wire::master::AgentAddress;
use tokio::sync::watch;

use crate::local::{Local, LocalAgent};

/// Agents that are remembered. A pool has at most as many; beyond it the table starts anew.
const KNOWN_MAX: usize = 4_096;

/// Transports to the agents of the pool, made when they are first named.
#[derive(Debug)]
pub(crate) struct Agents {
    /// Replaced as a whole when an agent is new; read without waiting.
    known: watch::Sender<Arc<HashMap<AgentId, Known>>>,
    local: Local,
    session: SessionSource,
}

/// An agent in one life of its process.
#[derive(Clone, Debug)]
struct Known {
    name: AgentName,
    incarnation: Incarnation,
    addr: String,
    transport: Arc<TcpTransport>,
}

/// How to reach the agents that one answer of the master names.
#[derive(Debug)]
pub(crate) struct Route {
    known: Arc<HashMap<AgentId, Known>>,
    local: Option<LocalAgent>,
}

/// One transport to use.
#[derive(Debug)]
pub(crate) struct Hop {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) name: AgentName,
    pub(crate) is_local: bool,
}

impl Agents {
    pub(crate) fn new(local: Local, session: SessionSource) -> Self {
        Self {
            known: watch::Sender::new(Arc::default()),
            local,
            session,
        }
    }

    /// Learns the addresses of an answer and returns how to reach them.
    pub(crate) fn route(&self, addresses: &[AgentAddress]) -> Route {
        self.known.send_if_modified(|known| {
            let new: Vec<&AgentAddress> = addresses
                .iter()
                .filter(|address| !is_known(known, address))
                .collect();
            if new.is_empty() {
                return false;
            }
            let mut table = HashMap::clone(known);
            if table.len() + new.len() > KNOWN_MAX {
                table.clear();
            }
            for address in new {
                table.insert(address.agent, self.meet(address));
            }
            *known = Arc::new(table);
            true
        });
        let known = Arc::clone(&self.known.borrow());
        Route {
            known,
            local: self.local.current(),
        }
    }

    fn meet(&self, address: &AgentAddress) -> Known {
        let options = TcpOptions {
            incarnation: Some(address.incarnation),
            ..TcpOptions::default()
        };
        let transport = TcpTransport::new(address.data_addr.clone(), options, self.session.clone());
        Known {
            name: address.name.clone(),
            incarnation: address.incarnation,
            addr: address.data_addr.clone(),
            transport: Arc::new(transport),
        }
    }

    /// The transport to an agent of a route; shared memory if `near` and it is the local one.
    #[expect(
        clippy::unused_self,
        reason = "a hop belongs to the agents that judge its failure"
    )]
    pub(crate) fn hop(&self, route: &Route, agent: AgentId, near: bool) -> Option<Hop> {
        let known = route.known.get(&agent)?;
        let name = known.name.clone();
        match &route.local {
            Some(local) if near && local.incarnation == known.incarnation => Some(Hop {
                transport: local.transport.clone(),
                name,
                is_local: true,
            }),
            _ => Some(Hop {
                transport: known.transport.clone(),
                name,
                is_local: false,
            }),
        }
    }

    /// Notes a failure: a broken socket of the local agent is connected anew.
    pub(crate) fn failed(&self, hop: &Hop, error: &TransferError) {
        if hop.is_local && error.is_about_agent() {
            tracing::debug!(agent = %hop.name, %error, "shared memory failed; tcp is used");
            self.local.reconnect();
        }
    }

    /// The name of the local agent: puts go there while it has room.
    pub(crate) fn local_name(&self) -> Option<AgentName> {
        self.local.current()?.name
    }

    /// The local agent, if its socket is connected.
    pub(crate) fn local(&self) -> Option<Arc<ShmTransport>> {
        self.local.current().map(|local| local.transport)
    }

    /// Why there is no local agent, for people.
    pub(crate) fn why_no_local(&self) -> String {
        self.local.why_not()
    }
}

fn is_known(known: &HashMap<AgentId, Known>, address: &AgentAddress) -> bool {
    known.get(&address.agent).is_some_and(|known| {
        known.incarnation == address.incarnation && known.addr == address.data_addr
    })
}

impl Route {
    /// Whether an agent is the one behind the local socket.
    pub(crate) fn is_local(&self, agent: AgentId) -> bool {
        match (&self.local, self.known.get(&agent)) {
            (Some(local), Some(known)) => local.incarnation == known.incarnation,
            _ => false,
        }
    }

    /// The local agent.
    pub(crate) fn local(&self) -> Option<&ShmTransport> {
        self.local.as_ref().map(|local| &*local.transport)
    }
}
