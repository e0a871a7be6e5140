//! One slab in one life: its memory, its table, what holds it and what waits for that to end.

use std::collections::BTreeSet;
use std::sync::Arc;

use larder_types::{Extent, SlabRef, TenantId, Version};

use super::hold::HeldSpans;
use super::range::Span;
use super::table::RecordTable;
use crate::memory::SlabMemory;

/// A slab whose memory is here.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) reference: SlabRef,
    pub(super) tenant: TenantId,
    pub(super) memory: Arc<SlabMemory>,
    /// `None` once access has ended: only holds are left.
    pub(super) table: Option<RecordTable>,
    pub(super) held: HeldSpans,
    /// No version up to this one may be written: what was erased before the slab was there.
    pub(super) floor: Option<Version>,
    /// Whether the master waits to hear that the memory is gone.
    pub(super) tell_returned: bool,
    /// Erased, but held. Bound: one for each erase command about a range that is held.
    waiting: BTreeSet<(Extent, Version)>,
}

impl Slab {
    pub(super) const fn new(
        reference: SlabRef,
        tenant: TenantId,
        memory: Arc<SlabMemory>,
        table: RecordTable,
        floor: Option<Version>,
    ) -> Self {
        Self {
            reference,
            tenant,
            memory,
            table: Some(table),
            held: HeldSpans::new(),
            floor,
            tell_returned: false,
            waiting: BTreeSet::new(),
        }
    }

    pub(super) fn span(&self, extent: &Extent) -> Option<Span> {
        Span::of(extent, self.memory.bytes())
    }

    /// Whether anything holds a byte of what an erasure of `extent` covers.
    pub(super) fn holds(&self, extent: &Extent) -> bool {
        Span::around(extent, self.memory.bytes()).is_some_and(|span| self.held.overlaps(span))
    }

    /// Notes that `version` in `extent` waits for the last hold.
    pub(super) fn wait_for_release(&mut self, extent: Extent, version: Version) {
        self.waiting.insert((extent, version));
    }

    /// Takes what nothing holds any more.
    pub(super) fn take_released(&mut self) -> Vec<(Extent, Version)> {
        let waiting = std::mem::take(&mut self.waiting);
        let (held, free): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|(extent, _)| self.holds(extent));
        self.waiting = held.into_iter().collect();
        free
    }

    /// The first extent that starts at `offset_bytes` or behind, is erased and still held. Of
    /// several that start at the same byte the shortest.
    pub(super) fn waiting_from(&self, offset_bytes: u64) -> Option<(Extent, Version)> {
        let lowest = Extent {
            slab: self.reference,
            offset_bytes,
            length_bytes: 0,
        };
        let from = (lowest, Version::default());
        self.waiting.range(from..).next().copied()
    }

    /// Nobody wants to hear about this slab any more.
    pub(super) fn forget_waiters(&mut self) {
        self.waiting.clear();
        self.tell_returned = false;
    }

    /// Length of all extents that are erased, but held, in bytes.
    pub(super) fn waiting_bytes(&self) -> u64 {
        let lengths = self.waiting.iter().map(|(extent, _)| extent.length_bytes);
        lengths.fold(0, u64::saturating_add)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}
