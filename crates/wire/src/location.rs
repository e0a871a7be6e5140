//! Where memory is.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The part of a machine that memory belongs to. Written as `cpu:0`, `cuda:3`, `nvme:nvme0n1` or
/// `*`, as engines name them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Location {
    /// Nobody said.
    #[default]
    Any,
    /// Host memory of a NUMA node.
    Cpu(u32),
    /// Memory of a GPU, by its CUDA ordinal.
    Cuda(u32),
    /// A block device, by its name in `/sys/block`.
    Nvme(String),
}

/// The text names no location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no location; write `cpu:N`, `cuda:N`, `nvme:NAME` or `*`")]
pub struct NoLocation(String);

impl FromStr for Location {
    type Err = NoLocation;

    fn from_str(text: &str) -> Result<Self, NoLocation> {
        let wrong = || NoLocation(text.to_owned());
        if text == "*" {
            return Ok(Self::Any);
        }
        let (kind, which) = text.split_once(':').ok_or_else(wrong)?;
        let number = || {
            // `+1` and `01` would parse, and be another name for the same.
            let number: u32 = which.parse().map_err(|_| wrong())?;
            (number.to_string() == which)
                .then_some(number)
                .ok_or_else(wrong)
        };
        match kind {
            "cpu" => number().map(Self::Cpu),
            "cuda" => number().map(Self::Cuda),
            "nvme" if !which.is_empty() && !which.contains('/') => Ok(Self::Nvme(which.to_owned())),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Cpu(node) => write!(f, "cpu:{node}"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
            Self::Nvme(name) => write!(f, "nvme:{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["*", "cpu:0", "cuda:17", "nvme:nvme0n1"] {
            assert_eq!(
                text.parse::<Location>().expect("a location").to_string(),
                text
            );
        }
        for text in [
            "", "cpu", "cpu:", "cpu:-1", "cpu:01", "cpu:+1", "gpu:0", "nvme:", "nvme:a/b",
        ] {
            let error = text.parse::<Location>().expect_err(text);
            assert!(error.to_string().contains("cpu:N"), "{error}");
        }
    }
}
