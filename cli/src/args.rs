//! What may be typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum, ValueHint};

use larder_client::{AgentName, GroupId, Pin};

use crate::bytes_text::parse_bytes;

mod administration;
mod inspection;
mod transfer;
mod values;

pub(crate) use administration::{
    Administration, Drain, DrainWait, DrainedAgent, Explain, NamedSnapshot, Promote, Quota,
    Snapshot, TakeSnapshot, TaskNumber, Tasks, TasksList,
};

pub(crate) use inspection::Inspect;
pub(crate) use transfer::{Operation, Serve, Transfer, TransferBench};
pub(crate) use values::Sections;
use values::{parse_duration, parse_pin, parse_sections};

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the system failed: not reachable, no pool is up, internal fault
  2  wrong arguments, or a file, folder or port that cannot be used
  3  not found
  4  refused: a limit, missing rights, or the key is taken
  5  the deadline passed

Which pool: --master and --token-file name it directly. Otherwise the run folder of `larder up`
does: --dir, or --pool in the usual place, or the only pool there is.";

/// A distributed cache for the KV blocks of LLM inference.
#[derive(Debug, Parser)]
#[command(name = "larder", version, about, after_help = EXIT_CODES, propagate_version = true)]
pub(crate) struct Args {
    /// What every command knows.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command knows.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Global {
    /// How results and errors are printed.
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    pub(crate) output: Format,
    /// Addresses of the masters, as host:port, with commas between them (or LARDER_MASTERS).
    #[arg(long, global = true, value_delimiter = ',')]
    pub(crate) master: Vec<String>,
    /// File with the token that proves the tenant (or LARDER_TOKEN_FILE); in a pod the projected
    /// one at /var/run/larder-token/token, if it is there.
    #[arg(long, global = true, value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// Unix socket of the agent on this node (or LARDER_SOCKET).
    #[arg(long, global = true, value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
    /// Name of a pool that `larder up` started in its usual place.
    #[arg(long, global = true)]
    pub(crate) pool: Option<String>,
    /// Run folder of a pool that `larder up` started elsewhere (or LARDER_DIR); --pool goes before
    /// it.
    #[arg(long, global = true, value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
    /// Tenant of that pool to act as (or LARDER_TENANT); not needed where there is only one.
    #[arg(long, global = true)]
    pub(crate) tenant: Option<String>,
    /// Agent of that pool whose socket is used, or `none`: then all bytes go by tcp. Without it
    /// the first agent is taken.
    #[arg(long, global = true, value_name = "AGENT")]
    pub(crate) via: Option<String>,
    /// How long one call may take, as in 500ms, 5s or 2m.
    #[arg(long, global = true, default_value = "5s", value_parser = parse_duration)]
    pub(crate) deadline: Duration,
    /// Where run folders are, before the state folder of the home folder; from the environment.
    #[arg(skip)]
    pub(crate) runtime_dir: Option<PathBuf>,
    /// The home folder; from the environment.
    #[arg(skip)]
    pub(crate) home: Option<PathBuf>,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Human,
    /// One JSON document, or one a line where there are many.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Put an object.
    Put(Put),
    /// Get an object.
    Get(Get),
    /// Say which keys hold objects; exit code 3 if one does not.
    Exists(Keys),
    /// Remove objects.
    #[command(visible_alias = "rm")]
    Remove(Remove),
    /// Protect objects from eviction.
    Pin(PinArgs),
    /// Take the pins of objects away.
    Unpin(Keys),
    /// List keys in order.
    Ls(Ls),
    /// Show what is known of objects; without keys, what the tenant uses, its limits, and the size
    /// of the pool.
    Stat(Stat),
    /// Say what a tenant may hold, and why a put would be refused.
    #[command(subcommand)]
    Quota(Quota),
    /// Move all objects off an agent, so that it can leave without loss. Needs an administrator's
    /// token.
    #[command(subcommand)]
    Drain(Drain),
    /// Make another master the leader, for example before its machine is taken down. Needs an
    /// administrator's token.
    Promote(Promote),
    /// Look at copies and moves that tenants asked for. Needs an administrator's token.
    #[command(subcommand)]
    Tasks(Tasks),
    /// Keep what the masters know under a name, for a pool that is to begin from it. Needs an
    /// administrator's token.
    #[command(subcommand)]
    Snapshot(Snapshot),
    /// Read the log and the snapshots of a master and say what is wrong with them; exit code 1 if
    /// something is. Nothing is changed, and the master may run.
    Inspect(Inspect),
    /// Measure puts and gets; every byte is checked.
    Bench(Bench),
    /// Move bytes between the memories of two processes, without a pool, and measure it.
    #[command(subcommand)]
    Transfer(Transfer),
    /// Start a pool as processes of this machine.
    Up(Up),
    /// Stop a pool that `larder up` started, and remove what it left.
    Down,
    /// Show the processes of a pool that `larder up` started; with --master, how this client is
    /// connected.
    Status,
    /// Print the version.
    Version,
    /// Print a completion script for a shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// What `larder up` runs under the name of this program. Not among the commands, so that it
/// shows in no help, suggestion or completion.
#[derive(Debug, Parser)]
#[command(name = "larder")]
pub(crate) enum Internal {
    /// Run a master; `larder up` does that.
    #[command(name = "run-master")]
    Master(RunProgram),
    /// Run an agent; `larder up` does that.
    #[command(name = "run-agent")]
    Agent(RunProgram),
    /// Run a prepared pool; `larder up --detach` does that.
    #[command(name = "run-pool")]
    Pool {
        /// Its run folder.
        run_folder: PathBuf,
    },
}

impl Internal {
    /// Whether the first argument behind the program's name is one of these.
    pub(crate) fn is_meant(arguments: &[OsString]) -> bool {
        let first = arguments.get(1).and_then(|word| word.to_str());
        matches!(first, Some("run-master" | "run-agent" | "run-pool"))
    }
}

/// Whether these arguments, which may be wrong otherwise, ask for JSON.
pub(crate) fn asks_for_json(arguments: &[OsString]) -> bool {
    let pair = |two: &[OsString]| two[0] == "--output" && two[1] == "json";
    arguments.iter().any(|word| word == "--output=json") || arguments.windows(2).any(pair)
}

/// Arguments of `put`.
#[derive(Debug, clap::Args)]
pub(crate) struct Put {
    /// The key: 1 to 4096 bytes.
    pub(crate) key: OsString,
    /// Where the bytes are; `-` or nothing = standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Number of replicas; without it as the pool says.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub(crate) replicas: Option<u8>,
    /// Fail if there cannot be that many replicas, instead of writing fewer.
    #[arg(long)]
    pub(crate) strict: bool,
    /// Replace the object if there is one; what other options do not say of it stays.
    #[arg(long)]
    pub(crate) upsert: bool,
    /// With --upsert, fail while a reader's lease protects the object.
    #[arg(long, requires = "upsert")]
    pub(crate) if_unleased: bool,
    /// What protects it from eviction: hard, soft, or soft for a time, as in soft=10m.
    #[arg(long, value_parser = parse_pin)]
    pub(crate) pin: Option<Pin>,
    /// Objects of one group are evicted together.
    #[arg(long)]
    pub(crate) group: Option<GroupId>,
    /// What its bytes are, 0 to 9: 0 unknown, 1 KV cache, 2 tensor, 3 weight, 4 sample,
    /// 5 activation, 6 gradient, 7 optimizer state, 8 metadata, 9 general.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=9))]
    pub(crate) data_type: u8,
    /// Agent that should hold a replica; may be given several times, the best first.
    #[arg(long = "prefer", value_name = "AGENT")]
    pub(crate) preferred: Vec<AgentName>,
}

/// Arguments of `remove`.
#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// The keys.
    #[arg(required_unless_present = "prefix", conflicts_with = "prefix")]
    pub(crate) keys: Vec<OsString>,
    /// Remove every object whose key starts so; an empty prefix is all of the tenant's objects.
    #[arg(long)]
    pub(crate) prefix: Option<OsString>,
    /// Leave objects that a reader's lease protects.
    #[arg(long)]
    pub(crate) if_unleased: bool,
}

/// Arguments of `pin`.
#[derive(Debug, clap::Args)]
pub(crate) struct PinArgs {
    /// The keys.
    #[arg(required = true)]
    pub(crate) keys: Vec<OsString>,
    /// How: hard, soft, or soft for a time, as in soft=10m.
    #[arg(long = "as", value_name = "PIN", default_value = "hard", value_parser = parse_pin)]
    pub(crate) pin: Pin,
}

/// Arguments of `stat`.
#[derive(Debug, clap::Args)]
pub(crate) struct Stat {
    /// The keys.
    pub(crate) keys: Vec<OsString>,
}

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
pub(crate) struct Get {
    /// The key.
    pub(crate) key: OsString,
    /// Where the bytes go; `-` or nothing = standard output.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// Write bytes to a terminal even if they are no text.
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// Arguments of `exists` and `unpin`.
#[derive(Debug, clap::Args)]
pub(crate) struct Keys {
    /// The keys.
    #[arg(required = true)]
    pub(crate) keys: Vec<OsString>,
}

/// Arguments of `ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only keys that start so.
    pub(crate) prefix: Option<OsString>,
    /// Only keys after this one.
    #[arg(long)]
    pub(crate) after: Option<OsString>,
    /// Stop after so many keys.
    #[arg(long)]
    pub(crate) limit: Option<u64>,
    /// Show what is known of each object.
    #[arg(long, short = 'l')]
    pub(crate) long: bool,
}

/// Arguments of `bench`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Bench {
    /// What to measure.
    #[arg(value_enum, default_value_t = Work::Mix)]
    pub(crate) work: Work,
    /// Size of an object, as in 4Ki, 64k or 1Mi.
    #[arg(long, default_value = "1Mi", value_parser = parse_bytes)]
    pub(crate) size: u64,
    /// Number of objects.
    #[arg(long, short = 'n', default_value_t = 256)]
    pub(crate) count: u64,
    /// Calls in flight.
    #[arg(long, short = 'd', default_value_t = 1)]
    pub(crate) depth: usize,
    /// What the keys start with.
    #[arg(long, default_value = "bench/")]
    pub(crate) prefix: String,
    /// Leave the objects in the pool.
    #[arg(long)]
    pub(crate) keep: bool,
    /// What protects the objects that are put from eviction: none, hard or soft=<time>.
    #[arg(long, value_parser = parse_pin)]
    pub(crate) pin: Option<Pin>,
}

/// What `bench` measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Puts.
    Put,
    /// Gets of objects that are put first, not measured, unless they are there.
    Get,
    /// Puts, then gets of the same objects.
    Mix,
}

/// Arguments of `up`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Up {
    /// File with one CachePool and its CacheTenants; `-` = standard input.
    #[arg(short, long, value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Return once the pool is up; it runs on until `larder down`.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Port of the first master for clients; 0 = any free one.
    #[arg(long, default_value_t = 0)]
    pub(crate) client_port: u16,
    /// Port of the first master for administration and metrics; 0 = any free one.
    #[arg(long, default_value_t = 0)]
    pub(crate) admin_port: u16,
    /// What the processes log, as in info,larder_master=debug.
    #[arg(long, default_value = "info")]
    pub(crate) log_filter: String,
    /// Addresses where the masters listen instead of loopback, one each: for tests whose masters
    /// have network namespaces of their own.
    #[arg(long, hide = true, value_delimiter = ',')]
    pub(crate) master_hosts: Vec<std::net::IpAddr>,
    /// More sections of the masters' configuration, as one JSON object: for tests.
    #[arg(long, hide = true, value_parser = parse_sections)]
    pub(crate) master_sections: Option<Sections>,
}

/// Arguments of the programs that `up` starts.
#[derive(Debug, clap::Args)]
pub(crate) struct RunProgram {
    /// The program's configuration.
    #[arg(long, value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Stop when standard input ends: it does when whoever started this dies.
    #[arg(long)]
    pub(crate) until_stdin_ends: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn every_command_takes_what_every_command_knows() {
        fn walk(command: &clap::Command, ids: &[String]) {
            for id in ids {
                let flag = command.get_arguments().find(|one| one.get_id() == id);
                let is_flag = flag.is_some_and(|one| one.is_global_set() && !one.is_positional());
                assert!(is_flag, "--{id} of {}", command.get_name());
            }
            let subs = command.get_subcommands();
            subs.filter(|one| one.get_name() != "help")
                .for_each(|one| walk(one, ids));
        }
        let mut command = Args::command();
        command.build();
        let globals = command.get_arguments().filter(|one| one.is_global_set());
        let ids: Vec<String> = globals.map(|one| one.get_id().to_string()).collect();
        assert!(ids.contains(&"tenant".to_owned()), "{ids:?}");
        walk(&command, &ids);
        let words = ["larder", "quota", "explain", "--tenant", "team-a"];
        let args = Args::try_parse_from(words).expect("accepted");
        assert_eq!(args.global.tenant.as_deref(), Some("team-a"));
        let Command::Quota(Quota::Explain(explain)) = args.command else {
            panic!("another command")
        };
        assert_eq!(explain.tenant, None);
    }

    #[test]
    fn json_is_asked_for_anywhere() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(asks_for_json(&words("larder ls --output json --x")));
        assert!(asks_for_json(&words("larder --output=json")));
        assert!(!asks_for_json(&words("larder --output human json")));
    }

    #[test]
    fn help_tells_the_exit_codes() {
        let help = Args::command().render_long_help().to_string();
        assert!(help.contains("refused: a limit"), "{help}");
    }
}
