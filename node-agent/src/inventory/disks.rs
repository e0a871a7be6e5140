//! Disks: size, kind and NUMA node of the block devices that have hardware behind them.

use super::nics::numa_of;
use super::{Lack, SystemRoot};

const FOLDER: &str = "sys/block";
/// The size of a block device is told in sectors of this many bytes, whatever its own sectors are.
const SECTOR_BYTES: u64 = 512;

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its name.
    pub name: String,
    /// Its size, in bytes.
    pub size_bytes: u64,
    /// Whether it has moving parts.
    pub rotational: bool,
    /// Whether it speaks NVMe.
    pub nvme: bool,
    /// The NUMA node of its controller, if it tells one.
    pub numa: Option<u16>,
}

/// Reads all disks by name. Loop, RAM and empty devices are left out.
///
/// # Errors
/// [`Lack`] if the folder cannot be read.
pub fn read(root: &SystemRoot) -> Result<Vec<Disk>, Lack> {
    Ok(root
        .names(FOLDER)?
        .into_iter()
        .filter_map(|name| disk(root, name))
        .collect())
}

fn disk(root: &SystemRoot, name: String) -> Option<Disk> {
    let path = |file: &str| format!("{FOLDER}/{name}/{file}");
    if !root.has(&path("device")) {
        return None;
    }
    let size_bytes = root
        .value::<u64>(&path("size"))
        .ok()?
        .checked_mul(SECTOR_BYTES)?;
    if size_bytes == 0 {
        return None;
    }
    Some(Disk {
        size_bytes,
        rotational: root.value::<u8>(&path("queue/rotational")) == Ok(1),
        nvme: name.starts_with("nvme"),
        // Of an NVMe disk `device` is the controller, and the controller's `device` the PCI device.
        numa: numa_of(root, &path("device/numa_node"))
            .or_else(|| numa_of(root, &path("device/device/numa_node"))),
        name,
    })
}
