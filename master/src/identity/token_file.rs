//! Credentials that are tokens, known by their SHA-256 from a file: how pools outside Kubernetes
//! prove identity. The tokens themselves are not in the file.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use larder_types::Principal;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Identity, IdentityError, Proof};
use crate::config::{ConfigError, parse_json};
use crate::root_key::parse_hex;

/// The most entries: 16,384 tenants, 4,096 agents and some roles, at about 150 bytes each.
const MAX_ENTRIES: usize = 32_768;
/// The longest file, in bytes: [`MAX_ENTRIES`] of 256 bytes.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;
/// How often at most the file is looked at for unknown credentials.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// One line of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    principal: Principal,
    sha256: String,
}

/// What told two contents of the file apart: when it changed, and its length in bytes.
type Stamp = (Option<SystemTime>, u64);

#[derive(Debug)]
struct Table {
    entries: Vec<([u8; 32], Principal)>,
    stamp: Stamp,
    looked_at: Instant,
}

/// The identities file, read again when it changed and a credential is unknown.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    table: watch::Sender<Table>,
}

impl TokenFile {
    /// Reads the file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub async fn load(path: &Path) -> Result<Self, ConfigError> {
        let table = read(path).await?;
        Ok(Self {
            path: path.to_owned(),
            table: watch::Sender::new(table),
        })
    }

    async fn find(&self, credential: &[u8]) -> Result<Principal, IdentityError> {
        // A token file ends with a newline; what is read from one may carry it along.
        let hash = sha256(credential.trim_ascii_end());
        if let Some(principal) = self.table.borrow().find(&hash) {
            return Ok(principal);
        }
        if self.is_changed().await {
            match read(&self.path).await {
                Ok(table) => {
                    let known = table.entries.len();
                    tracing::info!(path = %self.path.display(), known, "identities read again");
                    self.table.send_replace(table);
                }
                // Half-written or broken: those that are known stay known.
                Err(error) => {
                    let error = larder_telemetry::error_chain(&error);
                    tracing::warn!(error, "identities stay as they were");
                }
            }
        }
        self.table
            .borrow()
            .find(&hash)
            .ok_or(IdentityError::Unknown)
    }

    /// Whether the file is another one than what is known; looks at most once a second, so that
    /// strangers cannot keep the disk busy.
    async fn is_changed(&self) -> bool {
        let now = Instant::now();
        let due = self.table.send_if_modified(|table| {
            let due = now.duration_since(table.looked_at) >= LOOK_AGAIN;
            if due {
                table.looked_at = now;
            }
            due
        });
        if !due {
            return false;
        }
        let Ok(facts) = tokio::fs::metadata(&self.path).await else {
            return false;
        };
        self.table.borrow().stamp != (facts.modified().ok(), facts.len())
    }
}

impl Identity for TokenFile {
    fn prove<'a>(&'a self, credential: &'a [u8]) -> Proof<'a> {
        Box::pin(self.find(credential))
    }
}

impl Table {
    /// Compares with every entry, whatever matches first: the time tells nothing.
    fn find(&self, hash: &[u8; 32]) -> Option<Principal> {
        let mut found = None;
        for (known, principal) in &self.entries {
            let differs = known.iter().zip(hash).fold(0, |sum, (a, b)| sum | (a ^ b));
            if std::hint::black_box(differs) == 0 {
                found = Some(principal);
            }
        }
        found.cloned()
    }
}

async fn read(path: &Path) -> Result<Table, ConfigError> {
    let failed = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    let looked_at = Instant::now();
    // The stamp is taken first: a change in between is seen at the next look.
    let facts = tokio::fs::metadata(path).await.map_err(failed)?;
    let stamp = (facts.modified().ok(), facts.len());
    let refuse = |what: String| ConfigError::Value {
        key: "identities_file",
        what,
    };
    if facts.len() > MAX_FILE_BYTES {
        return Err(refuse(format!(
            "must name a file of at most {MAX_FILE_BYTES} bytes"
        )));
    }
    let text = tokio::fs::read_to_string(path).await.map_err(failed)?;
    let list: Vec<Entry> = parse_json(path, &text)?;
    if list.len() > MAX_ENTRIES {
        return Err(refuse(format!(
            "must name a file of at most {MAX_ENTRIES} entries"
        )));
    }
    let mut entries = Vec::with_capacity(list.len());
    for Entry { principal, sha256 } in list {
        let hash = parse_hex(&sha256).ok_or_else(|| {
            refuse(format!(
                "has an entry for {principal} whose sha256 is not 64 hex digits"
            ))
        })?;
        entries.push((hash, principal));
    }
    Ok(Table {
        entries,
        stamp,
        looked_at,
    })
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_types::TenantId;

    fn entry(principal: &str, token: &str) -> String {
        let hex: String = sha256(token.as_bytes())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        format!(r#"{{"principal": {principal}, "sha256": "{hex}"}}"#)
    }

    fn file(name: &str, text: &str) -> PathBuf {
        let name = format!("larder-{name}-{}.json", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_token_is_found_without_a_restart_and_an_old_one_stays_through_a_bad_file() {
        let path = file(
            "identities",
            &format!("[{}]", entry(r#"{"Tenant":"a"}"#, "one")),
        );
        let identity = TokenFile::load(&path).await.expect("valid");
        let a = Principal::Tenant(TenantId::new("a").expect("valid"));
        assert_eq!(identity.prove(b"one\n").await.expect("known"), a);
        assert!(matches!(
            identity.prove(b"two").await,
            Err(IdentityError::Unknown)
        ));

        let both = [
            entry(r#"{"Tenant":"a"}"#, "one"),
            entry(r#""Operator""#, "two"),
        ]
        .join(",");
        std::fs::write(&path, format!("[{both}]")).expect("written");
        // Looked at just now: not again so soon, whoever asks.
        assert!(matches!(
            identity.prove(b"two").await,
            Err(IdentityError::Unknown)
        ));
        tokio::time::advance(LOOK_AGAIN).await;
        assert_eq!(
            identity.prove(b"two").await.expect("known"),
            Principal::Operator
        );

        std::fs::write(&path, "[half").expect("written");
        tokio::time::advance(LOOK_AGAIN).await;
        assert!(matches!(
            identity.prove(b"three").await,
            Err(IdentityError::Unknown)
        ));
        assert_eq!(identity.prove(b"one").await.expect("known"), a);
        std::fs::remove_file(&path).expect("removed");
    }

    #[tokio::test]
    async fn a_file_that_is_not_right_is_named_with_its_key() {
        let cases = [
            (r#"[{"principal": "Operator", "sha256": "12"}]"#, "operator"),
            (r#"[{"principal": "Boss", "sha256": "12"}]"#, "principal"),
            (r#"[{"principal": "Admin", "sha512": "12"}]"#, "sha512"),
        ];
        for (text, named) in cases {
            let path = file("bad-identities", text);
            let error = TokenFile::load(&path).await.expect_err(text);
            let error = larder_telemetry::error_chain(&error);
            assert!(error.contains(named), "{error}");
            std::fs::remove_file(&path).expect("removed");
        }
    }
}
