//! What of a machine lies near what: NUMA nodes, PCIe devices, and which NICs serve which memory
//! best. Read from sysfs, and from nvidia-fs where it is; judged without looking at either.
//!
//! Distances are the classes that vendors' tools print: under one PCIe switch, under one host
//! bridge, on one NUMA node, across nodes.

mod distance;
mod peer_distance;
mod sysfs;
mod system_root;
#[cfg(test)]
mod tests;

pub use distance::{Device, DeviceKind, Distance, Serving, Topology};
pub use larder_wire::location::{Location, NoLocation};
pub use peer_distance::{PeerDistance, parse as parse_peer_distance};
pub use system_root::{Lack, SystemRoot};
