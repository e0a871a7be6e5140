//! The `engine.*` names: transfers between the buffers of two processes, against a raw socket and,
//! where it is installed, the stock peer's engine.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use larder_transfer::OwnMemory;
use larder_transfer::endpoint::{Asked, Endpoint, EndpointOptions};
use larder_transfer::engine::core::{PeerKey, Range};
use larder_transfer::engine::plan::Direction;
use larder_types::{Incarnation, TenantId};
use larder_wire::engine::BufferAccess;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::Instant;

use crate::bench::ceiling::RawSocket;
use crate::bench::pair::{Cell, Measure};
use crate::bench::peer::Mooncake;
use crate::bench::report::{Line, Report};

/// How long one cell runs.
const CELL: Duration = Duration::from_millis(250);
/// Pairs for each name.
const PAIRS: usize = 11;
/// Memory of each side, in bytes.
const ARENA_BYTES: u64 = 256 << 20;
const SIZES: [(&str, usize); 4] = [
    ("4k", 4 << 10),
    ("1m", 1 << 20),
    ("16m", 16 << 20),
    ("128m", 128 << 20),
];
const BATCH: usize = 64;
const BATCH_NAME: &str = "engine.tcp.write_64x4k";
const BOTH: BufferAccess = BufferAccess {
    read: true,
    write: true,
};

/// Every name of this module.
#[must_use]
pub fn names() -> Vec<String> {
    let mut names = vec![BATCH_NAME.to_owned()];
    for (label, _) in SIZES {
        names.extend(["write", "read"].map(|operation| name(operation, label)));
    }
    names
}

fn name(operation: &str, label: &str) -> String {
    format!("engine.tcp.{operation}.{label}")
}

/// Where the other process listens, and where its memory lies.
#[derive(Serialize, Deserialize)]
struct Served {
    addr: String,
    address: u64,
}

fn options(life: u64) -> Result<EndpointOptions> {
    let tenant = TenantId::new("bench")?;
    let secret = b"of this benchmark".to_vec();
    Ok(EndpointOptions::new(
        "bench",
        Incarnation(life),
        tenant,
        secret,
    ))
}

fn memory() -> Result<Arc<OwnMemory>> {
    let memory = OwnMemory::create(ARENA_BYTES)?;
    // Pages are had now, not while the clock runs.
    let filling = vec![0x33; 1 << 20];
    for at in 0..ARENA_BYTES >> 20 {
        memory.copy_in(at << 20, &filling)?;
    }
    Ok(Arc::new(memory))
}

/// The body of the other process; ends with its standard input.
///
/// # Errors
/// If it cannot listen.
pub fn server() -> Result<()> {
    let runtime = single()?;
    let local = LocalSet::new();
    let (stop, stopped) = watch::channel(false);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        let _ = stop.send(true);
    });
    local.block_on(&runtime, async {
        let endpoint = Endpoint::new(options(2)?);
        let memory = memory()?;
        endpoint.register(Arc::clone(&memory), BOTH, Vec::new())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let served = Served {
            addr: listener.local_addr()?.to_string(),
            address: memory.address(),
        };
        println!("{}", serde_json::to_string(&served)?);
        std::io::stdout().flush()?;
        endpoint.serve(listener, stopped).await;
        Ok(())
    })
}

/// One thread, as an engine's own event loop would have.
fn single() -> Result<Runtime> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_all().build()?)
}

/// Everything that the names share.
struct Rig {
    runtime: Runtime,
    local: LocalSet,
    endpoint: Endpoint,
    peer: PeerKey,
    memory: Arc<OwnMemory>,
    remote: u64,
    server: Child,
    _stdout: BufReader<ChildStdout>,
    raw: RawSocket,
    mooncake: Option<Mooncake>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Measures every `engine.*` name that starts with `only`.
///
/// # Errors
/// If the other process does not start or a transfer fails.
pub fn measure(only: &str, peer: Option<&Path>, report: &mut Report) -> Result<()> {
    let is_wanted = |name: &str| name.starts_with(only);
    if !names().iter().any(|name| is_wanted(name)) {
        return Ok(());
    }
    let mut rig = Rig::start(peer)?;
    for (label, bytes) in SIZES {
        for direction in [Direction::Write, Direction::Read] {
            let name = name(word(direction), label);
            if is_wanted(&name) {
                report.add(rig.pairs(&name, direction, bytes, 1)?)?;
            }
        }
    }
    if is_wanted(BATCH_NAME) {
        report.add(rig.pairs(BATCH_NAME, Direction::Write, 4 << 10, BATCH)?)?;
    }
    Ok(())
}

const fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "read",
        Direction::Write => "write",
    }
}

impl Rig {
    fn start(peer: Option<&Path>) -> Result<Self> {
        let mut server = Command::new(std::env::current_exe()?)
            .arg("engine-server")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = server.stdout.take().context("it has an output")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let served: Served = serde_json::from_str(&line).context("the engine did not start")?;
        let (runtime, local) = (single()?, LocalSet::new());
        let memory = memory()?;
        let (endpoint, peer_key) = local.block_on(&runtime, async {
            let endpoint = Endpoint::new(options(1)?);
            endpoint.register(Arc::clone(&memory), BOTH, Vec::new())?;
            let peer = endpoint.open(&served.addr).await?;
            anyhow::Ok((endpoint, peer))
        })?;
        Ok(Self {
            runtime,
            local,
            endpoint,
            peer: peer_key,
            memory,
            remote: served.address,
            server,
            _stdout: stdout,
            raw: RawSocket::start()?,
            mooncake: peer.map(Mooncake::engines).transpose()?,
        })
    }

    fn pairs(
        &mut self,
        name: &str,
        direction: Direction,
        bytes: usize,
        batch: usize,
    ) -> Result<Line> {
        let (mut raw, mut peer) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let ours = self.ours(direction, bytes, batch)?;
            raw.push((ours, self.ceiling(direction, bytes * batch)?));
            if let Some(mooncake) = &mut self.mooncake {
                let theirs = mooncake.transfer(word(direction), bytes, batch, CELL)?;
                peer.push((ours, theirs));
            }
        }
        let measure = match batch {
            1 => Measure::of_bytes(bytes),
            _ => Measure::Latency,
        };
        let lanes = options(1)?.lanes.to_string();
        let config = [
            ("depth", "1"),
            ("batch", &batch.to_string()),
            ("lanes", &lanes),
            ("tls", "off"),
            ("checksums", "none"),
        ];
        let mut line = Line::of_pairs(name, measure, ("ceiling", &raw), &config);
        line.compare("mooncake", measure, &peer);
        Ok(line)
    }

    /// One request after the other, over all of the memory.
    fn ours(&self, direction: Direction, bytes: usize, batch: usize) -> Result<Cell> {
        let bytes = bytes as u64;
        // Each second place of a batch, so that nothing joins two ranges.
        let step = if batch > 1 { 2 * bytes } else { bytes };
        let places = ARENA_BYTES / step;
        let (local, remote) = (self.memory.address(), self.remote);
        let mut at = 0;
        let mut ranges = Vec::with_capacity(batch);
        let pids = [std::process::id(), self.server.id()];
        Cell::measure(CELL, &pids, || {
            ranges.clear();
            for _ in 0..batch {
                let offset = at % places * step;
                at += 1;
                ranges.push(Range {
                    local_address: local + offset,
                    remote_address: remote + offset,
                    bytes,
                });
            }
            let asked = Asked::by(Instant::now() + Duration::from_secs(30));
            let done = self.endpoint.transfer(self.peer, direction, &ranges, asked);
            self.local.block_on(&self.runtime, done)?;
            Ok(())
        })
    }

    fn ceiling(&mut self, direction: Direction, bytes: usize) -> Result<Cell> {
        let (there, back) = match direction {
            Direction::Write => (bytes, 64),
            Direction::Read => (0, bytes),
        };
        let (request, mut answer) = (vec![3; there], vec![0; back]);
        let pids = [std::process::id(), self.raw.pid()];
        let raw = &mut self.raw;
        Cell::measure(CELL, &pids, || raw.turn(&request, &mut answer))
    }
}
