//! The programs that `larder up` starts: this same executable as a master or an agent.

use std::io::Read;

use larder_telemetry::error_chain;
use rustix::process::{Signal, getpid, kill_process};

use crate::args::RunProgram;
use crate::error::CliError;

/// Runs a master until it is told to stop.
pub(crate) fn master(run: &RunProgram) -> Result<u8, CliError> {
    let config = larder_master::Config::load(&run.config)
        .map_err(|error| CliError::Usage(error_chain(&error)))?;
    watch_stdin(run)?;
    larder_master::run(config).map_err(|error| CliError::Program(error_chain(&error)))?;
    Ok(0)
}

/// Runs an agent until it is told to stop.
pub(crate) fn agent(run: &RunProgram) -> Result<u8, CliError> {
    let config = larder_node_agent::Config::load(&run.config)
        .map_err(|error| CliError::Usage(error_chain(&error)))?;
    watch_stdin(run)?;
    larder_node_agent::run(config, larder_node_agent::Flags::default())
        .map_err(|error| CliError::Program(error_chain(&error)))?;
    Ok(0)
}

/// Ends this process as SIGTERM does when standard input ends. The supervisor holds its other
/// end, so that nothing outlives it, however it died. (A parent-death signal would have to be set
/// between fork and exec, which is unsafe, and follows the thread, not the process.)
fn watch_stdin(run: &RunProgram) -> Result<(), CliError> {
    if !run.until_stdin_ends {
        return Ok(());
    }
    let watch = || {
        let mut stdin = std::io::stdin().lock();
        let mut byte = [0];
        while stdin.read(&mut byte).is_ok_and(|read| read > 0) {}
        // It cannot fail: the process is this one.
        let _ = kill_process(getpid(), Signal::TERM);
    };
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(watch)
        .map(|_| ())
        .map_err(|source| CliError::System {
            action: "start a thread",
            source,
        })
}
