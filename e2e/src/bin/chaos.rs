//! `chaos`: faults on the masters of a pool of real processes under full load, and what they cost.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use larder_e2e::chaos::{Fault, Plan, report, round};
use larder_e2e::pool::Pool;

/// Kills and stops masters while clients put and get, and looks for lost puts and wrong reads.
#[derive(Debug, Parser)]
struct Args {
    /// Moments, victims and keys follow from it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Injections of each fault.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Acknowledged puts of each injection, at least.
    #[arg(long, default_value_t = 5_500)]
    puts: u64,
    /// kill9, pause, standby_kill9, all_kill9, or all of them.
    #[arg(long, default_value = "all")]
    fault: String,
    /// How long a stopped leader sleeps, in ms.
    #[arg(long, default_value_t = 3_000)]
    pause_ms: u64,
    /// Leave the pool empty instead of filling it to its high watermark.
    #[arg(long)]
    empty: bool,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let faults = match args.fault.as_str() {
        "all" => Fault::ALL.to_vec(),
        one => vec![one.parse().map_err(anyhow::Error::msg)?],
    };
    let mut is_clean = true;
    for fault in faults {
        let plan = Plan {
            fault,
            seed: args.seed,
            rounds: args.rounds,
            puts_per_round: args.puts,
            pause: Duration::from_millis(args.pause_ms),
            full: !args.empty,
        };
        let pool = Pool::start("chaos", &larder_e2e::chaos::pool_file("chaos", 3, 512))?;
        let outcome = round::run(&pool, &plan, |text| eprintln!("{text}"))?;
        for line in report::lines(&plan, &outcome) {
            println!("{}", serde_json::to_string(&line)?);
        }
        for finding in &outcome.tally.findings {
            eprintln!("{finding}");
        }
        is_clean &= outcome.tally.lost == 0 && outcome.tally.wrong == 0;
    }
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
