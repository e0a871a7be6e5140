//! Pairs: ours, then the ceiling, then ours again …; the ratio is taken pair by pair.

use std::time::{Duration, Instant};

use anyhow::Result;

/// What one cell measured.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// Operations done.
    pub ops: u64,
    /// Wall time.
    pub wall: Duration,
    /// Median latency of one operation.
    pub p50: Duration,
    /// Processor time of all processes that took part.
    pub cpu: Duration,
}

impl Cell {
    /// Runs `op` for `length`, and at least 16 times, and takes the time of each.
    ///
    /// # Errors
    /// The first failure of `op`.
    pub fn measure(length: Duration, pids: &[u32], op: impl FnMut() -> Result<()>) -> Result<Self> {
        Self::run(|elapsed, laps| elapsed < length || laps < 16, pids, op)
    }

    /// Runs `op` exactly `ops` times, for operations that use something up.
    ///
    /// # Errors
    /// The first failure of `op`.
    pub fn count(ops: usize, pids: &[u32], op: impl FnMut() -> Result<()>) -> Result<Self> {
        Self::run(|_, laps| laps < ops, pids, op)
    }

    fn run(
        goes_on: impl Fn(Duration, usize) -> bool,
        pids: &[u32],
        mut op: impl FnMut() -> Result<()>,
    ) -> Result<Self> {
        let mut laps = Vec::with_capacity(1 << 16);
        let cpu_before = cpu_of(pids)?;
        let start = Instant::now();
        while goes_on(start.elapsed(), laps.len()) {
            let lap = Instant::now();
            op()?;
            laps.push(lap.elapsed());
        }
        let wall = start.elapsed();
        let cpu = cpu_of(pids)?.saturating_sub(cpu_before);
        laps.sort_unstable();
        Ok(Self {
            ops: laps.len() as u64,
            wall,
            p50: laps[laps.len() / 2],
            cpu,
        })
    }

    /// Processor time for one operation, in us.
    #[must_use]
    pub fn cpu_us_per_op(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.ops as f64
    }

    /// Operations a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.wall.as_secs_f64()
    }
}

fn cpu_of(pids: &[u32]) -> Result<Duration> {
    pids.iter().map(|pid| crate::proc::cpu_exact(*pid)).sum()
}

/// What is compared within a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Median latency, in us; less is better.
    Latency,
    /// Operations a second times the bytes of one, in GB/s.
    Bandwidth {
        /// Bytes of one operation.
        bytes: u64,
    },
    /// Operations a second times the items of one.
    Rate {
        /// Items of one operation.
        items: u64,
    },
}

impl Measure {
    /// What is told of one operation of so many bytes: from 1 MiB up its rate, below its latency.
    #[must_use]
    pub const fn of_bytes(bytes: usize) -> Self {
        if bytes >= 1 << 20 {
            Self::Bandwidth {
                bytes: bytes as u64,
            }
        } else {
            Self::Latency
        }
    }

    /// The value of a cell.
    #[must_use]
    pub fn of(self, cell: &Cell) -> f64 {
        match self {
            Self::Latency => cell.p50.as_secs_f64() * 1e6,
            Self::Bandwidth { bytes } => cell.rate() * bytes as f64 / 1e9,
            Self::Rate { items } => cell.rate() * items as f64,
        }
    }

    /// How much faster `ours` is than `theirs`.
    #[must_use]
    pub fn speed(self, ours: &Cell, theirs: &Cell) -> f64 {
        match self {
            Self::Latency => self.of(theirs) / self.of(ours),
            _ => self.of(ours) / self.of(theirs),
        }
    }

    /// The unit of the value.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Latency => "us",
            Self::Bandwidth { .. } => "GB/s",
            Self::Rate { .. } => "keys/s",
        }
    }
}

/// The median and the quartiles of some figures; zeros for none.
#[must_use]
pub fn quartiles(mut figures: Vec<f64>) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    let at = |part: usize| {
        figures
            .get((figures.len() * part / 4).min(figures.len() - 1))
            .copied()
    };
    if figures.is_empty() {
        return [0.0; 3];
    }
    [at(1), at(2), at(3)].map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_twice_as_long_is_half_the_speed() {
        let cell = |us: u64| Cell {
            ops: 1,
            wall: Duration::from_micros(us),
            p50: Duration::from_micros(us),
            cpu: Duration::ZERO,
        };
        assert!((Measure::Latency.speed(&cell(20), &cell(10)) - 0.5).abs() < 1e-9);
        let bandwidth = Measure::Bandwidth { bytes: 1000 };
        assert!((bandwidth.speed(&cell(20), &cell(10)) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn quartiles_of_nine() {
        let figures = vec![9.0, 1.0, 8.0, 2.0, 7.0, 3.0, 6.0, 4.0, 5.0];
        assert_eq!(quartiles(figures), [3.0, 5.0, 7.0]);
    }
}
