//! The document that `larder up` and `larder status` print: scripts of users read it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A pool of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolDocument {
    /// Name of the CachePool.
    pub(crate) pool: String,
    /// Its masters.
    pub(crate) masters: Vec<MasterDocument>,
    /// Its agents.
    pub(crate) agents: Vec<AgentDocument>,
    /// Token files by tenant id or role.
    pub(crate) tokens: BTreeMap<String, PathBuf>,
}

/// A master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MasterDocument {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) role: MasterRole,
    pub(crate) client_addr: String,
    pub(crate) admin_addr: String,
}

/// What a master does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MasterRole {
    /// Decides and serves clients.
    Leader,
    /// Follows.
    Standby,
    /// Does not serve yet, or does not answer.
    Starting,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentDocument {
    pub(crate) name: String,
    pub(crate) pid: u32,
    pub(crate) client_addr: String,
    pub(crate) socket: PathBuf,
    pub(crate) metrics_addr: String,
}

impl PoolDocument {
    /// Names of the tenants: the keys of the tokens that are no roles.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &str> {
        self.tokens
            .keys()
            .map(String::as_str)
            .filter(|name| !ROLES.contains(name))
    }
}

/// Roles whose tokens stand beside those of the tenants; no tenant may have such an id.
pub(crate) const ROLES: [&str; 2] = ["admin", "operator"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The names are a contract with scripts: a change here is a change for users.
    #[test]
    fn the_document_keeps_its_shape() {
        let document = PoolDocument {
            pool: "small".to_owned(),
            masters: vec![MasterDocument {
                name: "small-master-0".to_owned(),
                pid: 11,
                role: MasterRole::Leader,
                client_addr: "127.0.0.1:1".to_owned(),
                admin_addr: "127.0.0.1:2".to_owned(),
            }],
            agents: vec![AgentDocument {
                name: "small-0".to_owned(),
                pid: 12,
                client_addr: "127.0.0.1:3".to_owned(),
                socket: "/run/agent-0.sock".into(),
                metrics_addr: "127.0.0.1:4".to_owned(),
            }],
            tokens: BTreeMap::from([
                ("admin".to_owned(), "/run/admin.token".into()),
                ("team-a".to_owned(), "/run/tenant-team-a.token".into()),
            ]),
        };
        let expected = json!({
            "pool": "small",
            "masters": [{
                "name": "small-master-0", "pid": 11, "role": "leader",
                "client_addr": "127.0.0.1:1", "admin_addr": "127.0.0.1:2",
            }],
            "agents": [{
                "name": "small-0", "pid": 12, "client_addr": "127.0.0.1:3",
                "socket": "/run/agent-0.sock", "metrics_addr": "127.0.0.1:4",
            }],
            "tokens": { "admin": "/run/admin.token", "team-a": "/run/tenant-team-a.token" },
        });
        assert_eq!(serde_json::to_value(&document).expect("JSON"), expected);
        assert_eq!(document.tenants().collect::<Vec<_>>(), ["team-a"]);
    }
}
