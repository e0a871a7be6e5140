//! The `cluster` command: real Kubernetes with several emulated nodes on this machine.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use larder_e2e::cluster::{
    Cluster, Image, Options, packages, prerequisites, probe, product, selftest,
};

/// Real Kubernetes with several emulated nodes on this machine, without docker
///
/// Needs root and, once, Go 1.26. LARDER_CLUSTER_CACHE moves the compiled programs (usually
/// ~/.cache/larder/cluster) and LARDER_CLUSTER_STATE all else (~/.local/state/larder/cluster).
#[derive(Debug, Parser)]
#[command(name = "cluster", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Say what this machine lacks for a cluster; fails if there is something
    Needs,
    /// Install Debian's packages that are missing
    Packages,
    /// Compile the programs, unless that was done before
    Build,
    /// Start anew and wait until all nodes are ready
    Up {
        /// How many nodes: n1, n2 and so on
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=50))]
        nodes: u8,
        /// Over how many zones they are spread; as many as nodes if not said
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..))]
        zones: Option<u8>,
        /// After a failure leave all as it is
        #[arg(long)]
        keep: bool,
    },
    /// Stop everything and leave nothing behind
    Down,
    /// Show nodes, processes and memory
    Status,
    /// Print the path of the administrator's kubeconfig
    Kubeconfig,
    /// Run kubectl as the administrator
    Kubectl(Words),
    /// Run Helm as the administrator
    Helm(Words),
    /// Run a command in the control plane's network, which reaches nodes and pods
    Exec(Words),
    /// Run a command inside a node
    NodeExec {
        /// The node
        node: String,
        #[command(flatten)]
        words: Words,
    },
    /// Kill or start a node's kubelet; its containers run on
    Kubelet {
        /// The node
        node: String,
        /// What to do
        action: Switch,
    },
    /// Cut a node's power or boot it with its old disk; add the next one or remove one
    Node {
        /// The node
        node: String,
        /// What to do
        action: NodeAction,
    },
    /// Make an image of files, with the libraries that programs need
    MakeImage {
        /// What pods ask for: localhost/app:1
        name: String,
        /// The archive to write
        out: PathBuf,
        /// What runs; the first file if not said
        #[arg(long)]
        entrypoint: Option<String>,
        /// Who runs it, as UID or UID:GID
        #[arg(long)]
        user: Option<String>,
        /// A file of this machine and its absolute path in the image
        #[arg(required = true, value_name = "FILE=PATH", value_parser = pair)]
        files: Vec<(PathBuf, String)>,
    },
    /// Make the images of the product and of a pod that acts as an engine: product.tar, engine.tar
    ProductImages {
        /// The folder to write to
        out: PathBuf,
        /// Where the built programs lie
        #[arg(long)]
        programs: PathBuf,
        /// What the product's pods ask for
        #[arg(long, default_value = product::PRODUCT)]
        name: String,
    },
    /// Load an image on all nodes, or on one
    LoadImage {
        /// The archive
        archive: PathBuf,
        /// The only node to have it
        #[arg(long)]
        node: Option<String>,
    },
    /// Start a cluster, show that it does what it should, and take it down
    Selftest {
        /// Parts of the names of checks; all if none is given
        names: Vec<String>,
    },
    /// What the self-test runs in pods
    #[command(hide = true, subcommand)]
    Probe(Probe),
}

#[derive(Debug, clap::Args)]
struct Words {
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Switch {
    Start,
    Stop,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum NodeAction {
    Start,
    Stop,
    Add,
    Remove,
}

#[derive(Debug, Subcommand)]
enum Probe {
    Serve,
    Ask { target: String },
    Read { path: PathBuf },
    Write { path: PathBuf, text: String },
}

fn pair(text: &str) -> Result<(PathBuf, String), String> {
    let parts = text.rsplit_once('=');
    let (file, path) = parts.ok_or("write FILE=PATH, as target/debug/larder=/bin/larder")?;
    Ok((PathBuf::from(file), path.to_owned()))
}

fn say(text: &str) {
    // Whoever does not listen need not be told.
    let _ = writeln!(std::io::stderr(), "cluster: {text}");
}

fn show(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{}", text.trim_end())?)
}

fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<()> {
    match verb {
        Verb::Needs => prerequisites().map_err(anyhow::Error::msg),
        Verb::Packages => packages::ensure(say),
        Verb::Build => show(&Cluster::build(say)?.display().to_string()),
        Verb::Up { nodes, zones, keep } => {
            let options = Options {
                nodes,
                zones: zones.unwrap_or(nodes),
                keep,
                say,
            };
            let cluster = Cluster::up(&options)?;
            show(&format!("KUBECONFIG={}", cluster.kubeconfig().display()))
        }
        Verb::Down => Cluster::down(say),
        Verb::Status => show(&Cluster::attach()?.status()?),
        Verb::Kubeconfig => show(&Cluster::attach()?.kubeconfig().display().to_string()),
        Verb::Kubectl(words) => become_of(Cluster::attach()?.kubectl().command(), &words),
        Verb::Helm(words) => become_of(Cluster::attach()?.helm(), &words),
        Verb::Exec(words) => become_of(Cluster::attach()?.in_network()?, &words),
        Verb::NodeExec { node, words } => {
            become_of(Cluster::attach()?.node(&node)?.inside()?, &words)
        }
        Verb::Kubelet { node, action } => {
            let cluster = Cluster::attach()?;
            let node = cluster.node(&node)?;
            match action {
                Switch::Start => node.start_kubelet(),
                Switch::Stop => node.stop_kubelet(),
            }
        }
        Verb::Node { node, action } => change_node(&node, action),
        Verb::MakeImage {
            name,
            out,
            entrypoint,
            user,
            files,
        } => {
            let first = files
                .first()
                .map(|(_, path)| path.clone())
                .unwrap_or_default();
            let mut image = Image::new(&name).entrypoint(&[&entrypoint.unwrap_or(first)]);
            if let Some(user) = user {
                image = image.user(&user);
            }
            for (file, path) in files {
                image = image.file(file, &path)?;
            }
            image.write(&out)
        }
        Verb::ProductImages {
            out,
            programs,
            name,
        } => product::write(&programs, &name, &out).map(drop),
        Verb::LoadImage {
            archive,
            node: None,
        } => Cluster::attach()?.load_image(&archive),
        Verb::LoadImage {
            archive,
            node: Some(node),
        } => Cluster::attach()?.node(&node)?.load_image(&archive),
        Verb::Selftest { names } => selftest::run(&names, say),
        Verb::Probe(probe) => answer(probe),
    }
}

fn change_node(name: &str, action: NodeAction) -> Result<()> {
    let cluster = Cluster::attach()?;
    match action {
        NodeAction::Start => cluster.node(name)?.power_on(),
        NodeAction::Stop => cluster.node(name)?.power_off(),
        NodeAction::Remove => cluster.node(name)?.remove(),
        NodeAction::Add => {
            let next = cluster.next_node_name();
            anyhow::ensure!(name == next, "the next node is {next}, not {name}");
            cluster.add_node().map(drop)
        }
    }
}

/// Ends as another program, with its signals and its status.
fn become_of(mut command: Command, words: &Words) -> Result<()> {
    let error = command.args(&words.words).exec();
    Err(error).context(command.get_program().to_string_lossy().into_owned())
}

fn answer(probe: Probe) -> Result<()> {
    match probe {
        Probe::Serve => probe::serve(),
        Probe::Ask { target } => show(&probe::ask(&target)?),
        Probe::Read { path } => show(&std::fs::read_to_string(path)?),
        Probe::Write { path, text } => Ok(std::fs::write(path, text)?),
    }
}
