//! What was given up and is not yet erased: discarded puts and copies that nobody wants.

use std::collections::BTreeMap;

use larder_types::{Extent, TenantId, Version};

use super::Overlay;
use crate::effects::{Discard, Effects};
use crate::reply::WaitOn;
use crate::segment::{SlabKey, slab_key};

/// A put or copies of a version that were given up and are not yet erased everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Discarded {
    pub(crate) tenant: TenantId,
    pub(crate) extents: Vec<Extent>,
    /// Why the put was given up; `None` if these are copies of an object.
    pub(crate) cause: Option<Discard>,
}

impl Overlay {
    /// Gives a pending put up: its charge falls at once, its agents are told to erase it, and its
    /// extents come back when they say so. Whether there is anything to erase.
    pub(crate) fn discard(
        &mut self,
        version: Version,
        cause: Discard,
        effects: &mut Effects,
    ) -> bool {
        let Some((tenant, put)) = self.close(version) else {
            return false;
        };
        effects.discards.count(cause);
        let extents: Vec<Extent> = put
            .replicas
            .into_iter()
            .flatten()
            .filter(|extent| !self.segments_lost.contains(&extent.slab.segment))
            .collect();
        extents
            .iter()
            .for_each(|extent| effects.erase(*extent, version));
        if extents.is_empty() {
            effects.wake(WaitOn::Erased(version));
            return false;
        }
        self.discarded.insert(
            version,
            Discarded {
                tenant,
                extents,
                cause: Some(cause),
            },
        );
        true
    }

    /// Has extents of a copy erased that nobody wants any more.
    pub(crate) fn give_up(
        &mut self,
        version: Version,
        tenant: &TenantId,
        extents: Vec<Extent>,
        effects: &mut Effects,
    ) {
        let left: Vec<Extent> = extents
            .into_iter()
            .filter(|extent| !self.segments_lost.contains(&extent.slab.segment))
            .collect();
        if left.is_empty() {
            return;
        }
        left.iter()
            .for_each(|extent| effects.erase(*extent, version));
        // More than one copy of a version may be given up at once.
        let new = || Discarded {
            tenant: tenant.clone(),
            extents: Vec::new(),
            cause: None,
        };
        let discarded = self.discarded.entry(version).or_insert_with(new);
        discarded.extents.extend(left);
    }

    /// Notes that an agent erased an extent of a discarded put; whether it was one.
    pub(crate) fn release_discarded(
        &mut self,
        extent: &Extent,
        version: Version,
        effects: &mut Effects,
    ) -> bool {
        let Some(discarded) = self.discarded.get_mut(&version) else {
            return false;
        };
        let Some(at) = discarded.extents.iter().position(|held| held == extent) else {
            return false;
        };
        discarded.extents.swap_remove(at);
        if discarded.extents.is_empty() {
            self.discarded.remove(&version);
            effects.wake(WaitOn::Erased(version));
        }
        effects.wake(WaitOn::Space);
        true
    }

    /// Bytes of discarded puts that wait for their agent, by slab.
    pub(crate) fn discarded_bytes(&self) -> BTreeMap<SlabKey, u64> {
        let mut bytes = BTreeMap::new();
        for extent in self
            .discarded
            .values()
            .flat_map(|discarded| &discarded.extents)
        {
            let aligned = larder_types::layout::reserved_bytes(extent.length_bytes).unwrap_or(0);
            *bytes.entry(slab_key(extent.slab)).or_insert(0u64) += aligned;
        }
        bytes
    }
}
