//! What runs and what it costs, for people.

use std::fmt::Write as _;

use anyhow::Result;

use super::{Cluster, control_plane};

/// The nodes as Kubernetes sees them, and the processes and memory of every machine.
pub(crate) fn table(cluster: &Cluster) -> Result<String> {
    let (zone, limit) = ("-Ltopology.kubernetes.io/zone", "--request-timeout=5s");
    let mut text = cluster
        .kubectl()
        .run(&["get", "nodes", "-o", "wide", zone, limit])?;
    let _ = writeln!(
        text,
        "\n{:<16}{:>10}{:>14}",
        "MACHINE", "PROCESSES", "MEMORY MiB"
    );
    let plane = control_plane::machine(&cluster.site);
    let nodes = cluster.nodes();
    for machine in std::iter::once(&plane).chain(nodes.iter().map(super::Node::machine)) {
        let processes = machine.processes();
        let memory_kib: u64 = processes.iter().filter_map(|pid| memory_kib(*pid)).sum();
        let (name, count, memory_mib) = (&machine.name, processes.len(), memory_kib / 1024);
        let _ = writeln!(text, "{name:<16}{count:>10}{memory_mib:>14}");
    }
    Ok(text)
}

/// A process's memory, with a fair part of what it shares with others.
fn memory_kib(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    line.split_whitespace().next()?.parse().ok()
}
