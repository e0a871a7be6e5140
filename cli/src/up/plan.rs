//! What is to be started, from a pool file: pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use larder_crds::{Access, Borrowing, Figures, OnExceed, PoolFile, QuotaSettings, TenantSettings};
use larder_types::{AgentName, Principal, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::document::ROLES;
use crate::error::CliError;
use crate::folder::RunFolder;

/// Everything that the supervisor needs; it stands in the run folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// Name of the pool.
    pub(crate) pool: String,
    /// The master.
    pub(crate) master: String,
    /// Port of the master for clients; 0 = any.
    pub(crate) client_port: u16,
    /// Port of the master for administration; 0 = any.
    pub(crate) admin_port: u16,
    /// The agents, by number.
    pub(crate) agents: Vec<String>,
    /// Memory of each agent, in bytes.
    pub(crate) dram_bytes: u64,
    /// Size of a slab, in bytes.
    pub(crate) slab_bytes: u64,
    /// Replicas of an object.
    pub(crate) replica_factor: u32,
    /// Parts of the master's configuration that the pool file gives: eviction, moves, events.
    pub(crate) master_sections: serde_json::Map<String, Value>,
    /// What the processes log.
    pub(crate) log_filter: String,
}

/// A credential to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TokenPlan {
    /// Whom it proves.
    pub(super) principal: Principal,
    /// Its file within the run folder.
    pub(super) file: String,
}

impl Plan {
    pub(super) fn new(file: &PoolFile, args: &crate::args::Up) -> Self {
        let pool = &file.pool;
        Self {
            pool: pool.name.clone(),
            master: format!("{}-master-0", pool.name),
            client_port: args.client_port,
            admin_port: args.admin_port,
            agents: (0..pool.agents)
                .map(|n| format!("{}-{n}", pool.name))
                .collect(),
            dram_bytes: pool.node_dram_bytes,
            slab_bytes: pool.slab_bytes,
            replica_factor: pool.replica_factor,
            master_sections: pool.master.sections(false),
            log_filter: args.log_filter.clone(),
        }
    }

    /// The configuration of the master.
    pub(super) fn master_config(&self, folder: &RunFolder) -> Value {
        let mut config = json!({
            "pool": self.pool,
            "name": self.master,
            "client_addr": loopback(self.client_port),
            "admin_addr": loopback(self.admin_port),
            "state_dir": folder.join(&format!("state/{}", self.master)),
            "root_key_file": folder.join("keys/root.key"),
            "identities_file": folder.join("config/identities.json"),
            "tenants_file": folder.join("config/tenants.json"),
            "quotas_file": folder.join("config/quotas.json"),
            "replica_factor": self.replica_factor,
            "ready_file": ready_file(folder, &self.master),
            "log": self.log(),
        });
        if let Some(parts) = config.as_object_mut() {
            parts.extend(self.master_sections.clone());
        }
        config
    }

    /// The configuration of the agent of this number.
    pub(super) fn agent_config(
        &self,
        folder: &RunFolder,
        number: usize,
        name: &str,
        master_addr: &str,
    ) -> Value {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        json!({
            "pool": self.pool,
            "name": name,
            "masters": [master_addr],
            "token_file": folder.join(&agent_token(name)),
            "data_addr": loopback(0),
            "single_node": true,
            "socket_path": folder.socket(number),
            "metrics_addr": loopback(0),
            "state_dir": folder.join(&format!("state/{name}")),
            "dram_bytes": self.dram_bytes,
            "slab_bytes": self.slab_bytes,
            // As the CRD says of a tenant without viewBytes.
            "view_bytes": self.dram_bytes / 4,
            "ready_file": ready_file(folder, name),
            "log": self.log(),
        })
    }

    fn log(&self) -> Value {
        json!({ "format": "human", "filter": self.log_filter })
    }

    /// Token files by tenant or role, as the document names them.
    pub(super) fn token_files(
        folder: &RunFolder,
        tokens: &[TokenPlan],
    ) -> BTreeMap<String, PathBuf> {
        let name = |principal: &Principal| match principal {
            Principal::Tenant(tenant) => Some(tenant.to_string()),
            Principal::Operator => Some("operator".to_owned()),
            Principal::Admin => Some("admin".to_owned()),
            // Only their own processes need these.
            Principal::Agent(_) | Principal::Master => None,
        };
        tokens
            .iter()
            .filter_map(|token| Some((name(&token.principal)?, folder.join(&token.file))))
            .collect()
    }
}

/// Whoever gets a credential.
pub(super) fn tokens(file: &PoolFile, plan: &Plan) -> Result<Vec<TokenPlan>, CliError> {
    let mut tokens = vec![
        TokenPlan {
            principal: Principal::Operator,
            file: "tokens/operator.token".to_owned(),
        },
        TokenPlan {
            principal: Principal::Admin,
            file: "tokens/admin.token".to_owned(),
        },
    ];
    let wrong = |error: larder_types::IdError| CliError::Usage(error.to_string());
    for tenant in &file.tenants {
        let id = &tenant.tenant_id;
        if ROLES.contains(&id.as_str()) {
            return Err(CliError::Usage(format!(
                "CacheTenant {}: spec.tenantId '{id}' is the name of a role here; choose another",
                tenant.name
            )));
        }
        let principal = Principal::Tenant(TenantId::new(id).map_err(wrong)?);
        tokens.push(TokenPlan {
            principal,
            file: format!("tokens/tenant-{id}.token"),
        });
    }
    for name in &plan.agents {
        let principal = Principal::Agent(AgentName::new(name).map_err(wrong)?);
        tokens.push(TokenPlan {
            principal,
            file: agent_token(name),
        });
    }
    Ok(tokens)
}

/// The tenants file of the master.
pub(super) fn tenants(file: &PoolFile) -> Value {
    let entry = |tenant: &TenantSettings| {
        let access = match tenant.access {
            Access::ReadWrite => larder_types::Access::ReadWrite,
            Access::ReadOnly => larder_types::Access::ReadOnly,
            Access::WriteOnly => larder_types::Access::WriteOnly,
        };
        let mut entry = figures(&tenant.figures);
        entry["tenant"] = json!(tenant.tenant_id);
        entry["access"] = json!(access);
        entry["view_bytes"] = json!(tenant.view_bytes);
        entry["cohort"] = json!(tenant.quota_of(&file.quotas).map(|quota| &quota.name));
        entry
    };
    file.tenants.iter().map(entry).collect()
}

/// The quotas file of the master.
pub(super) fn quotas(file: &PoolFile) -> Value {
    let entry = |quota: &QuotaSettings| {
        let mut entry = figures(&quota.figures);
        entry["quota"] = json!(quota.name);
        entry
    };
    file.quotas.iter().map(entry).collect()
}

/// Guarantee and limits as the master's files have them.
fn figures(figures: &Figures) -> Value {
    let borrowing = match figures.borrowing {
        Borrowing::Allowed => larder_types::Borrowing::Allowed,
        Borrowing::Forbidden => larder_types::Borrowing::Forbidden,
    };
    let on_exceed = match figures.on_exceed {
        OnExceed::EvictOwn => larder_types::OnExceed::EvictOwn,
        OnExceed::Refuse => larder_types::OnExceed::Refuse,
    };
    json!({
        "guaranteed_bytes": figures.guaranteed_bytes,
        "limit_bytes": figures.limit_bytes,
        "limit_objects": figures.limit_objects,
        "limit_pinned_bytes": figures.limit_pinned_bytes,
        "borrowing": borrowing,
        "on_exceed": on_exceed,
    })
}

/// Where a process says that it is ready.
pub(super) fn ready_file(folder: &RunFolder, name: &str) -> PathBuf {
    folder.join(&format!("ready/{name}.json"))
}

fn agent_token(name: &str) -> String {
    format!("tokens/agent-{name}.token")
}

fn loopback(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Whether the sockets of all agents fit what the kernel allows.
pub(super) fn check_sockets(folder: &RunFolder, agents: u32) -> Result<(), CliError> {
    let longest = folder.socket(agents.saturating_sub(1));
    let bytes = longest.as_os_str().len();
    let max = larder_node_agent::config::SOCKET_PATH_BYTES_MAX;
    if bytes <= max {
        return Ok(());
    }
    let path: &Path = folder.path();
    Err(CliError::Usage(format!(
        "the sockets of the agents in {} would have paths of {bytes} bytes, but the kernel allows \
         {max}; choose a shorter folder with --dir",
        path.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
apiVersion: larder.dev/v1alpha1
kind: CachePool
metadata: {name: small}
spec:
  nodes: {count: 2}
  tiers: [{name: dram, medium: Dram, size: 64Mi, slabSize: 2Mi}]
  eviction: {highWatermarkPercent: 95}
  moves: {bytesPerSecond: 64Mi}
  events: {zmq: [{tenant: team-a, port: 5557, replayPort: 5558}]}
---
apiVersion: larder.dev/v1alpha1
kind: CacheTenant
metadata: {name: a}
spec:
  poolRef: {name: small}
  tenantId: team-a
  access: ReadOnly
  guaranteed: {bytes: 4Mi}
  limit: {bytes: 8Mi, objects: 9}
  onExceed: Refuse
---
apiVersion: larder.dev/v1alpha1
kind: CacheQuota
metadata: {name: team}
spec:
  poolRef: {name: small}
  selector: {matchLabels: {}}
  limit: {bytes: 16Mi}
";

    fn file() -> PoolFile {
        PoolFile::parse(FILE, "pool.yaml").expect("a good file")
    }

    fn args() -> crate::args::Up {
        crate::args::Up {
            file: PathBuf::new(),
            detach: false,
            client_port: 0,
            admin_port: 7001,
            log_filter: "info".to_owned(),
        }
    }

    #[test]
    fn the_programs_take_what_is_planned_for_them() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::at(place.path()).expect("absolute");
        let plan = Plan::new(&file(), &args());
        assert_eq!(plan.agents, ["small-0", "small-1"]);

        let text = plan
            .agent_config(&folder, 1, "small-1", "127.0.0.1:9")
            .to_string();
        let agent = larder_node_agent::Config::parse(&text).expect("an agent's configuration");
        assert_eq!(agent.slabs_bytes(), 64 << 20);
        assert_eq!(agent.socket_path, folder.join("agent-1.sock"));

        let path = place.path().join("m.json");
        std::fs::write(&path, plan.master_config(&folder).to_string()).expect("room");
        let master = larder_master::Config::load(&path).expect("a master's configuration");
        assert_eq!(master.admin_addr, "127.0.0.1:7001");
        assert_eq!(master.eviction.high_watermark_percent, 95);
        assert_eq!(master.moves.bytes_per_s, 64 << 20);
        let events = master.events.as_ref().expect("events");
        assert_eq!(events.zmq[0].addr, "127.0.0.1:5557");

        std::fs::create_dir(place.path().join("config")).expect("room");
        std::fs::write(&master.tenants_file, tenants(&file()).to_string()).expect("room");
        let tenants = master.load_tenants().expect("a tenants file");
        assert_eq!(tenants[0].tenant.as_str(), "team-a");
        assert_eq!(tenants[0].access, larder_types::Access::ReadOnly);
        assert_eq!(
            (tenants[0].limit_bytes, tenants[0].limit_objects),
            (Some(8 << 20), Some(9))
        );
        assert_eq!(tenants[0].guaranteed_bytes, 4 << 20);
        assert_eq!(tenants[0].on_exceed, larder_types::OnExceed::Refuse);
        let cohort = tenants[0]
            .cohort
            .as_ref()
            .map(larder_types::QuotaName::as_str);
        assert_eq!(cohort, Some("team"));

        let path = master.quotas_file.as_ref().expect("named");
        std::fs::write(path, quotas(&file()).to_string()).expect("room");
        let quotas = master.load_quotas().expect("a quotas file");
        assert_eq!(quotas[0].quota.as_str(), "team");
        assert_eq!(quotas[0].limit_bytes, Some(16 << 20));
    }

    #[test]
    fn everybody_gets_a_credential_and_agents_keep_theirs() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::at(place.path()).expect("absolute");
        let plan = Plan::new(&file(), &args());
        let tokens = tokens(&file(), &plan).expect("good names");
        assert_eq!(tokens.len(), 5);
        let shown = Plan::token_files(&folder, &tokens);
        assert_eq!(
            shown.keys().collect::<Vec<_>>(),
            ["admin", "operator", "team-a"]
        );
        assert_eq!(shown["team-a"], folder.join("tokens/tenant-team-a.token"));
    }

    #[test]
    fn a_tenant_cannot_have_the_name_of_a_role() {
        let text = FILE.replace("team-a", "admin");
        let file = PoolFile::parse(&text, "pool.yaml").expect("a good file");
        let error = tokens(&file, &Plan::new(&file, &args())).expect_err("a role");
        assert!(
            error.to_string().contains("spec.tenantId 'admin'"),
            "{error}"
        );
    }

    #[test]
    fn a_long_folder_is_refused_before_anything_starts() {
        let long = format!("/tmp/{}", "x".repeat(100));
        let folder = RunFolder::at(Path::new(&long)).expect("absolute");
        let error = check_sockets(&folder, 2).expect_err("too long").to_string();
        assert!(error.contains("--dir") && error.contains("107"), "{error}");
        check_sockets(&RunFolder::at(Path::new("/tmp/x")).expect("absolute"), 2).expect("short");
    }
}
