//! The metadata service of a pool: one leader that decides, standbys that follow.
//!
//! [`Master`] binds, [`Master::serve`] serves on the caller's runtime, [`run`] is the whole
//! program. One thread does it all: `leader` owns the state and is told everything by events;
//! `connection` and `admin` feed it; `node` says which role this master has. What the pool may do
//! is decided in `larder-store`; nothing here judges a request of a tenant.

mod admin;
mod agents;
mod calls;
mod clock;
pub mod config;
mod connection;
mod consensus;
mod event;
mod events;
mod flaw;
pub mod identity;
mod leader;
mod line;
mod listener;
pub mod log;
mod metrics;
mod node;
mod quota;
mod ready_file;
mod role;
pub mod root_key;
mod rpc;
mod session;
#[cfg(feature = "sim")]
pub mod sim;
pub mod snapshots;
mod standby;

use std::future::Future;

pub use config::{Config, ConfigError};
pub use consensus::{ConsensusError, Member};
pub use node::{Master, MasterError};
pub use role::Role;

/// Runs a master as configured until SIGTERM or SIGINT: logging, runtime and all. For `main`.
///
/// # Errors
/// [`MasterError`].
pub fn run(config: Config) -> Result<(), MasterError> {
    let format = match config.log.format.as_str() {
        "" => larder_telemetry::trace::Format::default(),
        text => text.parse()?,
    };
    larder_telemetry::trace::init(format, &filter(&config.log.filter))?;
    runtime()?.block_on(async {
        let stop = stop_signal().map_err(MasterError::Process)?;
        Master::bind(config).await?.serve(stop).await
    })
}

/// What is logged: of openraft errors only, unless the filter speaks of it. It warns of each answer
/// that nobody waits for, and tells its whole state with each vote.
fn filter(configured: &str) -> String {
    match configured.trim() {
        "" => "info,openraft=error".to_owned(),
        text if text.contains("openraft") => text.to_owned(),
        text => format!("{text},openraft=error"),
    }
}

/// Reads a configuration's files as a start would, and changes nothing.
///
/// # Errors
/// [`MasterError`]: what a start would say.
pub fn check(config: &Config) -> Result<(), MasterError> {
    let registry = larder_telemetry::Registry::new(larder_telemetry::Component::Master);
    let files = node::read_files(config, &registry);
    runtime()?.block_on(files).map(|_| ())
}

/// One thread: the leader, its connections and the admin port take turns on it.
fn runtime() -> Result<tokio::runtime::Runtime, MasterError> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().map_err(MasterError::Process)
}

/// Ends with the first SIGTERM or SIGINT.
fn stop_signal() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping");
    })
}
