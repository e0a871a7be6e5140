//! What an agent is told on its command line, because it differs from node to node: one file then
//! serves all agents of a pool.

use std::fmt;
use std::str::FromStr;

use larder_types::{AgentName, Labels};

/// The longest name of an object in Kubernetes, in bytes.
const OBJECT_NAME_BYTES_MAX: usize = 253;

/// The flags. What is given here wins over the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The agent's name.
    pub name: Option<AgentName>,
    /// Where others reach the data listener; see [`crate::Config::advertise_addr`].
    pub advertise_addr: Option<String>,
    /// Where it is; each label that is given here wins over that of the file.
    pub labels: Labels,
    /// The object in which this agent shows its state.
    pub cache_node: Option<CacheNodeRef>,
    /// Uid of the pod, to show there.
    pub pod_uid: Option<String>,
}

/// Names one CacheNode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheNodeRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The text names no CacheNode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give namespace and name of a CacheNode, as in `cache/pool-small-node-1`")]
pub struct CacheNodeRefError;

impl FromStr for CacheNodeRef {
    type Err = CacheNodeRefError;

    fn from_str(text: &str) -> Result<Self, CacheNodeRefError> {
        let (namespace, name) = text.split_once('/').ok_or(CacheNodeRefError)?;
        // They become parts of a path, so nothing but what names of objects are made of.
        let is_name = |part: &str| {
            (1..=OBJECT_NAME_BYTES_MAX).contains(&part.len())
                && part.bytes().all(|byte| {
                    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)
                })
                && part.bytes().any(|byte| byte != b'.')
        };
        if is_name(namespace) && is_name(name) {
            Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            })
        } else {
            Err(CacheNodeRefError)
        }
    }
}

impl fmt::Display for CacheNodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_node_has_a_namespace_and_a_name() {
        let text = "cache/pool-small-10.0.0.1";
        let node: CacheNodeRef = text.parse().expect("valid");
        assert_eq!(
            (node.namespace.as_str(), node.to_string()),
            ("cache", text.to_owned())
        );
        for text in [
            "", "cache", "/a", "a/", "a/b/c", "A/b", "a/..", "../b", "a/b?c", "a b/c",
        ] {
            let error = text.parse::<CacheNodeRef>().expect_err(text);
            assert!(error.to_string().contains("namespace"), "{text}");
        }
    }
}
