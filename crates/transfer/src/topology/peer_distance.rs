//! `/proc/driver/nvidia-fs/peer_distance`: how far GPUs are from NICs and disks, by the driver that
//! has to carry their data. Pure.

use std::collections::BTreeMap;

use super::distance::Distance;

/// There is no way.
const NO_WAY: u32 = 0xffff;
/// From here on a root port lies between.
const ROOT_PORT: u32 = 127;
/// From here on another NUMA node does.
const REMOTE_NODE: u32 = 254;

/// What the driver says of a GPU and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerDistance {
    /// Its measure of the way.
    pub p2p: u32,
    /// Its order of preference; the lower the better.
    pub rank: u32,
}

impl PeerDistance {
    /// The class of that distance.
    #[must_use]
    pub const fn distance(self) -> Distance {
        match self.p2p {
            NO_WAY.. => Distance::NoWay,
            REMOTE_NODE.. => Distance::System,
            ROOT_PORT.. => Distance::Node,
            _ => Distance::Switch,
        }
    }
}

/// Reads the table: by the PCI addresses of GPU and peer. Lines that are none of it are left out;
/// how many of those there were, the header not counted, comes with it.
#[must_use]
pub fn parse(text: &str) -> (BTreeMap<(String, String), PeerDistance>, usize) {
    let (mut found, mut odd) = (BTreeMap::new(), 0);
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match row(&mut words) {
            Some((key, row)) => drop(found.insert(key, row)),
            None if line.trim_start().starts_with("gpu") || line.trim().is_empty() => {}
            None => odd += 1,
        }
    }
    (found, odd)
}

fn row<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<((String, String), PeerDistance)> {
    let gpu = address(words.next()?)?;
    let peer = address(words.next()?)?;
    let rank = hex(words.next()?)?;
    let p2p = hex(words.next()?)?;
    // Link, generation, node, peer statistics and class: a line that ends before them was cut.
    (words.count() >= 5).then_some(((gpu, peer), PeerDistance { p2p, rank }))
}

/// As `0000:17:00.0`.
fn address(word: &str) -> Option<String> {
    let is_plain = word
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit() || b":.".contains(&byte));
    let parts = word.split([':', '.']).count();
    (is_plain && parts == 4 && word.len() >= 12).then(|| word.to_ascii_lowercase())
}

fn hex(word: &str) -> Option<u32> {
    u32::from_str_radix(word.strip_prefix("0x")?, 16).ok()
}
