//! The `larder` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    larder_cli::run(std::env::args_os())
}
