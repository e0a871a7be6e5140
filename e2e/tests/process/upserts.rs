//! Upserts under readers: each read is exactly one version, and never an older one than before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use larder_client::{Client, PutOptions, Reason};
use larder_e2e::pool::Pool;

use crate::rig::{client, file, key, runtime};

/// Large enough that a read takes long against a put: 32 blocks of checksums.
const OBJECT_BYTES: usize = 2 << 20;
const VERSIONS: u64 = 200;

/// Bytes of which each word names the version and its place, so that a mix of two shows.
fn value(version: u64) -> Bytes {
    value_of(version, OBJECT_BYTES)
}

fn value_of(version: u64, size_bytes: usize) -> Bytes {
    let words = 0..(size_bytes / 8) as u64;
    let bytes: Vec<u8> = words
        .flat_map(|at| (version << 32 | at).to_le_bytes())
        .collect();
    Bytes::from(bytes)
}

/// The version that all words name.
fn version_of(bytes: &[u8]) -> Result<u64> {
    let mut words = bytes.chunks_exact(8).zip(0_u64..);
    let word = |chunk: &[u8]| Ok::<_, anyhow::Error>(u64::from_le_bytes(chunk.try_into()?));
    let first = word(&bytes[..8])? >> 32;
    let torn = words.find(|(chunk, at)| word(chunk).ok() != Some(first << 32 | at));
    ensure!(torn.is_none(), "version {first} is torn at word {torn:?}");
    Ok(first)
}

/// Reads until the writer is done; how often.
async fn read(reader: Client, acked: Arc<AtomicU64>, done: Arc<AtomicBool>) -> Result<u64> {
    let (mut reads, mut last) = (0, 0);
    while !done.load(Ordering::SeqCst) {
        let known = acked.load(Ordering::SeqCst);
        let bytes = reader.get(key("k")?).await?;
        let version = version_of(&bytes)?;
        ensure!(bytes.len() >= OBJECT_BYTES, "{} bytes", bytes.len());
        ensure!(
            version >= known.max(last),
            "{version} after {last}, acknowledged {known}"
        );
        last = version;
        reads += 1;
    }
    Ok(reads)
}

pub(crate) fn no_torn_read() -> Result<()> {
    let pool = Pool::start("upserts", &file("upserts", 256, 16, &[("team", None)]))?;
    runtime()?.block_on(async {
        let writer = client(&pool, "team", Some(0)).await?;
        writer.put(key("k")?, value(1)).await?;
        let (acked, done) = (
            Arc::new(AtomicU64::new(1)),
            Arc::new(AtomicBool::new(false)),
        );
        let mut readers = Vec::new();
        // Through shared memory of the same node, of the other node, and by tcp only.
        for via in [Some(0), Some(1), None] {
            let reader = client(&pool, "team", via).await?;
            readers.push(tokio::spawn(read(
                reader,
                Arc::clone(&acked),
                Arc::clone(&done),
            )));
        }
        let viewer = client(&pool, "team", Some(0)).await?;
        let mut view = None;
        for version in 2..=VERSIONS {
            writer.upsert(key("k")?, value(version)).await?;
            acked.store(version, Ordering::SeqCst);
            if version == 3 {
                // Where its one replica is depends on the room; on this node, if there is any.
                view = viewer.get_view(key("k")?).await.ok();
            }
        }
        done.store(true, Ordering::SeqCst);
        let view = view.context("the object is on the writer's node")?;
        ensure!(
            version_of(&view)? == 3,
            "a view keeps the version that it was opened on"
        );
        drop(view);
        for reader in readers {
            ensure!(reader.await?? > 0, "a reader read nothing");
        }

        // A put that fails leaves the value, and a polite removal the leased one. The readers may
        // have ended before the last version, which a get leases.
        writer.get(key("k")?).await?;
        let polite = PutOptions {
            mode: larder_client::PutMode::Upsert { if_unleased: true },
            ..PutOptions::default()
        };
        let refused = writer.put_with(key("k")?, value(0), &polite).await;
        let reason = refused.err().and_then(|error| error.reason());
        ensure!(reason == Some(Reason::LeaseHeld), "{reason:?}");
        ensure!(
            version_of(&writer.get(key("k")?).await?)? == VERSIONS,
            "it is as it was"
        );
        let known = writer.stat(key("k")?).await?;
        ensure!(known.stat.leased && known.agents.len() == 1, "{known:?}");
        ensure!(
            writer.remove_prefix(b"", true).await? == (0, 1),
            "it is leased"
        );
        ensure!(writer.remove_prefix(b"", false).await? == (1, 0), "it goes");
        let usage = writer.usage().await?;
        ensure!(
            (usage.used_bytes, usage.reserved_bytes) == (0, 0),
            "{usage:?}"
        );
        Ok(())
    })
}

/// The same with objects of two or three slabs, and ranges over the end of one.
pub(crate) fn no_torn_read_of_pieces() -> Result<()> {
    const SLAB_BYTES: u64 = 2 << 20;
    const VERSIONS: u64 = 60;
    let size_bytes = |version: u64| OBJECT_BYTES + 80_000 * usize::try_from(version).unwrap_or(0);
    let pool = Pool::start("torn", &file("torn", 128, 2, &[("team", None)]))?;
    runtime()?.block_on(async {
        let writer = client(&pool, "team", Some(0)).await?;
        let both = PutOptions {
            replicas: Some(2),
            ..PutOptions::upsert()
        };
        let name = key("k")?;
        let put =
            |version| writer.put_with(name.clone(), value_of(version, size_bytes(version)), &both);
        put(1).await?;
        let acked = Arc::new(AtomicU64::new(1));
        let done = Arc::new(AtomicBool::new(false));
        let mut readers = Vec::new();
        for via in [Some(0), Some(1), None] {
            let reader = client(&pool, "team", via).await?;
            let (acked, done) = (Arc::clone(&acked), Arc::clone(&done));
            readers.push(tokio::spawn(read(reader, acked, done)));
        }
        let (ranger, stop) = (client(&pool, "team", None).await?, Arc::clone(&done));
        let ranges = tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let (from, to) = (SLAB_BYTES - 8_000, SLAB_BYTES + 8_000);
                let bytes = ranger.get_range(key("k")?, from..to).await?;
                let word = |at: usize| {
                    Ok::<_, anyhow::Error>(u64::from_le_bytes(bytes[at..at + 8].try_into()?))
                };
                let first = word(0)?;
                for at in (0..bytes.len()).step_by(8) {
                    ensure!(word(at)? == first + at as u64 / 8, "torn at {at}");
                }
            }
            Ok(())
        });
        for version in 2..=VERSIONS {
            put(version).await?;
            acked.store(version, Ordering::SeqCst);
        }
        done.store(true, Ordering::SeqCst);
        for reader in readers {
            ensure!(reader.await?? > 0, "a reader read nothing");
        }
        ranges.await??;
        writer.remove(key("k")?).await?;
        let usage = writer.usage().await?;
        ensure!(
            (usage.used_bytes, usage.reserved_bytes) == (0, 0),
            "{usage:?}"
        );
        Ok(())
    })
}
