//! What `/proc` says about processes: whether they live, and the processor time they used.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

/// Whether a process of this number exists and is not a zombie.
#[must_use]
pub fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

fn fields(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold spaces; what follows it does not.
    let rest = text.rsplit_once(')')?.1;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn state(pid: u32) -> Option<char> {
    fields(pid)?.first()?.chars().next()
}

/// Processor time, user and system, that a process used in its life.
///
/// # Errors
/// If the process is gone or `/proc` cannot be read.
pub fn cpu(pid: u32) -> Result<Duration> {
    let fields = fields(pid).with_context(|| format!("process {pid} is gone"))?;
    let ticks: u64 = [11, 12]
        .iter()
        .filter_map(|at| fields.get(*at)?.parse::<u64>().ok())
        .sum();
    let hertz = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_micros(
        ticks.saturating_mul(1_000_000) / hertz.max(1),
    ))
}

/// Finer than [`cpu`]: nanoseconds on a processor, from the scheduler, summed over all threads.
///
/// # Errors
/// If the process is gone or the kernel does not count.
pub fn cpu_exact(pid: u32) -> Result<Duration> {
    let mut sum = Duration::ZERO;
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    for task in std::fs::read_dir(&tasks).with_context(|| format!("process {pid} is gone"))? {
        let path = task?.path().join("schedstat");
        // A thread may end between the listing and the read.
        let Ok(text) = std::fs::read_to_string(path) else {
            continue;
        };
        if let Some(nanos) = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
        {
            sum += Duration::from_nanos(nanos);
        }
    }
    Ok(sum)
}

/// Processes whose command line holds `needle`, without this one.
#[must_use]
pub fn with_argument(needle: &str) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let own = std::process::id();
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| *pid != own && lives(*pid))
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).contains(needle))
        })
        .collect()
}
