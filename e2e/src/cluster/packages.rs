//! The programs of the distribution that the cluster needs, and their installation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::Say;
use super::command;

/// What is looked for, and Debian's name for the package that has it.
const PROGRAMS: [(&str, &str); 11] = [
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("setsid", "util-linux"),
    ("unshare", "util-linux"),
];
/// Where distributions put the plugins for the pods' network, and one of them.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
const CNI_PLUGIN: &str = "ptp";
const CNI_PACKAGE: &str = "containernetworking-plugins";

/// The folder with the plugins for the pods' network.
pub(crate) fn cni() -> Option<PathBuf> {
    CNI_FOLDERS
        .iter()
        .map(PathBuf::from)
        .find(|folder| folder.join(CNI_PLUGIN).is_file())
}

/// Debian's names of the packages that are missing.
#[must_use]
pub fn missing() -> Vec<&'static str> {
    let lacking = PROGRAMS
        .iter()
        .filter(|(program, _)| command::find(program).is_none());
    let mut packages: Vec<_> = lacking.map(|(_, package)| *package).collect();
    if cni().is_none() {
        packages.push(CNI_PACKAGE);
    }
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Whether [`ensure`] may succeed.
///
/// # Errors
/// With the command to run, where packages are missing and cannot be installed from here.
pub fn installable() -> Result<()> {
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    let wanted = packages.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!(
            "packages are missing; run as root: apt-get install --no-install-recommends {wanted}"
        );
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("programs are missing and there is no apt-get; install what Debian calls: {wanted}");
    }
    Ok(())
}

/// Sees to it that all packages are there, and installs those that are missing.
///
/// # Errors
/// As [`installable`], or if the installation fails.
pub fn ensure(say: Say) -> Result<()> {
    let packages = missing();
    if packages.is_empty() {
        return Ok(());
    }
    installable()?;
    let wanted = packages.join(" ");
    say(&format!("installing {wanted}"));
    // Without the newest lists those of before may do, and the installation says so if not.
    let _ = command::run(&mut apt(&["update"]));
    command::run(apt(&["install", "-y", "--no-install-recommends"]).args(&packages))?;
    let still = missing();
    if !still.is_empty() {
        bail!(
            "{} installed, but their programs are not in {}",
            still.join(" "),
            command::PATH
        );
    }
    Ok(())
}

fn apt(arguments: &[&str]) -> Command {
    let mut apt = Command::new("apt-get");
    // Another installation may be under way on this machine: wait for it.
    apt.args(["-o", "DPkg::Lock::Timeout=120"]).args(arguments);
    apt.env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(std::process::Stdio::null());
    apt
}
