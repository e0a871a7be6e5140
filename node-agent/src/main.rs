//! The node agent's program: reads its configuration and runs until it is told to stop.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use larder_node_agent::{Config, run};
use larder_telemetry::error_chain;

/// Owns a node's memory and serves its segments to clients of a Larder pool.
#[derive(Debug, Parser)]
#[command(name = "larder-agent", version)]
struct Arguments {
    /// The configuration: one JSON file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
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
    let config = match Config::load(&arguments.config) {
        Ok(config) => config,
        Err(error) => return end(INVALID, &error),
    };
    if arguments.check_config {
        println!("{} is valid", arguments.config.display());
        return ExitCode::SUCCESS;
    }
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => end(FAILED, &error),
    }
}

fn end(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("larder-agent: {}", error_chain(error));
    ExitCode::from(code)
}
