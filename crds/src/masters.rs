//! The masters of a `CachePool`: how many, on which volumes, when their log is durable, and how
//! many are there.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// Longest `oplog.intervalMs`; must equal the limit of the master.
pub(crate) const INTERVAL_MS_MAX: u32 = 10_000;

/// The metadata servers of a pool.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.replicas == oldSelf.replicas || has(self.storage)")
        .message(
            "can only be changed with storage: without volumes masters forget with their pods"
        )
        .field_path(".replicas"),
    validation = Rule::new(
        "has(self.storage) == has(oldSelf.storage) && \
         (!has(self.storage) || self.storage == oldSelf.storage)"
    )
    .message("cannot be changed, as volumes of a StatefulSet cannot; create another pool")
)]
pub struct Masters {
    /// Number of masters: 1, 3 or 5. One leads and the others stand by; of 3 one may be lost, of 5
    /// two. With `storage` it may change: new ones learn everything before they count, and those
    /// that go count no longer before their pods go.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 5))]
    #[x_kube(validation = Rule::new("self in [1, 3, 5]")
        .message("must be 1, 3 or 5: an even number survives no more losses than one less"))]
    pub replicas: u32,
    /// A volume for the log and the snapshots of each master. Without it they lie in a folder that
    /// goes with the master's pod: one of several that comes back without joins anew from the
    /// others, and when a quorum is lost at once the pool is made again from what agents hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<MasterStorage>,
    /// When each master makes its log durable, and so what a loss of power can take.
    #[serde(default)]
    pub oplog: Oplog,
}

impl Default for Masters {
    fn default() -> Self {
        Self {
            replicas: one(),
            storage: None,
            oplog: Oplog::default(),
        }
    }
}

/// When a master makes its log durable. A change restarts the masters, one at a time.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Oplog {
    /// With every policy an acknowledged put is in the logs of more than half of the masters, and
    /// survives the end of any of their processes.
    #[serde(default)]
    pub sync: OplogSync,
    /// With `Interval`: for how long an entry may wait at most, in milliseconds.
    #[serde(default = "interval_ms")]
    #[schemars(range(min = 1, max = INTERVAL_MS_MAX))]
    pub interval_ms: u32,
}

impl Default for Oplog {
    fn default() -> Self {
        Self {
            sync: OplogSync::default(),
            interval_ms: interval_ms(),
        }
    }
}

/// When an entry of the log is durable.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OplogSync {
    /// At most `intervalMs` after it was written. With several masters a loss of power of less
    /// than half of them loses nothing acknowledged; of more than half at once, and with one
    /// master, at most the puts of the last `intervalMs`.
    #[default]
    Interval,
    /// Before it is acknowledged: no loss of power, of all masters either, loses an acknowledged
    /// put. Each put waits for a disk.
    Always,
    /// When the kernel likes, and at a clean stop. As `Interval`, but a loss of power of more than
    /// half of the masters, or of the only one, may lose any number of acknowledged puts.
    Never,
}

impl OplogSync {
    /// As it stands in the spec, and in the masters' configuration.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Interval => "Interval",
            Self::Always => "Always",
            Self::Never => "Never",
        }
    }
}

/// The volume of each master.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MasterStorage {
    /// Size of each volume, such as 10Gi.
    #[x_kube(validation = Rule::new("quantity(self).compareTo(quantity('1Gi')) >= 0")
        .message("must be at least 1Gi: the log and two snapshots of the pool lie there"))]
    pub size: Quantity,
    /// Name of the StorageClass that makes them; absent means the cluster's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"), length(max = 253))]
    pub storage_class_name: Option<String>,
}

/// Counts of a pool's masters.
#[derive(KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MastersStatus {
    /// Masters that there should be.
    pub desired: u32,
    /// Masters that are ready: they lead, or follow the one that leads.
    pub ready: u32,
}

fn one() -> u32 {
    1
}

fn interval_ms() -> u32 {
    20
}
