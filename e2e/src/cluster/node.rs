//! A node as tests handle it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::group::Lock;
use super::machine::Machine;
use super::worker::Worker;
use super::{Cluster, command, control_plane, network};

const KUBELET: &str = "kubelet";

/// A node, running or switched off.
#[derive(Clone, Debug)]
pub struct Node<'c> {
    cluster: &'c Cluster,
    worker: Worker<'c>,
}

impl<'c> Node<'c> {
    pub(crate) fn new(cluster: &'c Cluster, number: u8) -> Self {
        Self {
            cluster,
            worker: Worker::of(&cluster.site, number),
        }
    }

    /// Its name, which is also that of the Kubernetes object.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.worker.machine.name
    }

    /// Its address in the cluster's network.
    #[must_use]
    pub fn address(&self) -> std::net::Ipv4Addr {
        self.worker.address()
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.worker.machine.first().is_some()
    }

    /// A path of the node as this machine sees it, while the node runs: `/var/lib/larder`.
    ///
    /// # Errors
    /// If the node does not run.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        self.worker.machine.path(path)
    }

    /// A command inside the node, to which the program and its arguments are added.
    ///
    /// # Errors
    /// If the node does not run.
    pub fn inside(&self) -> Result<Command> {
        self.worker.machine.inside()
    }

    /// Runs a program inside the node and gives what it printed.
    ///
    /// # Errors
    /// With what it said, if it fails.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        command::run(
            self.inside()?
                .args(words)
                .stdin(std::process::Stdio::null()),
        )
    }

    /// Loads an image on this node only.
    ///
    /// # Errors
    /// If the archive cannot be read or is no image.
    pub fn load_image(&self, archive: &Path) -> Result<()> {
        self.worker.import(archive)
    }

    /// Cuts the power: every process of the node ends at once. Its disk stays.
    ///
    /// # Errors
    /// If processes do not end.
    pub fn power_off(&self) -> Result<()> {
        let _lock = Lock::wait()?;
        self.worker.machine.cut()?;
        network::unplug(&control_plane::machine(&self.cluster.site), self.name())
    }

    /// Boots the node with its old disk, and returns before it is ready.
    ///
    /// # Errors
    /// If it runs, or does not boot.
    pub fn power_on(&self) -> Result<()> {
        let _lock = Lock::wait()?;
        self.switch_on()
    }

    pub(crate) fn switch_on(&self) -> Result<()> {
        if self.is_on() {
            bail!("{} runs already", self.name());
        }
        self.worker.boot()?;
        self.worker.start(KUBELET)?;
        self.worker.start("kube-proxy")
    }

    /// Kills the kubelet. Containers run on.
    ///
    /// # Errors
    /// If it does not end.
    pub fn stop_kubelet(&self) -> Result<()> {
        let _lock = Lock::wait()?;
        self.worker.machine.kill(KUBELET)
    }

    /// Starts the kubelet again.
    ///
    /// # Errors
    /// If it runs, or the node does not.
    pub fn start_kubelet(&self) -> Result<()> {
        let _lock = Lock::wait()?;
        self.worker.start(KUBELET)
    }

    /// Takes the node out of the cluster for good: power, object and disk.
    ///
    /// # Errors
    /// If processes do not end, or the API server refuses.
    pub fn remove(self) -> Result<()> {
        self.power_off()?;
        self.cluster
            .kubectl
            .run(&["delete", "node", self.name(), "--ignore-not-found"])?;
        let _lock = Lock::wait()?;
        Ok(std::fs::remove_dir_all(self.worker.machine.folder())?)
    }

    pub(crate) fn machine(&self) -> &Machine<'c> {
        &self.worker.machine
    }
}
