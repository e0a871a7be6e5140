//! One agent in a folder of its own, with the means to look at it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "kubernetes")]
use larder_node_agent::cache_node::Member;
use larder_node_agent::maker::{MemfdMaker, SlabMaker};
#[cfg(feature = "kubernetes")]
use larder_node_agent::start_member;
use larder_node_agent::{AgentError, Config, RunningAgent, start};
use larder_telemetry::exposition::{parse, value};
use larder_types::{Epoch, Registration, SlabRef, TenantId};
use larder_wire::agent::Command;
use serde_json::json;
use tempfile::TempDir;

use super::fake_master::{AGENT, SEGMENT, soon};

pub(crate) const SLAB_BYTES: u64 = 2 << 20;
pub(crate) const EPOCH: Epoch = Epoch {
    generation: 4,
    term: 2,
};

pub(crate) struct Rig {
    pub(crate) folder: TempDir,
    pub(crate) config: Config,
}

impl Rig {
    pub(crate) fn new(master: SocketAddr) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(path("token"), "token-of-small-0\n").expect("written");
        // An empty folder stands for `/`, so that every machine has one NUMA node here.
        let config = json!({
            "pool": "small",
            "name": "small-0",
            "masters": [master.to_string()],
            "token_file": path("token"),
            "single_node": true,
            "socket_path": path("run/agent.sock"),
            "state_dir": path("state"),
            "dram_bytes": 4 * SLAB_BYTES,
            "slab_bytes": SLAB_BYTES,
            "system_root": path("no-system"),
            "ready_file": path("ready.json"),
        });
        Self {
            config: Config::parse(&config.to_string()).expect("valid"),
            folder,
        }
    }

    pub(crate) fn start(&self) -> RunningAgent {
        start(&self.config, Arc::new(MemfdMaker)).expect("started")
    }

    pub(crate) fn start_with(&self, maker: Arc<dyn SlabMaker>) -> RunningAgent {
        start(&self.config, maker).expect("started")
    }

    #[cfg(feature = "kubernetes")]
    pub(crate) fn start_member(&self, member: Member) -> RunningAgent {
        start_member(&self.config, Arc::new(MemfdMaker), Some(member)).expect("started")
    }

    pub(crate) fn refused(&self) -> AgentError {
        match start(&self.config, Arc::new(MemfdMaker)) {
            Ok(_) => panic!("it started"),
            Err(error) => error,
        }
    }

    pub(crate) fn ready_file(&self) -> PathBuf {
        self.folder.path().join("ready.json")
    }
}

/// Waits until the agent has taken in that it is mounted.
pub(crate) async fn mounted(agent: &RunningAgent) {
    let mut status = agent.status();
    soon("it is mounted", status.wait_for(|status| status.mounted))
        .await
        .expect("it lives");
}

/// Waits for the end of an agent without holding up the master of the test.
pub(crate) async fn join(agent: RunningAgent) -> Result<(), AgentError> {
    tokio::task::spawn_blocking(move || agent.join())
        .await
        .expect("no panic")
}

/// Status line and body of a GET.
pub(crate) async fn get(addr: SocketAddr, path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let exchange = move || {
        let mut stream = TcpStream::connect(addr).expect("connected");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    };
    let answer = tokio::task::spawn_blocking(exchange)
        .await
        .expect("no panic");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (
        head.lines().next().expect("a status").to_owned(),
        body.to_owned(),
    )
}

/// One value of the metrics page; 0 if it is not there.
pub(crate) async fn metric(agent: &RunningAgent, name: &str, labels: &[(&str, &str)]) -> u64 {
    let (status, body) = get(agent.metrics_addr(), "/metrics").await;
    assert!(status.contains("200"), "{status}");
    // Without chunks: the page is written whole.
    let page = parse(&body).unwrap_or_else(|error| panic!("{error}\n{body}"));
    let number = value(&page, name, labels).unwrap_or(0.0);
    number.to_string().parse().expect("a whole number")
}

pub(crate) fn slab(index: u16, registration: u64) -> SlabRef {
    let registration = Registration(registration);
    SlabRef {
        agent: AGENT,
        segment: SEGMENT,
        index,
        registration,
    }
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).expect("a name")
}

pub(crate) fn give(slab: SlabRef) -> Command {
    Command::SlabGive {
        slab,
        tenant: tenant("a"),
        slab_bytes: SLAB_BYTES,
        view_bytes: None,
    }
}
