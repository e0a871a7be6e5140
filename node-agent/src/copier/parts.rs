//! The extents of an order: what they make up, and which of them holds which byte.

use larder_types::Extent;
use larder_types::layout::BLOCK_BYTES;
use larder_wire::SignedCapability;

/// Whether these extents are an object of that size. What is written may be cut otherwise than
/// what is read, but block checksums of parts are those of the object only where parts end at
/// blocks.
pub(super) fn make_up(parts: &[(Extent, SignedCapability)], size_bytes: u64) -> bool {
    let lengths = parts.iter().map(|(extent, _)| extent.length_bytes);
    let sum = lengths.clone().try_fold(0, u64::checked_add);
    let mut whole = lengths.rev().skip(1);
    !parts.is_empty()
        && sum == Some(size_bytes)
        && whole.all(|bytes| bytes.is_multiple_of(BLOCK_BYTES))
}

/// The extent that holds this byte of an object, and where in it.
pub(super) fn part_at(
    parts: &[(Extent, SignedCapability)],
    at_bytes: u64,
) -> Option<(&(Extent, SignedCapability), u64)> {
    let mut left_bytes = at_bytes;
    for part in parts {
        if left_bytes < part.0.length_bytes {
            return Some((part, left_bytes));
        }
        left_bytes -= part.0.length_bytes;
    }
    None
}
