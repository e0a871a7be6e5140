//! Reading a machine's topology from sysfs and nvidia-fs.

use super::distance::{Device, DeviceKind, Topology};
use super::peer_distance;
use super::system_root::{Lack, SystemRoot};

/// NVIDIA, as PCI numbers vendors.
const NVIDIA: &str = "0x10de";
/// PCI classes of display and 3D controllers.
const GPU_CLASSES: [&str; 2] = ["0x0300", "0x0302"];
/// The farthest NUMA node that is believed.
const NODES_MAX: u16 = 1_024;

impl Topology {
    /// Reads everything that is there, and why the rest is not.
    #[must_use]
    pub fn read(root: &SystemRoot) -> (Self, Vec<Lack>) {
        let mut lacks = Vec::new();
        let mut devices = Vec::new();
        let kinds = [
            (DeviceKind::Nic, "sys/class/net"),
            (DeviceKind::Rdma, "sys/class/infiniband"),
            (DeviceKind::Gpu, "sys/bus/pci/devices"),
            (DeviceKind::Disk, "sys/block"),
        ];
        for (kind, folder) in kinds {
            // No RDMA device, no folder.
            if !root.has(folder) {
                continue;
            }
            match root.names(folder) {
                Ok(names) => devices.extend(names.iter().filter_map(|name| {
                    let path = format!("{folder}/{name}");
                    device(root, kind, name, &path)
                })),
                Err(lack) => lacks.push(lack),
            }
        }
        let mut found = Self {
            devices,
            ..Self::default()
        };
        if let Err(lack) = found.read_numa(root) {
            lacks.push(lack);
        }
        const PEERS: &str = "proc/driver/nvidia-fs/peer_distance";
        if root.has(PEERS) {
            match root.text(PEERS) {
                Ok(text) => {
                    let (peers, odd) = peer_distance::parse(&text);
                    found.peers = peers;
                    if odd > 0 {
                        lacks.push(Lack::Garbage {
                            path: PEERS.to_owned(),
                            wanted: "rows of GPU, peer and their distance only",
                        });
                    }
                }
                Err(lack) => lacks.push(lack),
            }
        }
        (found, lacks)
    }

    fn read_numa(&mut self, root: &SystemRoot) -> Result<(), Lack> {
        const FOLDER: &str = "sys/devices/system/node";
        let names = root.names(FOLDER)?;
        let number = |name: &String| name.strip_prefix("node")?.parse::<u16>().ok();
        let mut nodes: Vec<u16> = names.iter().filter_map(number).collect();
        nodes.retain(|node| *node < NODES_MAX);
        nodes.sort_unstable();
        for one in &nodes {
            // One figure for each node that is online, in the order of their numbers.
            let Ok(text) = root.text(&format!("{FOLDER}/node{one}/distance")) else {
                continue;
            };
            let figures = text.split_whitespace().map_while(|word| word.parse().ok());
            for (other, figure) in nodes.iter().zip(figures) {
                self.numa.insert((*one, *other), figure);
            }
        }
        Ok(())
    }
}

/// The device of this folder, if it has hardware behind it.
fn device(root: &SystemRoot, kind: DeviceKind, name: &str, path: &str) -> Option<Device> {
    let device = match kind {
        DeviceKind::Gpu => {
            let word = |file: &str| root.text(&format!("{path}/{file}")).unwrap_or_default();
            let is_gpu = GPU_CLASSES
                .iter()
                .any(|class| word("class").starts_with(class));
            if word("vendor").trim() != NVIDIA || !is_gpu {
                return None;
            }
            path.to_owned()
        }
        _ => format!("{path}/device"),
    };
    if !root.has(&device) {
        return None;
    }
    let way = pci_path(&root.real_path(&device)?);
    let numa = |path: &str| u16::try_from(root.value::<i32>(path).ok()?).ok();
    Some(Device {
        kind,
        name: name.to_owned(),
        path: way,
        numa: numa(&format!("{device}/numa_node"))
            // Of an NVMe disk `device` is the controller, and the controller's `device` the PCI
            // one.
            .or_else(|| numa(&format!("{device}/device/numa_node"))),
    })
}

/// The PCI part of a device's real path in sysfs: from the host bridge to its own address.
fn pci_path(path: &str) -> Vec<String> {
    let parts = path.split('/').skip_while(|part| !part.starts_with("pci"));
    let is_pci = |part: &&str| part.starts_with("pci") || is_address(part);
    parts.take_while(is_pci).map(str::to_owned).collect()
}

/// As `0000:17:00.0`.
fn is_address(part: &str) -> bool {
    let is_plain = part
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
    is_plain && part.contains(':') && part.contains('.')
}
