//! Labels of an agent: where its memory is, so that replicas of an object can be kept apart.

use std::fmt;
use std::str::FromStr;

use crate::id::{IdError, Label};

/// Where an agent is. Agents without a host label are each on a host of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Labels {
    /// The machine. Two agents of one host are lost together.
    #[cfg_attr(feature = "serde", serde(default))]
    pub host: Option<Label>,
    /// The rack, within its zone.
    #[cfg_attr(feature = "serde", serde(default))]
    pub rack: Option<Label>,
    /// The zone.
    #[cfg_attr(feature = "serde", serde(default))]
    pub zone: Option<Label>,
    /// The NUMA node of an agent that keeps to one.
    #[cfg_attr(feature = "serde", serde(default))]
    pub numa: Option<u16>,
}

/// Why a text names no labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelsError {
    /// A part is not `name=value`, or its name is not known.
    Part {
        /// The part.
        part: String,
    },
    /// A name stands twice.
    Twice {
        /// The name.
        name: String,
    },
    /// A value cannot be.
    Value {
        /// Its name.
        name: String,
        /// What is wrong with it.
        source: IdError,
    },
    /// The NUMA node is no number.
    Numa {
        /// What stands there.
        value: String,
    },
}

impl fmt::Display for LabelsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part { part } => write!(
                f,
                "`{part}` is no label; give host, rack, zone or numa, as in `host=a,rack=b,numa=0`"
            ),
            Self::Twice { name } => write!(f, "`{name}` is given twice; give it once"),
            Self::Value { name, .. } => write!(f, "the value of `{name}` is not valid"),
            Self::Numa { value } => {
                write!(f, "numa is the number of a node, 0 to 65535, not `{value}`")
            }
        }
    }
}

impl std::error::Error for LabelsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Value { source, .. } => Some(source),
            Self::Part { .. } | Self::Twice { .. } | Self::Numa { .. } => None,
        }
    }
}

impl Labels {
    /// These, and those of `others` where these say nothing.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        let or = |own: &Option<Label>, other: &Option<Label>| own.clone().or_else(|| other.clone());
        Self {
            host: or(&self.host, &others.host),
            rack: or(&self.rack, &others.rack),
            zone: or(&self.zone, &others.zone),
            numa: self.numa.or(others.numa),
        }
    }
}

impl FromStr for Labels {
    type Err = LabelsError;

    /// Reads `host=a,rack=b,zone=c,numa=0`: any of them, each once, in any order.
    fn from_str(text: &str) -> Result<Self, LabelsError> {
        let mut labels = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                let part = part.to_owned();
                return Err(LabelsError::Part { part });
            };
            let twice = || LabelsError::Twice {
                name: name.to_owned(),
            };
            let field = match name {
                "host" => &mut labels.host,
                "rack" => &mut labels.rack,
                "zone" => &mut labels.zone,
                "numa" => {
                    let numa = value.parse().map_err(|_| LabelsError::Numa {
                        value: value.to_owned(),
                    })?;
                    if labels.numa.replace(numa).is_some() {
                        return Err(twice());
                    }
                    continue;
                }
                _ => {
                    let part = part.to_owned();
                    return Err(LabelsError::Part { part });
                }
            };
            let label = Label::new(value).map_err(|source| LabelsError::Value {
                name: name.to_owned(),
                source,
            })?;
            if field.replace(label).is_some() {
                return Err(twice());
            }
        }
        Ok(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(text: &str) -> Option<Label> {
        Some(Label::new(text).expect("a label"))
    }

    #[test]
    fn labels_are_read_in_any_order() {
        let labels: Labels = "numa=1,zone=eu-1.a,host=n_1".parse().expect("valid");
        let expected = Labels {
            host: label("n_1"),
            rack: None,
            zone: label("eu-1.a"),
            numa: Some(1),
        };
        assert_eq!(labels, expected);
        assert_eq!("".parse(), Ok(Labels::default()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let long = format!("rack={}", "r".repeat(64));
        for (text, part) in [
            ("host", "`host`"),
            ("row=1", "`row=1`"),
            ("zone=a,zone=b", "`zone`"),
            ("numa=0,numa=0", "`numa`"),
            ("numa=-1", "`-1`"),
            ("host=", "`host`"),
            ("host=a b", "`host`"),
            (long.as_str(), "`rack`"),
        ] {
            let error = text.parse::<Labels>().expect_err(text);
            assert!(error.to_string().contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_said_first_wins() {
        let first: Labels = "host=a,numa=0".parse().expect("valid");
        let second: Labels = "host=b,zone=z,numa=3".parse().expect("valid");
        let both: Labels = "host=a,zone=z,numa=0".parse().expect("valid");
        assert_eq!(first.or(&second), both);
    }
}
