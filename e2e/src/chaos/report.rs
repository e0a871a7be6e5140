//! The figures of a run as lines of results.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bench::pair::quartiles;
use crate::bench::report::Line;
use crate::chaos::round::Outcome;
use crate::chaos::{Fault, Plan};

/// The lines of a fault: what was lost, what was wrong, and what it cost.
#[must_use]
pub fn lines(plan: &Plan, outcome: &Outcome) -> Vec<Line> {
    let mut lines = Vec::new();
    let tally = &outcome.tally;
    if plan.fault == Fault::Kill9 {
        let [low, median, high] = quartiles(seconds(&outcome.first_put));
        let spread = [low, high];
        lines.push(line(plan, outcome, FIRST_PUT, median, "s", spread));
    }
    if let Some((name, window)) = timed(plan.fault) {
        let all = window_ms(outcome, window);
        let longest = all.iter().copied().fold(0.0, f64::max);
        let [low, _, high] = quartiles(all);
        lines.push(line(plan, outcome, name, longest, "ms", [low, high]));
    }
    for (kind, count) in [("lost", tally.lost), ("wrong", wrong(outcome))] {
        let name = format!("ha.{kind}.{}", plan.fault);
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let count = count as f64;
        lines.push(line(plan, outcome, &name, count, "count", [count, count]));
    }
    lines
}

const FIRST_PUT: &str = "ha.failover.first_put";

/// The longest write of a fault that is about it, and the piece of time that counts.
const fn timed(fault: Fault) -> Option<(&'static str, &'static str)> {
    match fault {
        Fault::FollowerCut => Some(("ha.follower_heal.longest_write_ms", "heal")),
        Fault::Switchover => Some(("ha.switchover.longest_write_ms", "switchover")),
        _ => None,
    }
}

/// Wrong reads, and keys whose history nothing explains.
const fn wrong(outcome: &Outcome) -> u64 {
    outcome.tally.wrong + outcome.violated + outcome.undecided
}

fn window_ms(outcome: &Outcome, window: &str) -> Vec<f64> {
    let windows = outcome.windows.iter().filter(|(name, _)| *name == window);
    windows.map(|(_, ms)| *ms).collect()
}

/// The names that a fault gives.
#[must_use]
pub fn names(fault: Fault) -> Vec<String> {
    let mut names = Vec::new();
    if fault == Fault::Kill9 {
        names.push(FIRST_PUT.to_owned());
    }
    names.extend(timed(fault).map(|(name, _)| name.to_owned()));
    names.extend(["lost", "wrong"].map(|kind| format!("ha.{kind}.{fault}")));
    names
}

/// Quartiles and the longest, as text.
fn shown(all: Vec<f64>) -> String {
    let longest = all.iter().copied().fold(0.0, f64::max);
    let [low, median, high] = quartiles(all);
    format!("{median:.3} ({low:.3}-{high:.3}, longest {longest:.3})")
}

fn seconds(times: &[Duration]) -> Vec<f64> {
    times.iter().map(Duration::as_secs_f64).collect()
}

fn line(
    plan: &Plan,
    outcome: &Outcome,
    name: &str,
    value: f64,
    unit: &str,
    spread: [f64; 2],
) -> Line {
    let tally = &outcome.tally;
    let sync = if plan.fault.syncs_always() {
        "Always"
    } else {
        "Interval"
    };
    let every_window = outcome.windows.iter().map(|(_, ms)| *ms).collect();
    #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
    let syncs = outcome.syncs as f64 * 1e3 / tally.puts.max(1) as f64;
    let errors = tally
        .errors
        .iter()
        .map(|(name, count)| format!("{name}={count}"));
    let config = [
        ("masters", plan.fault.masters().to_string()),
        ("replicas", crate::chaos::load::replicas(plan).to_string()),
        ("batch", crate::chaos::load::BATCH.to_string()),
        ("object", "4k".to_owned()),
        ("deadline_s", "2".to_owned()),
        ("sync", sync.to_owned()),
        ("seed", plan.seed.to_string()),
        ("high_watermark", plan.full.to_string()),
        ("length_s", format!("{:.1}", plan.length().as_secs_f64())),
        ("injections", outcome.rounds.to_string()),
        ("acknowledged_puts", tally.puts.to_string()),
        ("gets", tally.gets.to_string()),
        ("gets_failed", tally.gets_failed.to_string()),
        ("longest_get_ms", format!("{:.0}", tally.longest_get_ms)),
        ("first_put_s", shown(seconds(&outcome.first_put))),
        ("whole_s", shown(seconds(&outcome.whole))),
        ("longest_write_ms", shown(every_window)),
        ("calm_longest_write_ms", shown(outcome.calm_ms.clone())),
        ("undone", tally.undone.to_string()),
        ("stranded", tally.stranded.to_string()),
        ("cut_bytes", outcome.cut_bytes.to_string()),
        ("log_syncs", outcome.syncs.to_string()),
        ("log_syncs_per_1000_puts", format!("{syncs:.1}")),
        ("checked_operations", outcome.checked.to_string()),
        ("violated_keys", outcome.violated.to_string()),
        ("undecided_keys", outcome.undecided.to_string()),
        ("woken_reads", outcome.woken_reads.to_string()),
        ("woken_failed", outcome.woken_failed.to_string()),
        ("errors", errors.collect::<Vec<_>>().join(" ")),
    ];
    Line {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
        ratios: BTreeMap::new(),
        ratios_cpu: BTreeMap::new(),
        samples: usize::try_from(outcome.rounds).unwrap_or(usize::MAX),
        spread,
        cpu_us_per_op: 0.0,
        config: config
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
    }
}
