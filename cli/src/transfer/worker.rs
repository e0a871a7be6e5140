//! One worker: a request, then the next, over its own part of the peer's memory.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larder_transfer::OwnMemory;
use larder_transfer::endpoint::{Asked, Endpoint};
use larder_transfer::engine::core::{PeerKey, Range};
use larder_transfer::engine::plan::Direction;
use tokio::time::{Instant, sleep_until};

use super::latencies::Latencies;
use super::program;
use crate::args::{Operation, TransferBench};
use crate::error::CliError;

/// So many places are written together before the clock runs.
const TOGETHER: usize = 256;

/// What workers of one thread did.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) latencies: Latencies,
    pub(super) failed: u64,
    pub(super) first_failure: Option<String>,
    pub(super) retries: u64,
    pub(super) wrong_ranges: u64,
    /// From the first request to the last end, of the thread that took longest.
    pub(super) wall: Duration,
    /// Processor time of all threads meanwhile.
    pub(super) cpu: Duration,
}

impl Done {
    /// Takes in what others did.
    pub(super) fn take_in(&mut self, other: Self) {
        self.latencies.take_in(&other.latencies);
        self.failed += other.failed;
        self.retries += other.retries;
        self.wrong_ranges += other.wrong_ranges;
        self.wall = self.wall.max(other.wall);
        self.cpu += other.cpu;
        if let Some(failure) = other.first_failure {
            self.first_failure.get_or_insert(failure);
        }
    }
}

/// When requests are due, for all workers of a thread: `None` = when another one has ended.
#[derive(Debug)]
pub(super) struct Beat {
    pub(super) every: Option<Duration>,
    pub(super) next: Cell<Instant>,
    pub(super) end: Instant,
}

impl Beat {
    /// When the next request is due; `None`: there is none before the end.
    fn due(&self) -> Option<Instant> {
        let due = match self.every {
            None => Instant::now(),
            Some(every) => self.next.replace(self.next.get() + every),
        };
        (due < self.end).then_some(due)
    }
}

/// One worker and its part of both memories.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) endpoint: Endpoint,
    pub(super) peer: PeerKey,
    pub(super) asked: Rc<TransferBench>,
    pub(super) limit: Duration,
    pub(super) memory: Arc<OwnMemory>,
    /// Where its part begins in the own memory, as an offset; behind it there is as much again for
    /// what is read.
    pub(super) local_offset: u64,
    /// Where its part begins at the peer.
    pub(super) remote_address: u64,
    /// What it wrote last at each place, by the seed.
    pub(super) seeds: Vec<u64>,
    pub(super) last_seed: u64,
}

impl Worker {
    /// From one place to the next, in bytes: several of one request do not adjoin.
    pub(super) const fn step_bytes(asked: &TransferBench) -> u64 {
        if asked.batch > 1 {
            asked.size.saturating_mul(2)
        } else {
            asked.size
        }
    }

    /// Works until the end of the beat.
    pub(super) async fn run(mut self, beat: Rc<Beat>) -> Result<Done, CliError> {
        let mut done = Done::default();
        let mut turn = 0;
        while let Some(due) = beat.due() {
            // The clock of sleepers is coarser than a request.
            if due > Instant::now() {
                sleep_until(due).await;
            }
            let places = self.places(turn);
            let direction = match self.asked.operation {
                Operation::Write => Direction::Write,
                Operation::Read => Direction::Read,
                Operation::Mix if turn % 2 == 0 => Direction::Write,
                Operation::Mix => Direction::Read,
            };
            // A read of a mix is of the place that was written just before.
            turn += 1;
            if direction == Direction::Write && self.asked.check {
                self.fill(&places)?;
            }
            let begun = if beat.every.is_some() {
                due
            } else {
                Instant::now()
            };
            match self.request(direction, &places).await {
                Ok(retries) => {
                    done.latencies.add(begun.elapsed());
                    done.retries += u64::from(retries);
                    if direction == Direction::Read && self.asked.check {
                        done.wrong_ranges += self.wrong(&places)?;
                    }
                }
                Err(error) => {
                    done.failed += 1;
                    done.first_failure.get_or_insert(error.to_string());
                    if direction == Direction::Write {
                        // Who knows what lies there now.
                        self.rewrite(&places).await?;
                    }
                }
            }
        }
        Ok(done)
    }

    /// The places of a request, by number.
    fn places(&self, turn: u64) -> Vec<usize> {
        let count = self.seeds.len() as u64;
        let first = match self.asked.operation {
            Operation::Mix => turn / 2,
            _ => turn,
        };
        let numbers = (0..self.asked.batch).map(|at| (first * self.asked.batch + at) % count);
        numbers
            .map(|number| usize::try_from(number).unwrap_or_default())
            .collect()
    }

    /// Writes every place once, if what lies there matters.
    pub(super) async fn prepare(&mut self) -> Result<(), CliError> {
        if !self.asked.check {
            return Ok(());
        }
        let all: Vec<usize> = (0..self.seeds.len()).collect();
        for some in all.chunks(TOGETHER) {
            self.fill(some)?;
            self.request(Direction::Write, some).await?;
        }
        Ok(())
    }

    /// Writes places until it is known what lies there.
    async fn rewrite(&mut self, places: &[usize]) -> Result<(), CliError> {
        if !self.asked.check {
            return Ok(());
        }
        self.fill(places)?;
        self.request(Direction::Write, places).await.map(drop)
    }

    async fn request(&self, direction: Direction, places: &[usize]) -> Result<u32, CliError> {
        let step = Self::step_bytes(&self.asked);
        let behind = match direction {
            Direction::Write => 0,
            Direction::Read => self.seeds.len() as u64 * step,
        };
        let range = |place: &usize| {
            let offset = *place as u64 * step;
            Range {
                local_address: self.memory.address() + self.local_offset + behind + offset,
                remote_address: self.remote_address + offset,
                bytes: self.asked.size,
            }
        };
        let ranges: Vec<Range> = places.iter().map(range).collect();
        let asked = Asked {
            class: self.asked.class.class(),
            tenant: 0,
            deadline: Instant::now() + self.limit,
        };
        let outcome = self.endpoint.transfer(self.peer, direction, &ranges, asked);
        Ok(outcome.await.map_err(program)?.timeline.retries)
    }

    /// Other bytes for these places.
    fn fill(&mut self, places: &[usize]) -> Result<(), CliError> {
        let step = Self::step_bytes(&self.asked);
        for place in places {
            self.last_seed += 1;
            let offset = self.local_offset + *place as u64 * step;
            let bytes = pattern(self.last_seed, self.asked.size);
            self.memory.copy_in(offset, &bytes).map_err(program)?;
            if let Some(seed) = self.seeds.get_mut(*place) {
                *seed = self.last_seed;
            }
        }
        Ok(())
    }

    /// How many of these places were read otherwise than they were written.
    fn wrong(&self, places: &[usize]) -> Result<u64, CliError> {
        let step = Self::step_bytes(&self.asked);
        let behind = self.seeds.len() as u64 * step;
        let mut wrong = 0;
        for place in places {
            let seed = self.seeds.get(*place).copied().unwrap_or_default();
            let expected = pattern(seed, self.asked.size);
            let mut found = vec![0; expected.len()];
            let offset = self.local_offset + behind + *place as u64 * step;
            self.memory.copy_out(offset, &mut found).map_err(program)?;
            wrong += u64::from(found != expected);
        }
        Ok(wrong)
    }
}

/// Bytes that only this seed gives.
fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (word ^ (word >> 29)).to_le_bytes()
    };
    let words = bytes.div_ceil(8);
    let mut all: Vec<u8> = (0..words).flat_map(|_| next()).collect();
    all.truncate(usize::try_from(bytes).unwrap_or(usize::MAX));
    all
}
