//! NUMA nodes: which processors and how much memory each has.

use super::{Lack, SystemRoot};

const FOLDER: &str = "sys/devices/system/node";
/// The highest processor number that is believed: four times what kernels are built for.
const CPU_MAX: u32 = 32_768;

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number.
    pub id: u16,
    /// Its processors, in order; empty for a node of memory only.
    pub cpus: Vec<u32>,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// Its free memory, in bytes.
    pub free_bytes: u64,
}

/// Reads all nodes; those that cannot be read are left out.
///
/// # Errors
/// [`Lack`] if no node can be read.
pub fn read(root: &SystemRoot) -> Result<Vec<NumaNode>, Lack> {
    let mut nodes = Vec::new();
    let mut lack = Lack::Garbage {
        path: FOLDER.to_owned(),
        wanted: "a NUMA node",
    };
    for name in root.names(FOLDER)? {
        let Some(id) = name.strip_prefix("node").and_then(|id| id.parse().ok()) else {
            continue;
        };
        match node(root, id) {
            Ok(node) => nodes.push(node),
            Err(missing) => lack = missing,
        }
    }
    nodes.sort_by_key(|node| node.id);
    if nodes.is_empty() {
        Err(lack)
    } else {
        Ok(nodes)
    }
}

fn node(root: &SystemRoot, id: u16) -> Result<NumaNode, Lack> {
    let meminfo = format!("{FOLDER}/node{id}/meminfo");
    let kib = |name| root.field(&meminfo, name, "the memory of the node");
    Ok(NumaNode {
        id,
        cpus: cpu_list(root, &format!("{FOLDER}/node{id}/cpulist"))?,
        memory_bytes: kib("MemTotal")?.saturating_mul(1024),
        free_bytes: kib("MemFree").unwrap_or(0).saturating_mul(1024),
    })
}

/// Reads a list as in `0-3,8,10-11`.
fn cpu_list(root: &SystemRoot, path: &str) -> Result<Vec<u32>, Lack> {
    let text = root.text(path)?;
    let list = text.trim();
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let garbage = || Lack::Garbage {
        path: path.to_owned(),
        wanted: "a list of processors",
    };
    let mut cpus = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<u32>(), last.trim().parse::<u32>()) {
            (Ok(first), Ok(last)) if first <= last && last <= CPU_MAX => cpus.extend(first..=last),
            _ => return Err(garbage()),
        }
        // The same range again and again: no kernel writes that.
        if cpus.len() > CPU_MAX as usize + 1 {
            return Err(garbage());
        }
    }
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}
