//! The masters of a `CachePool`: how many, on which volumes, and how many are there.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::quantity::Quantity;

/// The metadata servers of a pool.
#[derive(KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.replicas == oldSelf.replicas")
        .message("cannot be changed; create another pool")
        .field_path(".replicas"),
    validation = Rule::new(
        "has(self.storage) == has(oldSelf.storage) && \
         (!has(self.storage) || self.storage == oldSelf.storage)"
    )
    .message("cannot be changed, as volumes of a StatefulSet cannot; create another pool")
)]
pub struct Masters {
    /// Number of masters: 1, 3 or 5. One leads and the others stand by; of 3 one may be lost, of 5
    /// two.
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
}

impl Default for Masters {
    fn default() -> Self {
        Self {
            replicas: one(),
            storage: None,
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
