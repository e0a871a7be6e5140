//! The configuration of a master: one JSON file, every key known, every value checked.

use std::path::{Path, PathBuf};

use larder_store::{MAX_REPLICAS, Settings};
use serde::Deserialize;

mod background;
mod replication;
mod snapshots;
mod tenants;

pub use background::{EvictionConfig, MovesConfig};
pub use replication::{ConsensusConfig, OplogConfig, SyncConfig};
pub use snapshots::{BootstrapConfig, FromSnapshotConfig, ObjectStoreConfig, SnapshotsConfig};
pub use tenants::{QuotaConfig, TenantConfig};

pub use crate::consensus::Member;

pub use crate::events::config::{EventsConfig, ZmqConfig, ZmqSchema};

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}; check the path and its permissions", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no JSON of the right shape. The source names line and value.
    #[error("{} is not valid at `{key}`", .path.display())]
    Shape {
        /// Which file.
        path: PathBuf,
        /// Where in it.
        key: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// There is no way to the API server of a cluster.
    #[error(
        "no Kubernetes API server is known; run the master in a pod with a ServiceAccount, or \
         give a `kubeconfig`"
    )]
    Cluster {
        /// What is missing.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A value is out of range.
    #[error("`{key}` {what}")]
    Value {
        /// Which key.
        key: &'static str,
        /// What it has to be.
        what: String,
    },
}

/// How events are logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `human` or `json`; empty is `human`.
    pub format: String,
    /// Directives as in `info,larder_master=debug`; empty is `info`.
    pub filter: String,
}

/// Everything that a master can be told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name of the pool.
    pub pool: String,
    /// The name of this master.
    pub name: String,
    /// `host:port` for clients and agents; nothing else is bound. Port 0 takes a free one.
    pub client_addr: String,
    /// `host:port` for metrics, probes and administration.
    pub admin_addr: String,
    /// Where the log and its snapshots stand; made if missing. Each master has its own, and keeps
    /// it over restarts.
    pub state_dir: PathBuf,
    /// The root of the pool's keys: 64 hex digits, readable by this user or its groups only.
    pub root_key_file: PathBuf,
    /// Which token proves what, outside Kubernetes. Either this or `subjects_file`.
    #[serde(default)]
    pub identities_file: Option<PathBuf>,
    /// Which ServiceAccount of a cluster is what.
    #[serde(default)]
    pub subjects_file: Option<PathBuf>,
    /// How the API server is reached that reviews tokens; the cluster of this pod without it.
    #[serde(default)]
    pub kubeconfig: Option<PathBuf>,
    /// The tenants that exist from the start.
    pub tenants_file: PathBuf,
    /// The quotas that exist from the start and that tenants name as their cohort.
    #[serde(default)]
    pub quotas_file: Option<PathBuf>,
    /// Replicas of an object unless a put says otherwise; 1 to 3.
    #[serde(default = "defaults::replica_factor")]
    pub replica_factor: u8,
    /// After this much silence nothing new is placed on an agent, in ms.
    #[serde(default = "defaults::agent_suspect_ms")]
    pub agent_suspect_ms: u64,
    /// After this much silence an agent's segments are lost, in ms.
    #[serde(default = "defaults::agent_ttl_ms")]
    pub agent_ttl_ms: u64,
    /// After this long a put without an end may be discarded, in ms.
    #[serde(default = "defaults::put_discard_ms")]
    pub put_discard_ms: u64,
    /// After this long a put that waits for removed space which readers still hold is refused
    /// with `no_space`, in ms; at most its deadline.
    #[serde(default = "defaults::space_wait_ms")]
    pub space_wait_ms: u64,
    /// The largest object, in bytes.
    #[serde(default = "defaults::max_object_bytes")]
    pub max_object_bytes: u64,
    /// How long a session token lasts, in ms.
    #[serde(default = "defaults::session_token_ms")]
    pub session_token_ms: u64,
    /// The most connections of clients and agents together.
    #[serde(default = "defaults::max_connections")]
    pub max_connections: usize,
    /// Written when this master can serve: its names, pid and real addresses.
    #[serde(default)]
    pub ready_file: Option<PathBuf>,
    /// When cold objects make room.
    #[serde(default)]
    pub eviction: EvictionConfig,
    /// How fast objects are copied between agents.
    #[serde(default)]
    pub moves: MovesConfig,
    /// Cache events; off without it.
    #[serde(default)]
    pub events: Option<EventsConfig>,
    /// How events are logged.
    #[serde(default)]
    pub log: LogConfig,
    /// All masters of the pool, this one among them by its name; empty if it is the only one.
    #[serde(default)]
    pub members: Vec<Member>,
    /// When the log of the pool is made durable.
    #[serde(default)]
    pub oplog: OplogConfig,
    /// How masters agree on a leader.
    #[serde(default)]
    pub consensus: ConsensusConfig,
    /// Where snapshots are kept that somebody asked for.
    #[serde(default)]
    pub snapshots: SnapshotsConfig,
    /// What a pool begins with that has no log yet.
    #[serde(default)]
    pub bootstrap: BootstrapConfig,
}

mod defaults {
    pub(super) const fn replica_factor() -> u8 {
        1
    }
    pub(super) const fn agent_suspect_ms() -> u64 {
        3_000
    }
    pub(super) const fn agent_ttl_ms() -> u64 {
        10_000
    }
    pub(super) const fn put_discard_ms() -> u64 {
        30_000
    }
    pub(super) const fn space_wait_ms() -> u64 {
        1_000
    }
    pub(super) const fn max_object_bytes() -> u64 {
        64 << 30
    }
    pub(super) const fn session_token_ms() -> u64 {
        3_600_000
    }
    pub(super) const fn max_connections() -> usize {
        4_096
    }
}

impl Config {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// [`ConfigError`], naming the key where there is one.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let config: Self = read_json(path)?;
        config.check()?;
        Ok(config)
    }

    /// Reads the tenants that exist from the start.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load_tenants(&self) -> Result<Vec<TenantConfig>, ConfigError> {
        read_json(&self.tenants_file)
    }

    /// Reads the quotas that exist from the start; none without a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn load_quotas(&self) -> Result<Vec<QuotaConfig>, ConfigError> {
        let file = self.quotas_file.as_deref();
        file.map_or_else(|| Ok(Vec::new()), read_json)
    }

    /// Checks what the types cannot.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let refuse = |key, what: &str| {
            Err(ConfigError::Value {
                key,
                what: what.to_owned(),
            })
        };
        self.check_replication()?;
        for (key, text) in [("pool", &self.pool), ("name", &self.name)] {
            if text.is_empty() || text.len() > 253 {
                return refuse(key, "must have 1 to 253 bytes");
            }
        }
        for (key, text) in [
            ("client_addr", &self.client_addr),
            ("admin_addr", &self.admin_addr),
        ] {
            if text
                .rsplit_once(':')
                .is_none_or(|(_, port)| port.parse::<u16>().is_err())
            {
                return refuse(key, "must be host:port, for example 127.0.0.1:0");
            }
        }
        if !(1..=MAX_REPLICAS).contains(&self.replica_factor) {
            return refuse("replica_factor", "must be 1 to 3");
        }
        let positive = [
            ("agent_suspect_ms", self.agent_suspect_ms),
            ("put_discard_ms", self.put_discard_ms),
            ("space_wait_ms", self.space_wait_ms),
            ("max_object_bytes", self.max_object_bytes),
            ("session_token_ms", self.session_token_ms),
            ("max_connections", self.max_connections as u64),
        ];
        for (key, value) in positive {
            if value == 0 {
                return refuse(key, "must be at least 1");
            }
        }
        if self.identities_file.is_some() == self.subjects_file.is_some() {
            return refuse(
                "identities_file",
                "or `subjects_file` must be given, and not both",
            );
        }
        if self.kubeconfig.is_some() && self.subjects_file.is_none() {
            return refuse("kubeconfig", "is of use only with `subjects_file`");
        }
        if self.agent_ttl_ms <= self.agent_suspect_ms {
            return refuse("agent_ttl_ms", "must be more than agent_suspect_ms");
        }
        self.eviction.check()?;
        self.moves.check()?;
        self.snapshots.check()?;
        self.bootstrap.check()?;
        match &self.events {
            None => Ok(()),
            Some(events) => events.check(),
        }
    }

    /// What the leader is to keep to.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            put_discard_ms: self.put_discard_ms,
            space_wait_ms: self.space_wait_ms,
            agent_suspect_ms: self.agent_suspect_ms,
            agent_ttl_ms: self.agent_ttl_ms,
            max_object_bytes: self.max_object_bytes,
            high_watermark: self.eviction.high_watermark_percent * 10,
            low_watermark: self.eviction.low_watermark_percent * 10,
            max_moves: self.moves.max_concurrent,
            move_bytes_per_s: self.moves.bytes_per_s,
            ..Settings::default()
        }
    }
}

fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T, ConfigError> {
    let read = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let text = std::fs::read_to_string(path).map_err(read)?;
    parse_json(path, &text)
}

/// Decodes `text`; an error names the key and `path`.
pub(crate) fn parse_json<T: for<'de> Deserialize<'de>>(
    path: &Path,
    text: &str,
) -> Result<T, ConfigError> {
    let mut decoder = serde_json::Deserializer::from_str(text);
    let value = serde_path_to_error::deserialize(&mut decoder).map_err(|error| {
        let key = error.path().to_string();
        ConfigError::Shape {
            path: path.to_owned(),
            key,
            source: error.into_inner(),
        }
    })?;
    decoder.end().map_err(|source| ConfigError::Shape {
        path: path.to_owned(),
        key: ".".to_owned(),
        source,
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"pool":"p","name":"m-0","client_addr":"127.0.0.1:0",
        "admin_addr":"127.0.0.1:0","state_dir":"s","root_key_file":"k",
        "identities_file":"i","tenants_file":"t"}"#;

    fn parse(text: &str) -> Result<Config, String> {
        let chain = |error: &ConfigError| larder_telemetry::error_chain(error);
        let config: Config = parse_json(Path::new("m.json"), text).map_err(|e| chain(&e))?;
        config.check().map_err(|e| chain(&e))?;
        Ok(config)
    }

    #[test]
    fn defaults_are_those_of_the_documents() {
        let config = parse(SMALL).expect("valid");
        assert_eq!(config.replica_factor, 1);
        assert_eq!(
            (config.agent_suspect_ms, config.agent_ttl_ms),
            (3_000, 10_000)
        );
        assert_eq!(
            (config.put_discard_ms, config.space_wait_ms),
            (30_000, 1_000)
        );
        assert_eq!(
            (config.max_object_bytes, config.max_connections),
            (64 << 30, 4_096)
        );
        assert_eq!(config.settings(), Settings::default());
    }

    #[test]
    fn the_leader_keeps_to_eviction_and_moves_of_the_file() {
        let more = r#"{"eviction":{"high_watermark_percent":95,"low_watermark_percent":70},
            "moves":{"max_concurrent":4,"bytes_per_s":1048576},"#;
        let config = parse(&SMALL.replacen('{', more, 1)).expect("valid");
        let settings = config.settings();
        assert_eq!(
            (settings.high_watermark, settings.low_watermark),
            (950, 700)
        );
        assert_eq!(
            (settings.max_moves, settings.move_bytes_per_s),
            (4, 1 << 20)
        );
    }

    #[test]
    fn an_unknown_key_is_named() {
        let text = SMALL.replacen('{', r#"{"replica_facto":2,"#, 1);
        let error = parse(&text).expect_err("unknown");
        assert!(
            error.contains("replica_facto") && error.contains("m.json"),
            "{error}"
        );
    }

    #[test]
    fn wrong_types_and_ranges_name_the_key() {
        let cases = [
            (r#""agent_ttl_ms":"10s","#, "agent_ttl_ms"),
            (r#""agent_ttl_ms":3000,"#, "agent_ttl_ms"),
            (r#""replica_factor":4,"#, "replica_factor"),
            (r#""max_connections":0,"#, "max_connections"),
            (r#""log":{"formt":"json"},"#, "formt"),
            (
                r#""eviction":{"high_watermark_percent":101},"#,
                "eviction.high_watermark_percent",
            ),
            (
                r#""eviction":{"high_watermark_percent":80},"#,
                "eviction.low_watermark_percent",
            ),
            (
                r#""eviction":{"low_watermark_percent":0},"#,
                "eviction.low_watermark_percent",
            ),
            (r#""moves":{"max_concurrent":257},"#, "moves.max_concurrent"),
            (r#""moves":{"max_concurrent":0},"#, "moves.max_concurrent"),
            (r#""moves":{"bytes_per_s":1000},"#, "moves.bytes_per_s"),
            (
                r#""bootstrap":{"from_snapshot":{"name":"No"}},"#,
                "bootstrap",
            ),
            (r#""bootstrap":{"from_snapshot":{"nam":"no"}},"#, "nam"),
            (
                r#""snapshots":{"folder":"f","object_store":{"bucket":"b","access_key_id_file":"i",
                    "secret_access_key_file":"s"}},"#,
                "snapshots",
            ),
        ];
        for (extra, key) in cases {
            let error = parse(&SMALL.replacen('{', &format!("{{{extra}"), 1)).expect_err(extra);
            assert!(error.contains(key), "{error}");
        }
        let without = SMALL.replace(r#""identities_file":"i","#, "");
        for extra in [r#""subjects_file":"s","#, r#""kubeconfig":"c","#] {
            let error = parse(&SMALL.replacen('{', &format!("{{{extra}"), 1)).expect_err(extra);
            assert!(error.contains("subjects_file"), "{error}");
        }
        let error = parse(&without).expect_err("nobody is known");
        assert!(error.contains("identities_file"), "{error}");
        let subjects = without.replacen('{', r#"{"subjects_file":"s","kubeconfig":"c","#, 1);
        parse(&subjects).expect("valid");
        let error = parse(&SMALL.replace("127.0.0.1:0", "localhost")).expect_err("no port");
        assert!(error.contains("client_addr"), "{error}");
    }
}
