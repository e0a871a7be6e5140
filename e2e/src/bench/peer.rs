//! The stock peer, Mooncake, measured in the same run through its own Python client.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::bench::pair::Cell;

/// How long the peer may take to start: it imports its library, starts its master and mounts.
const START: Duration = Duration::from_secs(60);

/// Something of the peer that is measured, in processes of its own: a script of ours in its Python
/// answers each line with the figures of one cell.
#[derive(Debug)]
pub(super) struct Mooncake {
    client: Child,
    answers: BufReader<TcpStream>,
    pids: Vec<u32>,
}

#[derive(Deserialize)]
struct Started {
    pids: Vec<u32>,
}

#[derive(Deserialize)]
struct Measured {
    ops: u64,
    wall_s: f64,
    p50_s: f64,
}

impl Mooncake {
    /// Starts a store with one client.
    pub(super) fn store(python: &Path) -> Result<Self> {
        let master = free_pair_of_ports()?.to_string();
        Self::start(python, include_str!("peer.py"), &[&master])
    }

    /// Starts two engines.
    pub(super) fn engines(python: &Path) -> Result<Self> {
        Self::start(python, include_str!("peer_engine.py"), &[])
    }

    fn start(python: &Path, script: &str, arguments: &[&str]) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port().to_string();
        let mut client = Command::new(python)
            .args(["-c", script, &port])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", python.display()))?;
        let since = Instant::now();
        let stream = loop {
            if let Ok((stream, _)) = listener.accept() {
                break stream;
            }
            ensure!(
                client.try_wait()?.is_none() && since.elapsed() < START,
                "{} does not start the peer; is its wheel installed there?",
                python.display()
            );
            std::thread::sleep(Duration::from_millis(20));
        };
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(START))?;
        stream.set_nodelay(true)?;
        let mut peer = Self {
            client,
            answers: BufReader::new(stream),
            pids: Vec::new(),
        };
        peer.pids = peer.hear::<Started>()?.pids;
        Ok(peer)
    }

    /// Asks for the existence of `keys` keys a call, one call at a time, for `length`.
    pub(super) fn exists(&mut self, keys: usize, length: Duration) -> Result<Cell> {
        self.cell(&keys.to_string(), length)
    }

    /// Writes or reads `batch` ranges of `bytes` a call, one call at a time, for `length`.
    pub(super) fn transfer(
        &mut self,
        operation: &str,
        bytes: usize,
        batch: usize,
        length: Duration,
    ) -> Result<Cell> {
        self.cell(&format!("{operation} {bytes} {batch}"), length)
    }

    fn cell(&mut self, work: &str, length: Duration) -> Result<Cell> {
        let before = self.cpu()?;
        let seconds = length.as_secs_f64();
        writeln!(self.answers.get_mut(), "{work} {seconds}")?;
        let Measured { ops, wall_s, p50_s } = self.hear()?;
        Ok(Cell {
            ops,
            wall: Duration::from_secs_f64(wall_s),
            p50: Duration::from_secs_f64(p50_s),
            cpu: self.cpu()?.saturating_sub(before),
        })
    }

    fn cpu(&self) -> Result<Duration> {
        self.pids
            .iter()
            .map(|pid| crate::proc::cpu_exact(*pid))
            .sum()
    }

    fn hear<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("the peer ended or said '{line}'"))
    }
}

impl Drop for Mooncake {
    fn drop(&mut self) {
        // The end of input lets it stop its master; only if it does not, it is ended.
        drop(self.answers.get_ref().shutdown(std::net::Shutdown::Both));
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(10) {
            if let Ok(Some(_)) = self.client.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.client.kill());
        drop(self.client.wait());
    }
}

/// A port that is free together with the one above it, for calls and metrics.
fn free_pair_of_ports() -> Result<u16> {
    for _ in 0..64 {
        let first = TcpListener::bind("127.0.0.1:0")?;
        let port = first.local_addr()?.port();
        if let Some(above) = port.checked_add(1)
            && TcpListener::bind(("127.0.0.1", above)).is_ok()
        {
            return Ok(port);
        }
    }
    anyhow::bail!("no two neighbouring ports are free")
}
