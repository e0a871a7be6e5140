//! Where the cluster keeps its programs and its state, and the only reader of the environment.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Moves the cache.
const CACHE_VARIABLE: &str = "LARDER_CLUSTER_CACHE";
/// Moves the state.
const STATE_VARIABLE: &str = "LARDER_CLUSTER_STATE";
/// What an emulated node has of its own: nothing that all nodes need may lie below.
const PRIVATE: [&str; 2] = ["/var", "/run"];

/// The two folders of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    /// Programs, by the content of their sources. Stays.
    pub(crate) cache: PathBuf,
    /// Everything of the running cluster. `down` removes it.
    pub(crate) state: PathBuf,
}

impl Folders {
    /// Reads the environment.
    ///
    /// # Errors
    /// If a folder is not absolute, or lies where a node would not see it.
    pub(crate) fn from_env() -> Result<Self> {
        let home = variable("HOME").unwrap_or_else(|| PathBuf::from("/root"));
        let folder = |own: &str, base: &str, below: &str| {
            variable(own).unwrap_or_else(|| {
                variable(base)
                    .unwrap_or_else(|| home.join(below))
                    .join("larder/cluster")
            })
        };
        let cache = folder(CACHE_VARIABLE, "XDG_CACHE_HOME", ".cache");
        let state = folder(STATE_VARIABLE, "XDG_STATE_HOME", ".local/state");
        Ok(Self {
            cache: usable(CACHE_VARIABLE, &cache)?,
            state: usable(STATE_VARIABLE, &state)?,
        })
    }

    /// Keys and certificates.
    pub(crate) fn pki(&self) -> PathBuf {
        self.state.join("pki")
    }

    /// The administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state.join("admin.kubeconfig")
    }

    /// The API server's log of writes.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.state.join("audit.log")
    }

    /// The logs of one machine.
    pub(crate) fn logs(&self, machine: &str) -> PathBuf {
        self.state.join("log").join(machine)
    }

    /// The configuration and the disk of one machine.
    pub(crate) fn machine(&self, machine: &str) -> PathBuf {
        self.state.join("machine").join(machine)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the configuration of the cluster tool"
)]
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// The folder without links, made if it is missing in part.
fn usable(variable: &str, path: &Path) -> Result<PathBuf> {
    if !path.is_absolute() {
        bail!(
            "{} is not absolute; set {variable} to an absolute path",
            path.display()
        );
    }
    // What exists of it may hold links; what does not exist yet cannot.
    let there = path
        .ancestors()
        .find(|folder| folder.exists())
        .context("there is no /")?;
    let real = there
        .canonicalize()
        .with_context(|| format!("{} cannot be read", there.display()))?
        .join(path.strip_prefix(there).unwrap_or(Path::new("")));
    // `join` with nothing leaves a slash at the end.
    let real: PathBuf = real.components().collect();
    if let Some(private) = PRIVATE.iter().find(|private| real.starts_with(private)) {
        bail!(
            "{} lies below {private}, which every node has of its own; set {variable} to a \
             folder elsewhere",
            real.display()
        );
    }
    Ok(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_nodes_do_not_see_is_refused() {
        let error = usable("X", Path::new("/var/lib/x"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("set X"), "{error}");
        assert!(usable("X", Path::new("x")).is_err());
        let fine = Path::new("/larder-that-does-not-exist/x");
        assert_eq!(usable("X", fine).unwrap(), fine);
        assert_eq!(usable("X", Path::new("/")).unwrap(), Path::new("/"));
    }
}
