//! The masters of a pool as they are now, and signals to their processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use larder_telemetry::Metric;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::http::{http, http_with};
use crate::pool::{Document, MasterEntry, Pool};
use crate::proc;

/// How long a pool may take to be whole again; only a broken one takes so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What `larder status` says now.
///
/// # Errors
/// If it prints no document.
pub fn status(pool: &Pool) -> Result<Document> {
    let output = pool.run(&["status", "--output", "json"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| format!("status printed: {text}"))
}

/// The master that says it leads.
///
/// # Errors
/// If none or several say so.
pub fn leader(document: &Document) -> Result<&MasterEntry> {
    let mut leaders = document.masters.iter().filter(|one| one.role == "leader");
    let leader = leaders.next().context("no master leads")?;
    ensure!(leaders.next().is_none(), "two masters lead: {document:?}");
    Ok(leader)
}

/// A master that follows, the `at`-th of them.
///
/// # Errors
/// If there is none.
pub fn standby(document: &Document, at: usize) -> Result<&MasterEntry> {
    let standbys = document.masters.iter().filter(|one| one.role == "standby");
    let standbys: Vec<_> = standbys.collect();
    let found = standbys.get(at % standbys.len().max(1));
    found.copied().context("no master follows")
}

/// Asks until one master leads and all others follow. Each asking takes a while by itself.
///
/// # Errors
/// With the last answer, after [`PATIENCE`].
pub fn until_whole(pool: &Pool) -> Result<Document> {
    let start = Instant::now();
    loop {
        let document = status(pool)?;
        let role = |role: &str| document.masters.iter().filter(|m| m.role == role).count();
        let whole = role("leader") == 1 && role("standby") == document.masters.len() - 1;
        if whole && document.masters.iter().all(|one| proc::lives(one.pid)) {
            return Ok(document);
        }
        if start.elapsed() > PATIENCE {
            bail!(
                "the masters are not whole after {PATIENCE:?}: {:?}",
                document.masters
            );
        }
    }
}

/// Sends a signal to a process of the pool.
///
/// # Errors
/// If it is gone.
pub fn signal(pid: u32, signal: Signal) -> Result<()> {
    let found = Pid::from_raw(i32::try_from(pid)?).context("pid 0")?;
    kill_process(found, signal).with_context(|| format!("signal to process {pid}"))
}

/// Kills processes with SIGKILL, one right after the other, and waits until they are gone.
///
/// # Errors
/// If one is gone before, or one does not go.
pub fn kill(pids: &[u32]) -> Result<()> {
    for pid in pids {
        signal(*pid, Signal::KILL)?;
    }
    Ok(())
}

/// How often all masters synced their logs, as their pages of metrics say.
///
/// # Errors
/// If one does not answer.
pub fn log_syncs(pool: &Pool) -> Result<f64> {
    let mut all = 0.0;
    for master in &status(pool)?.masters {
        let (status, text) = http(&master.admin_addr, "GET /metrics")?;
        ensure!(status == 200, "GET /metrics: {status} {text}");
        let name = Metric::MasterLogSyncsTotal.spec().name;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.split_whitespace().next_back());
        let value = value.with_context(|| format!("no {name} at {}", master.admin_addr))?;
        all += value.parse::<f64>()?;
    }
    Ok(all)
}

/// The lives of the agents that the leader hears, by name.
///
/// # Errors
/// If no master leads or it does not answer.
pub fn lives(pool: &Pool) -> Result<BTreeMap<String, String>> {
    let document = status(pool)?;
    let addr = &leader(&document)?.admin_addr;
    let headers = format!("Authorization: Bearer {}\r\n", pool.token("operator")?);
    let (status, body) = http_with(addr, "GET /v1/agents", &headers)?;
    ensure!(status == 200, "GET /v1/agents: {status} {body}");
    let document: Value = serde_json::from_str(&body)?;
    let agents = document["agents"].as_array().into_iter().flatten();
    let online = agents.filter(|one| one["online"] == true);
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    let life = |one: &Value| Some((text(&one["name"])?, text(&one["incarnation"])?));
    Ok(online.filter_map(life).collect())
}
