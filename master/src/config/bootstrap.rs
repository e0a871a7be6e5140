//! How a pool begins, and how it begins again when its log is lost.

use std::path::PathBuf;

use serde::Deserialize;

use super::{ConfigError, ObjectStoreConfig, snapshots};
use crate::snapshots::SnapshotName;

/// What happens when agents know more than the logs of all masters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Recovery {
    /// The pool is made again from what agents hold.
    #[default]
    Inventory,
    /// The master stops and says so.
    Refuse,
}

/// How a pool begins, and begins again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BootstrapConfig {
    /// A pool that has no log yet begins with the tenants and quotas of this snapshot. Without
    /// effect on one that has.
    pub from_snapshot: Option<FromSnapshotConfig>,
    /// When the log is lost, or the end of it.
    pub recovery: Recovery,
    /// How long agents are waited for then before the pool is served with what was found, in ms;
    /// also how long a pool that begins tells nobody that something is not there, unless an agent
    /// comes before.
    pub inventory_wait_ms: u64,
}

impl Default for BootstrapConfig {
    fn default() -> Self {
        Self {
            from_snapshot: None,
            recovery: Recovery::default(),
            inventory_wait_ms: 10_000,
        }
    }
}

/// A snapshot and where it is: where `snapshots` keeps them, unless this says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromSnapshotConfig {
    /// Its name.
    pub name: SnapshotName,
    /// In this folder.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// In this object store.
    #[serde(default)]
    pub object_store: Option<ObjectStoreConfig>,
}

impl BootstrapConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if self.inventory_wait_ms > 600_000 {
            return Err(ConfigError::Value {
                key: "bootstrap.inventory_wait_ms",
                what: "must be at most 600000".to_owned(),
            });
        }
        self.from_snapshot.as_ref().map_or(Ok(()), |from| {
            let key = "bootstrap.from_snapshot";
            snapshots::check(key, from.folder.is_some(), from.object_store.as_ref())
        })
    }
}
