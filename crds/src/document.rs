//! Reads the YAML files of users.

use std::fmt;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

use crate::admission::Admission;
use crate::pool::CachePool;
use crate::problem::{Problem, Problems};
use crate::quota::CacheQuota;
use crate::tenant::CacheTenant;
use crate::{GROUP, VERSION};

#[cfg(test)]
mod tests;

/// Longest text that is read, in bytes: as much as the API server takes in one object.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Most documents of one file: a pool and its tenants, each of which costs a token file.
const MAX_DOCUMENTS: usize = 256;

/// One object of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A CachePool.
    Pool(Box<CachePool>),
    /// A CacheTenant.
    Tenant(Box<CacheTenant>),
    /// A CacheQuota.
    Quota(Box<CacheQuota>),
}

/// One thing that is wrong in one document of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentProblem {
    /// File and object, as in `pool.yaml (CachePool demo)`.
    pub document: String,
    /// What is wrong.
    pub problem: Problem,
}

impl fmt::Display for DocumentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.document, self.problem)
    }
}

/// Why a file was refused.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file is longer than a pool file can be.
    #[error("{file}: has {size_bytes} bytes; at most {MAX_TEXT_BYTES} are read")]
    TooLarge {
        /// The file.
        file: String,
        /// Its size.
        size_bytes: usize,
    },
    /// The file has too many documents.
    #[error("{file}: has {count} documents; at most {MAX_DOCUMENTS} are read")]
    TooMany {
        /// The file.
        file: String,
        /// How many.
        count: usize,
    },
    /// The file is not YAML.
    #[error("{file}: is not valid YAML: {detail}")]
    Syntax {
        /// The file.
        file: String,
        /// What the parser said in words for users, with line and column. Not its error itself,
        /// whose text speaks to programmers and repeats the lines under another file name.
        detail: String,
    },
    /// Documents are wrong; one line each, with file, object and field.
    #[error("{}", lines(.0))]
    Invalid(Vec<DocumentProblem>),
}

fn lines(problems: &[DocumentProblem]) -> String {
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Reads the CachePools, CacheTenants and CacheQuotas of a file, checked and with defaults. `file`
/// is what messages call it. Empty documents are skipped.
///
/// # Errors
/// [`DocumentError`]; `Invalid` holds every problem of every document.
pub fn parse_documents(text: &str, file: &str) -> Result<Vec<Document>, DocumentError> {
    if text.len() > MAX_TEXT_BYTES {
        return Err(DocumentError::TooLarge {
            file: file.to_owned(),
            size_bytes: text.len(),
        });
    }
    let values: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| DocumentError::Syntax {
            file: file.to_owned(),
            detail: error
                .without_snippet()
                .render_with_formatter(&UserMessageFormatter),
        })?;
    let values: Vec<Value> = values
        .into_iter()
        .filter(|value| !value.is_null())
        .collect();
    if values.len() > MAX_DOCUMENTS {
        return Err(DocumentError::TooMany {
            file: file.to_owned(),
            count: values.len(),
        });
    }
    let mut reader = Reader::default();
    let mut documents = Vec::new();
    let mut wrong = Vec::new();
    for (at, value) in values.into_iter().enumerate() {
        let document = label(file, at, &value);
        match reader.read(value) {
            Ok(read) => documents.push(read),
            Err(problems) => wrong.extend(problems.into_iter().map(|problem| DocumentProblem {
                document: document.clone(),
                problem,
            })),
        }
    }
    if wrong.is_empty() {
        Ok(documents)
    } else {
        Err(DocumentError::Invalid(wrong))
    }
}

/// What messages call a document: by kind and name where it has them, else by its place.
fn label(file: &str, at: usize, value: &Value) -> String {
    let kind = value.get("kind").and_then(Value::as_str);
    let name = value.pointer("/metadata/name").and_then(Value::as_str);
    match (kind, name) {
        (Some(kind), Some(name)) => format!("{file} ({kind} {name})"),
        (Some(kind), None) => format!("{file} ({kind}, document {})", at + 1),
        _ => format!("{file} (document {})", at + 1),
    }
}

/// Makes the admission of a kind when its first object comes.
#[derive(Default)]
struct Reader {
    pools: Option<Admission>,
    tenants: Option<Admission>,
    quotas: Option<Admission>,
}

impl Reader {
    fn read(&mut self, value: Value) -> Result<Document, Problems> {
        match kind_of(&value)? {
            Kind::Pool => {
                let pool: CachePool = admit(&mut self.pools, value)?;
                pool.settings()?;
                Ok(Document::Pool(Box::new(pool)))
            }
            Kind::Tenant => {
                let tenant: CacheTenant = admit(&mut self.tenants, value)?;
                tenant.settings()?;
                Ok(Document::Tenant(Box::new(tenant)))
            }
            Kind::Quota => {
                let quota: CacheQuota = admit(&mut self.quotas, value)?;
                quota.settings()?;
                Ok(Document::Quota(Box::new(quota)))
            }
        }
    }
}

fn admit<T: JsonSchema + DeserializeOwned>(
    admission: &mut Option<Admission>,
    value: Value,
) -> Result<T, Problems> {
    let admitted = admission
        .get_or_insert_with(Admission::of::<T>)
        .create(value)?;
    serde_json::from_value(admitted)
        .map_err(|error| Problem::new("", format!("cannot be read: {error}")).into())
}

enum Kind {
    Pool,
    Tenant,
    Quota,
}

fn kind_of(value: &Value) -> Result<Kind, Problem> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    if !value.is_object() {
        return Err(Problem::new(
            "",
            "must be a mapping with apiVersion, kind, metadata and spec",
        ));
    }
    let wanted = format!("{GROUP}/{VERSION}");
    let Some(api_version) = text("apiVersion") else {
        return Err(Problem::new(
            "apiVersion",
            format!("is required and must be {wanted}"),
        ));
    };
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    if group != GROUP {
        let message = format!("belongs to the group {group}; only {wanted} is read here");
        return Err(Problem::new("apiVersion", message));
    }
    if version != VERSION {
        let message = format!("the version {version} is not known; write {wanted}");
        return Err(Problem::new("apiVersion", message));
    }
    match text("kind") {
        Some("CachePool") => Ok(Kind::Pool),
        Some("CacheTenant") => Ok(Kind::Tenant),
        Some("CacheQuota") => Ok(Kind::Quota),
        Some("CacheNode") => Err(Problem::new(
            "kind",
            "a CacheNode is written by the operator; leave it out",
        )),
        Some(other) => Err(Problem::new(
            "kind",
            format!("'{other}' is not known; it must be CachePool, CacheTenant or CacheQuota"),
        )),
        None => Err(Problem::new(
            "kind",
            "is required: CachePool, CacheTenant or CacheQuota",
        )),
    }
}
