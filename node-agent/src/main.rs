//! The node agent's program: reads its configuration and runs until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use larder_node_agent::{CacheNodeRef, Config, Flags, run};
use larder_telemetry::error_chain;
use larder_types::{AgentName, Labels};

/// Owns a node's memory and serves its segments to clients of a Larder pool.
#[derive(Debug, Parser)]
#[command(name = "larder-agent", version)]
struct Arguments {
    /// The configuration: one JSON file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The agent's name; wins over `name` of the configuration.
    #[arg(long)]
    name: Option<AgentName>,
    /// Where others reach this agent, as host, host:port or an IPv4 or IPv6 address; without a
    /// port it is the one of `data_addr`. Wins over `advertise_addr` of the configuration.
    #[arg(long, value_name = "ADDR")]
    advertise_addr: Option<String>,
    /// Where this agent is, as in `host=h1,rack=r1,zone=z1,numa=0`, any of them. Replicas of an
    /// object never share a host. Each wins over that of `labels` of the configuration.
    #[arg(
        long,
        value_name = "LABELS",
        default_value = "",
        hide_default_value = true
    )]
    labels: Labels,
    /// The CacheNode in which this agent shows its state, as namespace/name.
    #[arg(long, value_name = "NS/NAME")]
    cache_node: Option<CacheNodeRef>,
    /// Uid of the pod that this agent runs in, to be shown there.
    #[arg(long, value_name = "UID", requires = "cache_node")]
    pod_uid: Option<String>,
    /// Read and check the configuration, say so, and end.
    #[arg(long)]
    check_config: bool,
}

/// The system failed; the sentence on standard error says how.
const FAILED: u8 = 1;
/// The configuration is wrong, as a wrong argument is.
const INVALID: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let flags = Flags {
        name: arguments.name,
        advertise_addr: arguments.advertise_addr,
        labels: arguments.labels,
        cache_node: arguments.cache_node,
        pod_uid: arguments.pod_uid,
    };
    let config = Config::load(&arguments.config).and_then(|config| config.with(flags.clone()));
    let config = match config {
        Ok(config) => config,
        Err(error) => return end(INVALID, &error),
    };
    if arguments.check_config {
        println!("{} is valid", arguments.config.display());
        return ExitCode::SUCCESS;
    }
    match run(config, flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => end(FAILED, &error),
    }
}

fn end(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("larder-agent: {}", error_chain(error));
    ExitCode::from(code)
}
