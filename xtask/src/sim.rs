//! Runs simulated worlds: one seed with all its lines, or many with a summary.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use anyhow::Context as _;
use larder_sim::history::write_history;
use larder_sim::world::{
    LedgerOptions, Outcome, PoolOptions, add_kept, run_ledger, run_pool, run_seeds,
};

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// Which world.
    pub world: World,
    /// The first seed.
    pub from: u64,
    /// How many.
    pub count: u64,
    /// Whether all lines are shown, not only those of seeds that fail.
    pub shows_all: bool,
}

/// What can be run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum World {
    /// One server over a real log.
    #[default]
    Ledger,
    /// Masters, agents and clients.
    Pool,
}

impl World {
    /// Its name on the command line and of its file of kept seeds.
    const fn name(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::Pool => "pool",
        }
    }

    fn run(self, seed: u64) -> Outcome {
        match self {
            Self::Ledger => run_ledger(seed, &LedgerOptions::default()),
            Self::Pool => run_pool(seed, &PoolOptions::default()),
        }
    }
}

/// Where the seeds stand that failed once; below it one file a world.
pub const SEEDS: &str = "crates/sim/tests/seeds";

/// Reads `--world NAME`, the ledger without it, then `--seed N`, or `--count N` and `--from N`.
/// `None`: it is neither.
#[must_use]
pub fn parse(words: &[&str]) -> Option<Wish> {
    let (world, words) = match words {
        ["--world", "ledger", words @ ..] => (World::Ledger, words),
        ["--world", "pool", words @ ..] => (World::Pool, words),
        words => (World::default(), words),
    };
    let wish = |from, count, shows_all| Wish {
        world,
        from,
        count,
        shows_all,
    };
    match words {
        ["--seed", seed] => Some(wish(seed.parse().ok()?, 1, true)),
        ["--count", count] => Some(wish(0, count.parse().ok()?, false)),
        ["--count", count, "--from", from] => {
            Some(wish(from.parse().ok()?, count.parse().ok()?, false))
        }
        _ => None,
    }
}

/// Runs a world. Seeds that fail are added to the kept ones, and their histories are written
/// under `target/sim`. Whether none failed.
///
/// # Errors
/// A file cannot be written.
pub fn run(root: &Path, wish: Wish) -> anyhow::Result<bool> {
    let world = |seed| {
        let outcome = wish.world.run(seed);
        if wish.shows_all {
            print!("{outcome}");
        }
        outcome
    };
    let mut kept = Ok(());
    let seeds = wish.from..wish.from.saturating_add(wish.count);
    let summary = run_seeds(seeds, world, |outcome| {
        if !wish.shows_all {
            print!("{outcome}");
        }
        if kept.is_ok() {
            kept = keep(root, wish.world.name(), outcome);
        }
    });
    kept?;
    print!("{summary}");
    Ok(summary.failed == 0)
}

fn keep(root: &Path, world: &str, outcome: &Outcome) -> anyhow::Result<()> {
    let path = root.join(SEEDS).join(format!("{world}.txt"));
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path:?}"))?;
    let reason = outcome.findings.first().map_or("", String::as_str);
    let reason = reason.lines().take(2).collect::<Vec<_>>().join(" ");
    fs::write(&path, add_kept(&text, outcome.seed, &reason)?)?;
    let folder = root.join("target/sim");
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{world}-{}.jsonl", outcome.seed));
    let file = File::create(&path).with_context(|| format!("cannot write {path:?}"))?;
    write_history(&outcome.kept, BufWriter::new(file))?;
    println!("its history: {}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use larder_sim::history::read_history;
    use larder_sim::world::{Mistake, parse_kept};

    use super::*;

    #[test]
    fn what_failed_is_kept() {
        let root = std::env::temp_dir().join(format!("larder-sim-{}", std::process::id()));
        let seeds = root.join(SEEDS);
        fs::create_dir_all(&seeds).expect("a folder");
        fs::write(seeds.join("ledger.txt"), "# Kept.\n").expect("a file");
        let options = LedgerOptions {
            mistake: Some(Mistake::ForgetsRequests),
            ..LedgerOptions::default()
        };
        let outcome = run_ledger(0, &options);
        assert!(!outcome.findings.is_empty(), "{outcome}");
        for _ in 0..2 {
            keep(&root, "ledger", &outcome).expect("it can be written");
        }
        let text = fs::read_to_string(seeds.join("ledger.txt")).expect("a file");
        let kept = parse_kept(&text).expect("a number and a reason");
        assert_eq!(kept.iter().map(|kept| kept.seed).collect::<Vec<_>>(), [0]);
        let history = fs::read(root.join("target/sim/ledger-0.jsonl")).expect("a file");
        let history = read_history(&history[..], 10_000).expect("what was written");
        assert_eq!(history, outcome.kept);
        fs::remove_dir_all(&root).expect("it is ours");
    }

    #[test]
    fn wishes_are_read() {
        let wish = |words: &[&str]| parse(words).map(|w| (w.from, w.count, w.shows_all));
        assert_eq!(wish(&["--seed", "7"]), Some((7, 1, true)));
        assert_eq!(wish(&["--count", "9"]), Some((0, 9, false)));
        assert_eq!(wish(&["--count", "9", "--from", "4"]), Some((4, 9, false)));
        let pool = parse(&["--world", "pool", "--seed", "7"]).expect("a wish");
        assert_eq!((pool.world, pool.from), (World::Pool, 7));
        let none = [
            &["--seed"][..],
            &["--seed", "x"],
            &[],
            &["--from", "3"],
            &["--world", "x"],
        ];
        for words in none {
            assert_eq!(wish(words), None);
        }
    }
}
