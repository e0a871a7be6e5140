//! What a client is told: masters, credential, local agent, deadline.

use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_wire::limit::MAX_CREDENTIAL_BYTES;
use tokio::io::AsyncReadExt as _;

use crate::error::ClientError;

/// The deadline of a call unless [`ClientOptions::default_deadline`] says otherwise. Longer than a
/// fail-over of the master takes, so that callers do not see one.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(5);

/// The longest token file that is read, in bytes: a credential, and some space around it.
const MAX_FILE_BYTES: u64 = MAX_CREDENTIAL_BYTES as u64 + 1024;

/// A token or ServiceAccount token. It never shows in logs.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    bytes: Vec<u8>,
    file: Option<PathBuf>,
}

impl Credential {
    /// Takes the text of a token; white space around it is not part of it.
    ///
    /// # Errors
    /// [`ClientError::BadArgument`] if nothing is left, or more than a hello may carry.
    pub fn new(text: &str) -> Result<Self, ClientError> {
        let text = text.trim();
        if text.is_empty() || text.len() > MAX_CREDENTIAL_BYTES {
            return Err(ClientError::BadArgument {
                detail: format!(
                    "a token must have 1 to {MAX_CREDENTIAL_BYTES} bytes, this one has {}",
                    text.len()
                ),
            });
        }
        Ok(Self {
            bytes: text.as_bytes().to_vec(),
            file: None,
        })
    }

    /// The same credential, read again from this file for each connection. Kubelet renews the
    /// token of a pod so, long before the old one ends.
    #[must_use]
    pub fn renewed_from(mut self, file: PathBuf) -> Self {
        self.file = Some(file);
        self
    }

    /// The bytes for a hello, after a look at the file. What is not readable now stays as it was:
    /// the old token may still be good, and the master says so if it is not.
    pub(crate) async fn renewed(&mut self) -> &[u8] {
        if let Some(file) = &self.file {
            match read_token(file).await {
                Ok(bytes) => self.bytes = bytes,
                Err(why) => {
                    tracing::warn!(file = %file.display(), %why, "the token is not renewed");
                }
            }
        }
        &self.bytes
    }
}

async fn read_token(file: &Path) -> Result<Vec<u8>, String> {
    let read = async {
        let file = tokio::fs::File::open(file).await?;
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).await?;
        Ok(text)
    };
    let text = read
        .await
        .map_err(|error: std::io::Error| error.to_string())?;
    match Credential::new(&text) {
        Ok(credential) => Ok(credential.bytes),
        Err(error) => Err(error.to_string()),
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(secret)")
    }
}

/// What a client is told.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// `host:port` of each master; at least one. Asked in turn until one answers. A name is
    /// resolved anew for each connection, and all its addresses are tried.
    pub masters: Vec<String>,
    /// Proves the tenant.
    pub token: Credential,
    /// The Unix socket of the agent on this node, which puts go to while it has room. Without it
    /// every byte travels by tcp.
    pub agent_socket: Option<PathBuf>,
    /// How long a call may take, all of its attempts together.
    pub default_deadline: Duration,
    /// Replicas of each put; `None` = as the pool says.
    pub replicas: Option<u8>,
    /// The caller's name in the logs of masters and agents; proves nothing.
    pub name: String,
    /// Whether connecting goes on until the deadline while no master answers. Without it the
    /// first round over all masters decides, which suits a person at a terminal.
    pub wait_for_master: bool,
}

impl ClientOptions {
    /// Options for these masters and this token; everything else as a program wants it.
    #[must_use]
    pub fn new(masters: Vec<String>, token: Credential) -> Self {
        Self {
            masters,
            token,
            agent_socket: None,
            default_deadline: DEFAULT_DEADLINE,
            replicas: None,
            name: "larder-client".to_owned(),
            wait_for_master: true,
        }
    }
}
