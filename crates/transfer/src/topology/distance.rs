//! How far devices and memory are from each other. Pure.

use std::collections::BTreeMap;

use super::Location;
use super::peer_distance::PeerDistance;

/// How far two things are from each other, nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distance {
    /// One device.
    Same,
    /// No host bridge between them: data need not pass the processor.
    Switch,
    /// Under one host bridge of the processor.
    Bridge,
    /// On one NUMA node.
    Node,
    /// On different NUMA nodes, or nobody knows.
    System,
    /// The kernel says that there is no way.
    NoWay,
}

impl Distance {
    /// By how much longer a transfer is expected to take, as a factor; `None`: it cannot be made.
    ///
    /// Guesses to begin with: what rails really do is learnt from what they carry.
    #[must_use]
    pub const fn penalty(self) -> Option<f64> {
        match self {
            Self::Same | Self::Switch => Some(1.0),
            Self::Bridge => Some(1.2),
            Self::Node => Some(1.5),
            Self::System => Some(3.0),
            Self::NoWay => None,
        }
    }
}

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A network interface, by its name in `/sys/class/net`.
    Nic,
    /// An RDMA device, by its name in `/sys/class/infiniband`.
    Rdma,
    /// A GPU, by its PCI address.
    Gpu,
    /// A disk, by its name in `/sys/block`.
    Disk,
}

/// A device of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What it is.
    pub kind: DeviceKind,
    /// Its name.
    pub name: String,
    /// Its way from the host bridge down, as `pci0000:16`, `0000:16:01.0`, `0000:17:00.0`; empty if
    /// it is no PCI device.
    pub path: Vec<String>,
    /// Its NUMA node, if it tells one.
    pub numa: Option<u16>,
}

impl Device {
    /// Its own PCI address.
    #[must_use]
    pub fn address(&self) -> Option<&str> {
        self.path.last().map(String::as_str)
    }
}

/// Which devices serve a location, each in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// The nearest.
    pub preferred: Vec<String>,
    /// The others that reach it.
    pub available: Vec<String>,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Its devices, by kind and name.
    pub devices: Vec<Device>,
    /// The firmware's distances between NUMA nodes; 10 is the node itself.
    pub numa: BTreeMap<(u16, u16), u32>,
    /// What nvidia-fs says of GPUs and their peers, by their PCI addresses.
    pub peers: BTreeMap<(String, String), PeerDistance>,
}

impl Topology {
    /// The device of this kind and name.
    #[must_use]
    pub fn device(&self, kind: DeviceKind, name: &str) -> Option<&Device> {
        let mut devices = self.devices.iter();
        devices.find(|device| device.kind == kind && device.name == name)
    }

    /// The device that a location is a part of; `None` for host memory. GPUs are counted in the
    /// order of their PCI addresses, as CUDA does where `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    #[must_use]
    pub fn device_of(&self, location: &Location) -> Option<&Device> {
        match location {
            Location::Any | Location::Cpu(_) => None,
            Location::Cuda(ordinal) => {
                let gpus = self
                    .devices
                    .iter()
                    .filter(|one| one.kind == DeviceKind::Gpu);
                let mut gpus: Vec<&Device> = gpus.collect();
                gpus.sort_by_key(|one| one.address());
                gpus.get(usize::try_from(*ordinal).ok()?).copied()
            }
            Location::Nvme(name) => self.device(DeviceKind::Disk, name),
        }
    }

    /// How far two devices are from each other. What nvidia-fs says of them wins: it knows of ways
    /// that the kernel will not let them go.
    #[must_use]
    pub fn between(&self, one: &Device, other: &Device) -> Distance {
        if let (Some(a), Some(b)) = (one.address(), other.address()) {
            if a == b {
                return Distance::Same;
            }
            let said = |a: &str, b: &str| self.peers.get(&(a.to_owned(), b.to_owned()));
            if let Some(said) = said(a, b).or_else(|| said(b, a)) {
                return said.distance();
            }
        }
        let shared = one.path.iter().zip(&other.path);
        match shared.take_while(|(a, b)| a == b).count() {
            0 => self.across(one.numa, other.numa),
            // The host bridge alone.
            1 => Distance::Bridge,
            _ => Distance::Switch,
        }
    }

    /// How far a device is from a location.
    #[must_use]
    pub fn to(&self, device: &Device, location: &Location) -> Distance {
        if let Some(holder) = self.device_of(location) {
            return self.between(device, holder);
        }
        match location {
            Location::Cpu(node) => match u16::try_from(*node) {
                Ok(node) => self.across(device.numa, Some(node)),
                Err(_) => Distance::System,
            },
            // Everything is as near to it as to anything else.
            Location::Any => Distance::Node,
            Location::Cuda(_) | Location::Nvme(_) => Distance::System,
        }
    }

    /// The devices of a kind that reach a location, nearest first.
    #[must_use]
    pub fn serving(&self, kind: DeviceKind, location: &Location) -> Serving {
        let devices = self.devices.iter().filter(|device| device.kind == kind);
        let all = devices.map(|device| (self.to(device, location), device));
        let all: Vec<_> = all.filter(|(far, _)| *far != Distance::NoWay).collect();
        let nearest = all
            .iter()
            .map(|(far, device)| (*far, self.hops(device, location)))
            .min();
        let (mut near, mut rest) = (Vec::new(), Vec::new());
        for (far, device) in &all {
            let at = (*far, self.hops(device, location));
            let list = if Some(at) == nearest {
                &mut near
            } else {
                &mut rest
            };
            list.push(device.name.clone());
        }
        near.sort_unstable();
        rest.sort_unstable();
        Serving {
            preferred: near,
            available: rest,
        }
    }

    /// Devices between, where both hang under one switch: one that shares more of the way is
    /// nearer.
    fn hops(&self, device: &Device, location: &Location) -> usize {
        let Some(holder) = self.device_of(location) else {
            return 0;
        };
        let shared = device.path.iter().zip(&holder.path);
        let shared = shared.take_while(|(a, b)| a == b).count();
        match shared {
            0 | 1 => 0,
            shared => device.path.len() + holder.path.len() - 2 * shared,
        }
    }

    fn across(&self, one: Option<u16>, other: Option<u16>) -> Distance {
        match (one, other) {
            (Some(one), Some(other)) if one == other => Distance::Node,
            // A machine with one node need not say so.
            _ if self.nodes() <= 1 => Distance::Node,
            _ => Distance::System,
        }
    }

    fn nodes(&self) -> usize {
        let of_firmware = self.numa.keys().filter(|(one, other)| one == other).count();
        let of_devices = self.devices.iter().filter_map(|device| device.numa);
        let of_devices: std::collections::BTreeSet<u16> = of_devices.collect();
        of_firmware.max(of_devices.len())
    }
}
