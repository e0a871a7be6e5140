//! A pool whose every figure was checked, so that building from it cannot fail.

use larder_crds::{CachePool, PoolSettings};
use larder_types::layout::{FULL_CACHE_OBJECT_BYTES, PAGES_SHARE, RECORD_MEMORY_BYTES};

use crate::conditions::Wanted;
use crate::names::PoolId;
use crate::reasons::{ConditionType, Reason};

/// Memory of an agent besides slabs and records: 12 MiB of program (measured), connections,
/// buffers, and room for 100,000 records more than [`FULL_CACHE_OBJECT_BYTES`] gives.
const AGENT_BASE_BYTES: u64 = 128 << 20;

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

/// What an agent's container needs for slabs of so many bytes. The agent refuses writes before its
/// records take more than that.
const fn agent_memory_bytes(slabs_bytes: u64) -> u64 {
    let records_bytes = slabs_bytes / FULL_CACHE_OBJECT_BYTES * RECORD_MEMORY_BYTES;
    slabs_bytes + slabs_bytes / PAGES_SHARE + records_bytes + AGENT_BASE_BYTES
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
    let agent_memory_bytes = agent_memory_bytes(settings.node_dram_bytes);
    Ok(ValidPool {
        id,
        settings,
        agent_memory_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masters_are_one_three_or_five() {
        let pool = |replicas: u32| -> CachePool {
            let pool = serde_json::json!({
                "apiVersion": "larder.dev/v1alpha1",
                "kind": "CachePool",
                "metadata": { "name": "demo", "namespace": "apps", "uid": "u-1" },
                "spec": {
                    "masters": { "replicas": replicas },
                    "tiers": [{
                        "name": "dram", "medium": "Dram", "size": "64Mi", "slabSize": "2Mi",
                    }],
                },
            });
            serde_json::from_value(pool).expect("a pool")
        };
        for replicas in [1, 3, 5] {
            let pool = validate(&pool(replicas)).expect("valid");
            assert_eq!(pool.settings.masters, replicas);
        }
        let refused = validate(&pool(2)).expect_err("no even number");
        assert!(
            refused.message.contains("spec.masters.replicas"),
            "{refused:?}"
        );
    }
}
