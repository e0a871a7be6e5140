//! `make bench`: measures and writes `target/bench/results.jsonl`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use larder_e2e::bench::{ceiling, kv, report::Report, spin};

/// Measures Larder against raw sockets and memcpy.
#[derive(Debug, Parser)]
struct Args {
    /// Only names that start so, as in `kv.remote`.
    #[arg(long, default_value = "")]
    only: String,
    /// Where results go.
    #[arg(long, default_value = "target/bench/results.jsonl")]
    results: PathBuf,
    /// A Python that has the wheel of a stock Mooncake, to be measured in the same run.
    #[arg(long)]
    peer_python: Option<PathBuf>,
    #[command(subcommand)]
    part: Option<Part>,
}

/// What this program is when it starts itself.
#[derive(Debug, Subcommand)]
enum Part {
    /// Keeps a processor awake.
    #[command(hide = true)]
    Spin,
    /// The peer of the raw socket loop.
    #[command(hide = true)]
    RawServer,
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.part {
        Some(Part::Spin) => {
            spin::spin();
            return Ok(());
        }
        Some(Part::RawServer) => return ceiling::raw_server(),
        None => {}
    }
    let names = kv::names();
    anyhow::ensure!(
        names.iter().any(|name| name.starts_with(&args.only)),
        "no name starts with '{}'; there are: {}",
        args.only,
        names.join(" ")
    );
    let mut report = Report::create(&args.results)?;
    let spinners = spin::Spinners::start()?;
    kv::measure(&args.only, args.peer_python.as_deref(), &mut report)?;
    drop(spinners);
    print!("{}", report.table());
    Ok(())
}
