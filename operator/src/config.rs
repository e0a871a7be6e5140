//! The configuration of the operator: one JSON file, every key known, every value checked.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Most reconciles at a time that may be configured.
const CONCURRENCY_MAX: u16 = 64;

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}; check the path and its permissions", .path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no JSON of the right shape.
    #[error("the configuration is not valid at `{key}`")]
    Shape {
        /// Where in it.
        key: String,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A value is out of range.
    #[error("`{key}` {what}")]
    Value {
        /// Which key.
        key: &'static str,
        /// What it has to be.
        what: String,
    },
}

/// Everything that the operator is told, besides the name and namespace of its own pod.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The image of masters and agents.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    #[serde(default = "if_not_present")]
    pub image_pull_policy: String,
    /// Names of Secrets in a pool's namespace with which its pods pull the image.
    #[serde(default)]
    pub image_pull_secrets: Vec<String>,
    /// The operator's ServiceAccount, which masters take for the role `Operator`.
    pub service_account: String,
    /// The ClusterRole that agents get in the namespace of their pool.
    pub agent_cluster_role: String,
    /// The ClusterRole that masters get, to review tokens.
    pub master_cluster_role: String,
    /// `host:port` of metrics and probes.
    pub metrics_addr: String,
    /// The only namespace that is watched; absent means all.
    #[serde(default)]
    pub watch_namespace: Option<String>,
    /// Reconciles of one kind at a time.
    #[serde(default = "four")]
    pub concurrency: u16,
    /// How events are logged.
    #[serde(default)]
    pub log: LogConfig,
}

/// How events are logged.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `human` or `json`.
    pub format: String,
    /// Directives as in `info,larder_operator=debug`.
    pub filter: String,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            format: "json".to_owned(),
            filter: "info".to_owned(),
        }
    }
}

fn if_not_present() -> String {
    "IfNotPresent".to_owned()
}

const fn four() -> u16 {
    4
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`]; it names the key.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        Self::parse(&std::fs::read_to_string(path).map_err(read)?)
    }

    /// Reads and checks a text.
    ///
    /// # Errors
    /// [`ConfigError`]; it names the key.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let config: Self =
            serde_path_to_error::deserialize(&mut reader).map_err(|error| ConfigError::Shape {
                key: error.path().to_string(),
                source: error.into_inner(),
            })?;
        let end = reader.end();
        end.map_err(|source| ConfigError::Shape {
            key: ".".to_owned(),
            source,
        })?;
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let refuse = |key, what: &str| {
            Err(ConfigError::Value {
                key,
                what: what.to_owned(),
            })
        };
        for (key, text) in [
            ("image", &self.image),
            ("service_account", &self.service_account),
            ("agent_cluster_role", &self.agent_cluster_role),
            ("master_cluster_role", &self.master_cluster_role),
        ] {
            if text.is_empty() {
                return refuse(key, "must not be empty");
            }
        }
        if !["Always", "IfNotPresent", "Never"].contains(&self.image_pull_policy.as_str()) {
            return refuse("image_pull_policy", "must be Always, IfNotPresent or Never");
        }
        let port = self
            .metrics_addr
            .rsplit_once(':')
            .map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) {
            return refuse(
                "metrics_addr",
                "must be host:port, for example 0.0.0.0:8080",
            );
        }
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return refuse("concurrency", "must be 1 to 64");
        }
        if self.watch_namespace.as_deref() == Some("") {
            return refuse(
                "watch_namespace",
                "must name a namespace; leave it out for all",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"{"image":"i","service_account":"s","agent_cluster_role":"a",
        "master_cluster_role":"m","metrics_addr":"0.0.0.0:8080"}"#;

    #[test]
    fn defaults_are_told() {
        let config = Config::parse(SMALL).expect("valid");
        assert_eq!(
            (config.concurrency, config.image_pull_policy.as_str()),
            (4, "IfNotPresent")
        );
        assert_eq!(config.watch_namespace, None);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (extra, key) in [
            (r#""imgae":"x","#, "imgae"),
            (r#""concurrency":0,"#, "concurrency"),
            (r#""concurrency":"4","#, "concurrency"),
            (r#""image_pull_policy":"Sometimes","#, "image_pull_policy"),
            (r#""watch_namespace":"","#, "watch_namespace"),
            (r#""log":{"formt":"json"},"#, "formt"),
        ] {
            let text = SMALL.replacen('{', &format!("{{{extra}"), 1);
            let error = Config::parse(&text).expect_err(extra);
            let error = larder_telemetry::error_chain(&error);
            assert!(error.contains(key), "{error}");
        }
        assert!(Config::parse(&SMALL.replace("0.0.0.0:8080", "8080")).is_err());
    }
}
