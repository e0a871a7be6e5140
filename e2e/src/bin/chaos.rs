//! `chaos`: faults on the masters of a pool of real processes under full load, and what they cost.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use larder_e2e::chaos::scene::Scene;
use larder_e2e::chaos::{Fault, Plan, network, peer, report, round};
use serde_json::json;

/// Does to masters and agents what may happen to them while clients put and get, and looks for lost
/// puts and wrong reads. As root it runs in namespaces of its own, with a network for each master.
#[derive(Debug, Parser)]
struct Args {
    /// Moments, victims and keys follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Injections of each fault.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Acknowledged puts of all injections of a fault together, at least.
    #[arg(long, default_value_t = 110_000)]
    puts: u64,
    /// A fault by its name, several with commas between, or all of them.
    #[arg(long, default_value = "all")]
    fault: String,
    /// How long a fault lasts that ends by itself, in ms; those that are named for 30 s last 30 s.
    #[arg(long, default_value_t = 3_000)]
    length_ms: u64,
    /// Leave the pool empty instead of filling it to its high watermark.
    #[arg(long)]
    empty: bool,
    /// Where the timeline of the injections is written, as one JSON object a line.
    #[arg(long)]
    timeline: Option<PathBuf>,
    /// Leave the pool's files for a look at them.
    #[arg(long)]
    keep: bool,
    /// The Python with the stock peer's wheel (scripts/peer.sh): it suffers the same faults, as far
    /// as there are cases of it, and ours are left out.
    #[arg(long)]
    peer: Option<PathBuf>,
    /// It runs in namespaces of its own already.
    #[arg(long, hide = true)]
    inside: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if !args.inside {
        match network::check() {
            Ok(()) => {
                let mut arguments: Vec<String> = std::env::args().skip(1).collect();
                arguments.push("--inside".to_owned());
                match network::private(&arguments)? {}
            }
            Err(why) => eprintln!("without networks for the masters: {why:#}"),
        }
    }
    let faults = match args.fault.as_str() {
        "all" => Fault::ALL.to_vec(),
        some => some
            .split(',')
            .map(|one| one.parse().map_err(anyhow::Error::msg))
            .collect::<Result<_>>()?,
    };
    let mut is_clean = true;
    for fault in faults {
        if fault.needs_network() && !args.inside {
            eprintln!("{fault} is left out: it needs networks for the masters");
            continue;
        }
        match &args.peer {
            Some(python) => peers(&args, python, fault)?,
            None => is_clean &= one(&args, fault)?,
        }
    }
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The stock peer's losses are told, not judged.
fn peers(args: &Args, python: &Path, fault: Fault) -> Result<()> {
    if args.inside {
        network::loopback()?;
    }
    let has_etcd = peer::has_etcd();
    if !has_etcd {
        eprintln!("there is no etcd: the peer's cases with two masters are left out");
    }
    for case in peer::cases(fault, has_etcd) {
        let line = peer::run(python, case, args.rounds)?;
        println!("{}", serde_json::to_string(&line)?);
    }
    Ok(())
}

fn one(args: &Args, fault: Fault) -> Result<bool> {
    let plan = Plan {
        fault,
        seed: args.seed,
        rounds: args.rounds,
        puts_per_round: args.puts.div_ceil(u64::from(args.rounds.max(1))),
        length: Duration::from_millis(args.length_ms),
        full: !args.empty,
    };
    let mut scene = Scene::start(&format!("chaos-{fault}"), &plan, args.inside)?;
    let outcome = match round::run(&mut scene, &plan, |text| eprintln!("{text}")) {
        Err(error) if args.keep => {
            eprintln!("{error:#}; kept: {}", scene.pool.home().display());
            std::mem::forget(scene);
            return Ok(false);
        }
        outcome => outcome?,
    };
    for line in report::lines(&plan, &outcome) {
        println!("{}", serde_json::to_string(&line)?);
    }
    if let Some(path) = &args.timeline {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).append(true).open(path)?;
        for moment in &outcome.timeline {
            let line = json!({ "fault": fault.name(), "moment": moment });
            writeln!(file, "{line}")?;
        }
    }
    for finding in &outcome.tally.findings {
        eprintln!("{finding}");
    }
    let is_clean = outcome.is_clean();
    if !is_clean && args.keep {
        eprintln!("kept: {}", scene.pool.home().display());
        std::mem::forget(scene);
    }
    Ok(is_clean)
}
