//! A network of its own for each master, and links that are cut.
//!
//! The harness itself runs in a network namespace, a process namespace and a mount namespace of
//! its own ([`private`]): whatever becomes of it, the kernel ends all that it started and takes the
//! networks away with the last process. No network here has a way out of the machine.

use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cluster::command::{feed, run};

const SWITCH: &str = "chaos";
/// How long a namespace may take to be there.
const PATIENCE: Duration = Duration::from_secs(20);

/// The namespaces of the harness.
const PRIVATE: [&str; 5] = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Whether this machine lets this user make the namespaces of [`private`]; else why not.
///
/// # Errors
/// With what `unshare` says.
pub fn check() -> Result<()> {
    let mut unshare = Command::new("unshare");
    unshare
        .args(PRIVATE)
        .args(["sh", "-c", "ip link add chaos type bridge"]);
    run(&mut unshare).map(drop)
}

/// Becomes the same program with other arguments in namespaces of its own. Returns only if that
/// fails.
///
/// # Errors
/// If it cannot be started.
pub fn private(arguments: &[String]) -> Result<std::convert::Infallible> {
    let own = std::env::current_exe()?;
    let error = Command::new("unshare")
        .args(PRIVATE)
        .arg(own)
        .args(arguments)
        .exec();
    Err(error).context("unshare cannot be started")
}

/// Brings up this process's own loopback: a new network namespace has it down.
///
/// # Errors
/// If the kernel refuses.
pub fn loopback() -> Result<()> {
    ip(&["link set lo up".to_owned()])
}

/// A namespace for each of some machines, and a switch that joins them with this process.
#[derive(Debug)]
pub struct Network {
    machines: Vec<Machine>,
}

#[derive(Debug)]
struct Machine {
    /// It lives in the namespace and so keeps it; it ends when its input does.
    keeper: Child,
    address: Ipv4Addr,
}

impl Network {
    /// Builds it, in the namespace of this process, which has to be its own.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn build(machines: usize) -> Result<Self> {
        let own = Ipv4Addr::new(10, 88, 0, 1);
        // Of a network that was here before; what is not there cannot be removed.
        let former = (0..machines).map(|at| format!("m{at}"));
        for name in former.chain([SWITCH.to_owned()]) {
            drop(ip(&[format!("link del {name}")]));
        }
        ip(&[
            "link set lo up".to_owned(),
            format!("link add {SWITCH} type bridge"),
            format!("addr add {own}/24 dev {SWITCH}"),
            format!("link set {SWITCH} up"),
        ])?;
        let mut network = Self {
            machines: Vec::new(),
        };
        for at in 0..u8::try_from(machines)? {
            let machine = Machine {
                keeper: keeper()?,
                address: Ipv4Addr::new(10, 88, 0, 10 + at),
            };
            let pid = machine.keeper.id();
            ip(&[
                format!("link add m{at} type veth peer name eth0 netns {pid}"),
                format!("link set m{at} master {SWITCH} up"),
            ])?;
            inside(
                pid,
                &[
                    "link set lo up".to_owned(),
                    format!("addr add {}/24 dev eth0", machine.address),
                    "link set eth0 up".to_owned(),
                ],
            )?;
            network.machines.push(machine);
        }
        Ok(network)
    }

    /// Where the processes on the machines listen.
    #[must_use]
    pub fn hosts(&self) -> Vec<IpAddr> {
        let machines = self.machines.iter();
        machines.map(|machine| machine.address.into()).collect()
    }

    /// A process in the namespace of a machine.
    #[must_use]
    pub fn process_in(&self, at: usize) -> u32 {
        self.machines[at].keeper.id()
    }

    /// Pulls a machine's cable: nobody reaches it, and it reaches nobody.
    ///
    /// # Errors
    /// If the kernel refuses; so too below.
    pub fn unplug(&self, at: usize) -> Result<()> {
        ip(&[format!("link set m{at} down")])
    }

    /// Plugs it in again.
    ///
    /// # Errors
    /// As above.
    pub fn plug_in(&self, at: usize) -> Result<()> {
        ip(&[format!("link set m{at} up")])
    }

    /// What one machine sends to some others is dropped.
    ///
    /// # Errors
    /// As above.
    pub fn block(&self, from: usize, to: &[usize]) -> Result<()> {
        self.routes("add", from, to)
    }

    /// It arrives again.
    ///
    /// # Errors
    /// As above.
    pub fn unblock(&self, from: usize, to: &[usize]) -> Result<()> {
        self.routes("del", from, to)
    }

    fn routes(&self, verb: &str, from: usize, to: &[usize]) -> Result<()> {
        let line = |at: &usize| format!("route {verb} blackhole {}/32", self.machines[*at].address);
        let lines: Vec<String> = to.iter().map(line).collect();
        inside(self.machines[from].keeper.id(), &lines)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for machine in &mut self.machines {
            // It ends by itself too, when this process does.
            let _ = machine.keeper.kill();
            let _ = machine.keeper.wait();
        }
        let _ = ip(&[format!("link del {SWITCH}")]);
    }
}

/// A process that does nothing, in a network namespace of its own.
fn keeper() -> Result<Child> {
    let keeper = Command::new("unshare")
        .args(["--net", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("unshare cannot be started")?;
    let namespace = |of: &str| std::fs::read_link(PathBuf::from(format!("/proc/{of}/ns/net")));
    let own = namespace("self")?;
    let start = Instant::now();
    while namespace(&keeper.id().to_string())? == own {
        if start.elapsed() > PATIENCE {
            bail!("no network namespace after {PATIENCE:?}");
        }
        std::thread::yield_now();
    }
    Ok(keeper)
}

fn ip(lines: &[String]) -> Result<()> {
    batch(&mut Command::new("ip"), lines)
}

fn inside(pid: u32, lines: &[String]) -> Result<()> {
    let mut enter = Command::new("nsenter");
    enter.arg(format!("--net=/proc/{pid}/ns/net")).arg("ip");
    batch(&mut enter, lines)
}

fn batch(command: &mut Command, lines: &[String]) -> Result<()> {
    let text = lines.join("\n") + "\n";
    feed(command.args(["-batch", "-"]), text.as_bytes()).map(drop)
}
