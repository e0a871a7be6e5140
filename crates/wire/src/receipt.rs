//! Receipts: an agent's signed word that an extent holds a version, complete and verified.

use larder_types::{AgentId, Digest, Extent, Incarnation, Version};
use serde::{Deserialize, Serialize};

use crate::key::{AgentKey, MAC_BYTES};

/// Keeps the signatures of receipts apart from those of capabilities.
const LABEL: u8 = 2;

/// What an agent says it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The agent's process.
    pub incarnation: Incarnation,
    /// Where.
    pub extent: Extent,
    /// Which version.
    pub version: Version,
    /// Digest of the extent's bytes.
    pub digest: Digest,
    key_id: u32,
    mac: [u8; MAC_BYTES],
}

/// Why a receipt was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptError {
    /// Not signed by the agent that it names, in the incarnation that it names.
    #[error("the receipt was not signed by that agent")]
    Forged,
}

impl Receipt {
    /// Signs a receipt with the agent's own key.
    #[must_use]
    pub fn sign(
        incarnation: Incarnation,
        extent: Extent,
        version: Version,
        digest: Digest,
        key: &AgentKey,
    ) -> Self {
        let mac = key.sign(LABEL, &statement(incarnation, &extent, version, digest));
        Self {
            incarnation,
            extent,
            version,
            digest,
            key_id: key.id(),
            mac,
        }
    }

    /// The agent that it names.
    #[must_use]
    pub const fn agent(&self) -> AgentId {
        self.extent.slab.agent
    }

    /// The number of the key that signed it.
    #[must_use]
    pub const fn key_id(&self) -> u32 {
        self.key_id
    }

    /// Checks the signature.
    ///
    /// # Errors
    /// [`ReceiptError::Forged`].
    pub fn verify(&self, key: &AgentKey) -> Result<(), ReceiptError> {
        let body = statement(self.incarnation, &self.extent, self.version, self.digest);
        let genuine = key.id() == self.key_id && key.verify(LABEL, &body, &self.mac);
        if genuine {
            Ok(())
        } else {
            Err(ReceiptError::Forged)
        }
    }
}

/// The bytes that are signed: every field at a fixed place, little-endian.
fn statement(
    incarnation: Incarnation,
    extent: &Extent,
    version: Version,
    digest: Digest,
) -> [u8; 74] {
    // 8 + 4 + 4 + 2 + 8 + 8 + 8 + 8 + 8 + 8 + 8 bytes.
    let mut bytes = [0; 74];
    let mut at = 0;
    let mut put = |part: &[u8]| {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    };
    put(&incarnation.0.to_le_bytes());
    put(&extent.slab.agent.0.to_le_bytes());
    put(&extent.slab.segment.0.to_le_bytes());
    put(&extent.slab.index.to_le_bytes());
    put(&extent.slab.registration.0.to_le_bytes());
    put(&extent.offset_bytes.to_le_bytes());
    put(&extent.length_bytes.to_le_bytes());
    put(&version.epoch.generation.to_le_bytes());
    put(&version.epoch.term.to_le_bytes());
    put(&version.counter.to_le_bytes());
    put(&digest.0.to_le_bytes());
    bytes
}
