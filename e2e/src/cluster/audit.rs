//! The API server's log of writes: who wrote what, for tests that count.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Deserialize;

/// One write that the API server answered. Reads, reviews and tokens, of which nothing
/// is stored, are not in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// When it arrived, as RFC 3339.
    pub at: String,
    /// Who: `system:serviceaccount:NAMESPACE:NAME` for a ServiceAccount.
    pub user: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The API group; empty for the core.
    pub group: String,
    /// The plural: `pods`.
    pub resource: String,
    /// As `status`; empty for the object itself.
    pub subresource: String,
    /// Empty for an object of no namespace.
    pub namespace: String,
    /// Empty where the server makes the name, and for many at once.
    pub name: String,
    /// The HTTP status of the answer: refused writes are listed too.
    pub code: u16,
}

/// A reader of the log from a certain point on.
#[derive(Clone, Debug)]
pub struct Audit {
    path: PathBuf,
    offset_bytes: u64,
}

impl Audit {
    /// From now on.
    pub(crate) fn from_now(path: PathBuf) -> Self {
        let offset_bytes = path.metadata().map_or(0, |file| file.len());
        Self { path, offset_bytes }
    }

    /// The writes since the last call. The API server writes an entry right after it has
    /// answered, so that the newest may come with the next call.
    ///
    /// # Errors
    /// If the log cannot be read, or is none.
    pub fn writes(&mut self) -> Result<Vec<Write>> {
        let Some(text) = read_from(&self.path, self.offset_bytes)? else {
            return Ok(Vec::new());
        };
        // The last line may be only half there.
        let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
        self.offset_bytes += whole.len() as u64;
        let lines = whole.lines().filter_map(|line| parse(line).transpose());
        lines
            .collect::<Result<_>>()
            .with_context(|| format!("in {}", self.path.display()))
    }
}

fn read_from(path: &Path, offset_bytes: u64) -> Result<Option<String>> {
    let mut file = match File::open(path) {
        // The first write makes it.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.with_context(|| format!("{} cannot be read", path.display()))?,
    };
    file.seek(SeekFrom::Start(offset_bytes))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    stage: String,
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Option<ObjectRef>,
    #[serde(default)]
    response_status: Option<ResponseStatus>,
    request_received_timestamp: String,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

fn parse(line: &str) -> Result<Option<Write>> {
    let entry: Entry = serde_json::from_str(line).context("no entry of an audit log")?;
    if entry.stage != "ResponseComplete" {
        return Ok(None);
    }
    let object = entry.object_ref.unwrap_or_default();
    Ok(Some(Write {
        at: entry.request_received_timestamp,
        user: entry.user.username,
        verb: entry.verb,
        group: object.api_group,
        resource: object.resource,
        subresource: object.subresource,
        namespace: object.namespace,
        name: object.name,
        code: entry.response_status.map_or(0, |status| status.code),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"stage":"ResponseComplete","verb":"patch","user":{"username":"u"},
        "objectRef":{"resource":"nodes","name":"n1","subresource":"status","apiVersion":"v1"},
        "responseStatus":{"metadata":{},"code":200},"requestReceivedTimestamp":"T"}"#;

    #[test]
    fn half_a_line_waits_for_its_end() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("audit.log");
        let mut audit = Audit::from_now(path.clone());
        assert_eq!(audit.writes().unwrap(), []);
        let line = LINE.replace('\n', "") + "\n";
        let (half, _) = line.split_at(30);
        std::fs::write(&path, format!("{line}{half}")).unwrap();
        let writes = audit.writes().unwrap();
        assert_eq!(writes.len(), 1);
        assert_eq!(
            (writes[0].subresource.as_str(), writes[0].code),
            ("status", 200)
        );
        std::fs::write(&path, line.repeat(2)).unwrap();
        assert_eq!(audit.writes().unwrap().len(), 1);
        assert_eq!(Audit::from_now(path).writes().unwrap(), []);
    }
}
