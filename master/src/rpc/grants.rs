//! Grants: extents with the capabilities that reach them, and the agents that they name.

use std::collections::BTreeMap;

use larder_types::{AgentId, Extent, PoolTime, TenantId, Version};
use larder_wire::master::{AgentAddress, ReplicaGrant};
use larder_wire::{Capability, Reach, SignedCapability};

use super::answer::Desk;

/// An extent in an answer, in bytes, at the most: nine numbers.
const EXTENT_BYTES: usize = 45;

/// How long grants are in a frame, in bytes.
pub(super) fn grant_bytes(extents: &[(Extent, SignedCapability)]) -> usize {
    let one = |(_, capability): &(_, SignedCapability)| EXTENT_BYTES + capability.encoded_bytes();
    extents.iter().map(one).sum()
}

/// What all capabilities of one object share.
pub(super) struct Terms<'a> {
    pub(super) tenant: &'a TenantId,
    pub(super) version: Version,
    pub(super) reach: Reach,
    pub(super) deadline: PoolTime,
    pub(super) object_bytes: u64,
    pub(super) key: &'a [u8],
}

/// Grants one replica; `None` if an agent of it is gone.
pub(super) fn replica_grant(
    extents: &[Extent],
    terms: &Terms<'_>,
    desk: &Desk<'_>,
) -> Option<ReplicaGrant> {
    let parts = u16::try_from(extents.len()).ok()?;
    let grants = (0..parts).zip(extents).map(|(part, extent)| {
        let entry = desk.agents.get(extent.slab.agent)?;
        let capability = Capability {
            tenant: terms.tenant.clone(),
            incarnation: entry.incarnation,
            extent: *extent,
            version: terms.version,
            reach: terms.reach,
            epoch: desk.epoch,
            deadline: terms.deadline,
            part,
            parts,
            object_bytes: terms.object_bytes,
            key: terms.key.to_vec(),
            memo: larder_types::Memo::default(),
        };
        Some((
            *extent,
            SignedCapability::sign(&capability, &entry.key).ok()?,
        ))
    });
    Some(ReplicaGrant {
        extents: grants.collect::<Option<_>>()?,
    })
}

/// The agents that granted replicas name, each once.
#[derive(Default)]
pub(super) struct Named(BTreeMap<AgentId, AgentAddress>);

impl Named {
    pub(super) fn add(&mut self, replicas: &[ReplicaGrant], desk: &Desk<'_>) {
        for (extent, _) in replicas.iter().flat_map(|replica| &replica.extents) {
            let agent = extent.slab.agent;
            if !self.0.contains_key(&agent)
                && let Some(address) = desk.agents.address(agent)
            {
                self.0.insert(agent, address);
            }
        }
    }

    pub(super) fn into_list(self) -> Vec<AgentAddress> {
        self.0.into_values().collect()
    }
}
