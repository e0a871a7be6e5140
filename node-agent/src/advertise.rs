//! Which address others are told, and refusing one that they cannot reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// Why an address cannot be told to others.
#[derive(Debug, thiserror::Error)]
pub enum AdvertiseError {
    /// Others cannot reach it.
    #[error(
        "clients on other nodes cannot reach {addr}: it is {what}; set advertise_addr (or \
         --advertise-addr) to this node's address, or single_node to true if the whole pool is on \
         this machine"
    )]
    Unreachable {
        /// The address as it would be told.
        addr: String,
        /// What kind of address it is.
        what: &'static str,
    },
    /// The name does not resolve here.
    #[error(
        "advertise_addr: the name {host} does not resolve on this node; set it to an address or a \
         name that all nodes know"
    )]
    Resolve {
        /// The name.
        host: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// It is no host with or without a port.
    #[error("advertise_addr: `{0}` is not host, host:port or [address]:port")]
    Malformed(String),
}

/// The `host:port` to tell others, from the configured address and what the listener is bound to.
///
/// Blocks while a name is resolved; call it before the threads start.
///
/// # Errors
/// [`AdvertiseError`].
pub fn advertised(
    configured: Option<&str>,
    bound: SocketAddr,
    single_node: bool,
) -> Result<String, AdvertiseError> {
    let Some(text) = configured else {
        return of_address(bound, single_node);
    };
    let (host, port) = split(text)?;
    let port = if port == 0 { bound.port() } else { port };
    if let Ok(ip) = host.parse::<IpAddr>() {
        return of_address(SocketAddr::new(ip, port), single_node);
    }
    let resolved = (host, port).to_socket_addrs();
    let addresses: Vec<SocketAddr> = resolved
        .map_err(|source| AdvertiseError::Resolve {
            host: host.to_owned(),
            source,
        })?
        .collect();
    // A client takes any of a name's addresses, so one bad is enough.
    for address in &addresses {
        if let (Some(what), false) = (unreachable_kind(address.ip()), single_node) {
            return Err(AdvertiseError::Unreachable {
                addr: format!("{host} ({address})"),
                what,
            });
        }
    }
    Ok(format!("{host}:{port}"))
}

fn of_address(addr: SocketAddr, single_node: bool) -> Result<String, AdvertiseError> {
    match unreachable_kind(addr.ip()) {
        None => Ok(addr.to_string()),
        Some(_) if single_node => Ok(reachable_here(addr).to_string()),
        Some(what) => Err(AdvertiseError::Unreachable {
            addr: addr.to_string(),
            what,
        }),
    }
}

/// On one machine, what is bound to all addresses is reached by loopback.
fn reachable_here(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

fn unreachable_kind(ip: IpAddr) -> Option<&'static str> {
    let ip = ip.to_canonical();
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    match ip {
        ip if ip.is_loopback() => Some("a loopback address"),
        ip if ip.is_unspecified() => Some("not the address of one host"),
        ip if ip.is_multicast() => Some("a multicast address"),
        _ if link_local => Some("a link-local address"),
        _ => None,
    }
}

/// Splits `host`, `host:port`, `[v6]` or `[v6]:port`; a missing port is 0.
fn split(text: &str) -> Result<(&str, u16), AdvertiseError> {
    let malformed = || AdvertiseError::Malformed(text.to_owned());
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, 0));
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(malformed)?;
            (
                host,
                if port.is_empty() { ":0" } else { port }.strip_prefix(':'),
            )
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, Some("0")),
        },
    };
    let port = port
        .and_then(|port| port.parse().ok())
        .ok_or_else(malformed)?;
    let is_name = !host.is_empty() && !host.contains(|c: char| c.is_whitespace() || c == '/');
    if is_name {
        Ok((host, port))
    } else {
        Err(malformed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn b14_addresses_that_others_cannot_reach_are_refused() {
        let free = bound("10.0.0.1:4000");
        for text in [
            "127.0.0.1",
            "127.9.9.9:1",
            "0.0.0.0:1",
            "169.254.1.1:1",
            "::1",
            "[::1]:1",
            "[::]:1",
            "[fe80::1]:1",
            "[::ffff:127.0.0.1]:1",
            "224.0.0.1:1",
            "255.255.255.255:1",
            "localhost:1",
        ] {
            let error = advertised(Some(text), free, false)
                .expect_err(text)
                .to_string();
            assert!(
                error.contains("advertise_addr") && error.contains("single_node"),
                "{error}"
            );
        }
        let error = advertised(None, bound("0.0.0.0:7"), false).expect_err("unspecified");
        assert!(matches!(error, AdvertiseError::Unreachable { .. }));
    }

    #[test]
    fn one_machine_may_talk_to_itself() {
        let told = |text, addr| advertised(text, bound(addr), true).expect("allowed");
        assert_eq!(told(None, "127.0.0.1:7"), "127.0.0.1:7");
        assert_eq!(told(None, "0.0.0.0:7"), "127.0.0.1:7");
        assert_eq!(told(None, "[::]:7"), "[::1]:7");
        assert_eq!(told(Some("localhost"), "0.0.0.0:7"), "localhost:7");
    }

    #[test]
    fn the_port_comes_from_the_listener_unless_given() {
        let told = |text| advertised(Some(text), bound("0.0.0.0:7"), false).expect("reachable");
        assert_eq!(told("192.0.2.1"), "192.0.2.1:7");
        assert_eq!(told("192.0.2.1:0"), "192.0.2.1:7");
        assert_eq!(told("192.0.2.1:9"), "192.0.2.1:9");
        assert_eq!(told("2001:db8::1"), "[2001:db8::1]:7");
        assert_eq!(told("[2001:db8::1]"), "[2001:db8::1]:7");
        assert_eq!(told("[2001:db8::1]:9"), "[2001:db8::1]:9");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", ":1", "a:b", "a:70000", "[::1", "[::1]x", "a b", "a/b:1"] {
            let error = advertised(Some(text), bound("0.0.0.0:7"), true).expect_err(text);
            assert!(
                matches!(error, AdvertiseError::Malformed(_)),
                "{text}: {error}"
            );
        }
    }
}
