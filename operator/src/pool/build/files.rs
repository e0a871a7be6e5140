//! The configuration files of masters and agents, as they stand in ConfigMaps.

use std::collections::BTreeMap;

use larder_crds::TenantSettings;
use serde_json::{Value, json};

use crate::names::{AGENT_METRICS_PORT, AGENT_PORT, MASTER_ADMIN_PORT, MASTER_PORT, SOCKET_FILE};
use crate::pool::validate::ValidPool;
use crate::quota::shares::Shares;

/// Where the files lie in the pods.
pub(super) const CONFIG_FOLDER: &str = "/etc/larder/config";
/// Where the master finds the root of the capability keys.
pub(super) const ROOT_KEY_FOLDER: &str = "/etc/larder/root-key";
/// Where the master finds who is who.
pub(super) const IDENTITY_FOLDER: &str = "/etc/larder/identity";
/// Where the master finds the tenants that exist from its start.
pub(super) const TENANTS_FOLDER: &str = "/etc/larder/tenants";
/// Where the agent finds its projected token.
pub(super) const TOKEN_FOLDER: &str = "/etc/larder/token";
/// Where the master keeps its state.
pub(super) const MASTER_STATE_FOLDER: &str = "/var/lib/larder";
/// Views that one tenant may hold on a node where its CacheTenant says nothing.
const VIEW_SHARE: u64 = 4;

/// The files of so many masters by name. Each differs from the others only in the name of its
/// master, which is that of the pod: the pod finds its own by it. Those that are to go name all:
/// each has to know its own pool for as long as it lasts.
pub(super) fn masters(pool: &ValidPool, count: u32) -> BTreeMap<String, String> {
    let desired = pool.settings.masters;
    let file = |ordinal| {
        let name = pool.id.master_pod(ordinal);
        let members = if ordinal < desired { desired } else { count };
        (format!("{name}.json"), master(pool, &name, members))
    };
    (0..count.max(desired)).map(file).collect()
}

/// It holds nothing of tenants, so that a change of those restarts no master.
fn master(pool: &ValidPool, name: &str, members: u32) -> String {
    let settings = &pool.settings;
    let mut file = json!({
        "pool": settings.name,
        "name": name,
        "client_addr": format!("0.0.0.0:{MASTER_PORT}"),
        "admin_addr": format!("0.0.0.0:{MASTER_ADMIN_PORT}"),
        "state_dir": MASTER_STATE_FOLDER,
        "root_key_file": format!("{ROOT_KEY_FOLDER}/root.key"),
        "subjects_file": format!("{IDENTITY_FOLDER}/subjects.json"),
        "tenants_file": format!("{TENANTS_FOLDER}/tenants.json"),
        "quotas_file": format!("{TENANTS_FOLDER}/quotas.json"),
        "replica_factor": settings.replica_factor,
        "log": { "format": "json", "filter": "info" },
    });
    // One that is alone too: others may join it, and have to find it.
    let member = |ordinal| {
        let (name, addr) = (pool.id.master_pod(ordinal), pool.id.master_addr(ordinal));
        json!({ "name": name, "addr": addr })
    };
    file["members"] = (0..members).map(member).collect();
    // Whoever reaches the pod reaches its endpoints: they have a name in the spec, or are none.
    super::master::extend(&mut file, Value::Object(settings.master.sections(true)));
    pretty(&file)
}

/// The agents' file. Name and address differ by node; the pod gives them as arguments.
pub(super) fn agent(pool: &ValidPool) -> String {
    let settings = &pool.settings;
    pretty(&json!({
        "pool": settings.name,
        "masters": pool.id.master_addrs(),
        "token_file": format!("{TOKEN_FOLDER}/token"),
        "data_addr": format!("0.0.0.0:{AGENT_PORT}"),
        "socket_path": format!("{}/{SOCKET_FILE}", pool.id.socket_folder()),
        "metrics_addr": format!("0.0.0.0:{AGENT_METRICS_PORT}"),
        "state_dir": pool.id.state_folder(),
        "dram_bytes": settings.node_dram_bytes,
        "slab_bytes": settings.slab_bytes,
        "view_bytes": settings.node_dram_bytes / VIEW_SHARE,
        "log": { "format": "json", "filter": "info" },
    }))
}

/// The tenants that exist when a master starts; later changes reach it by its admin port.
pub(super) fn tenants(tenants: &[TenantSettings], shares: &Shares) -> String {
    let lines = tenants.iter().map(|tenant| {
        let policy = shares.tenant(tenant);
        serde_json::to_value(policy).unwrap_or_default()
    });
    lined(lines)
}

/// The quotas that exist when a master starts.
pub(super) fn quotas(shares: &Shares) -> String {
    let lines = shares.quotas.iter().map(|quota| {
        let policy = shares.quota(quota);
        serde_json::to_value(policy).unwrap_or_default()
    });
    lined(lines)
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// A JSON array with one element per line, so that `kubectl diff` shows what changed.
pub(super) fn lined(values: impl Iterator<Item = Value>) -> String {
    let lines: Vec<String> = values.map(|value| format!("  {value}")).collect();
    if lines.is_empty() {
        return "[]\n".to_owned();
    }
    format!("[\n{}\n]\n", lines.join(",\n"))
}
