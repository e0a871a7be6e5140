//! The stock peer, Mooncake, under the same faults, where its wheel is installed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::chaos::Fault;

const SCRIPT: &str = include_str!("peer.py");
/// What can be done to it: a fault of its leading master, and how it is deployed.
pub const CASES: [&str; 4] = ["kill9.single", "kill9.ha", "kill9.oplog", "pause.oplog"];

/// The cases of these faults.
pub fn cases(faults: &[Fault]) -> impl Iterator<Item = &'static str> {
    let names: Vec<&str> = faults.iter().map(|fault| fault.name()).collect();
    let is_wanted = move |case: &&str| {
        names
            .iter()
            .any(|name| case.split('.').next() == Some(name))
    };
    CASES.into_iter().filter(is_wanted)
}

/// Whether a case needs an etcd.
#[must_use]
pub fn needs_etcd(case: &str) -> bool {
    !case.ends_with(".single")
}

/// Whether there is an etcd to start.
#[must_use]
pub fn has_etcd() -> bool {
    let mut asked = Command::new("etcd");
    let asked = asked
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

/// Deploys it, does one case to it, and reads what was acknowledged. Its figures.
///
/// # Errors
/// If this Python has no such wheel, or the peer does not start.
pub fn run(python: &Path, case: &str) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    let script = folder.path().join("peer.py");
    std::fs::write(&script, SCRIPT)?;
    let mut command = Command::new(python);
    command
        .arg(&script)
        .arg(case)
        .arg(folder.path())
        .arg("etcd");
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", python.display()))?;
    let told = String::from_utf8_lossy(&output.stdout);
    let figures = told
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok());
    match figures {
        Some(figures) if output.status.success() => Ok(figures),
        _ => bail!(
            "{case} of the peer came to no end; is its wheel in {}? scripts/peer.sh installs it. \
             It said: {}",
            python.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_of_a_fault_that_can_be_chosen() {
        assert_eq!(cases(&Fault::ALL).count(), CASES.len());
        let of_kills: Vec<_> = cases(&[Fault::Kill9, Fault::Clock]).collect();
        assert_eq!(of_kills, ["kill9.single", "kill9.ha", "kill9.oplog"]);
        assert!(!needs_etcd("kill9.single") && needs_etcd("pause.oplog"));
    }
}
