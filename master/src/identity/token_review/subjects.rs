//! The file of subjects: which ServiceAccount is which principal. It comes from a ConfigMap, so it
//! changes under a running master, by an exchange of a symbolic link.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use larder_telemetry::{Metric, Registry};
use larder_types::{AgentName, Principal, TenantId};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::sync::watch;
use tokio::time::Instant;

use super::cache::Account;
use crate::config::{ConfigError, parse_json};

/// The longest file, in bytes: a ConfigMap has at most 1 MiB, some 10,000 entries of 100 bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
/// How often at most the file is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The key that names the file.
const KEY: &str = "subjects_file";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    audience: String,
    subjects: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    principal: Subject,
    service_account: String,
}

/// What an account is: a principal, or the agent of whatever node its token is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
enum Subject {
    Tenant(TenantId),
    Agent(AgentName),
    AgentOfNode,
    Master,
    Operator,
    Admin,
}

/// Who is who.
#[derive(Debug)]
pub(super) struct Subjects {
    audience: String,
    accounts: HashMap<String, Subject>,
}

impl Subjects {
    /// What a token has to be for.
    pub(super) fn audience(&self) -> &str {
        &self.audience
    }

    /// Whether the account `namespace/name` is anybody.
    pub(super) fn knows(&self, account: &str) -> bool {
        self.accounts.contains_key(account)
    }

    /// Who an account is.
    pub(super) fn principal(&self, account: &Account) -> Option<Principal> {
        Some(match self.accounts.get(&account.name)? {
            Subject::Tenant(tenant) => Principal::Tenant(tenant.clone()),
            Subject::Agent(agent) => Principal::Agent(agent.clone()),
            Subject::AgentOfNode => Principal::Agent(agent_of(account)?),
            Subject::Master => Principal::Master,
            Subject::Operator => Principal::Operator,
            Subject::Admin => Principal::Admin,
        })
    }

    fn new(document: Document) -> Result<Self, String> {
        let Document { audience, subjects } = document;
        if audience.is_empty() {
            return Err("must name a file with an audience that is not empty".to_owned());
        }
        let mut accounts = HashMap::with_capacity(subjects.len());
        for Entry {
            principal,
            service_account,
        } in subjects
        {
            let is_account = service_account
                .split_once('/')
                .is_some_and(|(namespace, name)| {
                    !namespace.is_empty() && !name.is_empty() && !name.contains('/')
                });
            if !is_account {
                return Err(format!(
                    "has an entry for `{service_account}`, which is not <namespace>/<name>"
                ));
            }
            let same = accounts.get(&service_account);
            if same.is_some_and(|known| *known != principal) {
                return Err(format!(
                    "says of {service_account} that it is two principals; name it once"
                ));
            }
            accounts.insert(service_account, principal);
        }
        Ok(Self { audience, accounts })
    }
}

fn agent_of(account: &Account) -> Option<AgentName> {
    let node = account.node.as_deref()?;
    AgentName::new(node)
        .inspect_err(|error| tracing::debug!(%error, "a node's name cannot be an agent's"))
        .ok()
}

/// What tells two files apart: when it changed, its length in bytes, and which one it is.
type Stamp = (Option<SystemTime>, u64, u64);

#[derive(Debug)]
struct Table {
    subjects: Arc<Subjects>,
    /// Of the last file that was read, even in vain: a broken one is said once.
    stamp: Stamp,
    looked_at: Instant,
}

/// The file as it was last readable.
#[derive(Debug)]
pub(super) struct SubjectsFile {
    path: PathBuf,
    table: watch::Sender<Table>,
    registry: Registry,
}

impl SubjectsFile {
    /// Reads the file.
    pub(super) async fn load(path: &Path, registry: Registry) -> Result<Self, ConfigError> {
        let looked_at = Instant::now();
        // The stamp is taken first: a change in between is seen at the next look.
        let stamp = stamp_of(path).await?;
        let table = Table {
            subjects: Arc::new(read(path).await?),
            stamp,
            looked_at,
        };
        Ok(Self {
            path: path.to_owned(),
            table: watch::Sender::new(table),
            registry,
        })
    }

    /// Who is who now. Looks at the file at most once a second.
    pub(super) async fn current(&self) -> Arc<Subjects> {
        if self.is_due() {
            self.look().await;
        }
        Arc::clone(&self.table.borrow().subjects)
    }

    fn is_due(&self) -> bool {
        let now = Instant::now();
        self.table.send_if_modified(|table| {
            let due = now.duration_since(table.looked_at) >= LOOK_AGAIN;
            if due {
                table.looked_at = now;
            }
            due
        })
    }

    async fn look(&self) {
        let stamp = match stamp_of(&self.path).await {
            Ok(stamp) => stamp,
            Err(error) => return self.keep(&error),
        };
        if self.table.borrow().stamp == stamp {
            return;
        }
        let subjects = read(&self.path).await;
        self.table.send_modify(|table| table.stamp = stamp);
        match subjects {
            Ok(subjects) => {
                let known = subjects.accounts.len();
                tracing::info!(path = %self.path.display(), known, "subjects read again");
                self.table
                    .send_modify(|table| table.subjects = Arc::new(subjects));
            }
            Err(error) => self.keep(&error),
        }
    }

    fn keep(&self, error: &ConfigError) {
        self.registry
            .inc(Metric::MasterSubjectsFailuresTotal, &[], 1);
        let error = larder_telemetry::error_chain(error);
        tracing::warn!(error, "subjects stay as they were");
    }
}

async fn stamp_of(path: &Path) -> Result<Stamp, ConfigError> {
    let facts = tokio::fs::metadata(path).await.map_err(read_failed(path))?;
    Ok((facts.modified().ok(), facts.len(), facts.ino()))
}

async fn read(path: &Path) -> Result<Subjects, ConfigError> {
    let refuse = |what| ConfigError::Value { key: KEY, what };
    let file = tokio::fs::File::open(path)
        .await
        .map_err(read_failed(path))?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .await
        .map_err(read_failed(path))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(refuse(format!(
            "must name a file of at most {MAX_FILE_BYTES} bytes"
        )));
    }
    Subjects::new(parse_json(path, &text)?).map_err(refuse)
}

fn read_failed(path: &Path) -> impl FnOnce(std::io::Error) -> ConfigError {
    let path = path.to_owned();
    move |source| ConfigError::Read { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Subjects, String> {
        let document = parse_json(Path::new("s.json"), text)
            .map_err(|error| larder_telemetry::error_chain(&error))?;
        Subjects::new(document)
    }

    fn account(name: &str, node: Option<&str>) -> Account {
        Account {
            name: name.to_owned(),
            node: node.map(str::to_owned),
        }
    }

    #[test]
    fn every_form_of_a_subject_is_known() {
        let subjects = parse(
            r#"{"audience": "larder", "subjects": [
                {"principal": "AgentOfNode", "service_account": "p/agent"},
                {"principal": {"Agent": "one"}, "service_account": "p/fixed"},
                {"principal": "Master", "service_account": "p/master"},
                {"principal": "Operator", "service_account": "p/operator"},
                {"principal": "Admin", "service_account": "p/admin"},
                {"principal": {"Tenant": "a"}, "service_account": "p/a"},
                {"principal": {"Tenant": "a"}, "service_account": "p/a"}
            ]}"#,
        )
        .expect("valid");
        let who = |name, node| subjects.principal(&account(name, node));
        let agent = |name| Principal::Agent(AgentName::new(name).expect("valid"));
        assert_eq!(subjects.audience(), "larder");
        assert_eq!(who("p/agent", Some("node-1")), Some(agent("node-1")));
        assert_eq!(who("p/agent", None), None, "no node, no agent");
        assert_eq!(who("p/agent", Some("no node/../")), None);
        assert_eq!(who("p/fixed", None), Some(agent("one")));
        assert_eq!(who("p/master", None), Some(Principal::Master));
        assert_eq!(who("p/operator", None), Some(Principal::Operator));
        assert_eq!(who("p/admin", None), Some(Principal::Admin));
        let a = Principal::Tenant(TenantId::new("a").expect("valid"));
        assert_eq!(who("p/a", Some("node-1")), Some(a));
        assert_eq!(who("p/b", None), None);
    }

    #[test]
    fn a_file_that_is_not_right_is_told_what_is_wrong() {
        let entry = |principal: &str, account: &str| {
            format!(r#"{{"principal": {principal}, "service_account": "{account}"}}"#)
        };
        let file = |audience: &str, entries: &[String]| {
            let entries = entries.join(",");
            format!(r#"{{"audience": "{audience}", "subjects": [{entries}]}}"#)
        };
        let two = [entry("\"Master\"", "p/a"), entry("\"Admin\"", "p/a")];
        let cases = [
            (file("", &[]), "audience"),
            (file("l", &[entry("\"Master\"", "a")]), "<namespace>/<name>"),
            (file("l", &[entry("\"Master\"", "a/b/c")]), "a/b/c"),
            (file("l", &[entry("\"Boss\"", "a/b")]), "principal"),
            (file("l", &[entry(r#"{"Tenant": "a b"}"#, "a/b")]), "Tenant"),
            (file("l", &two), "two principals"),
            (r#"{"audience": "l"}"#.to_owned(), "subjects"),
            ("[".to_owned(), "s.json"),
        ];
        for (text, named) in cases {
            let error = parse(&text).expect_err(&text);
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
