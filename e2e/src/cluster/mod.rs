//! Real Kubernetes on one machine, without docker: an unmodified control plane and several
//! emulated nodes, each with its own containerd, kubelet and proxy for Services.
//!
//! A node is a tree of processes in namespaces of its own, with its own /var, /run, network and
//! process numbers, so that all programs use their usual paths: a hostPath below /var and a
//! kubelet's socket are the node's. Other paths are the whole machine's. There is one cluster on
//! a machine. It needs root, and everything of it lies in the control group `larder`, in one
//! folder of state and in kernel objects that end with its processes.
//!
//! ```no_run
//! use larder_e2e::cluster::{Image, Options, Temporary};
//!
//! # fn main() -> anyhow::Result<()> {
//! let cluster = Temporary::up(&Options { nodes: 3, ..Options::default() })?;
//! let archive = std::env::temp_dir().join("app.tar");
//! let app = Image::new("localhost/app:1").file("target/debug/app", "/bin/app")?;
//! app.entrypoint(&["/bin/app"]).write(&archive)?;
//! cluster.load_image(&archive)?;
//! println!("{}", cluster.kubectl().run(&["get", "nodes"])?);
//! # Ok(())
//! # }
//! ```

mod audit;
mod claim;
pub(crate) mod command;
mod control_plane;
mod folders;
mod group;
mod image;
mod kubectl;
mod libraries;
mod life;
mod machine;
mod needs;
mod network;
mod node;
pub mod packages;
mod pki;
pub mod probe;
pub mod product;
mod programs;
pub mod selftest;
mod status;
mod worker;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub use audit::{Audit, Write};
pub use command::{Look, until};
pub use image::Image;
pub use kubectl::Kubectl;
pub use needs::prerequisites;
pub use node::Node;

use claim::Claim;
use folders::Folders;
use group::{Groups, Lock};
use machine::Site;
use worker::Worker;

/// Told what goes on, in a sentence without an end.
pub type Say = fn(&str);

/// How a cluster is started.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many nodes: `n1`, `n2` and so on, at most 50.
    pub nodes: u8,
    /// Over how many zones they are spread: node i is in `zone-((i - 1) mod zones + 1)`.
    pub zones: u8,
    /// Whether a start that failed leaves everything as it is, for inspection.
    pub keep: bool,
    /// Where progress goes.
    pub say: Say,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 3,
            zones: 3,
            keep: false,
            say: |_| {},
        }
    }
}

/// What is written down about a running cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Record {
    programs: PathBuf,
    zones: u8,
}

/// A running cluster. Dropping it changes nothing; [`Temporary`] takes it down.
#[derive(Clone, Debug)]
pub struct Cluster {
    site: Site,
    zones: u8,
    kubectl: Kubectl,
}

/// The folder of whatever was fetched or compiled for tests.
///
/// # Errors
/// If the environment names one that cannot be used.
pub(crate) fn cache() -> Result<PathBuf> {
    let own = Folders::from_env()?.cache;
    Ok(own.parent().unwrap_or(&own).to_owned())
}

impl Cluster {
    /// Compiles the programs unless that was done before.
    ///
    /// # Errors
    /// If Go is missing or the compilation fails.
    pub fn build(say: Say) -> Result<PathBuf> {
        programs::build(&Folders::from_env()?, say)
    }

    /// Starts a cluster anew and waits until all nodes are ready. What an earlier one left is
    /// removed first, but not before a [`Temporary`] of another process has ended. Missing
    /// packages are installed, and programs compiled.
    ///
    /// # Errors
    /// With what to do, or with the ends of the logs; everything is taken down again.
    pub fn up(options: &Options) -> Result<Self> {
        let _claim = Claim::wait(options.say)?;
        life::up(options)
    }

    /// The cluster that runs.
    ///
    /// # Errors
    /// If none does.
    pub fn attach() -> Result<Self> {
        let folders = Folders::from_env()?;
        let path = life::record(&folders);
        let Ok(text) = std::fs::read_to_string(&path) else {
            bail!("no cluster is up; run: cluster up");
        };
        let record: Record = serde_json::from_str(&text)
            .with_context(|| format!("{} is damaged; run: cluster up", path.display()))?;
        let site = Site {
            folders,
            groups: Groups::find()?,
            programs: record.programs,
        };
        Ok(Self::of(site, record.zones))
    }

    fn of(site: Site, zones: u8) -> Self {
        let kubectl = Kubectl::new(&site.folders, &site.programs);
        Self {
            site,
            zones,
            kubectl,
        }
    }

    /// Stops everything and removes all of it. Safe to repeat, and after a crash. Waits for a
    /// [`Temporary`] of another process to end.
    ///
    /// # Errors
    /// If something stays.
    pub fn down(say: Say) -> Result<()> {
        let _claim = Claim::wait(say)?;
        life::down()
    }

    /// The path of the administrator's kubeconfig, for programs of this machine.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.site.folders.kubeconfig()
    }

    /// The command line of Kubernetes, as the administrator.
    #[must_use]
    pub fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// Writes a kubeconfig for the bearer of a token, as a ServiceAccount's.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write_kubeconfig(&self, path: &Path, token: &str) -> Result<()> {
        pki::Pki::kubeconfig_of_token(path, &self.kubeconfig(), token)
    }

    /// Helm, as the administrator: a command to which arguments are added.
    #[must_use]
    pub fn helm(&self) -> Command {
        let mut helm = Command::new(self.site.programs.join("helm"));
        helm.env("KUBECONFIG", self.kubeconfig());
        // Nothing of it may outlive the cluster, nor come from the caller's own settings.
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            helm.env(variable, self.site.folders.state.join("helm"));
        }
        helm
    }

    /// All nodes, in order, with those that are switched off.
    #[must_use]
    pub fn nodes(&self) -> Vec<Node<'_>> {
        let numbers = worker::numbers(&self.site);
        numbers
            .into_iter()
            .map(|number| Node::new(self, number))
            .collect()
    }

    /// One node: `n1`.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn node(&self, name: &str) -> Result<Node<'_>> {
        let nodes = self.nodes();
        let names = nodes.iter().map(Node::name).collect::<Vec<_>>().join(", ");
        let found = nodes.into_iter().find(|node| node.name() == name);
        found.with_context(|| format!("there is no node {name}; there are {names}"))
    }

    /// The name of the node that [`Cluster::add_node`] would add.
    #[must_use]
    pub fn next_node_name(&self) -> String {
        self.next_node().machine.name
    }

    fn next_node(&self) -> Worker<'_> {
        let last = worker::numbers(&self.site).last().copied().unwrap_or(0);
        Worker::of(&self.site, last.saturating_add(1))
    }

    /// Adds the next node, and returns before it is ready.
    ///
    /// # Errors
    /// If it does not boot, or there are 50.
    pub fn add_node(&self) -> Result<Node<'_>> {
        let _lock = Lock::wait()?;
        let worker = self.next_node();
        if worker.number > network::NODES_MAX {
            bail!(
                "there are {} nodes, and no address for one more",
                network::NODES_MAX
            );
        }
        worker.lay_out()?;
        self.kubectl.apply(&worker.object(self.zones))?;
        let node = Node::new(self, worker.number);
        node.switch_on()?;
        Ok(node)
    }

    /// Loads an image on all nodes that run. There is no registry: pods need
    /// `imagePullPolicy: IfNotPresent` or `Never` if the tag is `latest`.
    ///
    /// # Errors
    /// If the archive cannot be read or is no image.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        let nodes = self.nodes();
        let running: Vec<_> = nodes.iter().filter(|node| node.is_on()).collect();
        if running.is_empty() {
            bail!("no node is running; run: cluster up");
        }
        life::on_all(&running, |node| node.load_image(archive))
    }

    /// The writes that the API server answers from now on.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::from_now(self.site.folders.audit_log())
    }

    /// Connects from the control plane's network, which reaches nodes, pods and DNS by address
    /// but no Service.
    ///
    /// # Errors
    /// If nobody answers within `limit`.
    pub fn connect(&self, target: SocketAddr, limit: Duration) -> Result<TcpStream> {
        control_plane::machine(&self.site).connect(target, limit)
    }

    /// Listens in the control plane's network, which every pod reaches, on a free port.
    ///
    /// # Errors
    /// If the control plane does not run.
    pub fn listen(&self) -> Result<TcpListener> {
        control_plane::machine(&self.site).listen((network::CONTROL_PLANE, 0).into())
    }

    /// A command of this machine in the control plane's network, to which arguments are added.
    ///
    /// # Errors
    /// If the control plane does not run.
    pub fn in_network(&self) -> Result<Command> {
        control_plane::machine(&self.site).in_network()
    }

    /// What runs, and how much memory it takes: a table for people.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub fn status(&self) -> Result<String> {
        status::table(self)
    }
}

/// A cluster that is taken down when it is dropped. While it lives, no other process of this
/// machine starts one.
#[derive(Debug)]
pub struct Temporary {
    cluster: Cluster,
    _claim: Claim,
}

impl Temporary {
    /// As [`Cluster::up`].
    ///
    /// # Errors
    /// As there.
    pub fn up(options: &Options) -> Result<Self> {
        let claim = Claim::wait(options.say)?;
        Ok(Self {
            cluster: life::up(options)?,
            _claim: claim,
        })
    }

    /// Takes it down and says whether that went well.
    ///
    /// # Errors
    /// If something stays.
    pub fn down(&self) -> Result<()> {
        life::down()
    }
}

impl std::ops::Deref for Temporary {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.cluster
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // Nobody is left to tell; the next start cleans up first.
        let _ = life::down();
    }
}
