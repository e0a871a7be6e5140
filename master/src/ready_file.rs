//! The file that says that this master can serve, and where.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;

use crate::events::zmq;
use crate::node::MasterError;

/// Where this master really listens.
#[derive(Debug)]
pub(crate) struct Addrs {
    pub(crate) client: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) zmq: Vec<zmq::ZmqAddrs>,
}

/// Removes the file of an earlier life.
pub(crate) fn remove(path: &Path) -> Result<(), MasterError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(MasterError::ReadyFile {
            path: path.to_owned(),
            source,
        }),
        _ => Ok(()),
    }
}

/// Whoever waits for the file never sees half of it.
pub(crate) fn write(path: &Path, name: &str, addrs: &Addrs) -> Result<(), MasterError> {
    let mut document = json!({
        "name": name,
        "pid": std::process::id(),
        "client_addr": addrs.client.to_string(),
        "admin_addr": addrs.admin.to_string(),
    });
    if !addrs.zmq.is_empty() {
        let endpoint = |one: &zmq::ZmqAddrs| {
            json!({
                "tenant": one.tenant,
                "addr": one.addr.to_string(),
                "replay_addr": one.replay_addr.map(|addr| addr.to_string()),
            })
        };
        document["zmq"] = addrs.zmq.iter().map(endpoint).collect();
    }
    let part = path.with_extension("part");
    let written = std::fs::write(&part, format!("{document}\n"));
    let replaced = written.and_then(|()| std::fs::rename(&part, path));
    replaced.map_err(|source| MasterError::ReadyFile {
        path: path.to_owned(),
        source,
    })
}
