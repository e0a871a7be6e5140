//! The ports of an agent: bound before anything runs, so that what is taken is said at once.

use std::net::{SocketAddr, TcpListener, ToSocketAddrs};

use crate::config::Config;
use crate::error::AgentError;

/// What an agent listens on.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) data: TcpListener,
    pub(crate) data_addr: SocketAddr,
    pub(crate) metrics: TcpListener,
    pub(crate) metrics_addr: SocketAddr,
}

/// Binds both ports.
pub(crate) fn listen(config: &Config) -> Result<Listeners, AgentError> {
    let (data, data_addr) = bind("data_addr", &config.data_addr)?;
    let (metrics, metrics_addr) = bind("metrics_addr", &config.metrics_addr)?;
    Ok(Listeners {
        data,
        data_addr,
        metrics,
        metrics_addr,
    })
}

fn bind(key: &'static str, addr: &str) -> Result<(TcpListener, SocketAddr), AgentError> {
    let bound = addr.to_socket_addrs().and_then(|addresses| {
        let addresses: Vec<SocketAddr> = addresses.collect();
        let listener = TcpListener::bind(&addresses[..])?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    });
    bound.map_err(|source| AgentError::Bind {
        key,
        addr: addr.to_owned(),
        source,
    })
}
