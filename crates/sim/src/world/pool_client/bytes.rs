//! Writing to and reading from agents.

use larder_types::AgentId;
use larder_wire::data::DataError;
use larder_wire::master::{AgentAddress, ObjectGrant, ReplicaGrant};
use larder_wire::{Receipt, checksum};
use tokio::time::{Instant, timeout_at};

use super::Client;
use crate::world::network::Node;
use crate::world::packet::{DataAsk, DataTold, Packet};

impl Client {
    /// Writes the object to every replica; `None` if some extent could not be written.
    pub(super) async fn write(
        &mut self,
        agents: &[AgentAddress],
        replicas: &[ReplicaGrant],
        bytes: &[u8],
        until: Instant,
    ) -> Option<Vec<Receipt>> {
        let mut receipts = Vec::new();
        for replica in replicas {
            let mut rest = bytes;
            for (extent, capability) in &replica.extents {
                let length = usize::try_from(extent.length_bytes).ok()?;
                let (part, behind) = rest.split_at_checked(length)?;
                rest = behind;
                let node = self.node_of(agents, extent.slab.agent)?;
                let ask = DataAsk {
                    number: self.number(),
                    tenant: self.settings.tenant.clone(),
                    capability: capability.clone(),
                    length_bytes: extent.length_bytes,
                    write: Some((part.to_vec(), checksum::block_crcs(part))),
                };
                match self.move_bytes(node, ask, until).await?.ok()? {
                    DataTold::Written(receipt) => receipts.push(receipt),
                    DataTold::Bytes(..) => return None,
                }
            }
        }
        Some(receipts)
    }

    /// Reads an object from the first replica that has it whole; `None` if none has.
    pub(super) async fn read(
        &mut self,
        agents: &[AgentAddress],
        object: &ObjectGrant,
        until: Instant,
    ) -> Option<Vec<u8>> {
        for replica in &object.replicas {
            let read = self.read_replica(agents, replica, until).await;
            if let Some((bytes, crcs)) = read
                && bytes.len() as u64 == object.size_bytes
                && checksum::digest(&crcs, object.size_bytes) == object.digest
            {
                return Some(bytes);
            }
        }
        None
    }

    async fn read_replica(
        &mut self,
        agents: &[AgentAddress],
        replica: &ReplicaGrant,
        until: Instant,
    ) -> Option<(Vec<u8>, Vec<u32>)> {
        let (mut whole, mut all) = (Vec::new(), Vec::new());
        for (extent, capability) in &replica.extents {
            let node = self.node_of(agents, extent.slab.agent)?;
            let ask = DataAsk {
                number: self.number(),
                tenant: self.settings.tenant.clone(),
                capability: capability.clone(),
                length_bytes: extent.length_bytes,
                write: None,
            };
            match self.move_bytes(node, ask, until).await?.ok()? {
                DataTold::Bytes(bytes, crcs) if checksum::block_crcs(&bytes) == crcs => {
                    whole.extend(bytes);
                    all.extend(crcs);
                }
                DataTold::Bytes(..) | DataTold::Written(_) => return None,
            }
        }
        Some((whole, all))
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn node_of(&self, agents: &[AgentAddress], agent: AgentId) -> Option<Node> {
        let address = agents.iter().find(|address| address.agent == agent)?;
        let known = self.settings.agents.iter();
        let found = known.clone().find(|(name, _)| *name == address.name);
        found.map(|(_, node)| *node)
    }

    /// The answer of an agent; `None` if there is none in time.
    async fn move_bytes(
        &mut self,
        agent: Node,
        ask: DataAsk,
        until: Instant,
    ) -> Option<Result<DataTold, DataError>> {
        let number = ask.number;
        self.context.send(agent, Packet::Ask(ask));
        let until = until.min(Instant::now() + super::AGENT_SILENT);
        loop {
            let arrival = timeout_at(until, self.context.inbox.recv()).await.ok()??;
            match arrival.message {
                Packet::Told {
                    number: of,
                    outcome,
                } if of == number => return Some(outcome),
                // Packets of the line to the master are not due while an agent is asked; a
                // good-bye that is lost here is found as silence.
                _ => {}
            }
        }
    }
}
