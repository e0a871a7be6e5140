//! How the cache's memory is cut into segments: one for each NUMA node that has a part of it.

use crate::inventory::Inventory;
use crate::step::SegmentShape;

/// One segment and the processors from which its memory is near.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedSegment {
    /// Slabs and NUMA node.
    pub shape: SegmentShape,
    /// Threads that make its memory run here; empty = anywhere.
    pub cpus: Vec<u32>,
}

/// Spreads `slabs` evenly over the NUMA nodes that have memory and processors; with fewer than
/// two of those, all slabs are one segment and nothing is bound to a node.
#[must_use]
pub fn plan(inventory: &Inventory, slabs: u32) -> Vec<PlannedSegment> {
    let nodes = inventory.numa.as_deref().unwrap_or_default();
    let mut homes: Vec<_> = nodes
        .iter()
        .filter(|node| node.memory_bytes > 0 && !node.cpus.is_empty())
        .collect();
    homes.truncate(larder_wire::limit::MAX_SEGMENTS);
    if homes.len() < 2 {
        let numa = homes.first().map_or(0, |node| node.id);
        return vec![PlannedSegment {
            shape: SegmentShape { slabs, numa },
            cpus: Vec::new(),
        }];
    }
    // At most MAX_SEGMENTS, so it fits.
    let count = u32::try_from(homes.len()).unwrap_or(1);
    let (each, more) = (slabs / count, slabs % count);
    let segments = (0..).zip(homes).map(|(at, node)| PlannedSegment {
        shape: SegmentShape {
            slabs: each + u32::from(at < more),
            numa: node.id,
        },
        cpus: node.cpus.clone(),
    });
    segments.filter(|segment| segment.shape.slabs > 0).collect()
}
