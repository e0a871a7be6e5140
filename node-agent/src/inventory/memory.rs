//! How much memory this machine has and how much of it this process may take.

use super::{Lack, SystemRoot};

const MEMINFO: &str = "proc/meminfo";
const CGROUP: &str = "proc/self/cgroup";
/// From here up a limit of a version 1 control group means none: the kernel shows the largest
/// number of pages.
const NO_LIMIT_BYTES: u64 = 1 << 60;
/// The deepest control group that is looked at.
const DEPTH_MAX: usize = 64;

/// The memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total_bytes: u64,
    /// What a new program can take without swapping.
    pub available_bytes: u64,
    /// The lowest limit of the control groups that this process is in.
    pub cgroup_limit_bytes: Option<u64>,
}

impl Memory {
    /// What this process may take, and what sets that bound.
    #[must_use]
    pub fn usable(&self) -> (u64, &'static str) {
        match self.cgroup_limit_bytes {
            Some(limit) if limit < self.available_bytes => {
                (limit, "the limit of its control group")
            }
            _ => (self.available_bytes, "what this machine has available"),
        }
    }
}

/// Reads memory and limits.
///
/// # Errors
/// [`Lack`] if the memory of the machine cannot be read. A limit that cannot be read is none.
pub fn read(root: &SystemRoot) -> Result<Memory, Lack> {
    let kib = |name| root.field(MEMINFO, name, "the memory of the machine");
    let total_bytes = kib("MemTotal")?.saturating_mul(1024);
    // Kernels of before 2014 do not tell it; free memory is then the safe guess.
    let available = kib("MemAvailable").or_else(|_| kib("MemFree"))?;
    Ok(Memory {
        total_bytes,
        available_bytes: available.saturating_mul(1024).min(total_bytes),
        cgroup_limit_bytes: cgroup_limit(root),
    })
}

/// The lowest limit on the way from the group of this process up to the root, of both versions.
fn cgroup_limit(root: &SystemRoot) -> Option<u64> {
    let groups = root.text(CGROUP).ok()?;
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if controllers.is_empty() {
            limits.extend(limits_upwards(root, "sys/fs/cgroup", path, "memory.max"));
        } else if controllers.split(',').any(|name| name == "memory") {
            let file = "memory.limit_in_bytes";
            limits.extend(limits_upwards(root, "sys/fs/cgroup/memory", path, file));
        }
    }
    limits
        .into_iter()
        .filter(|bytes| *bytes < NO_LIMIT_BYTES)
        .min()
}

/// Within a container the path may name groups that are not mounted here; those are passed over.
fn limits_upwards(root: &SystemRoot, mount: &str, path: &str, file: &str) -> Vec<u64> {
    let names: Vec<&str> = path
        .split('/')
        .filter(|name| !name.is_empty() && *name != "..")
        .take(DEPTH_MAX)
        .collect();
    (0..=names.len())
        .filter_map(|depth| {
            let folder = names[..depth]
                .iter()
                .fold(mount.to_owned(), |at, name| at + "/" + name);
            root.value(&format!("{folder}/{file}")).ok()
        })
        .collect()
}
