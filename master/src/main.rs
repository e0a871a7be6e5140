//! The program `larder-master`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use larder_master::{Config, MasterError};

/// The metadata service of a Larder pool.
#[derive(Debug, Parser)]
#[command(name = "larder-master", version)]
struct Arguments {
    /// The configuration, one JSON file.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Check the configuration and the files that it names, then stop.
    #[arg(long)]
    check_config: bool,
}

fn main() -> ExitCode {
    match start(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("larder-master: {}", larder_telemetry::error_chain(&error));
            // As the exit codes of `larder`: a file is not valid, or the system failed.
            ExitCode::from(if error.is_invalid_input() { 2 } else { 1 })
        }
    }
}

fn start(arguments: &Arguments) -> Result<(), MasterError> {
    let config = Config::load(&arguments.config)?;
    if arguments.check_config {
        return larder_master::check(&config);
    }
    larder_master::run(config)
}
