//! What this node can do, and why it cannot do the rest.
//!
//! A capability is true only if it was found working. A module in a list or a file in a folder is
//! a hint for the reason, never a yes.

use super::Inventory;
use super::SystemRoot;

/// One thing that a node can or cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// Its name, also as a metric label.
    pub name: &'static str,
    /// Whether it can be used.
    pub available: bool,
    /// The class of the reason, as a metric label: from a closed set.
    pub label: &'static str,
    /// The reason, for people.
    pub reason: String,
}

impl Capability {
    fn yes(name: &'static str, reason: String) -> Self {
        Self {
            name,
            available: true,
            label: "ok",
            reason,
        }
    }

    fn no(name: &'static str, label: &'static str, reason: String) -> Self {
        Self {
            name,
            available: false,
            label,
            reason,
        }
    }

    /// What was found is not used by this release.
    fn unused(name: &'static str, found: &str) -> Self {
        Self::no(
            name,
            "unused",
            format!("{found} found, but this release does not use it"),
        )
    }
}

/// Judges everything that was read; `dram_bytes` is the memory that devices would register.
pub(super) fn judge(root: &SystemRoot, found: &Inventory, dram_bytes: u64) -> Vec<Capability> {
    vec![
        numa(found),
        memory_registration(found, dram_bytes),
        hugepages(found),
        rdma(root),
        gpu(root),
        gds(root),
        disk(found),
    ]
}

fn numa(found: &Inventory) -> Capability {
    const NAME: &str = "numa";
    match &found.numa {
        Err(lack) => Capability::no(NAME, "unreadable", lack.to_string()),
        Ok(nodes) if nodes.len() < 2 => {
            Capability::no(NAME, "absent", "this machine has one NUMA node".into())
        }
        Ok(nodes) => {
            let homes = nodes
                .iter()
                .filter(|node| node.memory_bytes > 0 && !node.cpus.is_empty());
            match homes.count() {
                0 | 1 => Capability::no(
                    NAME,
                    "absent",
                    "only one NUMA node has both memory and processors".into(),
                ),
                count => Capability::yes(NAME, format!("one segment on each of {count} nodes")),
            }
        }
    }
}

fn memory_registration(found: &Inventory, dram_bytes: u64) -> Capability {
    const NAME: &str = "memory_registration";
    if found.limits.may_lock {
        return Capability::yes(NAME, "CAP_IPC_LOCK is effective".into());
    }
    match &found.limits.locked_bytes {
        Err(lack) => Capability::no(NAME, "unreadable", lack.to_string()),
        Ok(limit) => match limit.soft {
            Some(bytes) if bytes < dram_bytes => Capability::no(
                NAME,
                "limit",
                format!(
                    "locked memory is limited to {bytes} bytes and CAP_IPC_LOCK is not effective, \
                     but registering the cache needs {dram_bytes} bytes (ulimit -l {}, \
                     LimitMEMLOCK={dram_bytes})",
                    dram_bytes.div_ceil(1024)
                ),
            ),
            _ => Capability::yes(NAME, "the limit of locked memory is high enough".into()),
        },
    }
}

fn hugepages(found: &Inventory) -> Capability {
    const NAME: &str = "hugepages";
    match &found.hugepages {
        Err(lack) => Capability::no(NAME, "unreadable", lack.to_string()),
        Ok(sizes) => match sizes
            .iter()
            .filter(|pages| pages.total > 0)
            .max_by_key(|p| p.total)
        {
            None => Capability::no(
                NAME,
                "absent",
                "no huge pages are set aside (vm.nr_hugepages is 0)".into(),
            ),
            Some(pages) => {
                let found = format!("{} huge pages of {} bytes", pages.total, pages.page_bytes);
                Capability::unused(NAME, &found)
            }
        },
    }
}

fn rdma(root: &SystemRoot) -> Capability {
    const NAME: &str = "rdma";
    let devices = match root.names("sys/class/infiniband") {
        Ok(devices) if !devices.is_empty() => devices,
        Ok(_) => {
            return Capability::no(NAME, "absent", "no device in /sys/class/infiniband".into());
        }
        Err(lack) => return Capability::no(NAME, "absent", format!("no RDMA device: {lack}")),
    };
    let nodes = root.names("dev/infiniband").unwrap_or_default();
    if !nodes.iter().any(|node| node.starts_with("uverbs")) {
        let reason = format!(
            "the kernel knows {}, but no /dev/infiniband/uverbs* is here to open",
            devices.join(", ")
        );
        return Capability::no(NAME, "no_device_node", reason);
    }
    Capability::unused(NAME, &format!("RDMA device {}", devices.join(", ")))
}

fn gpu(root: &SystemRoot) -> Capability {
    const NAME: &str = "gpu";
    if !root.has("proc/driver/nvidia") {
        return Capability::no(
            NAME,
            "absent",
            "no NVIDIA driver (no /proc/driver/nvidia)".into(),
        );
    }
    let gpus = root.names("proc/driver/nvidia/gpus").unwrap_or_default();
    if gpus.is_empty() {
        return Capability::no(
            NAME,
            "absent",
            "the NVIDIA driver is loaded and has no GPU".into(),
        );
    }
    if !root.has("dev/nvidiactl") {
        let reason = format!(
            "the driver has {} GPUs, but no /dev/nvidiactl is here",
            gpus.len()
        );
        return Capability::no(NAME, "no_device_node", reason);
    }
    Capability::unused(NAME, &format!("{} GPUs", gpus.len()))
}

fn gds(root: &SystemRoot) -> Capability {
    const NAME: &str = "gds";
    let loaded = root.has("sys/module/nvidia_fs")
        || root.text("proc/modules").is_ok_and(|modules| {
            modules
                .lines()
                .any(|line| line.split_whitespace().next() == Some("nvidia_fs"))
        });
    let nodes = root.names("dev").unwrap_or_default();
    let has_node = nodes.iter().any(|node| node.starts_with("nvidia-fs"));
    match (loaded, has_node) {
        (false, false) => {
            Capability::no(NAME, "absent", "the module nvidia_fs is not loaded".into())
        }
        (true, false) => Capability::no(
            NAME,
            "no_device_node",
            "the module nvidia_fs is loaded, but no /dev/nvidia-fs* is here".into(),
        ),
        (false, true) => Capability::no(
            NAME,
            "no_module",
            "/dev/nvidia-fs* is here, but the module nvidia_fs is not loaded".into(),
        ),
        (true, true) => Capability::unused(NAME, "nvidia_fs"),
    }
}

fn disk(found: &Inventory) -> Capability {
    const NAME: &str = "disk";
    match &found.disks {
        Err(lack) => Capability::no(NAME, "unreadable", lack.to_string()),
        Ok(disks) if disks.is_empty() => {
            Capability::no(NAME, "absent", "no disk with hardware behind it".into())
        }
        Ok(disks) => {
            let names: Vec<&str> = disks.iter().map(|disk| disk.name.as_str()).collect();
            Capability::unused(NAME, &format!("disk {}", names.join(", ")))
        }
    }
}
