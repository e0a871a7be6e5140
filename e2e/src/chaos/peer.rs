//! The stock peer, Mooncake, under the same faults, where its wheel is installed: what it loses.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::bench::pair::quartiles;
use crate::bench::report::Line;
use crate::chaos::Fault;

const SCRIPT: &str = include_str!("peer.py");
/// What can be done to it: a fault of its leading master, and how it is deployed.
const CASES: [&str; 4] = ["kill9.single", "kill9.ha", "kill9.oplog", "pause.oplog"];

/// What the probe tells of one run.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Told {
    acknowledged: u64,
    lost: u64,
    wrong: u64,
    /// Absent if no put worked again while it waited, a minute.
    first_put_s: Option<f64>,
}

/// The cases of a fault that this machine can run.
pub fn cases(fault: Fault, has_etcd: bool) -> impl Iterator<Item = &'static str> {
    let is_wanted = move |case: &&str| {
        let (of, deployment) = case.split_once('.').unwrap_or_default();
        of == fault.name() && (has_etcd || deployment == "single")
    };
    CASES.into_iter().filter(is_wanted)
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

/// Deploys it anew for each round, does the case to it and reads what was acknowledged: the share
/// of acknowledged puts that is lost. The network namespace's loopback has to be up.
///
/// # Errors
/// If this Python has no such wheel, or the peer does not start.
pub fn run(python: &Path, case: &str, rounds: u32) -> Result<Line> {
    let told: Vec<Told> = (0..rounds)
        .map(|_| once(python, case))
        .collect::<Result<_>>()?;
    Ok(line(case, &told))
}

fn once(python: &Path, case: &str) -> Result<Told> {
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
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text
        .lines()
        .rev()
        .find_map(|line| serde_json::from_str(line).ok());
    match told {
        Some(told) if output.status.success() => Ok(told),
        _ => bail!(
            "{case} of the peer came to no end; is its wheel in {}? scripts/peer.sh installs it. \
             It said: {}",
            python.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        ),
    }
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn line(case: &str, told: &[Told]) -> Line {
    let share = |one: &Told| one.lost as f64 / one.acknowledged.max(1) as f64;
    let [low, median, high] = quartiles(told.iter().map(share).collect());
    let first_put: Vec<f64> = told.iter().filter_map(|one| one.first_put_s).collect();
    let never = told.len() - first_put.len();
    let longest = first_put.iter().copied().fold(0.0, f64::max);
    let sum = |of: fn(&Told) -> u64| told.iter().map(of).sum::<u64>().to_string();
    let [_, first, _] = quartiles(first_put);
    let config = [
        ("injections", told.len().to_string()),
        ("acknowledged_puts", sum(|one| one.acknowledged)),
        ("lost", sum(|one| one.lost)),
        ("wrong", sum(|one| one.wrong)),
        ("first_put_s", format!("{first:.3} (longest {longest:.3})")),
        ("no_put_within_a_minute", never.to_string()),
        ("batch", "64".to_owned()),
        ("object", "4k".to_owned()),
    ];
    Line {
        name: format!("ha.peer.lost_share.{case}"),
        value: median,
        unit: "ratio".to_owned(),
        ratios: BTreeMap::new(),
        ratios_cpu: BTreeMap::new(),
        samples: told.len(),
        spread: [low, high],
        cpu_us_per_op: 0.0,
        config: config.map(|(name, value)| (name.to_owned(), value)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_of_a_fault_that_can_be_chosen() {
        let all = Fault::ALL.into_iter().flat_map(|fault| cases(fault, true));
        assert_eq!(all.count(), CASES.len());
        let without: Vec<_> = cases(Fault::Kill9, false).collect();
        assert_eq!(without, ["kill9.single"]);
        assert_eq!(cases(Fault::Clock, true).count(), 0);
    }

    #[test]
    fn what_is_lost_is_a_share_of_what_was_acknowledged() {
        let told = |lost, first_put_s| Told {
            acknowledged: 64,
            lost,
            wrong: 0,
            first_put_s,
        };
        let line = line(
            "kill9.ha",
            &[told(64, None), told(16, Some(2.5)), told(0, Some(9.0))],
        );
        assert!((line.value - 0.25).abs() < 1e-9);
        assert_eq!(line.config["no_put_within_a_minute"], "1");
        assert_eq!(line.config["lost"], "80");
    }
}
