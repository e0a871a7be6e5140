//! Spans: ranges of a slab in whole units, as space is given and freed.

use larder_types::Extent;
use larder_types::layout::{SMALL_ALIGN_BYTES, align_bytes, reserved_bytes};

/// Bytes `start..end` of a slab; multiples of 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    /// What an extent takes from its slab; `None` if it is empty, not aligned or not within.
    pub(super) fn of(extent: &Extent, slab_bytes: u64) -> Option<Self> {
        let length = extent.length_bytes;
        let end = extent.offset_bytes.checked_add(reserved_bytes(length)?)?;
        let fits = length > 0
            && extent.offset_bytes.is_multiple_of(align_bytes(length))
            && end <= slab_bytes;
        fits.then_some(Self {
            start: extent.offset_bytes,
            end,
        })
    }

    /// Every unit that an extent touches, whatever its alignment; `None` if that is none. For
    /// erasing, where too much is better than too little.
    pub(super) fn around(extent: &Extent, slab_bytes: u64) -> Option<Self> {
        let wanted = extent.length_bytes;
        let end = extent
            .offset_bytes
            .saturating_add(reserved_bytes(wanted).unwrap_or(wanted));
        let start = extent.offset_bytes - extent.offset_bytes % SMALL_ALIGN_BYTES;
        let end = end
            .checked_next_multiple_of(SMALL_ALIGN_BYTES)
            .unwrap_or(u64::MAX);
        let end = end.min(slab_bytes);
        (wanted > 0 && start < end).then_some(Self { start, end })
    }

    pub(super) const fn bytes(self) -> u64 {
        self.end - self.start
    }
}
