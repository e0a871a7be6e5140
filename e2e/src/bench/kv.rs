//! The `kv.*` names: whole puts and gets through the public client, against raw loops.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use larder_client::{Client, ClientOptions, Credential, Key};
use tokio::runtime::Runtime;

use crate::bench::ceiling::{Memcpy, RawSocket};
use crate::bench::pair::{Cell, Measure};
use crate::bench::peer::Mooncake;
use crate::bench::report::{Line, Report};
use crate::pool::Pool;

/// How long one cell runs.
const CELL: Duration = Duration::from_millis(250);
/// Pairs for each name.
const PAIRS: usize = 11;
/// Most objects of one put cell; with 1 MiB they must fit the pool's slabs beside the others.
const PUTS_PER_CELL: usize = 256;
/// Objects that gets walk over, so that no cache of a processor holds them all at 1 MiB.
const OBJECTS: usize = 64;

const SIZES: [(&str, usize); 3] = [("4k", 4 << 10), ("64k", 64 << 10), ("1m", 1 << 20)];

/// Where a client stands relative to the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Behind the socket of the agent that holds them.
    Local,
    /// Elsewhere: every byte by tcp.
    Remote,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
        }
    }
}

/// Everything that the names share.
struct Rig {
    pool: Pool,
    runtime: Runtime,
    local: Client,
    remote: Client,
    raw: RawSocket,
    memory: Memcpy,
    peer: Option<Mooncake>,
    only: String,
    puts: u64,
}

/// Measures every `kv.*` name that starts with `only`; those of existence also against the stock
/// peer, if there is a Python that has its wheel.
///
/// # Errors
/// If the pool does not start or a call fails.
pub fn measure(only: &str, peer: Option<&Path>, report: &mut Report) -> Result<()> {
    if !names().iter().any(|name| name.starts_with(only)) {
        return Ok(());
    }
    let mut rig = Rig::start(only, peer)?;
    for (label, bytes) in SIZES {
        for place in [Place::Local, Place::Remote] {
            rig.get(place, label, bytes, report)?;
            rig.put(place, label, bytes, report)?;
        }
        if bytes != 64 << 10 {
            rig.view(label, bytes, report)?;
        }
    }
    rig.exists("kv.exists.single", 1, report)?;
    rig.exists("kv.exists.batched_1024", 1024, report)
}

/// Every name of this module.
#[must_use]
pub fn names() -> Vec<String> {
    let mut names = vec![
        "kv.exists.single".to_owned(),
        "kv.exists.batched_1024".to_owned(),
    ];
    for (label, bytes) in SIZES {
        for place in [Place::Local, Place::Remote] {
            names.push(format!("kv.{}.get.{label}", place.name()));
            names.push(format!("kv.{}.put.{label}", place.name()));
        }
        if bytes != 64 << 10 {
            names.push(format!("kv.local.get_view.{label}"));
        }
    }
    names
}

fn key(text: &str) -> Result<Key> {
    Ok(Key::try_from(text)?)
}

impl Rig {
    fn start(only: &str, peer: Option<&Path>) -> Result<Self> {
        let pool = Pool::start("bench", super::kv_pool::POOL)?;
        // One thread, as an engine's own event loop would have; no hop between threads.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let agent = pool.document.agents.first().context("no agent")?;
        let socket = agent.socket.clone();
        let connect = |socket: Option<PathBuf>| -> Result<Client> {
            let masters = pool
                .document
                .masters
                .iter()
                .map(|m| m.client_addr.clone())
                .collect();
            let mut options = ClientOptions::new(masters, Credential::new(&pool.token("bench")?)?);
            options.agent_socket = socket;
            "bench".clone_into(&mut options.name);
            Ok(runtime.block_on(Client::connect(options))?)
        };
        let local = connect(Some(socket))?;
        ensure!(
            local.why_not_local().is_none(),
            "no shared memory: {:?}",
            local.why_not_local()
        );
        let remote = connect(None)?;
        let (raw, memory) = (RawSocket::start()?, Memcpy::new());
        let peer = peer.map(Mooncake::store).transpose()?;
        let only = only.to_owned();
        Ok(Self {
            pool,
            runtime,
            local,
            remote,
            raw,
            memory,
            peer,
            only,
            puts: 0,
        })
    }

    fn client(&self, place: Place) -> Client {
        match place {
            Place::Local => self.local.clone(),
            Place::Remote => self.remote.clone(),
        }
    }

    /// Processes whose time one of our operations costs: this one and the pool's.
    fn ours(&self) -> Vec<u32> {
        let mut pids = self.pool.pids();
        pids.push(std::process::id());
        pids
    }

    /// Puts the objects that gets walk over. They lie with the first agent, whose socket the
    /// local client has; the remote client reaches it by tcp.
    fn objects(&self, label: &str, bytes: usize) -> Result<Vec<Key>> {
        let mut keys = Vec::with_capacity(OBJECTS);
        for index in 0..OBJECTS {
            let key = key(&format!("get/{label}/{index}"))?;
            let fill = u8::try_from(index % 251)?;
            let value = Bytes::from(vec![fill; bytes]);
            self.runtime.block_on(self.local.put(key.clone(), value))?;
            keys.push(key);
        }
        Ok(keys)
    }

    fn remove(&self, keys: Vec<Key>) -> Result<()> {
        for removed in self.runtime.block_on(self.local.remove_batch(keys)) {
            removed?;
        }
        Ok(())
    }

    fn wanted(&self, name: &str) -> bool {
        name.starts_with(&self.only)
    }

    fn get(&mut self, place: Place, label: &str, bytes: usize, report: &mut Report) -> Result<()> {
        let name = format!("kv.{}.get.{label}", place.name());
        if !self.wanted(&name) {
            return Ok(());
        }
        let keys = self.objects(label, bytes)?;
        let client = self.client(place);
        let mut buffer = BytesMut::with_capacity(bytes);
        let mut turn = 0;
        let mut pairs = Vec::new();
        for _ in 0..PAIRS {
            let ours = Cell::measure(CELL, &self.ours(), || {
                turn += 1;
                let mut used = std::mem::take(&mut buffer);
                used.clear();
                let key = keys[turn % keys.len()].clone();
                let (filled, result) = self.runtime.block_on(client.get_into(key, used));
                result?;
                ensure!(
                    filled.len() == bytes,
                    "{} bytes came instead of {bytes}",
                    filled.len()
                );
                buffer = filled;
                Ok(())
            })?;
            pairs.push((ours, self.ceiling(place, 0, bytes, bytes)?));
        }
        self.remove(keys)?;
        report.add(line(&name, Measure::of_bytes(bytes), &pairs, true))
    }

    fn put(&mut self, place: Place, label: &str, bytes: usize, report: &mut Report) -> Result<()> {
        let name = format!("kv.{}.put.{label}", place.name());
        if !self.wanted(&name) {
            return Ok(());
        }
        let client = self.client(place);
        let value = match place {
            Place::Local => {
                let mut buffer = self.runtime.block_on(client.shared_buffer(bytes as u64))?;
                buffer.write_at(0, &vec![5; bytes])?;
                client.lend(buffer)
            }
            Place::Remote => Bytes::from(vec![5; bytes]),
        };
        let mut pairs = Vec::new();
        for _ in 0..PAIRS {
            let mut keys = Vec::with_capacity(PUTS_PER_CELL);
            for _ in 0..PUTS_PER_CELL {
                self.puts += 1;
                keys.push(key(&format!("put/{label}/{}", self.puts))?);
            }
            let mut fresh = keys.iter();
            // A cell ends with its keys: a short one at 4k, a long one at 1m.
            let ours = Cell::count(PUTS_PER_CELL, &self.ours(), || {
                let key = fresh.next().context("the keys ran out")?.clone();
                self.runtime.block_on(client.put(key, value.clone()))?;
                Ok(())
            })?;
            self.remove(keys)?;
            pairs.push((ours, self.ceiling(place, bytes, 64, bytes)?));
        }
        report.add(line(&name, Measure::of_bytes(bytes), &pairs, true))
    }

    fn view(&mut self, label: &str, bytes: usize, report: &mut Report) -> Result<()> {
        let name = format!("kv.local.get_view.{label}");
        if !self.wanted(&name) {
            return Ok(());
        }
        let keys = self.objects(label, bytes)?;
        let mut turn = 0;
        let mut pairs = Vec::new();
        for _ in 0..PAIRS {
            let ours = Cell::measure(CELL, &self.ours(), || {
                turn += 1;
                let key = keys[turn % keys.len()].clone();
                let view = self.runtime.block_on(self.local.get_view(key))?;
                let sum: u64 = view.iter().step_by(4096).map(|byte| u64::from(*byte)).sum();
                std::hint::black_box(sum);
                ensure!(
                    view.len() == bytes,
                    "{} bytes came instead of {bytes}",
                    view.len()
                );
                Ok(())
            })?;
            pairs.push((ours, self.ceiling(Place::Local, 0, bytes, bytes)?));
        }
        self.remove(keys)?;
        report.add(line(&name, Measure::of_bytes(bytes), &pairs, true))
    }

    fn exists(&mut self, name: &str, batch: usize, report: &mut Report) -> Result<()> {
        if !self.wanted(name) {
            return Ok(());
        }
        let stored = self.objects("4k", 4 << 10)?;
        let mut keys = stored.clone();
        for index in keys.len()..batch {
            keys.push(key(&format!("missing/{index}"))?);
        }
        keys.truncate(batch);
        let (there, back) = if batch == 1 {
            (0, 64)
        } else {
            (batch * 16, batch * 2)
        };
        let (mut pairs, mut peer_pairs) = (Vec::new(), Vec::new());
        for _ in 0..PAIRS {
            let ours = Cell::measure(CELL, &self.ours(), || {
                for found in self
                    .runtime
                    .block_on(self.remote.exists_batch(keys.clone()))
                {
                    std::hint::black_box(found?);
                }
                Ok(())
            })?;
            pairs.push((ours, self.ceiling(Place::Remote, there, back, 0)?));
            if let Some(peer) = &mut self.peer {
                peer_pairs.push((ours, peer.exists(batch, CELL)?));
            }
        }
        self.remove(stored)?;
        let items = batch as u64;
        let mut result = line(name, Measure::Rate { items }, &pairs, false);
        result.compare("mooncake", Measure::Rate { items }, &peer_pairs);
        report.add(result)
    }

    /// The raw loop with `there` bytes sent and `back` bytes read, or a copy of `copied` bytes.
    fn ceiling(&mut self, place: Place, there: usize, back: usize, copied: usize) -> Result<Cell> {
        let own = std::process::id();
        match place {
            Place::Local => {
                let memory = &mut self.memory;
                Cell::measure(CELL, &[own], || {
                    memory.copy(copied);
                    Ok(())
                })
            }
            Place::Remote => {
                let request = vec![3; there];
                let mut answer = vec![0; back];
                let raw = &mut self.raw;
                let pids = [own, raw.pid()];
                Cell::measure(CELL, &pids, || raw.turn(&request, &mut answer))
            }
        }
    }
}

/// Makes the result of pairs (ours, ceiling).
fn line(name: &str, measure: Measure, pairs: &[(Cell, Cell)], checksums: bool) -> Line {
    let config = [
        ("depth", "1"),
        ("replicas", "1"),
        ("masters", "1"),
        ("sync", "interval"),
        ("tls", "off"),
        ("checksums", if checksums { "crc32c/64k" } else { "none" }),
    ];
    Line::of_pairs(name, measure, ("ceiling", pairs), &config)
}
