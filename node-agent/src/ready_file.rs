//! The file that says where a started agent is reached, for the program that started it.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::atomic_file;
use crate::error::AgentError;

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

    /// Writes the file.
    ///
    /// # Errors
    /// [`AgentError::ReadyFile`]: whoever waits for the file would wait in vain.
    pub(crate) fn write(&self) -> Result<(), AgentError> {
        serde_json::to_vec(self)
            .map_err(std::io::Error::from)
            .and_then(|bytes| atomic_file::replace(&self.path, &bytes, 0o644))
            .map_err(|source| AgentError::ReadyFile {
                path: self.path.clone(),
                source,
            })
    }
}
