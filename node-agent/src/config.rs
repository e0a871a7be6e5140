//! The configuration of an agent: one JSON file, every key known, every value checked.

use std::path::{Path, PathBuf};

use larder_types::layout::{MAX_SLABS, MIN_SLAB_BYTES};
use larder_types::{AgentName, Labels};
use serde::{Deserialize, Serialize};

use crate::flags::Flags;

/// The most connections of an agent whose configuration does not say.
pub const CONNECTIONS_DEFAULT: u32 = 1024;
/// The longest path of a Unix socket, in bytes: `sun_path` has 108 with its final zero.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;
/// The longest configuration file, in bytes; a real one has one thousand.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The most masters in the list; a pool has at most five.
const MASTERS_MAX: usize = 16;
/// The most connections that one agent serves.
const CONNECTIONS_MAX: u32 = 65_536;

/// Everything that an agent is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The pool, for logs.
    pub pool: String,
    /// The agent's name; must be the one that its token proves. May be given as `--name` instead.
    #[serde(default)]
    pub name: Option<AgentName>,
    /// `host:port` of each master.
    pub masters: Vec<String>,
    /// The file with the token that proves the agent's name.
    pub token_file: PathBuf,
    /// Where the data listener binds; port 0 takes a free one. Where `advertise_addr` is an IPv6
    /// address, `0.0.0.0` here and in `metrics_addr` is taken as `[::]`: all addresses.
    #[serde(default = "any_loopback_port")]
    pub data_addr: String,
    /// `host`, `host:port` or `host:0` under which others reach the data listener. Without it, or
    /// with port 0, what the listener is bound to is taken. May be given as `--advertise-addr`.
    #[serde(default)]
    pub advertise_addr: Option<String>,
    /// Where this agent is: `host`, `rack`, `zone` and `numa`, each optional. Replicas of an object
    /// never share a host, so agents of one machine give the same host to be told apart from
    /// others; without one each agent is a host of its own. May be given as `--labels`, label by
    /// label.
    #[serde(default)]
    pub labels: Labels,
    /// All members of the pool are on this machine: loopback may be advertised.
    #[serde(default)]
    pub single_node: bool,
    /// The Unix socket for clients of this node.
    pub socket_path: PathBuf,
    /// Where `/metrics`, `/healthz` and `/readyz` are served; port 0 takes a free one.
    #[serde(default = "any_loopback_port")]
    pub metrics_addr: String,
    /// The folder with the agent's number and the highest epoch that it has seen.
    pub state_dir: PathBuf,
    /// Memory for the cache, in bytes.
    pub dram_bytes: u64,
    /// Size of a slab, in bytes: a power of two.
    #[serde(default = "default_slab_bytes")]
    pub slab_bytes: u64,
    /// How many bytes of one tenant's views are allowed at once, where the master says nothing.
    #[serde(default)]
    pub view_bytes: Option<u64>,
    /// The folder that stands for `/` when sysfs and /proc are read.
    #[serde(default = "default_root")]
    pub system_root: PathBuf,
    /// The most connections of clients at once, both listeners together.
    #[serde(default = "default_connections")]
    pub max_connections: u32,
    /// Written when the agent is mounted for the first time: its real addresses.
    #[serde(default)]
    pub ready_file: Option<PathBuf>,
    /// How the log looks.
    #[serde(default)]
    pub log: Log,
}

/// How the log looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Log {
    /// `human` or `json`.
    #[serde(default = "human")]
    pub format: String,
    /// What to show, for example `info` or `info,larder_node_agent=debug`.
    #[serde(default = "info")]
    pub filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: human(),
            filter: info(),
        }
    }
}

fn human() -> String {
    "human".to_owned()
}

fn info() -> String {
    "info".to_owned()
}

fn any_loopback_port() -> String {
    "127.0.0.1:0".to_owned()
}

const fn default_slab_bytes() -> u64 {
    64 << 20
}

const fn default_connections() -> u32 {
    CONNECTIONS_DEFAULT
}

fn default_root() -> PathBuf {
    PathBuf::from("/")
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("the configuration {path} cannot be read; give the path of its JSON file")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is longer than any configuration.
    #[error("the configuration {0} is longer than 1 MiB; it is the wrong file")]
    Long(PathBuf),
    /// It is no JSON, or has an unknown key, or a value of the wrong kind.
    #[error("the configuration is not valid at `{key}`")]
    Parse {
        /// The key.
        key: String,
        /// What is wrong there.
        source: serde_json::Error,
    },
    /// A value cannot be.
    #[error("{key}: {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`]; it names the key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        let length = std::fs::metadata(path).map_err(read)?.len();
        if length > FILE_BYTES_MAX {
            return Err(ConfigError::Long(path.to_owned()));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(read)?)
    }

    /// Reads and checks a text.
    ///
    /// # Errors
    /// [`ConfigError`]; it names the key.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let config: Self =
            serde_path_to_error::deserialize(&mut reader).map_err(|error| ConfigError::Parse {
                key: error.path().to_string(),
                source: error.into_inner(),
            })?;
        let end = reader.end();
        end.map_err(|source| ConfigError::Parse {
            key: ".".to_owned(),
            source,
        })?;
        config.check()?;
        Ok(config)
    }

    /// With what was given as flags, which wins: a file is for all agents of a pool, and flags are
    /// for one.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if neither gives the name.
    pub fn with(mut self, flags: Flags) -> Result<Self, ConfigError> {
        self.name = flags.name.or(self.name);
        self.advertise_addr = flags.advertise_addr.or(self.advertise_addr);
        self.labels = flags.labels.or(&self.labels);
        self.agent_name()?;
        Ok(self)
    }

    /// The agent's name.
    ///
    /// # Errors
    /// [`ConfigError::Value`] if nobody gave one.
    pub fn agent_name(&self) -> Result<&AgentName, ConfigError> {
        self.name.as_ref().ok_or_else(|| ConfigError::Value {
            key: "name",
            problem: "an agent needs one; give it here or as --name".to_owned(),
        })
    }

    /// Checks the values that their kinds do not.
    ///
    /// # Errors
    /// [`ConfigError::Value`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let value = |key, problem: String| Err(ConfigError::Value { key, problem });
        if self.masters.is_empty() || self.masters.len() > MASTERS_MAX {
            return value(
                "masters",
                format!("give 1 to {MASTERS_MAX} of them as host:port"),
            );
        }
        for master in &self.masters {
            if !is_host_and_port(master, false) {
                return value("masters", format!("`{master}` is not host:port"));
            }
        }
        for (key, addr) in [
            ("data_addr", &self.data_addr),
            ("metrics_addr", &self.metrics_addr),
        ] {
            if !is_host_and_port(addr, true) {
                return value(
                    key,
                    format!("`{addr}` is not host:port; port 0 takes a free one"),
                );
            }
        }
        let socket_bytes = self.socket_path.as_os_str().len();
        if socket_bytes > SOCKET_PATH_BYTES_MAX {
            let path = self.socket_path.display();
            let problem = format!(
                "{path} has {socket_bytes} bytes, but the kernel allows {SOCKET_PATH_BYTES_MAX} \
                 for a Unix socket; choose a shorter folder"
            );
            return value("socket_path", problem);
        }
        if self.socket_path.file_name().is_none() {
            return value("socket_path", "it must name a file in a folder".to_owned());
        }
        if self.max_connections == 0 || self.max_connections > CONNECTIONS_MAX {
            return value(
                "max_connections",
                format!("it must be 1 to {CONNECTIONS_MAX}"),
            );
        }
        self.check_sizes()
    }

    fn check_sizes(&self) -> Result<(), ConfigError> {
        let value = |key, problem: String| Err(ConfigError::Value { key, problem });
        let slab_bytes = self.slab_bytes;
        if !slab_bytes.is_power_of_two() || slab_bytes < MIN_SLAB_BYTES {
            let problem = format!("{slab_bytes} is not a power of two from {MIN_SLAB_BYTES} up");
            return value("slab_bytes", problem);
        }
        if slab_bytes > larder_wire::limit::MAX_PAYLOAD_BYTES {
            let max = larder_wire::limit::MAX_PAYLOAD_BYTES;
            return value(
                "slab_bytes",
                format!("{slab_bytes} is above the largest slab, {max}"),
            );
        }
        let slabs = self.dram_bytes / slab_bytes;
        if slabs == 0 {
            let problem = format!(
                "{} bytes are less than one slab of {slab_bytes}; raise it or lower slab_bytes",
                self.dram_bytes
            );
            return value("dram_bytes", problem);
        }
        if slabs > u64::from(MAX_SLABS) {
            let problem = format!(
                "{} bytes are {slabs} slabs of {slab_bytes}, but {MAX_SLABS} is the most; raise \
                 slab_bytes",
                self.dram_bytes
            );
            return value("dram_bytes", problem);
        }
        Ok(())
    }

    /// How many slabs the cache has. What is left of `dram_bytes` below one slab is not used.
    #[must_use]
    pub fn slabs(&self) -> u32 {
        u32::try_from(self.dram_bytes / self.slab_bytes.max(1)).unwrap_or(MAX_SLABS)
    }

    /// Memory of all slabs, in bytes.
    #[must_use]
    pub fn slabs_bytes(&self) -> u64 {
        u64::from(self.slabs()).saturating_mul(self.slab_bytes)
    }
}

/// Whether `text` is a host, a colon and a port. A port 0 is good only for binding.
fn is_host_and_port(text: &str, may_be_zero: bool) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && port
                .parse::<u16>()
                .is_ok_and(|port| may_be_zero || port != 0)
    })
}
