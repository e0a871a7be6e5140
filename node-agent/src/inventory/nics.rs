//! Network interfaces: which carry data, how fast, on which NUMA node, and which belong together.

use super::{Lack, SystemRoot};

const FOLDER: &str = "sys/class/net";
/// `ARPHRD_LOOPBACK` of the kernel.
const LOOPBACK: u32 = 772;

/// What kind of interface it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NicKind {
    /// A device stands behind it.
    Physical,
    /// Several interfaces that act as one.
    Bond,
    /// This machine talking to itself.
    Loopback,
    /// Made by software: bridges, tunnels, pairs of containers.
    Virtual,
}

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: NicKind,
    /// Whether it carries data now.
    pub up: bool,
    /// Its speed, where it tells one, in megabits per second. Of a bond: of its members that are
    /// up together.
    pub speed_mbps: Option<u64>,
    /// The largest packet, in bytes; 0 if unknown.
    pub mtu_bytes: u32,
    /// The NUMA node of its device, if it tells one.
    pub numa: Option<u16>,
    /// Of a bond: its members.
    pub members: Vec<String>,
}

/// Reads all interfaces by name.
///
/// # Errors
/// [`Lack`] if the folder cannot be read.
pub fn read(root: &SystemRoot) -> Result<Vec<Nic>, Lack> {
    let names = root.names(FOLDER)?;
    // `bonding_masters` is a file among the folders.
    let is_nic = |name: &&String| root.has(&format!("{FOLDER}/{name}/type"));
    let mut nics: Vec<Nic> = names
        .iter()
        .filter(is_nic)
        .map(|name| nic(root, name))
        .collect();
    let speeds: Vec<(String, u64)> = nics
        .iter()
        .filter(|nic| nic.up)
        .filter_map(|nic| Some((nic.name.clone(), nic.speed_mbps?)))
        .collect();
    for bond in nics.iter_mut().filter(|nic| nic.kind == NicKind::Bond) {
        let member_speeds = speeds
            .iter()
            .filter(|(name, _)| bond.members.contains(name));
        let sum = member_speeds.fold(0, |sum: u64, (_, mbps)| sum.saturating_add(*mbps));
        bond.speed_mbps = bond.speed_mbps.or((sum > 0).then_some(sum));
    }
    Ok(nics)
}

fn nic(root: &SystemRoot, name: &str) -> Nic {
    let path = |file: &str| format!("{FOLDER}/{name}/{file}");
    let members = root.text(&path("bonding/slaves")).unwrap_or_default();
    let kind = if root.value::<u32>(&path("type")) == Ok(LOOPBACK) {
        NicKind::Loopback
    } else if root.has(&path("bonding")) {
        NicKind::Bond
    } else if root.has(&path("device")) {
        NicKind::Physical
    } else {
        NicKind::Virtual
    };
    Nic {
        name: name.to_owned(),
        kind,
        // A loopback says `unknown`, since it has no carrier.
        up: kind == NicKind::Loopback
            || root
                .text(&path("operstate"))
                .is_ok_and(|state| state.trim() == "up"),
        // -1 where the speed is not known.
        speed_mbps: root
            .value::<i64>(&path("speed"))
            .ok()
            .and_then(|mbps| u64::try_from(mbps).ok())
            .filter(|mbps| *mbps > 0),
        mtu_bytes: root.value(&path("mtu")).unwrap_or(0),
        numa: numa_of(root, &path("device/numa_node")),
        members: members.split_whitespace().map(str::to_owned).collect(),
    }
}

/// The NUMA node of a device; -1 in the file means that it has none.
pub(super) fn numa_of(root: &SystemRoot, path: &str) -> Option<u16> {
    u16::try_from(root.value::<i32>(path).ok()?).ok()
}
