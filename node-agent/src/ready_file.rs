//! The file that says where a started agent is reached, for the program that started it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::atomic_file;

/// What the file says.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReadyFile {
    name: String,
    pid: u32,
    /// `host:port` of the data listener, as others reach it.
    client_addr: String,
    socket: PathBuf,
    metrics_addr: String,
    #[serde(skip)]
    path: PathBuf,
}

impl ReadyFile {
    pub(crate) fn new(
        path: &Path,
        name: &str,
        client_addr: &str,
        socket: &Path,
        metrics_addr: &str,
    ) -> Self {
        Self {
            name: name.to_owned(),
            pid: std::process::id(),
            client_addr: client_addr.to_owned(),
            socket: socket.to_owned(),
            metrics_addr: metrics_addr.to_owned(),
            path: path.to_owned(),
        }
    }

    /// Writes the file. Failure is said in the log: the agent itself is well.
    pub(crate) fn write(&self) {
        let written = serde_json::to_vec(self)
            .map_err(std::io::Error::from)
            .and_then(|bytes| atomic_file::replace(&self.path, &bytes, 0o644));
        if let Err(error) = written {
            tracing::error!(%error, "the ready file {} cannot be written", self.path.display());
        }
    }
}
