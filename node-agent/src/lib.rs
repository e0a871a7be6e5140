//! The program that owns a node's memory and serves its segments.
//!
//! `config` says what it is told, `inventory` what the node has, `step` what the control side
//! decides; `agent` starts the threads that do it.

pub mod advertise;
pub mod agent;
mod atomic_file;
#[cfg(feature = "kubernetes")]
pub mod cache_node;
#[cfg(not(feature = "kubernetes"))]
#[path = "no_cache_node.rs"]
pub mod cache_node;
pub mod config;
mod control;
mod copier;
mod data;
pub mod epoch_file;
mod error;
pub mod flags;
mod folder;
mod http;
pub mod identity_file;
pub mod inventory;
mod listeners;
mod load;
pub mod maker;
mod master_link;
pub mod membership;
mod metrics;
mod open_files;
mod ready_file;
pub mod segment_plan;
pub mod socket;
pub mod state_dir;
pub mod step;

use std::sync::Arc;

pub use agent::{RunningAgent, start, start_member};
pub use config::Config;
pub use error::AgentError;
pub use flags::{CacheNodeRef, Flags};
use tokio::signal::unix::{SignalKind, signal};

/// Runs an agent until SIGTERM or SIGINT; then it unmounts and stops. Sets up logging. What the
/// flags say wins over the configuration.
///
/// # Errors
/// [`AgentError`]: it could not start, or a part of it failed.
pub fn run(config: Config, flags: Flags) -> Result<(), AgentError> {
    let (node, pod_uid) = (flags.cache_node.clone(), flags.pod_uid.clone());
    let config = config.with(flags)?;
    let format = config.log.format.parse()?;
    larder_telemetry::trace::init(format, &config.log.filter)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(AgentError::Start)?;
    // Before the threads, so that no signal is missed.
    let signals = runtime.block_on(async {
        Ok((
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        ))
    });
    let (mut terminate, mut interrupt) = signals.map_err(AgentError::Start)?;
    let member = match node {
        Some(node) => Some(runtime.block_on(cache_node::Member::find(node, pod_uid))?),
        None => None,
    };
    let agent = start_member(&config, Arc::new(maker::MemfdMaker), member)?;
    let mut status = agent.status();
    runtime.block_on(async {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("stopping: SIGTERM"),
            _ = interrupt.recv() => tracing::info!("stopping: SIGINT"),
            // The control side ended by itself; joining it says why.
            () = async { while status.changed().await.is_ok() {} } => {}
        }
    });
    agent.stop();
    agent.join()
}
