//! What a master is told of its log and of the other masters.

use std::collections::BTreeSet;

use larder_oplog::SyncPolicy;
use serde::Deserialize;

use super::{Config, ConfigError};
use crate::consensus::Member;

/// The most masters of a pool.
const MEMBERS_MAX: usize = 5;

/// When what was acknowledged is durable. See [`SyncPolicy`] for what each promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum SyncConfig {
    /// After `interval_ms` at the latest.
    #[default]
    Interval,
    /// Before it is acknowledged.
    Always,
    /// When the kernel likes.
    Never,
}

/// When the log is made durable.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OplogConfig {
    /// The policy.
    pub sync: SyncConfig,
    /// With `Interval`: how long an entry may wait, in ms.
    pub interval_ms: u64,
    /// A snapshot is taken when the log has grown by so many bytes since the last one.
    pub snapshot_bytes: u64,
}

impl Default for OplogConfig {
    fn default() -> Self {
        Self {
            sync: SyncConfig::default(),
            interval_ms: 20,
            snapshot_bytes: 256 << 20,
        }
    }
}

impl OplogConfig {
    pub(crate) const fn policy(&self) -> SyncPolicy {
        match self.sync {
            SyncConfig::Interval => SyncPolicy::Interval {
                ms: self.interval_ms,
            },
            SyncConfig::Always => SyncPolicy::Always,
            SyncConfig::Never => SyncPolicy::Never,
        }
    }
}

/// How masters agree on a leader.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConsensusConfig {
    /// How often a leader says that it is there, in ms.
    pub heartbeat_ms: u64,
    /// How long it may be silent before the others elect another one, in ms; at least three
    /// heartbeats.
    pub election_ms: u64,
}

impl Default for ConsensusConfig {
    fn default() -> Self {
        Self {
            heartbeat_ms: 75,
            election_ms: 400,
        }
    }
}

impl Config {
    /// Checks what is said of the log and of the masters.
    pub(super) fn check_replication(&self) -> Result<(), ConfigError> {
        let refuse = |key, what: &str| {
            Err(ConfigError::Value {
                key,
                what: what.to_owned(),
            })
        };
        if !(1..=10_000).contains(&self.oplog.interval_ms) {
            return refuse("oplog.interval_ms", "must be 1 to 10000");
        }
        if self.oplog.snapshot_bytes < 1 << 20 {
            return refuse("oplog.snapshot_bytes", "must be at least 1048576");
        }
        let ConsensusConfig {
            heartbeat_ms,
            election_ms,
        } = self.consensus;
        if !(10..=60_000).contains(&election_ms) {
            return refuse("consensus.election_ms", "must be 10 to 60000");
        }
        if heartbeat_ms == 0 || heartbeat_ms.saturating_mul(3) > election_ms {
            let what = "must be at least 1 and at most a third of consensus.election_ms";
            return refuse("consensus.heartbeat_ms", what);
        }
        if self.members.is_empty() {
            return Ok(());
        }
        let names: BTreeSet<&str> = self.members.iter().map(|member| &*member.name).collect();
        if names.len() != self.members.len() {
            return refuse("members", "must name each master once");
        }
        if !names.contains(&*self.name) {
            return refuse("members", "must name this master too, by its `name`");
        }
        if self.members.len() > MEMBERS_MAX {
            return refuse("members", "must be at most 5 masters");
        }
        let is_addr = |member: &Member| {
            let port = member
                .addr
                .rsplit_once(':')
                .map(|(host, port)| (host, port.parse()));
            matches!(port, Some((host, Ok(1..=u16::MAX))) if !host.is_empty())
        };
        if !self.members.iter().all(is_addr) {
            return refuse("members", "must give each master an `addr` as host:port");
        }
        Ok(())
    }
}
