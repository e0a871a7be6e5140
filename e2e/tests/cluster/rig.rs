//! The one cluster of a run, with the chart in it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, bail, ensure};
use larder_e2e::cluster::{Cluster, Options, Temporary, product};

/// Where the chart's release lies, as the documentation has it.
pub(crate) const SYSTEM: &str = "larder-system";
const RELEASE: &str = "larder";

/// What all tests share. Each part is made when the first test asks for it.
#[derive(Debug)]
pub(crate) struct Rig {
    needs: Result<(), String>,
    is_required: bool,
    cluster: OnceLock<Result<Temporary, String>>,
    operator: OnceLock<Result<(), String>>,
    scenes: AtomicUsize,
}

impl Rig {
    /// A rig that has started nothing yet. `needs` says what the machine lacks.
    pub(crate) fn new(needs: Result<(), String>, is_required: bool) -> Self {
        Self {
            needs,
            is_required,
            cluster: OnceLock::new(),
            operator: OnceLock::new(),
            scenes: AtomicUsize::new(0),
        }
    }

    /// What the machine lacks.
    pub(crate) fn needs(&self) -> Result<(), &str> {
        self.needs.as_ref().copied().map_err(String::as_str)
    }

    /// Whether lacking something is a failure.
    pub(crate) fn is_required(&self) -> bool {
        self.is_required
    }

    /// A number that no other scene of the run has.
    pub(crate) fn next(&self) -> usize {
        self.scenes.fetch_add(1, Ordering::Relaxed)
    }

    /// Three nodes in two zones, with the chart installed and its operator scaled to nothing.
    pub(crate) fn cluster(&self) -> Result<&Cluster> {
        let made = self
            .cluster
            .get_or_init(|| start().map_err(|error| format!("{error:#}")));
        made.as_deref().map_err(|error| anyhow!("{error}"))
    }

    /// The same with the product's images on all nodes and the chart's operator at work.
    pub(crate) fn cluster_with_operator(&self) -> Result<&Cluster> {
        let cluster = self.cluster()?;
        let made = self
            .operator
            .get_or_init(|| install(cluster).map_err(|error| format!("{error:#}")));
        made.as_ref().map_err(|error| anyhow!("{error}"))?;
        Ok(cluster)
    }

    /// Whether the chart's operator is at work.
    pub(crate) fn has_operator(&self) -> bool {
        self.operator.get().is_some()
    }

    /// Takes the cluster down, if it was started.
    pub(crate) fn down(&self) -> Result<()> {
        match self.cluster.get() {
            Some(Ok(cluster)) => cluster.down(),
            _ => Ok(()),
        }
    }
}

fn start() -> Result<Temporary> {
    let cluster = Temporary::up(&Options {
        nodes: 3,
        zones: 2,
        say: crate::say,
        ..Options::default()
    })?;
    // An older chart first, so that all tests run on upgraded kinds.
    let older = tempfile::tempdir()?;
    write_older_chart(older.path())?;
    let none = ["--set", "operator.replicas=0", "--create-namespace"];
    helm(&cluster, "install", older.path(), &none)?;
    helm(&cluster, "upgrade", &chart(), &none[..2])?;
    Ok(cluster)
}

/// The chart with a CachePool that allows fewer nodes.
fn write_older_chart(folder: &Path) -> Result<()> {
    run(Command::new("cp")
        .arg("-r")
        .arg(chart().join("."))
        .arg(folder))?;
    let path = folder.join("templates/crds/cachepools.yaml");
    let text = std::fs::read_to_string(&path)?;
    let older = text.replace("maximum: 4096", "maximum: 16");
    ensure!(older != text, "{} has no bound to change", path.display());
    Ok(std::fs::write(&path, older)?)
}

fn install(cluster: &Cluster) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archives = product::write(&programs()?, product::PRODUCT, folder.path())?;
    cluster.load_image(&archives.product)?;
    cluster.load_image(&archives.engine)?;
    let upgraded = helm(cluster, "upgrade", &chart(), &["--wait", "--timeout=120s"]);
    upgraded.map_err(|error| {
        let labels = "app.kubernetes.io/component=operator";
        let logs = ["-n", SYSTEM, "logs", "-l", labels, "--tail=5"];
        let said = cluster.kubectl().run(&logs);
        let said = said.unwrap_or_else(|error| format!("{error:#}"));
        error.context(format!("the operator does not come up; it said: {said}"))
    })
}

/// Puts the release of all namespaces into the state that the documentation describes.
fn helm(cluster: &Cluster, verb: &str, chart: &Path, more: &[&str]) -> Result<()> {
    let mut helm = cluster.helm();
    helm.args([verb, RELEASE])
        .arg(chart)
        .args(["--namespace", SYSTEM]);
    helm.args(IMAGE).args(more);
    run(&mut helm).map(drop)
}

/// The image of tests, which is on the nodes already.
pub(crate) const IMAGE: [&str; 6] = [
    "--set",
    "image.repository=localhost/larder",
    "--set",
    "image.tag=e2e",
    "--set",
    "image.pullPolicy=Never",
];

/// Runs a command to its end and gives what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{command:?} cannot be started"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The folder of the tree.
pub(crate) fn tree() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().unwrap_or(own).to_owned()
}

/// The chart as the tree has it.
pub(crate) fn chart() -> PathBuf {
    tree().join("charts/larder")
}

/// The folder with the programs under test: they are built beside this one.
pub(crate) fn programs() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own
        .ancestors()
        .nth(2)
        .context("this program has no folder")?;
    ensure!(
        folder.join("larder-operator").is_file(),
        "{} has no larder-operator; run: cargo build --workspace --bins",
        folder.display()
    );
    Ok(folder.to_owned())
}
