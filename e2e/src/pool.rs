//! A pool of local processes for a test or a benchmark: `larder up`, and `larder down` at the end.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The document of `larder up --output json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Document {
    /// The pool's name.
    pub pool: String,
    /// Its masters.
    pub masters: Vec<MasterEntry>,
    /// Its agents.
    pub agents: Vec<AgentEntry>,
    /// Token files by tenant or role.
    pub tokens: std::collections::BTreeMap<String, PathBuf>,
}

/// A master in the document.
#[derive(Clone, Debug, Deserialize)]
pub struct MasterEntry {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// `leader`, `standby` or `starting`.
    pub role: String,
    /// Where clients connect.
    pub client_addr: String,
    /// Where administrators connect.
    pub admin_addr: String,
}

/// An agent in the document.
#[derive(Clone, Debug, Deserialize)]
pub struct AgentEntry {
    /// Its name.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Its data listener.
    pub client_addr: String,
    /// Its Unix socket.
    pub socket: PathBuf,
    /// Its metrics listener.
    pub metrics_addr: String,
}

/// The `larder` program that stands beside the running test or benchmark.
///
/// # Errors
/// If it was not built.
pub fn larder() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own
        .ancestors()
        .find(|folder| folder.join("larder").is_file());
    let found = folder.context("the program larder is not built: run cargo build -p larder-cli")?;
    Ok(found.join("larder"))
}

/// Folders of one name that are left by processes that were killed, at most.
const HOMES_MAX: u32 = 64;

/// A running pool. Dropping it takes the pool down.
#[derive(Debug)]
pub struct Pool {
    /// What `larder up` printed.
    pub document: Document,
    /// The run folder.
    pub folder: PathBuf,
    home: PathBuf,
}

impl Pool {
    /// Starts a pool from the text of a pool file. `label` names its folder.
    ///
    /// # Errors
    /// With all that `larder up` printed, if it fails.
    pub fn start(label: &str, file: &str) -> Result<Self> {
        Self::start_in(&Self::new_home(label)?, file, |_| {})
    }

    /// A folder for all files of a pool; the pool's run folder is `run` in it.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new_home(label: &str) -> Result<PathBuf> {
        // Short: a Unix socket's path may have 107 bytes.
        let own = std::process::id();
        for number in 0..HOMES_MAX {
            let home = std::env::temp_dir().join(format!("larder-{label}-{own}-{number}"));
            match std::fs::create_dir(&home) {
                Ok(()) => return Ok(home),
                // Of a process that has the same number in another namespace, or had it.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).context(home.display().to_string()),
            }
        }
        bail!("{HOMES_MAX} folders of {label} are left; remove them")
    }

    /// Starts a pool in a folder of [`Self::new_home`]. `prepare` may add arguments and environment
    /// to `larder up`; the pool's processes have its environment.
    ///
    /// # Errors
    /// With all that `larder up` printed, if it fails.
    pub fn start_in(home: &Path, file: &str, prepare: impl FnOnce(&mut Command)) -> Result<Self> {
        let path = home.join("pool.yaml");
        std::fs::write(&path, file)?;
        let (home, folder) = (home.to_owned(), home.join("run"));
        let mut up = Command::new(larder()?);
        up.args(["up", "--detach", "--output", "json", "-f"])
            .arg(&path)
            .arg("--dir")
            .arg(&folder)
            .stdin(Stdio::null());
        prepare(&mut up);
        let output = up.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!(
                "larder up failed: {text}{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let document = serde_json::from_str(&text)
            .with_context(|| format!("larder up printed no document: {text}"))?;
        Ok(Self {
            document,
            folder,
            home,
        })
    }

    /// A `larder` command on this pool.
    ///
    /// # Errors
    /// If the program was not built.
    pub fn command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = Command::new(larder()?);
        command
            .args(arguments)
            .arg("--dir")
            .arg(&self.folder)
            .stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a `larder` command on this pool to its end.
    ///
    /// # Errors
    /// If it cannot be started; its own failure stands in the output.
    pub fn run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.command(arguments)?.output()?)
    }

    /// The text of a token file of the document.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn token(&self, name: &str) -> Result<String> {
        let path = self.document.tokens.get(name);
        let path = path.with_context(|| format!("no token of {name} in the document"))?;
        Ok(std::fs::read_to_string(path)?.trim().to_owned())
    }

    /// Every process of the pool that the document names.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let masters = self.document.masters.iter().map(|master| master.pid);
        masters
            .chain(self.document.agents.iter().map(|agent| agent.pid))
            .collect()
    }

    /// The folder in which all of this pool's files lie.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Takes the pool down and says what `larder down` said.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn down(&self) -> Result<Output> {
        self.run(&["down"])
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // A failure here has shown itself elsewhere, or will in the next run.
        let _ = self.down();
        let _ = std::fs::remove_dir_all(&self.home);
    }
}
