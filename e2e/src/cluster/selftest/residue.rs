//! What a cluster could leave behind on a machine, to be compared before and after.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Result, bail};

use super::super::folders::Folders;
use super::super::group::{Groups, ROOT};

/// Settings of the kernel that parts of Kubernetes write.
const SETTINGS: [&str; 10] = [
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/conf/all/send_redirects",
    "net/ipv4/ip_forward",
    "net/netfilter/nf_conntrack_max",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];
/// Folders of the whole machine in which daemons put things that last.
const FOLDERS: [&str; 11] = [
    "/",
    "/etc",
    "/etc/cni",
    "/etc/kubernetes",
    "/opt",
    "/run",
    "/run/netns",
    "/usr/libexec",
    "/var/lib",
    "/var/log",
    "/var/run",
];

/// Where nodes mount something; elsewhere others may, meanwhile.
const MOUNT_POINTS: [&str; 6] = ["/etc", "/proc", "/root", "/run", "/sys", "/var"];

/// What there is, each as a line that names it.
#[derive(Debug)]
pub(super) struct Residue(BTreeSet<String>);

impl Residue {
    /// Looks around.
    pub(super) fn now() -> Result<Self> {
        let mut found = BTreeSet::new();
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let places: Vec<_> = mounts.lines().filter(|line| is_in_reach(line)).collect();
        found.extend(places.iter().map(|line| format!("mount {line}")));
        for setting in SETTINGS {
            let path = Path::new("/proc/sys").join(setting);
            let value = fs::read_to_string(path).unwrap_or_default();
            found.insert(format!("setting {setting} = {}", value.trim()));
        }
        for folder in FOLDERS {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                found.insert(format!("file {}", entry.path().display()));
            }
        }
        for entry in fs::read_dir("/sys/class/net")?.flatten() {
            found.insert(format!("interface {}", entry.file_name().to_string_lossy()));
        }
        let folders = Folders::from_env()?;
        if folders.state.exists() {
            found.insert(format!("file {}", folders.state.display()));
        }
        if Groups::find()?.exists(ROOT) {
            found.insert(format!("control group {ROOT}"));
        }
        found.extend(programs(&folders.cache));
        Ok(Self(found))
    }

    /// That nothing is there that was not there before, and nothing has changed.
    pub(super) fn check_against(&self, before: &Self) -> Result<()> {
        let new: Vec<_> = self.0.difference(&before.0).map(String::as_str).collect();
        if !new.is_empty() {
            bail!("left behind: {}", new.join("; "));
        }
        Ok(())
    }
}

/// Whether a line of the list of mounts is about a place that nodes mount on.
fn is_in_reach(line: &str) -> bool {
    let point = line.split(' ').nth(1).unwrap_or("");
    MOUNT_POINTS
        .iter()
        .any(|reach| Path::new(point).starts_with(reach))
}

/// The processes of the cluster with the times of their starts, so that each is known for good.
/// Networks and other namespaces live as long as these do.
pub(super) fn members() -> Result<BTreeSet<String>> {
    let members = Groups::find()?.members(ROOT);
    Ok(members.into_iter().filter_map(process).collect())
}

/// That none of [`members`] is there any more, not even as a zombie.
pub(super) fn check_gone(members: &BTreeSet<String>) -> Result<()> {
    let alive = |line: &&String| {
        let pid = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        pid.and_then(process).as_ref() == Some(*line)
    };
    let left: Vec<_> = members.iter().filter(alive).map(String::as_str).collect();
    if members.is_empty() || !left.is_empty() {
        bail!(
            "of {} processes these are left: {}",
            members.len(),
            left.join("; ")
        );
    }
    Ok(())
}

/// `process PID started TICKS NAME`.
fn process(pid: u32) -> Option<String> {
    // The name may hold spaces and parentheses; what follows the last one does not.
    const STARTED: usize = 19;
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = text.rsplit_once(')')?;
    let started = rest.split_whitespace().nth(STARTED)?;
    let (_, name) = name.split_once('(')?;
    Some(format!("process {pid} started {started} {name}"))
}

/// Processes that run one of the cluster's programs, dead ones that nobody took included.
fn programs(cache: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let name = name.trim();
        let is_ours = fs::read_link(entry.path().join("exe")).is_ok_and(|to| to.starts_with(cache));
        if is_ours
            || ["kubebox", "pause", "containerd"]
                .iter()
                .any(|ours| name.starts_with(ours))
        {
            found.insert(format!("process {name} {}", entry.path().display()));
        }
    }
    found
}
