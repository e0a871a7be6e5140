//! Many bytes through a small pool: not one may be wrong.

use anyhow::{Result, ensure};
use larder_client::{Attributes, Client, Pin, PutOptions, Reason};
use larder_e2e::pool::Pool;

use crate::rig::{client, file, key, pattern, runtime};

const MIB: u64 = 1 << 20;
const OBJECT_BYTES: usize = 4 << 20;
/// 10 GiB over both tenants.
const OBJECTS_EACH: u64 = 1280;
/// What a tenant may hold: half of the pool, less what slabs leave over.
const LIMIT_MIB: u64 = 448;

/// Puts objects until the limit refuses one, then removes the oldest and goes on. Every object
/// is read back in full before it goes, half of them through the other node's agent.
async fn fill(near: Client, far: Client, seed: u64) -> Result<u64> {
    let mut refused = 0;
    let mut oldest = 0;
    // What is cold would make room for the next one.
    let pinned = PutOptions {
        attributes: Attributes {
            pin: Pin::Hard,
            ..Attributes::default()
        },
        ..PutOptions::default()
    };
    let name = |index: u64| key(&format!("block/{seed}/{index}"));
    for index in 0..OBJECTS_EACH {
        let value = pattern(seed + index, OBJECT_BYTES);
        loop {
            match near.put_with(name(index)?, value.clone(), &pinned).await {
                Ok(info) => {
                    let size_bytes = info.object.size_bytes;
                    ensure!(size_bytes == OBJECT_BYTES as u64, "size {size_bytes}");
                    break;
                }
                Err(error) if error.reason() == Some(Reason::QuotaBytes) => {
                    refused += 1;
                    verify(&near, &far, seed, oldest).await?;
                    near.remove(name(oldest)?).await?;
                    oldest += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    for index in oldest..OBJECTS_EACH {
        verify(&near, &far, seed, index).await?;
        near.remove(name(index)?).await?;
    }
    Ok(refused)
}

async fn verify(near: &Client, far: &Client, seed: u64, index: u64) -> Result<()> {
    let client = if index.is_multiple_of(2) { near } else { far };
    let got = client.get(key(&format!("block/{seed}/{index}"))?).await?;
    ensure!(
        got == pattern(seed + index, OBJECT_BYTES),
        "wrong bytes in object {index}"
    );
    Ok(())
}

pub(crate) fn ten_gib() -> Result<()> {
    let tenants = [("left", Some(LIMIT_MIB)), ("right", Some(LIMIT_MIB))];
    let pool = Pool::start("bulk", &file("bulk", 512, 16, &tenants))?;
    runtime()?.block_on(async {
        let mut fills = Vec::new();
        for (tenant, seed) in [("left", 1), ("right", 1 << 40)] {
            let near = client(&pool, tenant, Some(0)).await?;
            let far = client(&pool, tenant, Some(1)).await?;
            fills.push(tokio::spawn(fill(near, far, seed)));
        }
        let held = LIMIT_MIB * MIB / OBJECT_BYTES as u64;
        for fill in fills {
            let refused = fill.await??;
            // Each object beyond what fits was refused once before the oldest went.
            ensure!(
                refused == OBJECTS_EACH - held,
                "{refused} refusals, {held} fit"
            );
        }
        for tenant in ["left", "right"] {
            let usage = client(&pool, tenant, None).await?.usage().await?;
            ensure!(
                usage.used_bytes == 0 && usage.objects == 0,
                "left over: {usage:?}"
            );
            ensure!(usage.reserved_bytes == 0, "still reserved: {usage:?}");
        }
        Ok(())
    })
}
