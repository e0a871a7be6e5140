//! The cluster's network: one switch and router in the control plane, a cable to every node.
//!
//! There is no link to the machine's own network, so nothing can leave. Nodes know one way only,
//! to the control plane, and it routes to the pods: a node that comes or goes changes nothing on
//! the others. A packet to anywhere else is refused there, quickly, instead of being lost.

use std::net::Ipv4Addr;

use anyhow::{Result, bail};

use super::command::{feed, run};
use super::machine::{Machine, installed};

/// The control plane's address, that of the API server and of DNS.
pub(crate) const CONTROL_PLANE: Ipv4Addr = Ipv4Addr::new(10, 89, 0, 1);
/// All pods.
pub(crate) const PODS: &str = "10.90.0.0/16";
/// All Services.
pub(crate) const SERVICES: &str = "10.91.0.0/16";
/// The first address of [`SERVICES`], which Kubernetes gives to its API server.
pub(crate) const API_SERVICE: Ipv4Addr = Ipv4Addr::new(10, 91, 0, 1);
/// The most nodes: far below the last byte's range, and more than a machine can bear.
pub(crate) const NODES_MAX: u8 = 50;

const SWITCH: &str = "switch";
/// What nodes' addresses end with, less the node's number.
const NODE_OFFSET: u8 = 10;

/// A node's address.
pub(crate) fn node_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 89, 0, NODE_OFFSET + number)
}

/// The addresses of a node's pods.
pub(crate) fn pods_of(number: u8) -> String {
    format!("10.90.{number}.0/24")
}

/// Lays out the control plane's side.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn build(control_plane: &Machine<'_>) -> Result<()> {
    ip(
        control_plane,
        &[
            "link set lo up".to_owned(),
            format!("link add {SWITCH} type bridge"),
            format!("addr add {CONTROL_PLANE}/24 dev {SWITCH}"),
            format!("link set {SWITCH} up"),
        ],
    )
}

/// Plugs a booted node in.
///
/// # Errors
/// If the kernel refuses.
pub(crate) fn plug_in(control_plane: &Machine<'_>, node: &Machine<'_>, number: u8) -> Result<()> {
    if number == 0 || number > NODES_MAX {
        bail!("node {number} has no address; nodes are n1 to n{NODES_MAX}");
    }
    let (name, address, first) = (&node.name, node_address(number), node.running()?);
    unplug(control_plane, name)?;
    // A card that keeps its number over a reboot: the others' memory of it stays right.
    let card = format!("02:00:0a:59:00:{:02x}", NODE_OFFSET + number);
    ip(
        control_plane,
        &[
            format!("link add {name} type veth peer name eth0 address {card} netns {first}"),
            format!("link set {name} master {SWITCH} up"),
        ],
    )?;
    ip(
        node,
        &[
            "link set lo up".to_owned(),
            format!("addr add {address}/24 dev eth0"),
            "link set eth0 up".to_owned(),
            format!("route add default via {CONTROL_PLANE}"),
        ],
    )?;
    ip(
        control_plane,
        &[format!("route replace {} via {address}", pods_of(number))],
    )
}

/// Pulls a node's cable. The kernel does so too once a node has ended, but later.
///
/// # Errors
/// If the control plane does not run.
pub(crate) fn unplug(control_plane: &Machine<'_>, name: &str) -> Result<()> {
    let mut ip = control_plane.in_network()?;
    ip.arg(installed("ip")?).args(["link", "del", name]);
    // There may be none.
    let _ = run(&mut ip);
    Ok(())
}

fn ip(machine: &Machine<'_>, lines: &[String]) -> Result<()> {
    let text = lines.join("\n") + "\n";
    let mut ip = machine.in_network()?;
    ip.arg(installed("ip")?).args(["-batch", "-"]);
    feed(&mut ip, text.as_bytes()).map(drop)
}
