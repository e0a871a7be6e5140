//! What a master is told of a pool whose log is gone.

use serde::Deserialize;

use super::{Config, ConfigError};

/// What happens when agents know more than the log of all masters.
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
    /// When the log is lost, or the end of it.
    pub recovery: Recovery,
    /// How long agents are waited for then before the pool is served with what was found, in ms.
    pub inventory_wait_ms: u64,
}

impl Default for BootstrapConfig {
    fn default() -> Self {
        Self {
            recovery: Recovery::default(),
            inventory_wait_ms: 10_000,
        }
    }
}

impl Config {
    pub(super) fn check_bootstrap(&self) -> Result<(), ConfigError> {
        if (100..=600_000).contains(&self.bootstrap.inventory_wait_ms) {
            return Ok(());
        }
        Err(ConfigError::Value {
            key: "bootstrap.inventory_wait_ms",
            what: "must be 100 to 600000".to_owned(),
        })
    }
}
