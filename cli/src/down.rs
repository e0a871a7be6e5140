//! `larder down`: stops a pool of this machine and removes what it left.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::args::Global;
use crate::error::CliError;
use crate::folder::{RunFolder, Supervisor};
use crate::output::Output;
use crate::process_id::ProcessId;

/// How long a supervisor may take to stop its processes, each of which it gives 10 s.
pub(crate) const SUPERVISOR_LIMIT: Duration = Duration::from_secs(30);
/// How long a process without its supervisor may take: it stops by itself when its standard input
/// ends, which it does with the supervisor.
const CHILD_LIMIT: Duration = Duration::from_secs(10);
/// How long the kernel may take to end a process that was killed.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Stops the pool.
pub(crate) async fn down(global: &Global, output: &mut Output) -> Result<u8, CliError> {
    let folder = match RunFolder::find(global) {
        Ok(folder) => folder,
        Err(CliError::NoPool(_)) => return nothing(output, "no pool of this user is up"),
        Err(error) => return Err(error),
    };
    let path = folder.path().display().to_string();
    let Some(supervisor) = folder.supervisor()? else {
        // An `up` that was killed early leaves nothing else.
        folder.remove_if_empty()?;
        return nothing(output, &format!("no pool is up in {path}"));
    };
    let clean = stop(&folder, &supervisor)?;
    let human = if clean {
        format!("pool {} is down", supervisor.pool)
    } else {
        format!(
            "pool {} had lost its supervisor; what it left is removed",
            supervisor.pool
        )
    };
    let value = json!({ "pool": supervisor.pool, "stopped": true, "was_running": clean });
    output.result(&value, &human)?;
    Ok(0)
}

fn nothing(output: &mut Output, human: &str) -> Result<u8, CliError> {
    let value = json!({ "pool": null, "stopped": true, "was_running": false });
    output.result(&value, &format!("{human}; nothing to stop"))?;
    Ok(0)
}

/// Stops the supervisor, or what it left. True if the supervisor did it all itself.
pub(crate) fn stop(folder: &RunFolder, supervisor: &Supervisor) -> Result<bool, CliError> {
    supervisor.process.signal(Signal::TERM);
    if !supervisor.process.wait(SUPERVISOR_LIMIT) {
        kill(supervisor, &supervisor.process)?;
    }
    // So that no `up` takes what is only half removed; one that ends here has the claim already.
    let _claim = folder.claim_existing();
    // A supervisor that could do its work has removed this with everything else.
    let left = folder.supervisor()?;
    let Some(left) = left.filter(|left| left.process == supervisor.process) else {
        return Ok(true);
    };
    for child in &left.children {
        if !child.process.wait(CHILD_LIMIT) {
            kill(&left, &child.process)?;
        }
    }
    folder.remove()?;
    Ok(false)
}

fn kill(supervisor: &Supervisor, process: &ProcessId) -> Result<(), CliError> {
    process.signal(Signal::KILL);
    if process.wait(KILL_LIMIT) {
        return Ok(());
    }
    Err(CliError::Program(format!(
        "process {} of pool {} cannot be stopped; look at it with ps, then run `larder down` again",
        process.pid, supervisor.pool
    )))
}
