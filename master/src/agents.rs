//! What the leader knows of agents beside the state: where they are reached, and their keys.

use std::collections::BTreeMap;

use larder_types::{AgentId, AgentName, Incarnation};
use larder_wire::AgentKey;
use larder_wire::master::AgentAddress;

use crate::event::ConnectionId;

/// The only rotation that there is yet.
pub(crate) const KEY_ID: u32 = 1;

/// A mounted agent.
#[derive(Debug)]
pub(crate) struct AgentEntry {
    pub(crate) name: AgentName,
    pub(crate) incarnation: Incarnation,
    /// `host:port` of its data listener.
    pub(crate) data_addr: String,
    /// Signs its capabilities and receipts in this incarnation.
    pub(crate) key: AgentKey,
    /// The connection that mounted last, while it is open: commands go there.
    pub(crate) connection: Option<ConnectionId>,
}

/// Agents by number. Bounded by the store: it knows at most `Settings::max_agents`.
#[derive(Debug, Default)]
pub(crate) struct AgentTable {
    agents: BTreeMap<AgentId, AgentEntry>,
}

impl AgentTable {
    pub(crate) fn get(&self, agent: AgentId) -> Option<&AgentEntry> {
        self.agents.get(&agent)
    }

    /// Takes a mount; returns the connection that it takes the place of, if that is another one.
    pub(crate) fn mount(&mut self, agent: AgentId, entry: AgentEntry) -> Option<ConnectionId> {
        let connection = entry.connection;
        let before = self.agents.insert(agent, entry)?.connection;
        before.filter(|before| Some(*before) != connection)
    }

    pub(crate) fn forget(&mut self, agent: AgentId) {
        self.agents.remove(&agent);
    }

    /// The connection closed. Returns the agent that lost its connection by that.
    pub(crate) fn disconnect(
        &mut self,
        connection: ConnectionId,
    ) -> Option<(AgentId, Incarnation)> {
        let mut agents = self.agents.iter_mut();
        let (agent, entry) = agents.find(|(_, entry)| entry.connection == Some(connection))?;
        entry.connection = None;
        Some((*agent, entry.incarnation))
    }

    /// Whether `name` is this agent in this incarnation: what an agent's calls must show.
    pub(crate) fn is_current(
        &self,
        agent: AgentId,
        name: &AgentName,
        incarnation: Incarnation,
    ) -> bool {
        self.get(agent)
            .is_some_and(|entry| entry.name == *name && entry.incarnation == incarnation)
    }

    /// How clients reach an agent.
    pub(crate) fn address(&self, agent: AgentId) -> Option<AgentAddress> {
        let entry = self.get(agent)?;
        Some(AgentAddress {
            agent,
            name: entry.name.clone(),
            incarnation: entry.incarnation,
            data_addr: entry.data_addr.clone(),
        })
    }
}
