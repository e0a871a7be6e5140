//! The part of a master's configuration that concerns cache events.

use std::net::SocketAddr;

use larder_types::TenantId;
use serde::Deserialize;

use crate::config::ConfigError;

/// The most ZMQ endpoints of one master: each has a task, a socket and a buffer.
const ENDPOINTS_MAX: usize = 64;

/// Cache events. Without this part there are none, and nothing is kept for them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EventsConfig {
    /// The most events that are kept, of all tenants together; 8,192 to 16,777,216.
    #[serde(default = "capacity")]
    pub capacity: usize,
    /// The most memory for them, in bytes, keys included; at least 1 MiB.
    #[serde(default = "capacity_bytes")]
    pub capacity_bytes: usize,
    /// Tenants whose events are published on ZMQ, each at an endpoint of its own.
    #[serde(default)]
    pub zmq: Vec<ZmqConfig>,
}

/// How an event stands in a batch on ZMQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZmqSchema {
    /// As an array that begins with its name: what vLLM sent before its release of June 2026.
    /// Every router known to us reads it.
    #[default]
    Array,
    /// As a map with its name under `type`: what vLLM sends since.
    Map,
}

/// One endpoint: the events of one tenant in vLLM's schema, readable by whoever reaches it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZmqConfig {
    /// The tenant.
    pub tenant: TenantId,
    /// `ip:port` of the PUB socket. Port 0 takes a free one.
    pub addr: String,
    /// `ip:port` of the ROUTER socket that repeats batches; none without it.
    #[serde(default)]
    pub replay_addr: Option<String>,
    /// Whether the addresses may be others than loopback. The endpoint asks nobody for a
    /// credential: who reaches it reads hashes of the tenant's keys.
    #[serde(default)]
    pub beyond_loopback: bool,
    /// The first frame of each message; the tenant's id without it.
    #[serde(default)]
    pub topic: Option<String>,
    /// How an event stands in a batch.
    #[serde(default)]
    pub schema: ZmqSchema,
    /// What subscribers are told about where the blocks are.
    #[serde(default = "medium")]
    pub medium: String,
    /// The most messages that wait for one subscriber; what comes on top is dropped for it.
    #[serde(default = "high_water")]
    pub high_water: usize,
    /// The most batches that can be repeated.
    #[serde(default = "replay_batches")]
    pub replay_batches: usize,
}

/// What the peer holds back for its own stream.
const fn capacity() -> usize {
    65_536
}

/// About 500 bytes for each event of the default capacity.
const fn capacity_bytes() -> usize {
    32 << 20
}

/// How engines name a pool that is neither in the GPU nor in the memory of their own node.
fn medium() -> String {
    "EXTERNAL".to_owned()
}

const fn high_water() -> usize {
    1_000
}

/// As many as vLLM keeps.
const fn replay_batches() -> usize {
    10_000
}

impl EventsConfig {
    /// Checks what the types cannot.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        // A turn of the leader makes at most about 5,000 events: none may go before it is sent.
        if !(8_192..=1 << 24).contains(&self.capacity) {
            return refuse("events.capacity", "must be 8192 to 16777216");
        }
        if self.capacity_bytes < 1 << 20 {
            return refuse("events.capacity_bytes", "must be at least 1048576");
        }
        if self.zmq.len() > ENDPOINTS_MAX {
            return refuse("events.zmq", "must have at most 64 endpoints");
        }
        super::zmq::check_build(&self.zmq)?;
        let mut taken = std::collections::BTreeSet::new();
        for endpoint in &self.zmq {
            endpoint.check()?;
            let addrs = [Some(&endpoint.addr), endpoint.replay_addr.as_ref()];
            for addr in addrs.into_iter().flatten() {
                if !taken.insert(addr) && !addr.ends_with(":0") {
                    return refuse("events.zmq", "must give each socket an address of its own");
                }
            }
        }
        Ok(())
    }
}

impl ZmqConfig {
    fn check(&self) -> Result<(), ConfigError> {
        self.check_addr("events.zmq.addr", &self.addr)?;
        if let Some(addr) = &self.replay_addr {
            self.check_addr("events.zmq.replay_addr", addr)?;
        }
        if self.topic.as_ref().is_some_and(|topic| topic.len() > 255) {
            return refuse("events.zmq.topic", "must have at most 255 bytes");
        }
        if self.medium.is_empty() || self.medium.len() > 64 {
            return refuse("events.zmq.medium", "must have 1 to 64 bytes");
        }
        for (key, value) in [
            ("events.zmq.high_water", self.high_water),
            ("events.zmq.replay_batches", self.replay_batches),
        ] {
            if !(1..=100_000).contains(&value) {
                return refuse(key, "must be 1 to 100000");
            }
        }
        Ok(())
    }

    fn check_addr(&self, key: &'static str, addr: &str) -> Result<(), ConfigError> {
        let Ok(addr) = addr.parse::<SocketAddr>() else {
            return refuse(key, "must be ip:port, for example 127.0.0.1:5557");
        };
        if !addr.ip().is_loopback() && !self.beyond_loopback {
            return refuse(
                key,
                "is not a loopback address; whoever reaches it reads the tenant's events without \
                 a credential. Set `beyond_loopback` if that is meant",
            );
        }
        Ok(())
    }
}

fn refuse(key: &'static str, what: &str) -> Result<(), ConfigError> {
    Err(ConfigError::Value {
        key,
        what: what.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<EventsConfig, String> {
        let config: EventsConfig = serde_json::from_str(text).map_err(|error| error.to_string())?;
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn an_empty_part_switches_events_on_and_publishes_nothing() {
        let config = checked("{}").expect("valid");
        assert_eq!((config.capacity, config.capacity_bytes), (65_536, 32 << 20));
        assert!(config.zmq.is_empty());
    }

    #[test]
    fn an_endpoint_stays_on_loopback_unless_the_file_says_otherwise() {
        let endpoint =
            |extra: &str| format!(r#"{{"zmq":[{{"tenant":"a","addr":"0.0.0.0:5557"{extra}}}]}}"#);
        let error = checked(&endpoint("")).expect_err("open to all");
        assert!(
            error.contains("addr") && error.contains("beyond_loopback"),
            "{error}"
        );
        let config = checked(&endpoint(r#","beyond_loopback":true"#)).expect("meant");
        assert_eq!(config.zmq[0].schema, ZmqSchema::Array);
        assert_eq!(config.zmq[0].medium, "EXTERNAL");
        let replay = r#"{"zmq":[{"tenant":"a","addr":"127.0.0.1:1","replay_addr":"[::]:2"}]}"#;
        assert!(checked(replay).expect_err("open").contains("replay_addr"));
    }

    #[test]
    fn wrong_values_name_the_key() {
        let cases = [
            (r#"{"capacity":8191}"#, "events.capacity"),
            (r#"{"capacity_bytes":1000}"#, "events.capacity_bytes"),
            (
                r#"{"zmq":[{"tenant":"a","addr":"localhost:1"}]}"#,
                "ip:port",
            ),
            (
                r#"{"zmq":[{"tenant":"a","addr":"127.0.0.1:1","medium":""}]}"#,
                "medium",
            ),
            (
                r#"{"zmq":[{"tenant":"a","addr":"127.0.0.1:1","high_water":0}]}"#,
                "high_water",
            ),
            (
                r#"{"zmq":[{"tenant":"a","addr":"127.0.0.1:1","replay_addr":"127.0.0.1:1"}]}"#,
                "of its own",
            ),
            (
                r#"{"zmq":[{"tenant":"a","addr":"127.0.0.1:1","schema":"json"}]}"#,
                "json",
            ),
        ];
        for (text, expected) in cases {
            let error = checked(text).expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
        let free = r#"{"zmq":[{"tenant":"a","addr":"127.0.0.1:0","replay_addr":"127.0.0.1:0"}]}"#;
        checked(free).expect("free ports are not the same port");
    }
}
