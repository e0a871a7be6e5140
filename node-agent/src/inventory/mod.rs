//! What this node has: read once at start from sysfs and /proc, each lack with its reason.

pub mod capability;
pub mod disks;
pub mod hugepages;
pub mod limits;
pub mod memory;
pub mod nics;
pub mod numa;

pub use capability::Capability;
pub use larder_transfer::topology::{Lack, SystemRoot};

/// Everything that was found. `Err` says why a part is not known; nothing here stops the agent.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// NUMA nodes in order.
    pub numa: Result<Vec<numa::NumaNode>, Lack>,
    /// Memory.
    pub memory: Result<memory::Memory, Lack>,
    /// Huge pages by size.
    pub hugepages: Result<Vec<hugepages::HugePages>, Lack>,
    /// Network interfaces by name.
    pub nics: Result<Vec<nics::Nic>, Lack>,
    /// Disks by name.
    pub disks: Result<Vec<disks::Disk>, Lack>,
    /// Limits of this process.
    pub limits: limits::Limits,
    /// What the node can do.
    pub capabilities: Vec<Capability>,
}

impl Inventory {
    /// Reads everything under `root`; `dram_bytes` is the memory that the cache will have.
    #[must_use]
    pub fn read(root: &SystemRoot, dram_bytes: u64) -> Self {
        let mut found = Self {
            numa: numa::read(root),
            memory: memory::read(root),
            hugepages: hugepages::read(root),
            nics: nics::read(root),
            disks: disks::read(root),
            limits: limits::read(root),
            capabilities: Vec::new(),
        };
        found.capabilities = capability::judge(root, &found, dram_bytes);
        found
    }

    /// The capability of this name.
    #[must_use]
    pub fn capability(&self, name: &str) -> Option<&Capability> {
        self.capabilities
            .iter()
            .find(|capability| capability.name == name)
    }

    /// Says in the log what was found and what was not.
    pub fn log(&self) {
        let lacks = [
            self.numa.as_ref().err(),
            self.memory.as_ref().err(),
            self.hugepages.as_ref().err(),
            self.nics.as_ref().err(),
            self.disks.as_ref().err(),
        ];
        for lack in lacks.into_iter().flatten() {
            tracing::warn!("part of the inventory is missing: {lack}");
        }
        if let Ok(memory) = &self.memory {
            tracing::info!(
                total_bytes = memory.total_bytes,
                available_bytes = memory.available_bytes,
                cgroup_limit_bytes = memory.cgroup_limit_bytes,
                "memory"
            );
        }
        for nic in self
            .nics
            .iter()
            .flatten()
            .filter(|nic| nic.kind != nics::NicKind::Virtual)
        {
            tracing::debug!(?nic, "network interface");
        }
        for disk in self.disks.iter().flatten() {
            tracing::debug!(?disk, "disk");
        }
        for capability in &self.capabilities {
            let (name, reason) = (capability.name, &capability.reason);
            tracing::info!(
                available = capability.available,
                "capability {name}: {reason}"
            );
        }
    }
}
