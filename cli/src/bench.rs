//! `larder bench`: measures puts and gets of one pool, and compares every byte.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use larder_client::{Client, Key, PutOptions, Reason};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde_json::json;

use crate::args::{Bench, Global, Work};
use crate::bytes_text::show_bytes;
use crate::error::CliError;
use crate::output::{Output, note};
use crate::target::connect;

/// The most objects of a run: their latencies take 8 bytes each.
const COUNT_MAX: u64 = 10_000_000;
/// The most calls in flight.
const DEPTH_MAX: usize = 4_096;

/// Keys of one call for many.
const CHUNK_KEYS: usize = 16 * 1024;

/// What every phase works on.
struct Run<'a> {
    client: &'a Client,
    args: &'a Bench,
    /// Which objects were there before: they are not put, and stay.
    before: Vec<bool>,
    /// What each object holds behind its number.
    filling: Vec<u8>,
}

/// What a phase took.
struct Measured {
    latencies_us: Vec<u64>,
    wall: Duration,
}

/// Measures what the arguments say.
pub(crate) async fn bench(
    global: &Global,
    args: &Bench,
    output: &mut Output,
) -> Result<u8, CliError> {
    if args.count == 0 || args.count > COUNT_MAX || args.depth == 0 || args.depth > DEPTH_MAX {
        return Err(CliError::Usage(format!(
            "--count must be 1 to {COUNT_MAX} and --depth 1 to {DEPTH_MAX}"
        )));
    }
    let size = usize::try_from(args.size)
        .map_err(|_| CliError::Usage("--size is larger than the memory of this machine".into()))?;
    let client = connect(global, None).await?;
    let mut filling = vec![0; size];
    SmallRng::seed_from_u64(7).fill_bytes(&mut filling);
    let mut run = Run {
        client: &client,
        args,
        before: Vec::new(),
        filling,
    };
    run.look().await?;
    let outcome = run.phases(global, output).await;
    if !args.keep {
        run.clean().await;
    }
    outcome.map(|()| 0)
}

impl Run<'_> {
    /// Finds out which objects are there.
    async fn look(&mut self) -> Result<(), CliError> {
        for some in self.keys()?.chunks(CHUNK_KEYS) {
            for exists in self.client.exists_batch(some.to_vec()).await {
                self.before.push(exists?);
            }
        }
        let there = self.before.iter().filter(|there| **there).count();
        if there > 0 && self.args.work != Work::Get {
            return Err(CliError::Taken(format!(
                "{there} of the objects {}... are there already, and a put does not replace; \
                 remove them, or choose another --prefix",
                self.args.prefix
            )));
        }
        Ok(())
    }

    async fn phases(&self, global: &Global, output: &mut Output) -> Result<(), CliError> {
        let missing = (0..self.args.count)
            .zip(&self.before)
            .filter(|(_, there)| !**there);
        let missing: Vec<u64> = missing.map(|(at, _)| at).collect();
        if !missing.is_empty() {
            let put = self.phase("put", missing, |at| self.put(at)).await?;
            if self.args.work != Work::Get {
                self.report(global, "put", put, output)?;
            }
        }
        if self.args.work != Work::Put {
            let all = (0..self.args.count).collect();
            let get = self.phase("get", all, |at| self.get(at)).await?;
            self.report(global, "get", get, output)?;
        }
        Ok(())
    }

    /// Does something with each of these objects, so many at a time.
    async fn phase<F: Future<Output = Result<u64, CliError>>>(
        &self,
        name: &'static str,
        objects: Vec<u64>,
        work: impl Fn(u64) -> F,
    ) -> Result<Measured, CliError> {
        let count = u64::try_from(objects.len()).unwrap_or(self.args.count);
        let bar = ProgressBar::new(count.saturating_mul(self.args.size));
        let style = "{msg} [{bar:30}] {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message(name);
        let start = Instant::now();
        let latencies_us = stream::iter(objects)
            .map(work)
            .buffer_unordered(self.args.depth)
            .inspect_ok(|_| bar.inc(self.args.size))
            .try_collect()
            .await;
        let wall = start.elapsed();
        bar.finish_and_clear();
        Ok(Measured {
            latencies_us: latencies_us?,
            wall,
        })
    }

    async fn put(&self, at: u64) -> Result<u64, CliError> {
        let (key, value) = (self.key(at)?, self.value(at));
        let mut options = PutOptions::default();
        options.attributes.pin = self.args.pin.unwrap_or_default();
        let start = Instant::now();
        self.client.put_with(key, value, &options).await?;
        Ok(micros(start))
    }

    async fn get(&self, at: u64) -> Result<u64, CliError> {
        let key = self.key(at)?;
        let start = Instant::now();
        let value = self.client.get(key.clone()).await?;
        let took_us = micros(start);
        if value.len() != self.filling.len() {
            return Err(CliError::Usage(format!(
                "key {key} has {} bytes and --size is {}; choose another --prefix or --size",
                value.len(),
                self.args.size
            )));
        }
        if value == self.value(at) {
            return Ok(took_us);
        }
        Err(CliError::Wrong(format!(
            "key {key} was not put by larder bench with this size, or its bytes are wrong"
        )))
    }

    fn key(&self, at: u64) -> Result<Key, CliError> {
        Key::new(format!("{}{at:08}", self.args.prefix).into_bytes())
            .map_err(|error| CliError::Usage(error.to_string()))
    }

    /// Each object differs from the others: its number stands at its start.
    fn value(&self, at: u64) -> Bytes {
        let mut value = BytesMut::from(self.filling.as_slice());
        let number = at.to_le_bytes();
        let head = number.len().min(value.len());
        value[..head].copy_from_slice(&number[..head]);
        value.freeze()
    }

    fn keys(&self) -> Result<Vec<Key>, CliError> {
        (0..self.args.count).map(|at| self.key(at)).collect()
    }

    /// Removes what this run put. What cannot be removed now would not be by trying again.
    async fn clean(&self) {
        let Ok(keys) = self.keys() else { return };
        let ours = keys
            .into_iter()
            .zip(&self.before)
            .filter(|(_, there)| !**there);
        let ours: Vec<Key> = ours.map(|(key, _)| key).collect();
        for some in ours.chunks(CHUNK_KEYS) {
            for removed in self.client.remove_batch(some.to_vec()).await {
                if let Err(error) = removed
                    && error.reason() != Some(Reason::NotFound)
                {
                    let prefix = &self.args.prefix;
                    note(&format!("note: objects {prefix}... may stay: {error}"));
                    return;
                }
            }
        }
    }

    fn report(
        &self,
        global: &Global,
        name: &str,
        mut measured: Measured,
        output: &mut Output,
    ) -> Result<(), CliError> {
        measured.latencies_us.sort_unstable();
        let seconds = measured.wall.as_secs_f64().max(1e-9);
        let bytes = self.args.count.saturating_mul(self.args.size);
        let gigabytes_s = to_f64(bytes) / seconds / 1e9;
        let [p50, p90, p99, max] =
            [500, 900, 990, 1000].map(|thousandths| quantile(&measured.latencies_us, thousandths));
        let value = json!({
            "name": format!("bench.{name}"),
            "value": gigabytes_s,
            "unit": "GB/s",
            "samples": self.args.count,
            "seconds": seconds,
            "latency_us": { "p50": p50, "p90": p90, "p99": p99, "max": max },
            "config": {
                "size_bytes": self.args.size,
                "depth": self.args.depth,
                "via": global.via.as_deref().unwrap_or("first agent"),
                "shared_memory": self.client.why_not_local().is_none(),
            },
        });
        let human = format!(
            "{name}  {} x {}  {gigabytes_s:.2} GB/s  {:.0}/s  \
             p50 {p50} us  p90 {p90} us  p99 {p99} us  max {max} us",
            measured.latencies_us.len(),
            show_bytes(self.args.size),
            to_f64(self.args.count) / seconds,
        );
        output.result(&value, &human)
    }
}

fn micros(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a figure for people needs no 53 bits"
)]
const fn to_f64(number: u64) -> f64 {
    number as f64
}

/// The value below which so many thousandths of the sorted samples are.
fn quantile(sorted: &[u64], thousandths: usize) -> u64 {
    let rank = (sorted.len() * thousandths).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples: Vec<u64> = (1..=100).collect();
        assert_eq!(
            [500, 900, 990, 1000].map(|t| quantile(&samples, t)),
            [50, 90, 99, 100]
        );
        assert_eq!(quantile(&[7], 500), 7);
        assert_eq!(quantile(&[], 500), 0);
    }
}
