//! The masters of a pool as they are now, and signals to their processes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use larder_telemetry::Metric;
use rustix::process::{Pid, Signal, kill_process};

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
        let mut stream = TcpStream::connect(&master.admin_addr)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let host = &master.admin_addr;
        write!(
            stream,
            "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let name = Metric::MasterLogSyncsTotal.spec().name;
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.split_whitespace().next_back());
        let value = value.with_context(|| format!("no {name} at {host}"))?;
        all += value.parse::<f64>()?;
    }
    Ok(all)
}
