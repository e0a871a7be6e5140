//! Pages and traces: what a pool shows while it runs, and what it leaves.

use anyhow::{Result, ensure};
use larder_e2e::pool::Pool;
use larder_e2e::proc;
use larder_telemetry::exposition;

use crate::rig::{client, file, key, page, pattern, runtime, until};

const SECRET: &str = "a-name-that-shows-nowhere";

pub(crate) fn metrics() -> Result<()> {
    let pool = Pool::start("pages", &file("pages", 64, 4, &[("team", None)]))?;
    let runtime = runtime()?;
    let near = runtime.block_on(client(&pool, "team", Some(0)))?;
    runtime.block_on(near.put(key(SECRET)?, pattern(1, 1 << 20)))?;
    let master = &pool.document.masters[0].admin_addr;
    let mut addrs: Vec<String> = pool
        .document
        .agents
        .iter()
        .map(|agent| agent.metrics_addr.clone())
        .collect();
    addrs.push(master.clone());
    for addr in &addrs {
        let text = page(addr, "/metrics")?;
        ensure!(
            !text.contains(SECRET),
            "a key shows in the metrics of {addr}"
        );
        let families = exposition::parse(&text)?;
        ensure!(families.len() > 5, "{} families at {addr}", families.len());
        page(addr, "/healthz")?;
        page(addr, "/readyz")?;
    }
    until("the master counts the object", || {
        let families = exposition::parse(&page(master, "/metrics")?)?;
        let objects = exposition::value(&families, "larder_master_objects", &[("tenant", "team")]);
        Ok((objects == Some(1.0)).then_some(()))
    })?;
    Ok(())
}

pub(crate) fn down_leaves_nothing() -> Result<()> {
    let pool = Pool::start("down", &file("down", 64, 4, &[("team", None)]))?;
    let runtime = runtime()?;
    let near = runtime.block_on(client(&pool, "team", Some(0)))?;
    runtime.block_on(near.put(key("held")?, pattern(1, 1 << 20)))?;
    // A reader still holds a view: that must not keep anything of the pool alive.
    let view = runtime.block_on(near.get_view(key("held")?))?;
    let pids = pool.pids();
    let sockets: Vec<_> = pool
        .document
        .agents
        .iter()
        .map(|agent| agent.socket.clone())
        .collect();
    let folder = pool.folder.clone();
    let output = pool.down()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(view.len() == 1 << 20);
    for pid in pids {
        ensure!(!proc::lives(pid), "process {pid} lives on");
    }
    let left = proc::with_argument(&folder.to_string_lossy());
    ensure!(left.is_empty(), "processes are left: {left:?}");
    for socket in sockets {
        ensure!(!socket.exists(), "{} is left", socket.display());
    }
    ensure!(!folder.exists(), "{} is left", folder.display());
    let again = pool.down()?;
    ensure!(again.status.success(), "down a second time: {again:?}");
    Ok(())
}
