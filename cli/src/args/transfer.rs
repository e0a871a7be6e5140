//! What may be typed behind `larder transfer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum, ValueHint};
use larder_transfer::engine::class::Class;

use super::values::parse_duration;
use crate::bytes_text::parse_bytes;

/// Move bytes between the memories of two processes, without a pool.
#[derive(Debug, Subcommand)]
pub(crate) enum Transfer {
    /// Offer memory that others may read and write, until it is stopped.
    Serve(Serve),
    /// Read and write what another `larder transfer serve` offers, and measure it.
    Bench(TransferBench),
}

/// Arguments of `transfer serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Serve {
    /// Where to listen, as host:port; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(crate) listen: String,
    /// How much memory to offer, as in 64Mi or 1Gi.
    #[arg(long, default_value = "1Gi", value_parser = parse_bytes)]
    pub(crate) memory: u64,
    /// File with the secret that peers have to show.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: PathBuf,
    /// Where engines of stock Mooncake are served too, as host:port of the handshake; their bytes
    /// come in at another port of the same host. They prove nothing: whoever reaches these ports
    /// reads and writes all of the memory.
    #[arg(long)]
    pub(crate) mooncake_listen: Option<String>,
}

/// Arguments of `transfer bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TransferBench {
    /// Where the other one listens, as host:port.
    #[arg(long)]
    pub(crate) peer: String,
    /// File with the secret of both.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) secret_file: PathBuf,
    /// What to measure; `mix` does one after the other.
    #[arg(value_enum, default_value_t = Operation::Mix)]
    pub(crate) operation: Operation,
    /// Size of a range, as in 4Ki or 1Mi.
    #[arg(long, default_value = "1Mi", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Ranges of a request; they do not adjoin if there are several.
    #[arg(long, default_value_t = 1)]
    pub(crate) batch: u64,
    /// Requests in flight of each thread.
    #[arg(long, short = 'd', default_value_t = 1)]
    pub(crate) depth: u32,
    /// Threads, each with its own connections.
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,
    /// Connections of each thread.
    #[arg(long, default_value_t = 4)]
    pub(crate) lanes: usize,
    /// How long to go on.
    #[arg(long, default_value = "5s", value_parser = parse_duration)]
    pub(crate) time: Duration,
    /// Begin so many requests a second in all, whether or not earlier ones have ended, as far as
    /// --depth allows; a request's time counts from when it was due. Without it each request
    /// begins when another one ends.
    #[arg(long)]
    pub(crate) rate: Option<u32>,
    /// Write other bytes each time, and compare all that is read.
    #[arg(long)]
    pub(crate) check: bool,
    /// Class of service.
    #[arg(long, value_enum, default_value_t = ClassName::Foreground)]
    pub(crate) class: ClassName,
}

/// What `transfer bench` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// Writes to the peer's memory.
    Write,
    /// Reads from it.
    Read,
    /// A write, then a read of the same place.
    Mix,
}

/// Classes of service by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClassName {
    /// Somebody waits for it.
    Foreground,
    /// Somebody may soon.
    Prefetch,
    /// Weights of a model.
    Weights,
    /// Bytes that move house.
    Migration,
    /// Bytes that are saved.
    Checkpoint,
}

impl ClassName {
    /// The class of this name.
    pub(crate) const fn class(self) -> Class {
        match self {
            Self::Foreground => Class::Foreground,
            Self::Prefetch => Class::Prefetch,
            Self::Weights => Class::Weights,
            Self::Migration => Class::Migration,
            Self::Checkpoint => Class::Checkpoint,
        }
    }
}
