//! `make bench`: measures and writes `target/bench/results.jsonl`.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};
use larder_e2e::bench::report::{Line, Report};
use larder_e2e::bench::{ceiling, engine, ha, kv, spin, store, store_evict};

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
    /// An engine whose buffer is read and written.
    #[command(hide = true)]
    EngineServer,
    /// A store of many objects.
    #[command(hide = true)]
    StoreSizes {
        /// How many.
        #[arg(long, default_value_t = store::OBJECTS)]
        objects: u64,
    },
    /// A store at its high watermark.
    #[command(hide = true)]
    StoreEvictions,
    /// Prints what each policy of eviction hits on a trace, as a table for the documentation.
    StoreHits,
    /// A store that loses many objects.
    #[command(hide = true)]
    StorePauses {
        /// How many, in each of three ways.
        #[arg(long, default_value_t = store::REMOVED)]
        objects: u64,
    },
}

fn main() -> Result<()> {
    let args = Args::parse();
    match args.part {
        Some(Part::Spin) => {
            spin::spin();
            return Ok(());
        }
        Some(Part::RawServer) => return ceiling::raw_server(),
        Some(Part::EngineServer) => return engine::server(),
        Some(Part::StoreSizes { objects }) => return print_lines(&store::sizes(objects)?),
        Some(Part::StoreEvictions) => return print_lines(&store_evict::evictions()?),
        Some(Part::StoreHits) => {
            print!("{}", store_evict::hits());
            return Ok(());
        }
        Some(Part::StorePauses { objects }) => return print_lines(&store::pauses(objects)?),
        None => {}
    }
    let names = [store::names(), ha::names(), engine::names(), kv::names()].concat();
    anyhow::ensure!(
        names.iter().any(|name| name.starts_with(&args.only)),
        "no name starts with '{}'; there are: {}",
        args.only,
        names.join(" ")
    );
    let mut report = Report::create(&args.results)?;
    store::measure(&args.only, &mut report)?;
    ha::measure(&args.only, &mut report)?;
    let spinners = spin::Spinners::start()?;
    engine::measure(&args.only, args.peer_python.as_deref(), &mut report)?;
    kv::measure(&args.only, args.peer_python.as_deref(), &mut report)?;
    drop(spinners);
    print!("{}", report.table());
    Ok(())
}

/// The results of a part, for the process that started it.
fn print_lines(lines: &[Line]) -> Result<()> {
    for line in lines {
        println!("{}", serde_json::to_string(line)?);
    }
    Ok(())
}
