//! A report for people.

use std::fmt::Write as _;

use super::report::{At, LogReport, Report, StateReport};
use crate::bytes_text::show_bytes;

/// The report in lines.
pub(super) fn human(report: &Report) -> String {
    let mut text = String::new();
    let mut line = |name: &str, what: &str| {
        // Into memory: it cannot fail.
        let _ = writeln!(text, "{name:<11} {what}");
    };
    line("folder", &report.folder.display().to_string());
    log(&report.log, &mut line);
    for one in &report.snapshots {
        let whole = if one.damage.is_some() {
            "damaged"
        } else {
            "whole"
        };
        let size = show_bytes(one.size_bytes);
        line(
            "snapshot",
            &format!("through {}, {size}, {whole}", at(one.through)),
        );
    }
    match &report.state {
        Some(found) => state(found, &mut line),
        None => line("state", "cannot be made"),
    }
    for finding in &report.findings {
        line("WRONG", finding);
    }
    if report.findings.is_empty() {
        line("findings", "none");
    }
    text.trim_end().to_owned()
}

fn at(at: At) -> String {
    format!("entry {} in term {}", at.index, at.term)
}

fn or(position: Option<At>, nothing: &str) -> String {
    position.map_or_else(|| nothing.to_owned(), at)
}

fn log(log: &LogReport, line: &mut impl FnMut(&str, &str)) {
    let size = show_bytes(log.size_bytes);
    let files = log.segments.len();
    line(
        "log",
        &format!("{} entries, {size} in {files} segments", log.entries),
    );
    if let (Some(first), Some(last), 1..) = (log.first, log.last, log.entries) {
        line("entries", &format!("{} to {}", at(first), at(last)));
    }
    line("committed", &or(log.committed, "nothing is noted"));
    if let Some(purged) = log.purged {
        line("purged", &format!("through {}", at(purged)));
    }
    if let Some(vote) = &log.vote {
        let candidate = vote.candidate.as_deref().unwrap_or("nobody");
        let won = if vote.committed { ", who leads it" } else { "" };
        line(
            "vote",
            &format!("in term {} for {candidate}{won}", vote.term),
        );
    }
    let left = if log.clean {
        "stopped cleanly"
    } else {
        "not stopped cleanly, or a master has it open"
    };
    line("left", left);
    if log.doubted {
        let through = or(log.trusted_through, "nothing");
        let what = format!(
            "a loss of power may have taken what was acknowledged; {through} is the last that is \
             sure"
        );
        line("doubt", &what);
    }
    if let Some(torn) = &log.torn {
        line("torn", torn);
    }
}

fn state(state: &StateReport, line: &mut impl FnMut(&str, &str)) {
    let from = match state.snapshot {
        Some(snapshot) => format!("the snapshot through {}", at(snapshot)),
        None => "the start of the log".to_owned(),
    };
    let through = or(state.through, "no entry");
    line("state", &format!("through {through}, from {from}"));
    line(
        "digest",
        &format!("{}, generation {}", state.digest, state.generation),
    );
    let has = format!(
        "{} tenants, {} quotas, {} agents with {} segments, {} objects, {} open tasks",
        state.tenants, state.quotas, state.agents, state.segments, state.objects, state.open_tasks,
    );
    line("holds", &has);
    let bytes = format!(
        "{} used and {} being released of {}",
        show_bytes(state.used_bytes),
        show_bytes(state.releasing_bytes),
        show_bytes(state.capacity_bytes),
    );
    line("bytes", &bytes);
}
