//! The pool that chaos is made in.

use crate::chaos::load::{FILLER, TENANT};

/// A pool file for chaos: so many masters and agents, a tenant whose objects are pinned.
#[must_use]
pub fn pool_file(name: &str, masters: usize, agents: u64, node_mib: u64) -> String {
    let all_mib = agents * node_mib;
    let tenant = |id: &str, limits: &str| {
        format!(
            "---\napiVersion: larder.dev/v1alpha1\nkind: CacheTenant\nmetadata: {{name: {id}}}\n\
             spec:\n  poolRef: {{name: {name}}}\n  tenantId: {id}\n{limits}"
        )
    };
    let limits = format!("  limit: {{bytes: {all_mib}Mi}}\n  pinned: {{bytes: {all_mib}Mi}}\n");
    let (load, filler) = (tenant(TENANT, &limits), tenant(FILLER, ""));
    format!(
        "apiVersion: larder.dev/v1alpha1\nkind: CachePool\nmetadata: {{name: {name}}}\nspec:\n  \
         masters: {{replicas: {masters}}}\n  nodes: {{count: {agents}}}\n  tiers: [{{name: dram, \
         medium: Dram, size: {node_mib}Mi, slabSize: 16Mi}}]\n{load}{filler}"
    )
}
