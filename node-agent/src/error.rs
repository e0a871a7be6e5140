//! Why an agent does not run, in words for whoever started it.

use std::io;
use std::path::PathBuf;

use crate::advertise::AdvertiseError;
use crate::cache_node::CacheNodeError;
use crate::config::ConfigError;
use crate::inventory::limits::LimitError;
use crate::socket::SocketError;
use crate::state_dir::StateError;

/// Why an agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// See the cause.
    #[error("the configuration cannot be used")]
    Config(#[from] ConfigError),
    /// See the cause.
    #[error("this machine cannot run the configured agent")]
    Limit(#[from] LimitError),
    /// See the cause.
    #[error("the agent's state is not available")]
    State(#[from] StateError),
    /// See the cause.
    #[error("the agent's address cannot be told to others")]
    Advertise(#[from] AdvertiseError),
    /// See the cause.
    #[error("the agent's socket is not available")]
    Socket(#[from] SocketError),
    /// See the cause.
    #[error("the agent cannot show its state in the cluster")]
    CacheNode(#[from] CacheNodeError),
    /// The token cannot be read.
    #[error("token_file: {0}")]
    Token(String),
    /// A port is taken, or the address is not of this machine.
    #[error("{key}: {}", cannot_listen(.addr, .source))]
    Bind {
        /// The key of the configuration.
        key: &'static str,
        /// The address.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
    /// Whoever started the agent would wait in vain for the file.
    #[error("ready_file: cannot write {}; free some space or set another path", .path.display())]
    ReadyFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A thread, a runtime or randomness is not to be had.
    #[error("the agent cannot start")]
    Start(#[source] io::Error),
    /// A part of the agent ended by itself: a fault of ours.
    #[error("the {0} thread ended unexpectedly; the log says more")]
    Ended(&'static str),
    /// Logging cannot be set up.
    #[error("log: the settings cannot be used")]
    Log(#[from] larder_telemetry::trace::TraceError),
}

/// What a failed bind means: with port 0 no port can be the wrong one.
fn cannot_listen(addr: &str, source: &io::Error) -> String {
    if addr.ends_with(":0") && source.kind() == io::ErrorKind::AddrInUse {
        return format!("no free port on {addr}; close some of the connections of this machine");
    }
    format!("cannot listen on {addr}; stop what uses it, or set another address or port 0")
}
