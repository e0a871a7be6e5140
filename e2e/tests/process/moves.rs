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

pub(crate) fn no_read_fails() -> Result<()> {
    let text = file("moves", 128, 4, &[("team", None)]).replace("count: 2", "count: 3");
    let pool = Pool::start("moves", &text)?;
    let runtime = runtime()?;
    let reader = runtime.block_on(client(&pool, "team", None))?;
    let options = PutOptions {
        replicas: Some(2),
        strict: true,
        ..PutOptions::default()
    };
    for index in 0..OBJECTS {
        let name = key(&format!("object/{index}"))?;
        let value = pattern(index, OBJECT_BYTES);
        runtime.block_on(reader.put_with(name, value, &options))?;
    }
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
    signal(hangs.pid, Signal::STOP)?;
    all_read(&runtime, &reader)?;
    signal(hangs.pid, Signal::KILL)?;
    until("what it held is made again", || {
        all_read(&runtime, &reader)?;
        Ok(all_have(&runtime, &reader, 2, "")?.then_some(()))
    })?;

    // A tenant moves an object itself.
    let name = key("object/0")?;
    let stat = runtime.block_on(reader.stat(name.clone()))?;
    // Not from the one that was killed: its loss may still be on its way.
    let stays = |held: &&AgentName| held.as_str() != hangs.name.as_str();
    let source = stat
        .agents
        .iter()
        .find(stays)
        .context("two replicas")?
        .clone();
    let mut others = pool.document.agents.iter().map(|agent| &agent.name);
    let held: Vec<&str> = stat.agents.iter().map(AgentName::as_str).collect();
    let is_other = |agent: &&String| !held.contains(&agent.as_str());
    let target = AgentName::new(others.find(is_other).context("three agents")?)?;
    let wish = TaskWish::Move {
        source: source.clone(),
        target: target.clone(),
    };
    let task = until("the agents are back", || {
        Ok(runtime
            .block_on(reader.create_task(name.clone(), wish.clone()))
            .ok())
    })?;
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
