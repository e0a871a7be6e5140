//! The figures of a run as lines of results.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bench::pair::quartiles;
use crate::bench::report::Line;
use crate::chaos::round::Outcome;
use crate::chaos::{Fault, Plan};

/// The lines of a fault: what was lost, what was wrong, and for a killed leader the first put.
#[must_use]
pub fn lines(plan: &Plan, outcome: &Outcome) -> Vec<Line> {
    let mut lines = Vec::new();
    let tally = &outcome.tally;
    if plan.fault == Fault::Kill9 {
        let [low, median, high] = quartiles(seconds(&outcome.first_put));
        lines.push(line(
            plan,
            outcome,
            "ha.failover.first_put",
            median,
            "s",
            [low, high],
        ));
    }
    for (kind, count) in [("lost", tally.lost), ("wrong", tally.wrong)] {
        let name = format!("ha.{kind}.{}", plan.fault);
        #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
        let count = count as f64;
        lines.push(line(plan, outcome, &name, count, "count", [count, count]));
    }
    lines
}

/// The names that a fault gives.
#[must_use]
pub fn names(fault: Fault) -> Vec<String> {
    let mut names = vec![format!("ha.lost.{fault}"), format!("ha.wrong.{fault}")];
    if fault == Fault::Kill9 {
        names.insert(0, "ha.failover.first_put".to_owned());
    }
    names
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
    let triple = |times: &[Duration]| {
        let all = seconds(times);
        let longest = all.iter().copied().fold(0.0, f64::max);
        let [low, median, high] = quartiles(all);
        format!("{median:.3} ({low:.3}-{high:.3}, longest {longest:.3})")
    };
    let errors = tally
        .errors
        .iter()
        .map(|(name, count)| format!("{name}={count}"));
    let config = [
        ("masters", "3".to_owned()),
        ("agents", "2".to_owned()),
        ("batch", crate::chaos::load::BATCH.to_string()),
        ("object", "4k".to_owned()),
        ("deadline_s", "2".to_owned()),
        ("sync", "Interval".to_owned()),
        ("seed", plan.seed.to_string()),
        ("high_watermark", plan.full.to_string()),
        ("pause_s", format!("{:.1}", plan.pause.as_secs_f64())),
        ("injections", outcome.rounds.to_string()),
        ("acknowledged_puts", tally.puts.to_string()),
        ("gets", tally.gets.to_string()),
        ("gets_failed", tally.gets_failed.to_string()),
        ("longest_get_ms", format!("{:.0}", tally.longest_get_ms)),
        ("first_put_s", triple(&outcome.first_put)),
        ("whole_s", triple(&outcome.whole)),
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
