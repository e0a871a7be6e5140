//! The real Prometheus for tests: that of the machine, or Debian's package in a folder of ours.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cluster;

/// Debian's name of the package with both programs.
const PACKAGE: &str = "prometheus";
/// Its configuration, in the folder that a caller gives.
const CONFIG_FILE: &str = "prometheus.yaml";
/// Where distributions put them.
const FOLDERS: [&str; 2] = ["/usr/bin", "/usr/local/bin"];

/// The folder with `prometheus` and `promtool`. What the machine lacks is fetched once, unpacked
/// in the cache and never installed: Debian's package would start a service.
///
/// # Errors
/// With what to do, if neither is there and it cannot be fetched.
pub fn programs() -> Result<PathBuf> {
    let has_both = |folder: &Path| {
        ["prometheus", "promtool"]
            .iter()
            .all(|program| folder.join(program).is_file())
    };
    let usual = FOLDERS.iter().map(PathBuf::from);
    if let Some(folder) = usual.into_iter().find(|folder| has_both(folder)) {
        return Ok(folder);
    }
    let cache = cluster::cache()?.join(PACKAGE);
    let folder = cache.join("usr/bin");
    if !has_both(&folder) {
        fetch(&cache).with_context(|| format!("install what Debian calls {PACKAGE}"))?;
    }
    if !has_both(&folder) {
        bail!("{} has no prometheus; remove that folder", folder.display());
    }
    Ok(folder)
}

fn fetch(cache: &Path) -> Result<()> {
    let parent = cache.parent().context("the cache is no folder")?;
    fs::create_dir_all(parent)?;
    // Renamed when it is whole, so that a folder that exists is.
    let own = tempfile::tempdir_in(parent)?;
    run(Command::new("apt-get")
        .args(["download", PACKAGE])
        .current_dir(own.path()))?;
    let mut files = fs::read_dir(own.path())?;
    let archive = files.next().context("apt-get fetched nothing")??.path();
    let unpacked = own.path().join("unpacked");
    run(Command::new("dpkg-deb")
        .arg("-x")
        .arg(&archive)
        .arg(&unpacked))?;
    match fs::rename(&unpacked, cache) {
        // Another test was quicker.
        Err(_) if cache.is_dir() => Ok(()),
        renamed => renamed.with_context(|| format!("{} cannot be made", cache.display())),
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?} cannot be started"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {}", output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A running Prometheus on loopback. It ends when this is dropped.
#[derive(Debug)]
pub struct Prometheus {
    process: Child,
    /// Where it answers.
    pub addr: String,
}

impl Prometheus {
    /// Starts one with the text of a configuration that it finds sound; its files lie in `home`.
    ///
    /// # Errors
    /// With what `promtool` finds wrong, or if it cannot be started.
    pub fn start(home: &Path, config: &str) -> Result<Self> {
        check(home, config)?;
        let file = home.join(CONFIG_FILE);
        // It takes no port 0. Whoever takes this one in between makes the start fail.
        let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let log = fs::File::create(home.join("prometheus.log"))?;
        let process = Command::new(programs()?.join("prometheus"))
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                home.join("tsdb").display()
            ))
            .arg(format!("--web.listen-address={addr}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("prometheus cannot be started")?;
        Ok(Self { process, addr })
    }

    /// Whether its process has ended.
    ///
    /// # Errors
    /// If it is lost.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        // It is gone already, or goes now.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Has `promtool` read the text of a configuration, without asking a cluster.
fn check(home: &Path, config: &str) -> Result<()> {
    let file = home.join(CONFIG_FILE);
    fs::write(&file, config)?;
    let mut promtool = Command::new(programs()?.join("promtool"));
    promtool
        .args(["check", "config", "--syntax-only"])
        .arg(file);
    run(&mut promtool).map(drop)
}
