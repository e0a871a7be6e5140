//! Capabilities: proof that the bearer may reach one extent, checked without a look-up.

use larder_types::{Epoch, Extent, Incarnation, Memo, PoolTime, TenantId, Version};
use serde::{Deserialize, Serialize};

use crate::key::{AgentKey, KeyRing, MAC_BYTES};

/// Keeps the signatures of capabilities apart from those of receipts.
const LABEL: u8 = 1;

/// What the bearer may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Reach {
    /// Read this version.
    Read,
    /// Write this version, once.
    Write,
}

/// Leave to reach one extent in one version. The agent stands in the extent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capability {
    /// Whose bytes they are; must be the tenant of the connection.
    pub tenant: TenantId,
    /// The agent's process for which this is good.
    pub incarnation: Incarnation,
    /// Where.
    pub extent: Extent,
    /// Which version.
    pub version: Version,
    /// To do what.
    pub reach: Reach,
    /// Who allowed it; lower than the highest seen = refused for writes.
    pub epoch: Epoch,
    /// When it ends, in pool time.
    pub deadline: PoolTime,
    /// Position of this extent among the replica's extents, from 0.
    pub part: u16,
    /// How many extents the replica has.
    pub parts: u16,
    /// Size of the whole object, in bytes.
    pub object_bytes: u64,
    /// The object's key, for the record; empty in a capability to read.
    pub key: Vec<u8>,
    /// What the record keeps besides; empty in a capability to read.
    pub memo: Memo,
}

/// A capability as it travels: the signed bytes and the signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedCapability {
    key_id: u32,
    body: Vec<u8>,
    mac: [u8; MAC_BYTES],
}

/// Why a capability was refused before anything in it was believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CapabilityError {
    /// Signed with a key that this agent does not hold (any more), or altered, or made up.
    #[error("the capability was not signed for this agent")]
    Forged,
}

impl SignedCapability {
    /// Signs a capability with the key of the agent that it is for.
    ///
    /// # Errors
    /// None in practice; an encoding failure is reported as [`CapabilityError::Forged`].
    pub fn sign(capability: &Capability, key: &AgentKey) -> Result<Self, CapabilityError> {
        let body = postcard::to_stdvec(capability).map_err(|_| CapabilityError::Forged)?;
        let mac = key.sign(LABEL, &body);
        Ok(Self {
            key_id: key.id(),
            body,
            mac,
        })
    }

    /// About how long it is in a frame, in bytes; never less.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        // The number of the key, the length of what was signed, and the signature.
        self.body.len() + 5 + 5 + MAC_BYTES
    }

    /// Checks the signature and returns what was signed.
    ///
    /// # Errors
    /// [`CapabilityError::Forged`].
    pub fn verify(&self, keys: &KeyRing) -> Result<Capability, CapabilityError> {
        let key = keys.get(self.key_id).ok_or(CapabilityError::Forged)?;
        if !key.verify(LABEL, &self.body, &self.mac) {
            return Err(CapabilityError::Forged);
        }
        postcard::from_bytes(&self.body).map_err(|_| CapabilityError::Forged)
    }
}
