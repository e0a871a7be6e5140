//! Deaths: of clients at every step of a put, of agents, of the master.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use larder_client::{Client, Reason};
use larder_e2e::pool::Pool;
use larder_e2e::proc;
use larder_transfer::lane::Lane;
use larder_types::{Attributes, Incarnation, Key};
use larder_wire::limit::{PROTOCOL_MAX, PROTOCOL_MIN};
use larder_wire::master::{
    CallError, PutEnd, PutEndItem, PutMode, PutStart, PutStartItem, PutStarted,
};
use larder_wire::{Hello, Kind, Purpose, Receipt, Reply, checksum, data};
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;

use crate::rig::{client, file, key, pattern, runtime, until};

const OBJECT_BYTES: usize = 1 << 20;

fn kill(pid: u32) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("pid 0")?;
    Ok(kill_process(pid, Signal::KILL)?)
}

/// Nothing is charged or reserved any more, and the key can be put.
async fn settled(client: &Client, name: &Key) -> Result<()> {
    let start = std::time::Instant::now();
    loop {
        let usage = client.usage().await?;
        if usage.used_bytes == 0 && usage.reserved_bytes == 0 {
            break;
        }
        ensure!(
            start.elapsed() < crate::rig::PATIENCE,
            "space did not come back: {usage:?}"
        );
        tokio::task::yield_now().await;
    }
    // The whole limit can be used again, so the extents really came back.
    client.put(name.clone(), pattern(9, OBJECT_BYTES)).await?;
    ensure!(
        client.get(name.clone()).await? == pattern(9, OBJECT_BYTES),
        "wrong bytes"
    );
    client.remove(name.clone()).await?;
    Ok(())
}

pub(crate) fn client_killed() -> Result<()> {
    let pool = Pool::start("killed", &file("killed", 64, 4, &[("team", None)]))?;
    let runtime = runtime()?;
    let watcher = runtime.block_on(client(&pool, "team", Some(1)))?;
    // A writer in a process of its own, killed while it puts; several times, each time later.
    for round in 0_u32..5 {
        let prefix = format!("round/{round}/");
        let mut writer = pool
            .command(&[
                "bench", "put", "--tenant", "team", "--size", "1Mi", "--count", "48",
            ])?
            .args(["--depth", "4", "--keep", "--prefix", &prefix])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let wanted = usize::try_from(round)? * 4;
        let mut ended = false;
        until("the writer puts", || {
            ended = writer.try_wait()?.is_some();
            let listed = runtime.block_on(watcher.list(prefix.as_bytes(), None, 1000))?;
            Ok((listed.entries.len() >= wanted || ended).then_some(()))
        })?;
        writer.kill()?;
        writer.wait()?;
        // What was acknowledged is whole; what was not is gone. Both can be removed. The end of a
        // put may have been on its way when its writer died.
        until("nothing is left", || {
            let listed = runtime.block_on(watcher.list(prefix.as_bytes(), None, 1000))?;
            for (name, size_bytes) in listed.entries {
                let got = runtime.block_on(watcher.get(name.clone()))?;
                ensure!(
                    got.len() as u64 == size_bytes,
                    "short: {} of {size_bytes}",
                    got.len()
                );
                runtime.block_on(watcher.remove(name))?;
            }
            let usage = runtime.block_on(watcher.usage())?;
            Ok((usage.objects == 0 && usage.reserved_bytes == 0).then_some(()))
        })?;
        runtime.block_on(settled(&watcher, &key(&format!("{prefix}0"))?))?;
    }
    Ok(())
}

/// Where a client of our own making stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Started,
    HalfWritten,
    Written,
    EndSent,
}

fn hello(credential: Vec<u8>) -> Hello {
    Hello {
        protocol_min: PROTOCOL_MIN,
        protocol_max: PROTOCOL_MAX,
        features: 0,
        credential,
        purpose: Purpose::Client,
        name: "stops early".to_owned(),
        incarnation: Incarnation(77),
    }
}

/// Does a put up to a step and drops its connections there.
async fn put_until(pool: &Pool, name: &Key, stop: Stop) -> Result<()> {
    let master = &pool.document.masters[0].client_addr;
    let greeting = hello(pool.token("team")?.into_bytes());
    let mut lane = Lane::open(TcpStream::connect(master).await?, &greeting).await?;
    let item = PutStartItem {
        key: name.clone(),
        size_bytes: OBJECT_BYTES as u64,
        replicas: 1,
        preferred: vec![],
        mode: PutMode::Create,
        strict: true,
        attributes: Attributes::default(),
    };
    let start = PutStart { items: vec![item] };
    let header = lane.call(Kind::PutStart, &start, &[], 20_000).await?;
    let started = lane
        .decode::<Reply<PutStarted>, CallError>(&header)??
        .answer;
    let grant = started.grants.into_iter().next().context("no grant")??;
    if stop == Stop::Started {
        return Ok(());
    }
    let (extent, capability) = grant.replicas[0].extents[0].clone();
    let agent = started
        .agents
        .iter()
        .find(|agent| agent.agent == extent.slab.agent);
    let addr = &agent.context("the agent is not named")?.data_addr;
    let session = hello(lane.welcome().session_token.clone());
    let mut bytes = Lane::open(TcpStream::connect(addr).await?, &session).await?;
    let value = pattern(3, OBJECT_BYTES);
    let write = data::Write {
        capability,
        block_crcs: checksum::block_crcs(&value),
    };
    if stop == Stop::HalfWritten {
        use tokio::io::AsyncWriteExt as _;
        let mut frame = larder_wire::Frame::request(Kind::Write, 1, session_bits(&bytes), 20_000);
        frame.payload_bytes = OBJECT_BYTES as u64;
        let mut out = Vec::new();
        larder_wire::encode_frame(&mut out, frame, &write)?;
        out.extend_from_slice(&value[..OBJECT_BYTES / 2]);
        bytes.stream_mut().write_all(&out).await?;
        return Ok(());
    }
    let header = bytes.call(Kind::Write, &write, &value, 20_000).await?;
    let receipt: Receipt = bytes.decode::<Receipt, data::DataError>(&header)??;
    if stop == Stop::Written {
        return Ok(());
    }
    let item = PutEndItem {
        key: name.clone(),
        version: grant.version,
        receipts: vec![receipt],
    };
    lane.send(Kind::PutEnd, &PutEnd { items: vec![item] }, &[], 20_000)
        .await?;
    Ok(())
}

fn session_bits(lane: &Lane<TcpStream>) -> u32 {
    larder_transfer::lane::session_bits(lane.welcome())
}

pub(crate) fn each_step() -> Result<()> {
    let pool = Pool::start("steps", &file("steps", 8, 4, &[("team", None)]))?;
    runtime()?.block_on(async {
        let watcher = client(&pool, "team", None).await?;
        for stop in [
            Stop::Started,
            Stop::HalfWritten,
            Stop::Written,
            Stop::EndSent,
        ] {
            // More often than there is room: what is not given back is missed soon.
            for round in 0..24 {
                let name = key(&format!("{stop:?}/{round}"))?;
                put_until(&pool, &name, stop)
                    .await
                    .with_context(|| format!("{stop:?}"))?;
                if stop == Stop::EndSent {
                    // It may have arrived or not; both are whole states.
                    match watcher.remove(name.clone()).await {
                        Ok(()) => {}
                        Err(error) if error.reason() == Some(Reason::NotFound) => {}
                        Err(error) if error.is_retryable() => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            if stop == Stop::EndSent {
                for (name, _) in watcher.list(b"EndSent/", None, 1000).await?.entries {
                    watcher.remove(name).await?;
                }
            }
            settled(&watcher, &key(&format!("{stop:?}/0"))?)
                .await
                .with_context(|| format!("after clients that stopped at {stop:?}"))?;
        }
        Ok(())
    })
}

/// The pids that `larder status` names now.
fn status(pool: &Pool) -> Result<larder_e2e::pool::Document> {
    let output = pool.run(&["status", "--output", "json"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).with_context(|| format!("status printed: {text}"))
}

pub(crate) fn agent_killed() -> Result<()> {
    let pool = Pool::start("agent", &file("agent", 64, 4, &[("team", None)]))?;
    let runtime = runtime()?;
    let lives = runtime.block_on(client(&pool, "team", Some(1)))?;
    let dies = runtime.block_on(client(&pool, "team", Some(0)))?;
    let value = pattern(1, OBJECT_BYTES);
    for index in 0..8 {
        runtime.block_on(lives.put(key(&format!("lives/{index}"))?, value.clone()))?;
        runtime.block_on(dies.put(key(&format!("dies/{index}"))?, value.clone()))?;
    }
    kill(pool.document.agents[0].pid)?;
    let tcp = runtime.block_on(client(&pool, "team", None))?;
    until("the lost objects are clean misses", || {
        let listed = runtime.block_on(tcp.list(b"dies/", None, 100))?;
        Ok(listed.entries.is_empty().then_some(()))
    })?;
    for index in 0..8 {
        let got = runtime.block_on(tcp.get(key(&format!("lives/{index}"))?))?;
        ensure!(
            got == value,
            "an object of the agent that lives has wrong bytes"
        );
        match runtime.block_on(tcp.get(key(&format!("dies/{index}"))?)) {
            Err(error) => ensure!(error.reason() == Some(Reason::NotFound), "{error}"),
            Ok(_) => anyhow::bail!("an object was read whose only agent is gone"),
        }
    }
    until("the agent is started again", || {
        let now = status(&pool)?;
        let agent = now.agents.first().context("no agent")?;
        Ok((agent.pid != pool.document.agents[0].pid && proc::lives(agent.pid)).then_some(()))
    })?;
    until("its memory is used again", || {
        let usage = runtime.block_on(tcp.usage())?;
        Ok((usage.agents == 2).then_some(()))
    })?;
    runtime.block_on(tcp.put(key("dies/0")?, value.clone()))?;
    ensure!(
        runtime.block_on(tcp.get(key("dies/0")?))? == value,
        "wrong bytes"
    );
    Ok(())
}

pub(crate) fn master_killed() -> Result<()> {
    let pool = Pool::start("master", &file("master", 64, 4, &[("team", None)]))?;
    let runtime = runtime()?;
    let near = runtime.block_on(client(&pool, "team", Some(0)))?;
    let value = pattern(1, OBJECT_BYTES);
    runtime.block_on(near.put(key("before")?, value.clone()))?;
    let view = runtime.block_on(near.get_view(key("before")?))?;
    kill(pool.document.masters[0].pid)?;
    // The same client finds the new master by itself, which knows what the old one did.
    until("the pool serves again", || {
        match runtime.block_on(near.get(key("before")?)) {
            Ok(bytes) => {
                ensure!(bytes == value, "wrong bytes after the restart");
                Ok(Some(()))
            }
            Err(error) if error.reason() == Some(Reason::NotFound) => {
                anyhow::bail!("the restarted master has lost an acknowledged put")
            }
            Err(_) => Ok(None),
        }
    })?;
    until("agents have mounted again", || {
        Ok((runtime
            .block_on(near.usage())
            .is_ok_and(|usage| usage.agents == 2))
        .then_some(()))
    })?;
    for index in 0..16 {
        let name = key(&format!("after/{index}"))?;
        let value = pattern(index, OBJECT_BYTES);
        runtime.block_on(near.put(name.clone(), value.clone()))?;
        ensure!(
            runtime.block_on(near.get(name))? == value,
            "wrong bytes after the restart"
        );
    }
    ensure!(view[..] == value[..], "a view shows foreign bytes");
    let page = crate::rig::page(&pool.document.masters[0].admin_addr, "/metrics")?;
    let families = larder_telemetry::exposition::parse(&page)?;
    let number = |name| larder_telemetry::exposition::value(&families, name, &[]);
    let generation = number("larder_master_generation");
    ensure!(generation == Some(1.0), "it began anew: {generation:?}");
    let term = number("larder_master_term");
    ensure!(
        term.is_some_and(|term| term >= 2.0),
        "the same term: {term:?}"
    );
    Ok(())
}
