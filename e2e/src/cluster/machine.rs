//! An emulated machine: namespaces with a process 1, and the daemons in it.
//!
//! All that it is lies in kernel objects which end with its processes: mounts, addresses, routes
//! and interfaces. So its power can be cut, and nothing has to be taken down one by one.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::command::{self, PATH, find};
use super::folders::Folders;
use super::group::{Groups, ROOT};

/// The group of process 1.
const FIRST: &str = "init";
/// The group of pods, below a machine's own.
pub(crate) const PODS: &str = "pods";
/// The log of what comes before daemons.
const BOOT: &str = "boot";
/// How many lines of a log go into an error.
const LOG_LINES: usize = 12;
/// Enters the control group whose file is the first argument, and becomes the others.
const ENTER: &str = r#"echo 0 >"$1"; shift; exec "$@""#;

/// What a process enters to be inside.
const INSIDE: &[&str] = &["--mount", "--pid", "--net", "--uts", "--ipc"];

/// What every part of the cluster needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// Where files lie.
    pub(crate) folders: Folders,
    /// The control groups.
    pub(crate) groups: Groups,
    /// The folder with the built programs.
    pub(crate) programs: PathBuf,
}

/// A program that stays up on a machine.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    /// Its name: that of its control group and of its log.
    pub(crate) name: &'static str,
    /// What is started.
    pub(crate) program: PathBuf,
    /// With what.
    pub(crate) arguments: Vec<String>,
}

/// A machine, running or not.
#[derive(Clone, Debug)]
pub(crate) struct Machine<'s> {
    /// Its host name.
    pub(crate) name: String,
    /// The cluster it belongs to.
    pub(crate) site: &'s Site,
}

impl Machine<'_> {
    fn group(&self, part: &str) -> String {
        format!("{ROOT}/{}/{part}", self.name)
    }

    /// The machine's folder: configuration and, in `var`, its disk.
    pub(crate) fn folder(&self) -> PathBuf {
        self.site.folders.machine(&self.name)
    }

    /// Makes its disk, empty but for what every /var has.
    ///
    /// # Errors
    /// If files cannot be written.
    pub(crate) fn lay_out(&self) -> Result<()> {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let var = self.folder().join("var");
        for folder in ["lib", "log/pods", "tmp"] {
            fs::create_dir_all(var.join(folder))?;
        }
        fs::set_permissions(var.join("tmp"), fs::Permissions::from_mode(0o1777))?;
        symlink("/run", var.join("run"))?;
        symlink("/run/lock", var.join("lock"))?;
        // 32 hexadecimal digits that differ from machine to machine.
        let name = ring::digest::digest(&ring::digest::SHA256, self.name.as_bytes());
        let id: String = name
            .as_ref()
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        fs::write(self.folder().join("machine-id"), id + "\n")?;
        fs::create_dir_all(self.site.folders.logs(&self.name))?;
        Ok(())
    }

    /// Starts process 1 in new namespaces.
    ///
    /// # Errors
    /// With the end of its log, if it does not come up.
    pub(crate) fn boot(&self) -> Result<()> {
        self.site.groups.make_everywhere(&self.group(PODS))?;
        let mut boot = self.in_group(FIRST)?;
        boot.args([
            "setsid", "--fork", "unshare", "--net", "--mount", "--pid", "--uts", "--ipc",
        ]);
        boot.args(["--fork", "--kill-child", "--propagation", "private"]);
        boot.args(["/bin/sh", "-c", include_str!("boot.sh"), "boot", &self.name]);
        boot.arg(self.folder().join("var"))
            .arg(self.folder().join("machine-id"));
        boot.arg(self.site.programs.join("pause"));
        boot.stdout(Stdio::piped()).stderr(self.log(BOOT)?);
        let mut child = boot.spawn().context("/bin/sh cannot be started")?;
        let mut said = String::new();
        if let Some(pipe) = child.stdout.take() {
            BufReader::new(pipe).read_line(&mut said)?;
        }
        child.wait()?;
        if said.trim() != "booted" {
            bail!("{} does not boot: {}", self.name, self.log_end(BOOT));
        }
        Ok(())
    }

    /// Process 1 by the number that the whole machine knows it by.
    pub(crate) fn first(&self) -> Option<u32> {
        let members = self.site.groups.members(&self.group(FIRST));
        // Beside it there is the process that made the namespaces and waits outside of them.
        members.into_iter().find(|pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
            let numbers: Vec<_> = numbers.unwrap_or_default().split_whitespace().collect();
            numbers.len() > 1 && numbers.last() == Some(&"1")
        })
    }

    /// Like [`Machine::first`], for what needs the machine to run.
    ///
    /// # Errors
    /// If it does not.
    pub(crate) fn running(&self) -> Result<u32> {
        self.first().ok_or_else(|| {
            let name = &self.name;
            anyhow!("{name} is not running; run: cluster node {name} start, or cluster up")
        })
    }

    /// A command inside the machine, to which arguments are added.
    ///
    /// # Errors
    /// If the machine does not run.
    pub(crate) fn inside(&self) -> Result<Command> {
        let mut inside = Command::new("nsenter");
        inside
            .args(["--target", &self.running()?.to_string()])
            .args(INSIDE)
            .arg("--");
        Ok(inside)
    }

    /// A command of the whole machine's files and processes, in this machine's network.
    ///
    /// # Errors
    /// If the machine does not run.
    pub(crate) fn in_network(&self) -> Result<Command> {
        let mut inside = Command::new("nsenter");
        inside.args(["--target", &self.running()?.to_string(), "--net", "--"]);
        Ok(inside)
    }

    /// Opens a connection from within this machine's network. It stays there: a socket belongs
    /// to the network in which it was made.
    ///
    /// # Errors
    /// If the machine does not run, or nobody answers.
    pub(crate) fn connect(&self, target: SocketAddr, limit: Duration) -> Result<TcpStream> {
        let opened = self.open(move || TcpStream::connect_timeout(&target, limit));
        opened.with_context(|| format!("{target} does not answer in the network of {}", self.name))
    }

    /// Listens within this machine's network.
    ///
    /// # Errors
    /// If the machine does not run, or the address is not its own or taken.
    pub(crate) fn listen(&self, address: SocketAddr) -> Result<TcpListener> {
        let opened = self.open(move || TcpListener::bind(address));
        opened.with_context(|| format!("{address} cannot be had in the network of {}", self.name))
    }

    /// Opens a socket within this machine's network.
    fn open<S: Send + 'static>(
        &self,
        open: impl FnOnce() -> std::io::Result<S> + Send + 'static,
    ) -> Result<S> {
        let path = format!("/proc/{}/ns/net", self.running()?);
        let network = File::open(&path).with_context(|| format!("{path} cannot be opened"))?;
        // Only the thread that asks moves, so it is one that ends right after.
        let moved = std::thread::spawn(move || -> Result<S> {
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))?;
            Ok(open()?)
        });
        moved
            .join()
            .map_err(|_| anyhow!("the thread that opens it ended"))?
    }

    /// A path of this machine, as the whole machine sees it while this one runs.
    ///
    /// # Errors
    /// If the machine does not run.
    pub(crate) fn path(&self, path: &str) -> Result<PathBuf> {
        let root = PathBuf::from(format!("/proc/{}/root", self.running()?));
        Ok(root.join(path.trim_start_matches('/')))
    }

    /// Starts a daemon and returns at once.
    ///
    /// # Errors
    /// If it runs already, or cannot be tried.
    pub(crate) fn start(&self, daemon: &Daemon) -> Result<()> {
        self.spawn(daemon, INSIDE, Stdio::null())
    }

    /// Starts a daemon in the machine's network only, with a socket as its standard input.
    ///
    /// # Errors
    /// If it runs already, or cannot be tried.
    pub(crate) fn start_joining(&self, daemon: &Daemon, socket: OwnedFd) -> Result<()> {
        self.spawn(daemon, &["--net"], Stdio::from(socket))
    }

    fn spawn(&self, daemon: &Daemon, namespaces: &[&str], input: Stdio) -> Result<()> {
        if self.has(daemon.name) {
            bail!("{} runs on {} already", daemon.name, self.name);
        }
        let mut start = self.in_group(daemon.name)?;
        start
            .args(["nsenter", "--target", &self.running()?.to_string()])
            .args(namespaces);
        // Its parent ends at once, and so it becomes a child of the machine's process 1.
        start
            .args(["--", "setsid", "--fork"])
            .arg(&daemon.program)
            .args(&daemon.arguments);
        start.stdin(input);
        let log = self.log(daemon.name)?;
        let status = start.stdout(log.try_clone()?).stderr(log).status()?;
        if !status.success() {
            bail!(
                "{} does not start: {}",
                daemon.name,
                self.log_end(daemon.name)
            );
        }
        Ok(())
    }

    /// Whether a daemon runs.
    pub(crate) fn has(&self, daemon: &str) -> bool {
        !self.site.groups.members(&self.group(daemon)).is_empty()
    }

    /// That a daemon runs.
    ///
    /// # Errors
    /// With the end of its log, if it does not.
    pub(crate) fn check(&self, daemon: &str) -> Result<()> {
        if !self.has(daemon) {
            bail!("{daemon} ended on {}: {}", self.name, self.log_end(daemon));
        }
        Ok(())
    }

    /// That every daemon runs which has ever been started: it has a log.
    ///
    /// # Errors
    /// With the end of the log of one that ended.
    pub(crate) fn check_started(&self) -> Result<()> {
        for entry in fs::read_dir(self.site.folders.logs(&self.name))? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix(".log"));
            if let Some(name) = name.filter(|name| *name != BOOT) {
                self.check(name)?;
            }
        }
        Ok(())
    }

    /// Kills one daemon; the others run on.
    ///
    /// # Errors
    /// If it does not end.
    pub(crate) fn kill(&self, daemon: &str) -> Result<()> {
        self.site.groups.kill(&self.group(daemon))
    }

    /// Cuts the power: every process ends at once, and the disk stays as it is.
    ///
    /// # Errors
    /// If processes do not end.
    pub(crate) fn cut(&self) -> Result<()> {
        // With process 1 of a process namespace the kernel ends all others.
        self.kill(FIRST)?;
        self.site.groups.kill(&format!("{ROOT}/{}", self.name))
    }

    /// The processes of the machine.
    pub(crate) fn processes(&self) -> Vec<u32> {
        self.site
            .groups
            .members(&format!("{ROOT}/{}", self.name))
            .into_iter()
            .collect()
    }

    /// The start of a command that runs in one of the machine's control groups.
    fn in_group(&self, part: &str) -> Result<Command> {
        entering(&self.site.groups, &self.group(part))
    }

    fn log(&self, daemon: &str) -> Result<File> {
        let path = self.log_path(daemon);
        let file = File::options().create(true).append(true).open(&path);
        file.with_context(|| format!("{} cannot be written", path.display()))
    }

    fn log_path(&self, daemon: &str) -> PathBuf {
        self.site
            .folders
            .logs(&self.name)
            .join(format!("{daemon}.log"))
    }

    fn log_end(&self, daemon: &str) -> String {
        let path = self.log_path(daemon);
        let text = fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<_> = text.lines().collect();
        let end = lines.len().saturating_sub(LOG_LINES);
        format!("end of {}:\n{}", path.display(), lines[end..].join("\n"))
    }
}

/// The start of a command that enters a control group, to which the program is added as the
/// first argument. Nothing of the caller's environment gets into the cluster.
///
/// # Errors
/// If the group cannot be made.
pub(crate) fn entering(groups: &Groups, group: &str) -> Result<Command> {
    let file = groups.make(group)?;
    let mut command = Command::new("/bin/sh");
    command
        .args([OsStr::new("-c"), OsStr::new(ENTER), OsStr::new("enter")])
        .arg(file);
    command.env_clear().env("PATH", PATH).env("HOME", "/root");
    command.current_dir("/").stdin(Stdio::null());
    Ok(command)
}

/// A program of the distribution.
///
/// # Errors
/// If it is not installed.
pub(crate) fn installed(program: &str) -> Result<PathBuf> {
    find(program).with_context(|| {
        format!(
            "{program} is not in {}; run: cluster packages",
            command::PATH
        )
    })
}

/// Writes a file and the folders above it.
///
/// # Errors
/// If that fails.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}
