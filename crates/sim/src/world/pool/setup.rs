//! What the processes of a pool are started with.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use larder_master::Config;
use larder_master::config::TenantConfig;
use larder_master::sim::{RELEASE, SimSettings};
use larder_oplog::BootId;
use larder_types::{AgentName, AgentUid, Incarnation, TenantId};
use larder_wire::RootKey;
use serde_json::json;

use super::super::agent::{AgentFolder, AgentSettings, run_agent};
use super::super::faults::{Class, Fault, FaultShape, draw_faults};
use super::super::network::Node;
use super::super::pool_client::ClientSettings;
use super::super::stage::StageError;
use super::master::{MasterSettings, run_master};
use super::{MS, Pool, PoolMistake};

const TENANT: &str = "a";

fn addr_of(node: Node) -> String {
    format!("master-{}:1", node.0)
}

fn agent_name(node: Node) -> Option<AgentName> {
    AgentName::new(&format!("agent-{}", node.0)).ok()
}

impl Pool {
    fn config(&self, node: Node) -> Option<Config> {
        let member =
            |node: &Node| json!({ "name": format!("master-{}", node.0), "addr": addr_of(*node) });
        let members: Vec<_> = self.machines.keys().map(member).collect();
        let sync = if self.is_always { "Always" } else { "Interval" };
        let config = json!({
            "pool": "pool",
            "name": format!("master-{}", node.0),
            "client_addr": "", "admin_addr": "", "state_dir": "", "root_key_file": "",
            "tenants_file": "",
            "members": members,
            // Never due: snapshots are not sent here.
            "oplog": { "sync": sync, "snapshot_bytes": u64::MAX / 4 },
            "put_discard_ms": 1_500,
            // Longer than an agent is out of reach, also for a leader whose clock leaps.
            "bootstrap": { "inventory_wait_ms": 8_000 },
        });
        serde_json::from_value(config).ok()
    }

    pub(super) fn start_master(&mut self, node: Node) -> Result<(), StageError> {
        self.lives += 1;
        self.restarts.remove(&node);
        self.judge.borrow_mut().forget(node);
        let tenants = serde_json::from_value(json!([{ "tenant": TENANT }]));
        let tenants: Vec<TenantConfig> = tenants.unwrap_or_default();
        let Some((config, machine)) = self.config(node).zip(self.machines.get(&node)) else {
            self.find("the configuration of a master does not decode");
            return Ok(());
        };
        let mut chance = self.seed.stream_of("master", self.lives);
        let mistake = match self.mistake {
            Some(PoolMistake::Master(mistake)) => Some(mistake),
            _ => None,
        };
        let masters: BTreeMap<String, Node> = self
            .machines
            .keys()
            .map(|node| (addr_of(*node), *node))
            .collect();
        let settings = MasterSettings {
            sim: SimSettings {
                config,
                tenants,
                root: RootKey::new([7; 32]),
                boot: BootId([machine.boot; 16]),
                seed: chance.draw(),
                incarnation: Incarnation(chance.draw().max(1)),
                release: RELEASE + u32::from(machine.is_upgraded),
                mistake,
            },
            disk: machine.disk.clone(),
            masters: Arc::new(masters),
            ahead_ms: Arc::clone(&machine.ahead_ms),
            judge: Rc::clone(&self.judge),
        };
        self.stage
            .start(node, move |context| run_master(context, settings))
    }

    pub(super) fn start_agent(&mut self, node: Node) -> Result<(), StageError> {
        self.restarts.remove(&node);
        if self.mistake == Some(PoolMistake::EpochForgotten) {
            self.agents.insert(node, AgentFolder::default());
        }
        let folder = self.agents.get(&node).cloned().unwrap_or_default();
        let Some(name) = agent_name(node) else {
            return Ok(());
        };
        let settings = AgentSettings {
            name,
            uid: AgentUid(node.0.into()),
            masters: self.master_addrs(),
            slabs: 4,
            slab_bytes: larder_types::layout::MIN_SLAB_BYTES,
        };
        self.stage
            .start(node, move |context| run_agent(context, settings, folder))
    }

    fn master_addrs(&self) -> Vec<(String, Node)> {
        let nodes = self.machines.keys();
        nodes.map(|node| (addr_of(*node), *node)).collect()
    }

    pub(super) fn client_settings(&self, patience: Duration) -> Option<ClientSettings> {
        let agents = self.agents.keys();
        Some(ClientSettings {
            masters: self.master_addrs(),
            agents: agents
                .filter_map(|node| Some((agent_name(*node)?, *node)))
                .collect(),
            tenant: TenantId::new(TENANT).ok()?,
            credential: TENANT.as_bytes().to_vec(),
            replicas: self.replicas,
            patience,
            removes_again: self.mistake == Some(PoolMistake::RemovesAgain),
        })
    }

    pub(super) fn draw_faults(&self) -> Vec<Fault> {
        let classes = vec![
            Class::Loss,
            Class::Delay,
            Class::Repeat,
            Class::Reorder,
            Class::Partition,
            Class::OneWay,
            Class::Kill,
            Class::PowerOne,
            Class::DiskFull,
            Class::ClockLeap,
            Class::ClockDrift,
            Class::WallJump,
            Class::Pause,
            Class::AgentKill,
            Class::AgentPause,
            Class::Upgrade,
            Class::PowerAll,
            Class::WipeAll,
            Class::DiskSlow,
        ];
        let clients = self.records.iter().map(|(node, _)| *node);
        let from_ns = self.stage.now_ns() + 50 * MS;
        let shape = FaultShape {
            classes,
            masters: self.masters(),
            agents: self.agents.keys().copied().collect(),
            clients: clients.collect(),
            from_ns,
            until_ns: from_ns + 3_000 * MS,
            count_min: 3,
            count_max: 8,
            length_max_ns: 1_200 * MS,
            // One loss of power in a run, unless nothing may be lost by any number of them.
            rejoin_ns: if self.is_always {
                10 * MS
            } else {
                u64::MAX / 4
            },
        };
        draw_faults(self.seed, &shape)
    }
}
