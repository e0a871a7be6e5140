//! A pool as its master shows it as a whole: figures, how it came to be, how its cache does.

use serde::Deserialize;

/// `GET /v1/status`, as far as the operator needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct StatusDocument {
    /// The master that leads.
    pub name: String,
    /// All objects.
    pub objects: u64,
    /// Bytes of all mounted segments.
    pub capacity_bytes: u64,
    /// Bytes that objects take.
    pub used_bytes: u64,
    /// What all tenants and quotas ask to be guaranteed.
    #[serde(default)]
    pub guaranteed_bytes: u64,
    /// Whether that is more than there is.
    #[serde(default)]
    pub overcommitted: bool,
    /// Which life of the pool's log it is.
    #[serde(default)]
    pub epoch: EpochDocument,
    /// Agents that a master has taken in.
    #[serde(default)]
    pub agents: u64,
    /// Whether this generation was made from what agents held, or is being made.
    #[serde(default)]
    pub of_inventory: bool,
    /// Whether it is being made now.
    #[serde(default)]
    pub rebuilding: bool,
    /// Meanwhile, how many agents have told everything that they hold.
    #[serde(default)]
    pub agents_told: Option<u64>,
    /// How the cache has done lately.
    #[serde(default)]
    pub signals: SignalsDocument,
}

/// What of an epoch concerns people: its terms are elections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct EpochDocument {
    /// Counts up whenever the pool is made again.
    pub generation: u64,
}

/// How the cache of a master has done over about five minutes; each is absent while it is not
/// known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct SignalsDocument {
    /// Look-ups of a thousand that found their object.
    pub hit_ratio_per_mille: Option<u64>,
    /// Misses of a thousand that a larger pool would have hit.
    pub ghost_ratio_per_mille: Option<u64>,
    /// For how long half of what was evicted had not been used, at most; over about an hour.
    pub eviction_age_ms: Option<u64>,
    /// What the fullest segment holds, of a thousand parts.
    pub pressure_per_mille: Option<u64>,
}
