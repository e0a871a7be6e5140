//! What a machine must offer for a cluster to run on it.

use std::process::Command;

use super::folders::Folders;
use super::group::Groups;
use super::{command, packages, programs};

/// Whether this machine can run a cluster, found out without starting or installing anything.
///
/// # Errors
/// With what is missing, in words for people.
pub fn prerequisites() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("a cluster needs root, for namespaces and control groups".to_owned());
    }
    let folders = Folders::from_env().map_err(|error| format!("{error:#}"))?;
    Groups::find().map_err(|error| format!("{error:#}"))?;
    programs::buildable(&folders.cache).map_err(|error| format!("{error:#}"))?;
    packages::installable().map_err(|error| format!("{error:#}"))?;
    // The package that has it may not be installed yet; then the start finds out.
    if let Some(unshare) = command::find("unshare") {
        let spaces = [
            "--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "true",
        ];
        command::run(Command::new(unshare).args(spaces))
            .map_err(|error| format!("namespaces cannot be made: {error:#}"))?;
    }
    Ok(())
}
