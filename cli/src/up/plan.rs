//! What is to be started, from a pool file: pure.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
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
    /// The masters, by number.
    pub(crate) masters: Vec<MasterPlan>,
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

/// A master, and where it is reached over all of its lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MasterPlan {
    /// Its name.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) host: IpAddr,
    /// Port for clients, agents and the other masters; 0 = any, of an only master.
    pub(crate) client_port: u16,
    /// Port for administration; 0 = any, of an only master.
    pub(crate) admin_port: u16,
}

impl MasterPlan {
    /// Where clients reach it.
    pub(super) fn client_addr(&self) -> String {
        SocketAddr::new(self.host, self.client_port).to_string()
    }
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
    /// `ports` are free ones, for those that the arguments do not name: an only master takes any
    /// when it starts, but several must know each other's before.
    pub(super) fn new(file: &PoolFile, args: &crate::args::Up, ports: &[u16]) -> Self {
        let pool = &file.pool;
        let mut ports = ports.iter().copied();
        let mut named = |port: u16| match port {
            0 => ports.next().unwrap_or(0),
            named => named,
        };
        let masters = (0..pool.masters).map(|n| {
            let (client_port, admin_port) = match n {
                0 => (args.client_port, args.admin_port),
                _ => (0, 0),
            };
            let host = args.master_hosts.get(n as usize).copied();
            MasterPlan {
                name: format!("{}-master-{n}", pool.name),
                host: host.unwrap_or(Ipv4Addr::LOCALHOST.into()),
                client_port: named(client_port),
                admin_port: named(admin_port),
            }
        });
        let mut master_sections = pool.master.sections(false);
        master_sections.extend(args.master_sections.clone().unwrap_or_default());
        Self {
            pool: pool.name.clone(),
            masters: masters.collect(),
            agents: (0..pool.agents)
                .map(|n| format!("{}-{n}", pool.name))
                .collect(),
            dram_bytes: pool.node_dram_bytes,
            slab_bytes: pool.slab_bytes,
            replica_factor: pool.replica_factor,
            master_sections,
            log_filter: args.log_filter.clone(),
        }
    }

    /// The configuration of a master.
    pub(super) fn master_config(&self, folder: &RunFolder, master: &MasterPlan) -> Value {
        let name = &master.name;
        let mut config = json!({
            "pool": self.pool,
            "name": name,
            "client_addr": master.client_addr(),
            "admin_addr": SocketAddr::new(master.host, master.admin_port),
            "state_dir": folder.join(&format!("state/{name}")),
            "root_key_file": folder.join("keys/root.key"),
            "identities_file": folder.join("config/identities.json"),
            "tenants_file": folder.join("config/tenants.json"),
            "quotas_file": folder.join("config/quotas.json"),
            "replica_factor": self.replica_factor,
            "ready_file": ready_file(folder, name),
            "log": self.log(),
        });
        if let Some(parts) = config.as_object_mut() {
            parts.extend(self.master_sections.clone());
        }
        if self.has_standbys() {
            config["members"] = self.masters.iter().map(member).collect();
        }
        config
    }

    /// Whether there is more than one master.
    pub(super) const fn has_standbys(&self) -> bool {
        self.masters.len() > 1
    }

    /// The configuration of the agent of this number.
    pub(super) fn agent_config(
        &self,
        folder: &RunFolder,
        number: usize,
        name: &str,
        masters: &[String],
    ) -> Value {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        json!({
            "pool": self.pool,
            "name": name,
            "masters": masters,
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

fn member(master: &MasterPlan) -> Value {
    json!({ "name": master.name, "addr": master.client_addr() })
}

fn loopback(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Refuses what several masters on one machine cannot have.
pub(super) fn check_masters(file: &PoolFile) -> Result<(), CliError> {
    let pool = &file.pool;
    if pool.masters > 1 && pool.master.sections(false).contains_key("events") {
        return Err(CliError::Usage(format!(
            "spec.events: under larder up {} masters would all serve it on the same ports; set \
             spec.masters.replicas to 1",
            pool.masters
        )));
    }
    Ok(())
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
            master_hosts: Vec::new(),
            master_sections: None,
        }
    }

    #[test]
    fn the_programs_take_what_is_planned_for_them() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::at(place.path()).expect("absolute");
        let plan = Plan::new(&file(), &args(), &[]);
        assert_eq!(plan.agents, ["small-0", "small-1"]);

        let text = plan
            .agent_config(&folder, 1, "small-1", &["127.0.0.1:9".to_owned()])
            .to_string();
        let agent = larder_node_agent::Config::parse(&text).expect("an agent's configuration");
        assert_eq!(agent.slabs_bytes(), 64 << 20);
        assert_eq!(agent.socket_path, folder.join("agent-1.sock"));

        let path = place.path().join("m.json");
        let config = plan.master_config(&folder, &plan.masters[0]);
        assert!(config.get("members").is_none(), "it is alone");
        std::fs::write(&path, config.to_string()).expect("room");
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
    fn several_masters_know_each_other_and_keep_their_places() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::at(place.path()).expect("absolute");
        let events = FILE.find("  events:").expect("events");
        let end = events + FILE[events..].find("---").expect("the end of the pool");
        let text = format!(
            "{}  masters: {{replicas: 3}}\n{}",
            &FILE[..events],
            &FILE[end..]
        );
        let file = PoolFile::parse(&text, "pool.yaml").expect("a good file");
        check_masters(&file).expect("no events");
        let ports: Vec<u16> = (20_001..20_006).collect();
        let plan = Plan::new(&file, &args(), &ports);
        let names: Vec<&str> = plan.masters.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            ["small-master-0", "small-master-1", "small-master-2"]
        );
        let places = plan.masters.iter();
        let places: Vec<_> = places
            .map(|one| (one.client_port, one.admin_port))
            .collect();
        assert_eq!(
            places,
            [(20_001, 7001), (20_002, 20_003), (20_004, 20_005)],
            "the named port and the free ones"
        );
        let configs = plan.masters.iter();
        let configs: Vec<Value> = configs
            .map(|one| plan.master_config(&folder, one))
            .collect();
        for (config, master) in configs.iter().zip(&plan.masters) {
            assert_eq!(
                config["members"],
                json!([
                    { "name": "small-master-0", "addr": "127.0.0.1:20001" },
                    { "name": "small-master-1", "addr": "127.0.0.1:20002" },
                    { "name": "small-master-2", "addr": "127.0.0.1:20004" },
                ])
            );
            let state = folder.join(&format!("state/{}", master.name));
            assert_eq!(config["state_dir"], json!(state), "nobody shares it");
            assert_eq!(config["client_addr"], json!(master.client_addr()));
        }
        let text = serde_json::to_string(&plan).expect("JSON");
        assert_eq!(serde_json::from_str::<Plan>(&text).expect("a plan"), plan);
    }

    #[test]
    fn several_masters_cannot_share_the_ports_of_events() {
        let text = FILE.replace("  nodes:", "  masters: {replicas: 3}\n  nodes:");
        let file = PoolFile::parse(&text, "pool.yaml").expect("a good file");
        let error = check_masters(&file).expect_err("one port").to_string();
        assert!(error.contains("spec.events"), "{error}");
    }

    #[test]
    fn everybody_gets_a_credential_and_agents_keep_theirs() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = RunFolder::at(place.path()).expect("absolute");
        let plan = Plan::new(&file(), &args(), &[]);
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
        let error = tokens(&file, &Plan::new(&file, &args(), &[])).expect_err("a role");
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
