//! An object of several slabs: written and read by whole processes, moved, replaced and removed.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use larder_client::{Client, PutOptions};
use larder_e2e::pool::Pool;
use tokio::runtime::Runtime;

use crate::moves::{drain, is_drained};
use crate::rig::{client, file, key, pattern, runtime, until};

const MIB: usize = 1 << 20;
const SLAB: usize = 64 * MIB;
/// Four slabs and a rest that ends within a block.
const OBJECT_BYTES: usize = 300 * MIB + 12_345;

async fn reads(reader: &Client, value: &Bytes) -> Result<()> {
    let got = reader.get(key("large")?).await?;
    ensure!(got == *value, "wrong bytes");
    Ok(())
}

/// Ranges over the ends of slabs, of blocks and of the object.
async fn ranges(reader: &Client, value: &Bytes) -> Result<()> {
    for (from, to) in [
        (SLAB - 100, SLAB + 100),
        (SLAB - 70_000, 3 * SLAB + 1),
        (2 * SLAB, 2 * SLAB + 65_536),
        (OBJECT_BYTES - 10, OBJECT_BYTES + 10),
        (5, 5),
    ] {
        let got = reader
            .get_range(key("large")?, from as u64..to as u64)
            .await;
        let got = got.with_context(|| format!("{from}..{to}"))?;
        ensure!(got == value[from..to.min(OBJECT_BYTES)], "{from}..{to}");
    }
    Ok(())
}

fn holders(runtime: &Runtime, reader: &Client) -> Result<Vec<String>> {
    let stat = runtime.block_on(reader.stat(key("large")?))?;
    Ok(stat
        .agents
        .iter()
        .map(|name| name.as_str().to_owned())
        .collect())
}

pub(crate) fn life() -> Result<()> {
    let text = file("stripes", 704, 64, &[("team", None)]).replace("count: 2", "count: 3");
    let pool = Pool::start("stripes", &text)?;
    let runtime = runtime()?;
    let near = runtime.block_on(client(&pool, "team", Some(0)))?;
    let far = runtime.block_on(client(&pool, "team", Some(1)))?;
    let away = runtime.block_on(client(&pool, "team", None))?;
    let (first, second) = (
        pattern(1, OBJECT_BYTES),
        pattern(2, OBJECT_BYTES - 2 * SLAB),
    );
    let two = PutOptions {
        replicas: Some(2),
        strict: true,
        ..PutOptions::default()
    };
    runtime.block_on(near.put_with(key("large")?, first.clone(), &two))?;
    for reader in [&near, &far, &away] {
        runtime.block_on(reads(reader, &first))?;
        runtime.block_on(ranges(reader, &first))?;
    }

    // It leaves an agent as a whole, and no read fails meanwhile.
    let leaving = holders(&runtime, &near)?.swap_remove(0);
    ensure!(drain(&pool, "PUT", &leaving)?.0 == 204, "drain refused");
    until("the agent is drained", || {
        runtime.block_on(reads(&away, &first))?;
        Ok(is_drained(&pool, &leaving)?.then_some(()))
    })?;
    let held = holders(&runtime, &near)?;
    ensure!(held.len() == 2 && !held.contains(&leaving), "{held:?}");
    ensure!(drain(&pool, "DELETE", &leaving)?.0 == 204, "end refused");

    let replaced = PutOptions::upsert();
    runtime.block_on(far.put_with(key("large")?, second.clone(), &replaced))?;
    runtime.block_on(reads(&near, &second))?;
    runtime.block_on(near.remove(key("large")?))?;
    until("all space is back", || {
        let usage = runtime.block_on(near.usage())?;
        Ok((usage.used_bytes == 0 && usage.reserved_bytes == 0).then_some(()))
    })?;
    // What is left of it nowhere is in the way of the next one.
    runtime.block_on(near.put_with(key("large")?, first.clone(), &two))?;
    runtime.block_on(reads(&far, &first))
}
