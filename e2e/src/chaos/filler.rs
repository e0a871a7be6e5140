//! Fills a pool, and keeps it at its high watermark.

use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use larder_client::Client;
use tokio::sync::watch;

use crate::chaos::load::{DEADLINE, FILLER, addrs, connect, key};
use crate::pool::Pool;

/// Bytes of an object of the filler.
const FILL_BYTES: usize = 256 << 10;

/// Fills a pool until it evicts, then goes on so slowly that it stays at its high watermark.
#[derive(Debug)]
pub struct Filler {
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Filler {
    /// Returns when the pool evicts.
    ///
    /// # Errors
    /// If the pool takes nothing.
    pub async fn start(pool: &Pool) -> Result<Self> {
        let client = connect(pool, FILLER, addrs(pool)).await?;
        let client = client.with_deadline(Duration::from_secs(20));
        let bytes = Bytes::from(vec![7; FILL_BYTES]);
        // More than fits: what came first is evicted at the end.
        let fits = client.usage().await?.pool_capacity_bytes / FILL_BYTES as u64;
        let mut next = 0;
        while next < fits + fits / 16 {
            let keys = next..next + 32;
            next = keys.end;
            let items: Result<Vec<_>> = keys
                .map(|at| Ok((key(&format!("fill/{at}"))?, bytes.clone())))
                .collect();
            for result in client.put_batch(items?).await {
                match result {
                    Ok(_) => {}
                    // Full, and what is there is not evicted yet.
                    Err(error) if error.is_retryable() => {}
                    Err(error) => return Err(error).context("the pool cannot be filled"),
                }
            }
        }
        let (stop, told) = (watch::Sender::new(false), client.with_deadline(DEADLINE));
        let task = tokio::spawn(trickle(told, next, bytes, stop.subscribe()));
        Ok(Self { stop, task })
    }

    /// Ends it.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // It only fails if it panicked, which its own output says.
        let _ = self.task.await;
    }
}

/// Puts 16 MiB a second. Whether a put comes about is no matter here.
async fn trickle(client: Client, first: u64, bytes: Bytes, stop: watch::Receiver<bool>) {
    let mut pace = tokio::time::interval(Duration::from_micros(15_625));
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    for at in first.. {
        if *stop.borrow() {
            return;
        }
        pace.tick().await;
        if let Ok(key) = key(&format!("fill/{at}")) {
            let _ = client.put(key, bytes.clone()).await;
        }
    }
}
