//! A pool whose every figure was checked, so that building from it cannot fail.

use larder_crds::{CachePool, PoolSettings};

use crate::conditions::Wanted;
use crate::names::PoolId;
use crate::reasons::{ConditionType, Reason};

/// Memory of an agent besides its slabs: program, connections, buffers. An estimate with room, not
/// a measurement.
const AGENT_BASE_BYTES: u64 = 128 << 20;
/// Records: an object of 4 KiB has one of about 128 bytes, so a 32nd of the slabs at worst.
const RECORDS_SHARE: u64 = 32;

/// A checked pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidPool {
    /// Namespace, name and uid.
    pub id: PoolId,
    /// The spec in numbers.
    pub settings: PoolSettings,
    /// Memory of an agent's container, in bytes.
    pub agent_memory_bytes: u64,
}

/// Checks a pool.
///
/// # Errors
/// The condition that says what is wrong.
pub fn validate(pool: &CachePool) -> Result<ValidPool, Wanted> {
    let refuse =
        |message: String| Wanted::new(ConditionType::Accepted, false, Reason::InvalidSpec, message);
    let settings = pool
        .settings()
        .map_err(|problems| refuse(problems.to_string()))?;
    let id = PoolId::of(pool);
    if id.uid.is_empty() {
        return Err(refuse("metadata.uid is missing".to_owned()));
    }
    let slabs_bytes = settings.node_dram_bytes;
    let agent_memory_bytes = slabs_bytes + slabs_bytes / RECORDS_SHARE + AGENT_BASE_BYTES;
    Ok(ValidPool {
        id,
        settings,
        agent_memory_bytes,
    })
}
