//! Results: one JSON object a line, and the same as a table.

use crate::bench::pair::{Cell, Measure, quartiles};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One result. Absent ratios were not measured; they are never 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// For example `kv.remote.get.1m`.
    pub name: String,
    /// The median over all pairs.
    pub value: f64,
    /// `us` (p50), `GB/s`, `keys/s`.
    pub unit: String,
    /// Ours against theirs as speed, by whom; above 1 we are better.
    pub ratios: BTreeMap<String, f64>,
    /// Theirs ÷ ours in processor time for the same work.
    pub ratios_cpu: BTreeMap<String, f64>,
    /// How many pairs.
    pub samples: usize,
    /// Quartiles of the first ratio, or of the value where there is none.
    pub spread: [f64; 2],
    /// Processor time of all our processes for one operation, in us.
    pub cpu_us_per_op: f64,
    /// Depth, replicas, sync policy, TLS, checksums.
    pub config: BTreeMap<String, String>,
}

impl Line {
    /// Makes the result of pairs (ours, theirs), where `theirs` are named.
    #[must_use]
    pub fn of_pairs(
        name: &str,
        measure: Measure,
        (theirs, pairs): (&str, &[(Cell, Cell)]),
        config: &[(&str, &str)],
    ) -> Self {
        let of_ours = |figure: &dyn Fn(&Cell) -> f64| {
            let [_, median, _] = quartiles(pairs.iter().map(|(ours, _)| figure(ours)).collect());
            median
        };
        let config = config.iter();
        let mut line = Self {
            name: name.to_owned(),
            value: of_ours(&|cell| measure.of(cell)),
            unit: measure.unit().to_owned(),
            ratios: BTreeMap::new(),
            ratios_cpu: BTreeMap::new(),
            samples: pairs.len(),
            spread: [0.0; 2],
            cpu_us_per_op: of_ours(&Cell::cpu_us_per_op),
            config: config
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        line.spread = line.compare(theirs, measure, pairs);
        line
    }

    /// Adds what the same pairs, or others of the same name, say of somebody else; the quartiles
    /// of the ratio. Nothing for no pairs: absent means not measured.
    pub fn compare(&mut self, theirs: &str, measure: Measure, pairs: &[(Cell, Cell)]) -> [f64; 2] {
        if pairs.is_empty() {
            return [0.0; 2];
        }
        let speeds = pairs.iter().map(|(ours, other)| measure.speed(ours, other));
        let [low, speed, high] = quartiles(speeds.collect());
        let cpu = pairs
            .iter()
            .map(|(ours, other)| other.cpu_us_per_op() / ours.cpu_us_per_op());
        let [_, cpu, _] = quartiles(cpu.collect());
        self.ratios.insert(theirs.to_owned(), speed);
        self.ratios_cpu.insert(theirs.to_owned(), cpu);
        [low, high]
    }
}

/// The file that results go to.
#[derive(Debug)]
pub struct Report {
    path: PathBuf,
    file: std::fs::File,
    lines: Vec<Line>,
}

impl Report {
    /// Starts a new file at `path`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn create(path: &Path) -> Result<Self> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = std::fs::File::create(path)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            lines: Vec::new(),
        })
    }

    /// Adds a line to the file at once, so that a broken run keeps what it measured.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn add(&mut self, line: Line) -> Result<()> {
        serde_json::to_writer(&mut self.file, &line)?;
        self.file.write_all(b"\n")?;
        self.file.flush()?;
        self.lines.push(line);
        Ok(())
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!(
            "{:<26} {:>12} {:<7} {:>9} {:>15} {:>9} {:>9} {:>10} {:>3}\n",
            "name",
            "value",
            "unit",
            "÷ceiling",
            "quartiles",
            "cpu ÷",
            "cpu us/op",
            "÷mooncake",
            "n"
        );
        for line in &self.lines {
            let ratio = line.ratios.get("ceiling");
            let cpu = line.ratios_cpu.get("ceiling");
            let peer = line.ratios.get("mooncake");
            out.push_str(&format!(
                "{:<26} {:>12.2} {:<7} {:>9} {:>15} {:>9} {:>9.1} {:>10} {:>3}\n",
                line.name,
                line.value,
                line.unit,
                ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
                format!("{:.3}–{:.3}", line.spread[0], line.spread[1]),
                cpu.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
                line.cpu_us_per_op,
                peer.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
                line.samples,
            ));
        }
        out.push_str(&format!("written to {}\n", self.path.display()));
        out
    }
}
