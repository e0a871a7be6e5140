//! Stands for the sockets of cache events in a build without the feature `zmq`.

use std::io;
use std::net::SocketAddr;

use larder_telemetry::Registry;
use larder_types::TenantId;

use super::config::ZmqConfig;
use super::log::EventLog;
use crate::config::ConfigError;

/// Where the sockets of one tenant are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ZmqAddrs {
    pub(crate) tenant: TenantId,
    pub(crate) addr: SocketAddr,
    pub(crate) replay_addr: Option<SocketAddr>,
}

/// Why a socket cannot be bound: its key, its address and the reason.
pub(crate) type BindError = (&'static str, String, io::Error);

/// No endpoints.
#[derive(Debug, Default)]
pub(crate) struct Sockets;

/// Whether this build can publish what is configured.
///
/// # Errors
/// [`ConfigError::Value`]: it cannot.
pub(crate) fn check_build(configs: &[ZmqConfig]) -> Result<(), ConfigError> {
    if configs.is_empty() {
        return Ok(());
    }
    Err(ConfigError::Value {
        key: "events.zmq",
        what: "needs a master that was built with the feature `zmq`; use the one of the image"
            .to_owned(),
    })
}

impl Sockets {
    /// There is nothing to bind.
    #[expect(
        clippy::unused_async,
        reason = "it has the shape of the one that binds"
    )]
    pub(crate) async fn bind(_: &[ZmqConfig]) -> Result<Self, BindError> {
        Ok(Self)
    }

    /// They are nowhere.
    pub(crate) const fn addrs(&self) -> Vec<ZmqAddrs> {
        Vec::new()
    }

    /// Starts nothing.
    pub(crate) const fn start(self, _: &Registry) -> Feeds {
        Feeds
    }
}

/// The ways to no endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Feeds;

impl Feeds {
    /// Nobody is told.
    pub(crate) const fn begin(&mut self) {}

    /// Nobody is told.
    pub(crate) const fn publish(&mut self, _: &TenantId, _: &EventLog, _: &Registry) {}

    /// Nobody is told.
    pub(crate) const fn restart(&mut self, _: &TenantId) {}

    /// No tenant is published.
    pub(crate) const fn subscribers(&self, _: &TenantId) -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_zmq_says_so() {
        let text = r#"[{"tenant":"a","addr":"127.0.0.1:1"}]"#;
        let configs: Vec<ZmqConfig> = serde_json::from_str(text).expect("valid");
        let error = check_build(&configs).expect_err("not built").to_string();
        assert!(
            error.contains("events.zmq") && error.contains("`zmq`"),
            "{error}"
        );
        assert!(check_build(&[]).is_ok());
    }
}
