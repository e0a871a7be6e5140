//! Replicas that move: an agent is drained and another one dies, and no read fails.

use anyhow::{Context, Result, ensure};
use larder_client::{Client, PutOptions, TaskStatus, TaskWish};
use larder_e2e::pool::Pool;
use larder_types::AgentName;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::rig::{client, file, http_with, key, pattern, runtime, until};

const OBJECT_BYTES: usize = 1 << 20;
const OBJECTS: u64 = 24;

/// A call of the admin port about one agent's drain.
pub(crate) fn drain(pool: &Pool, method: &str, agent: &str) -> Result<(u16, String)> {
    let addr = &pool.document.masters[0].admin_addr;
    let token = pool.token("operator")?;
    let headers = format!("Authorization: Bearer {token}\r\nContent-Length: 0\r\n");
    http_with(
        addr,
        &format!("{method} /v1/agents/{agent}/drain"),
        &headers,
    )
}

/// Whether nothing is left on an agent that is drained.
pub(crate) fn is_drained(pool: &Pool, agent: &str) -> Result<bool> {
    let (status, body) = drain(pool, "GET", agent)?;
    ensure!(status == 200, "{status} {body}");
    let document: Value = serde_json::from_str(&body)?;
    Ok(document["state"] == "drained")
}

/// The life of an agent that answers, as the master knows it.
fn life(pool: &Pool, agent: &str) -> Result<Option<String>> {
    let addr = &pool.document.masters[0].admin_addr;
    let headers = format!("Authorization: Bearer {}\r\n", pool.token("operator")?);
    let (status, body) = http_with(addr, "GET /v1/agents", &headers)?;
    ensure!(status == 200, "{status} {body}");
    let document: Value = serde_json::from_str(&body)?;
    let mut agents = document["agents"].as_array().into_iter().flatten();
    let found = agents.find(|one| one["name"] == agent && one["online"] == true);
    Ok(found.map(|one| one["incarnation"].to_string()))
}

fn signal(pid: u32, signal: Signal) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(pid)?).context("pid 0")?;
    Ok(kill_process(pid, signal)?)
}

/// Every object is there and whole.
fn all_read(runtime: &Runtime, reader: &Client) -> Result<()> {
    for index in 0..OBJECTS {
        let got = runtime
            .block_on(reader.get(key(&format!("object/{index}"))?))
            .with_context(|| format!("object {index}"))?;
        ensure!(got == pattern(index, OBJECT_BYTES), "wrong bytes");
    }
    Ok(())
}

/// How many replicas every object has, and that none lies on this agent.
fn all_have(runtime: &Runtime, reader: &Client, replicas: usize, but: &str) -> Result<bool> {
    for index in 0..OBJECTS {
        let stat = runtime.block_on(reader.stat(key(&format!("object/{index}"))?))?;
        let agents: Vec<&str> = stat.agents.iter().map(AgentName::as_str).collect();
        if agents.len() != replicas || agents.contains(&but) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Puts every object with two replicas.
fn put_all(runtime: &Runtime, writer: &Client) -> Result<()> {
    let options = PutOptions {
        replicas: Some(2),
        strict: true,
        ..PutOptions::default()
    };
    for index in 0..OBJECTS {
        let name = key(&format!("object/{index}"))?;
        let value = pattern(index, OBJECT_BYTES);
        runtime.block_on(writer.put_with(name, value, &options))?;
    }
    Ok(())
}

/// Of two agents each dies in turn, and between the two deaths all is made again on the one that
/// came back empty.
pub(crate) fn replicas_return() -> Result<()> {
    let text = file("return", 128, 4, &[("team", None)]);
    let pool = Pool::start("return", &text)?;
    let runtime = runtime()?;
    let reader = runtime.block_on(client(&pool, "team", None))?;
    put_all(&runtime, &reader)?;
    for agent in &pool.document.agents {
        let before = life(&pool, &agent.name)?.context("it answers")?;
        signal(agent.pid, Signal::KILL)?;
        until("it is back, and has its replicas again", || {
            let is_back = life(&pool, &agent.name)?.is_some_and(|life| life != before);
            Ok((is_back && all_have(&runtime, &reader, 2, "")?).then_some(()))
        })?;
        all_read(&runtime, &reader)?;
    }
    Ok(())
}

pub(crate) fn no_read_fails() -> Result<()> {
    let text = file("moves", 128, 4, &[("team", None)]).replace("count: 2", "count: 3");
    let pool = Pool::start("moves", &text)?;
    let runtime = runtime()?;
    let reader = runtime.block_on(client(&pool, "team", None))?;
    put_all(&runtime, &reader)?;
    let leaving = pool.document.agents[0].name.clone();
    ensure!(drain(&pool, "PUT", &leaving)?.0 == 204, "drain refused");
    until("the agent is drained", || {
        all_read(&runtime, &reader)?;
        Ok(is_drained(&pool, &leaving)?.then_some(()))
    })?;
    ensure!(
        all_have(&runtime, &reader, 2, &leaving)?,
        "something stayed"
    );
    ensure!(drain(&pool, "DELETE", &leaving)?.0 == 204, "end refused");

    // An agent that hangs costs a reader a little time, and no error.
    let hangs = &pool.document.agents[1];
    let before = life(&pool, &hangs.name)?.context("it answers")?;
    signal(hangs.pid, Signal::STOP)?;
    all_read(&runtime, &reader)?;
    signal(hangs.pid, Signal::KILL)?;
    // Until it is back nobody knows that what it held is lost.
    until("it is back, and what it held is made again", || {
        all_read(&runtime, &reader)?;
        let is_back = life(&pool, &hangs.name)?.is_some_and(|life| life != before);
        Ok((is_back && all_have(&runtime, &reader, 2, "")?).then_some(()))
    })?;

    // A tenant moves an object itself.
    let name = key("object/0")?;
    let stat = runtime.block_on(reader.stat(name.clone()))?;
    let source = stat.agents.first().context("two replicas")?.clone();
    let mut others = pool.document.agents.iter().map(|agent| &agent.name);
    let held: Vec<&str> = stat.agents.iter().map(AgentName::as_str).collect();
    let is_other = |agent: &&String| !held.contains(&agent.as_str());
    let target = AgentName::new(others.find(is_other).context("three agents")?)?;
    let wish = TaskWish::Move {
        source: source.clone(),
        target: target.clone(),
    };
    let task = runtime.block_on(reader.create_task(name.clone(), wish))?;
    until("the object is moved", || {
        let status = runtime.block_on(reader.task_status(task))?;
        ensure!(!matches!(status, TaskStatus::Failed(_)), "{status:?}");
        Ok((status == TaskStatus::Success).then_some(()))
    })?;
    let now = runtime.block_on(reader.stat(name))?;
    ensure!(
        now.agents.contains(&target) && !now.agents.contains(&source),
        "{now:?}"
    );
    all_read(&runtime, &reader)
}
