//! Pools and tenants as plain numbers, checked once, so that what is built from them cannot fail.

use std::collections::BTreeMap;

use crate::DEFAULT_NAMESPACE;
use crate::masters::MasterStorage;
use crate::pool::{CachePool, Overcommit, Tier};
use crate::problem::{Problem, Problems};
use crate::quantity::Quantity;
use crate::tenant::{Access, CacheTenant, Subject};

mod master;
mod quota;
mod snapshots;
#[cfg(test)]
mod tests;

pub use master::{EventsSettings, MasterSettings};
use quota::Said;
pub use quota::{Figures, QuotaSettings, TenantChoice};
pub use snapshots::{FromSettings, ObjectStoreSettings, SnapshotsSettings};

/// Agents that `larder up` starts for a pool without `nodes.count`: enough to see bytes move
/// between two of them.
const DEFAULT_AGENTS: u32 = 2;
/// Most slabs of one segment; must equal the limit of the master.
const MAX_SLABS: u64 = 16_384;
/// One huge page, in bytes.
const MIN_SLAB_BYTES: u64 = 2 << 20;
/// Largest slab, in bytes: with [`MAX_SLABS`] of them a segment has 16 TiB, more than any node.
const MAX_SLAB_BYTES: u64 = 1 << 30;

/// Smallest volume of a master, in bytes.
const MIN_STORAGE_BYTES: u64 = 1 << 30;

/// A pool in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Namespace of the CachePool.
    pub namespace: String,
    /// Name of the CachePool.
    pub name: String,
    /// Number of masters.
    pub masters: u32,
    /// The volume of each master; `None` means a folder that goes with its pod.
    pub master_storage: Option<StorageSettings>,
    /// Labels that a node must carry; empty means every node.
    pub node_selector: BTreeMap<String, String>,
    /// `nodes.count`: how many matching nodes are used; `None` means all of them.
    pub node_count: Option<u32>,
    /// How long a node that leaves may take to move its objects, in seconds; 0 means that it does
    /// not.
    pub drain_deadline_s: u32,
    /// Key of the label that names a node's rack.
    pub rack_label: String,
    /// How many agents `larder up` starts: `nodes.count`, or without it two, or as many as
    /// `replica_factor` when that is more.
    pub agents: u32,
    /// Name of the Dram tier.
    pub dram_tier: String,
    /// Memory that the pool takes on each node, in bytes; at least one slab.
    pub node_dram_bytes: u64,
    /// Size of a slab, in bytes: a power of two from 2 MiB to 1 GiB, at most `node_dram_bytes`
    /// and at least a 16,384th of it. What does not fill a whole slab stays unused.
    pub slab_bytes: u64,
    /// Copies of each object that does not ask for another number; at least 1.
    pub replica_factor: u32,
    /// What happens when more is guaranteed than there is.
    pub overcommit: Overcommit,
    /// What the masters are told besides.
    pub master: MasterSettings,
}

/// A volume of a master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageSettings {
    /// Size in bytes; at least 1 GiB.
    pub size_bytes: u64,
    /// Name of the StorageClass; `None` means the cluster's default.
    pub class_name: Option<String>,
}

/// A tenant in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantSettings {
    /// Namespace of the CacheTenant.
    pub namespace: String,
    /// Name of the CacheTenant.
    pub name: String,
    /// Name of its CachePool, in the same namespace.
    pub pool_name: String,
    /// Identity in the pool: 1 to 128 of `[A-Za-z0-9._-]`, not starting with `.`, `_` or `-`.
    pub tenant_id: String,
    /// Who may act as this tenant.
    pub subjects: Vec<SubjectSettings>,
    /// What it may do.
    pub access: Access,
    /// Labels of the CacheTenant, for the selectors of quotas.
    pub labels: BTreeMap<String, String>,
    /// Guarantee and limits of its own.
    pub figures: Figures,
    /// `quotaRef`: the quota that it is to share.
    pub quota_name: Option<String>,
    /// Most bytes that readers on one node hold as views; `None` means a quarter of
    /// [`PoolSettings::node_dram_bytes`].
    pub view_bytes: Option<u64>,
}

/// A ServiceAccount that may act as a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SubjectSettings {
    /// Namespace of the ServiceAccount; the tenant's own where the user named none.
    pub namespace: String,
    /// Name of the ServiceAccount.
    pub name: String,
}

impl CachePool {
    /// The pool in numbers. Checks all that they rest on, also what the API server has checked,
    /// since an object may have been stored under older rules.
    ///
    /// # Errors
    /// All [`Problems`] that were found.
    pub fn settings(&self) -> Result<PoolSettings, Problems> {
        let mut problems = Vec::new();
        for key in self
            .spec
            .nodes
            .selector
            .keys()
            .filter(|key| !is_label_key(key))
        {
            let message = format!("'{key}' is not a label key, such as example.com/disk");
            problems.push(Problem::new("spec.nodes.selector", message));
        }
        let rack_label = &self.spec.nodes.rack_label;
        if !is_label_key(rack_label) {
            let message = format!("'{rack_label}' is not a label key, such as example.com/rack");
            problems.push(Problem::new("spec.nodes.rackLabel", message));
        }
        if ![1, 3, 5].contains(&self.spec.masters.replicas) {
            let message = "must be 1, 3 or 5: an even number survives no more losses than one less";
            problems.push(Problem::new("spec.masters.replicas", message));
        }
        let master_storage = self.spec.masters.storage.as_ref();
        let master_storage = master_storage.and_then(|storage| storage.numbers(&mut problems));
        let replica_factor = self.spec.placement.replica_factor;
        let node_count = self.spec.nodes.count;
        if replica_factor == 0 || node_count.is_some_and(|n| n > 0 && replica_factor > n) {
            let message = "must be at least 1 and not larger than nodes.count";
            problems.push(Problem::new("spec.placement.replicaFactor", message));
        }
        let dram = match self.spec.tiers.as_slice() {
            [tier] => tier.numbers(&mut problems),
            _ => {
                problems.push(Problem::new("spec.tiers", "must be exactly one tier"));
                None
            }
        };
        let spec = &self.spec;
        let events = spec.events.as_ref();
        let mut master = master::of(&spec.eviction, &spec.moves, events, &mut problems);
        let name = name_of(self.metadata.name.as_deref(), &mut problems);
        let namespace = namespace_of(self.metadata.namespace.as_deref());
        let (kept, bootstrap) = (spec.snapshots.as_ref(), spec.bootstrap.as_ref());
        master.snapshots = snapshots::of((&namespace, &name), kept, bootstrap, &mut problems);
        Problems::unless_empty(problems)?;
        let Some((dram_tier, node_dram_bytes, slab_bytes)) = dram else {
            return Err(Problem::new("spec.tiers", "must be exactly one tier").into());
        };
        Ok(PoolSettings {
            namespace,
            name,
            masters: self.spec.masters.replicas,
            master_storage,
            node_selector: self.spec.nodes.selector.clone(),
            node_count,
            drain_deadline_s: self.spec.nodes.drain.deadline_seconds,
            rack_label: self.spec.nodes.rack_label.clone(),
            agents: node_count.unwrap_or(DEFAULT_AGENTS.max(replica_factor)),
            dram_tier,
            node_dram_bytes,
            slab_bytes,
            replica_factor,
            overcommit: self.spec.quotas.overcommit,
            master,
        })
    }
}

impl MasterStorage {
    fn numbers(&self, problems: &mut Vec<Problem>) -> Option<StorageSettings> {
        let path = "spec.masters.storage.size";
        let size_bytes = bytes_of(&self.size, path, problems)?;
        if size_bytes < MIN_STORAGE_BYTES {
            problems.push(Problem::new(path, "must be at least 1Gi"));
        }
        Some(StorageSettings {
            size_bytes,
            class_name: self.storage_class_name.clone(),
        })
    }
}

impl Tier {
    /// Name, bytes on a node and bytes of a slab.
    fn numbers(&self, problems: &mut Vec<Problem>) -> Option<(String, u64, u64)> {
        let size_bytes = bytes_of(&self.size, "spec.tiers[0].size", problems)?;
        let slab_bytes = bytes_of(&self.slab_size, "spec.tiers[0].slabSize", problems)?;
        let in_range = (MIN_SLAB_BYTES..=MAX_SLAB_BYTES.min(size_bytes)).contains(&slab_bytes);
        if !in_range || !slab_bytes.is_power_of_two() {
            let message = "must be a power of two from 2Mi to 1Gi and not larger than size";
            problems.push(Problem::new("spec.tiers[0].slabSize", message));
            return None;
        }
        if size_bytes.div_ceil(slab_bytes) > MAX_SLABS {
            let message = "must be at most 16384 slabs; choose a larger slabSize";
            problems.push(Problem::new("spec.tiers[0].size", message));
            return None;
        }
        Some((self.name.clone(), size_bytes, slab_bytes))
    }
}

impl CacheTenant {
    /// The tenant in numbers, its id computed where the user gave none. Checks all that they rest
    /// on, as [`CachePool::settings`] does.
    ///
    /// # Errors
    /// All [`Problems`] that were found.
    pub fn settings(&self) -> Result<TenantSettings, Problems> {
        let mut problems = Vec::new();
        let name = name_of(self.metadata.name.as_deref(), &mut problems);
        let namespace = namespace_of(self.metadata.namespace.as_deref());
        let tenant_id = self
            .spec
            .tenant_id
            .clone()
            .unwrap_or_else(|| format!("{namespace}.{name}"));
        if !is_tenant_id(&tenant_id) {
            let message = format!(
                "'{tenant_id}' is not a tenant id: 1 to 128 letters, digits, '.', '_' and '-', \
                 starting with a letter or digit"
            );
            problems.push(Problem::new("spec.tenantId", message));
        }
        let said = Said {
            guaranteed: self.spec.guaranteed.as_ref(),
            limit: self.spec.limit.as_ref(),
            pinned: self.spec.pinned.as_ref(),
            borrowing: self.spec.borrowing,
            on_exceed: self.spec.on_exceed,
        };
        let quota_name = self.spec.quota_ref.as_ref().map(|quota| quota.name.clone());
        if quota_name.is_some() && !said.is_silent() {
            let message = "takes the figures of that CacheQuota; leave other figures out";
            problems.push(Problem::new("spec.quotaRef", message));
        }
        let figures = said.figures(&mut problems);
        let view_bytes = self.spec.view_bytes.as_ref();
        let view_bytes =
            view_bytes.and_then(|bytes| bytes_of(bytes, "spec.viewBytes", &mut problems));
        Problems::unless_empty(problems)?;
        Ok(TenantSettings {
            subjects: self
                .spec
                .subjects
                .iter()
                .map(|s| s.settings(&namespace))
                .collect(),
            namespace,
            name,
            pool_name: self.spec.pool_ref.name.clone(),
            tenant_id,
            access: self.spec.access,
            labels: self.metadata.labels.clone().unwrap_or_default(),
            figures,
            quota_name,
            view_bytes,
        })
    }
}

impl Subject {
    fn settings(&self, tenant_namespace: &str) -> SubjectSettings {
        let account = &self.service_account;
        SubjectSettings {
            namespace: account
                .namespace
                .clone()
                .unwrap_or_else(|| tenant_namespace.to_owned()),
            name: account.name.clone(),
        }
    }
}

fn name_of(name: Option<&str>, problems: &mut Vec<Problem>) -> String {
    if name.is_none() {
        problems.push(Problem::new("metadata.name", "is required"));
    }
    name.unwrap_or_default().to_owned()
}

fn namespace_of(namespace: Option<&str>) -> String {
    namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned()
}

fn bytes_of(quantity: &Quantity, path: &str, problems: &mut Vec<Problem>) -> Option<u64> {
    match quantity.bytes() {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            problems.push(Problem::new(path, error.to_string()));
            None
        }
    }
}

fn is_tenant_id(text: &str) -> bool {
    text.len() <= 128
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Whether Kubernetes takes `key` as the key of a label: an optional DNS name and a slash, then
/// up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let ends_well = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.ends_with(|c: char| c.is_ascii_alphanumeric())
    };
    let name_fits = name.len() <= 63
        && ends_well(name)
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let prefix_fits = prefix.is_none_or(|prefix| {
        prefix.len() <= 253
            && prefix
                .split('.')
                .all(|label| ends_well(label) && label.bytes().all(lower))
    });
    name_fits && prefix_fits
}
