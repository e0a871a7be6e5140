//! The ports of an agent: bound before anything runs, so that what is taken is said at once.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

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
    let is_v6 = config.advertise_addr.as_deref().is_some_and(is_v6);
    let (data, data_addr) = bind("data_addr", &config.data_addr, is_v6)?;
    let (metrics, metrics_addr) = bind("metrics_addr", &config.metrics_addr, is_v6)?;
    Ok(Listeners {
        data,
        data_addr,
        metrics,
        metrics_addr,
    })
}

/// Whether it is an IPv6 address, with or without a port. One file serves all pods of a pool, and
/// only the pod's own address tells which kind they have.
fn is_v6(advertised: &str) -> bool {
    advertised.parse::<Ipv6Addr>().is_ok() || advertised.starts_with('[')
}

/// All addresses of this machine mean those of IPv6 too, where the agent is reached by one.
fn widened(addr: SocketAddr) -> SocketAddr {
    if addr.ip() == Ipv4Addr::UNSPECIFIED {
        SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), addr.port())
    } else {
        addr
    }
}

fn bind(
    key: &'static str,
    addr: &str,
    is_v6: bool,
) -> Result<(TcpListener, SocketAddr), AgentError> {
    let bound = addr.to_socket_addrs().and_then(|addresses| {
        let widen = |addr| if is_v6 { widened(addr) } else { addr };
        let addresses: Vec<SocketAddr> = addresses.map(widen).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_include_those_by_which_the_agent_is_reached() {
        for v6 in ["fd00::7", "[fd00::7]", "[fd00::7]:7410"] {
            assert!(is_v6(v6), "{v6}");
        }
        for other in ["10.0.0.1", "10.0.0.1:7410", "node-1", "node-1:7410"] {
            assert!(!is_v6(other), "{other}");
        }
        let bound = |addr| bind("data_addr", addr, true).map(|(_, bound)| bound.ip());
        match bound("0.0.0.0:0") {
            Ok(ip) => assert_eq!(ip, Ipv6Addr::UNSPECIFIED),
            Err(error) => println!("skipped: this machine has no IPv6 ({error})"),
        }
        let ip = bound("127.0.0.1:0").expect("bound");
        assert_eq!(
            ip,
            Ipv4Addr::LOCALHOST,
            "what is not all addresses is left alone"
        );
    }
}
